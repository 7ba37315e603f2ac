"""A round of 50 MNIST-size clients beside the bare training loops of the same samples.

Fixed: ``mnist-cnn``, client sizes from 10 to 500, 3 epochs, batch 64, Adam, 10,000 test examples, two
processes of one thread. Pixels are random; they cost what real ones cost. The bare loops are what one
would write by hand for speed: tensors made beforehand, channels last, fused Adam, freed memory kept, clients
dealt out to two processes evenly. No update is collected, nothing is judged, nothing is evaluated. The target is for
CPU seconds, since the machine may be busy.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch
from benchmarks.timing import best_of, cpu_of_all, report
from numpy.typing import NDArray
from torch import Tensor, nn

from mabrfl import Defense
from mabrfl.mab.paper import MabRflRule
from mabrfl.rng import generator
from mabrfl.simulation.data import Dataset
from mabrfl.simulation.simulator import Simulation
from mabrfl.simulation.training import MODELS, initialise
from mabrfl.simulation.training.workers import keep_freed_memory

CLIENTS, PROCESSES, REPEATS, TARGET = 50, 2, 3, 1.15
BARE, TRAINING, ROUND = "bare loops", "train", "whole round"


def network() -> nn.Module:
    """Return the paper-size MNIST network with its initial weights."""
    return initialise(MODELS["mnist-cnn"]((1, 28, 28), 10))


def federation() -> tuple[Dataset, list[NDArray[np.int64]]]:
    """Return random images and 50 clients' shares of them."""
    rng = generator(0, "benchmark")
    sizes = rng.integers(10, 501, CLIENTS)

    def images(count: int) -> NDArray[Any]:
        return rng.integers(0, 256, (count, 1, 28, 28), dtype=np.uint8)

    def labels(count: int) -> NDArray[Any]:
        return rng.integers(0, 10, count)

    total = int(sizes.sum())
    dataset = Dataset("random pixels", images(total), labels(total), images(10_000), labels(10_000), 10)
    return dataset, np.split(np.arange(total), np.cumsum(sizes)[:-1])


def deal(partition: Sequence[NDArray[np.int64]]) -> list[list[NDArray[np.int64]]]:
    """Deal the clients out evenly: the longest first, each to the process with the least so far."""
    hands: list[list[NDArray[np.int64]]] = [[] for _ in range(PROCESSES)]
    for indices in sorted(partition, key=len, reverse=True):
        min(hands, key=lambda hand: sum(map(len, hand))).append(indices)
    return hands


def train_bare(model: nn.Module, inputs: Tensor, labels: Tensor) -> None:
    """Train on one client's data, as plainly and as fast as PyTorch lets one."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    for _ in range(3):
        for chosen in torch.split(torch.randperm(len(inputs)), 64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs[chosen]), labels[chosen]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()


def serve(connection: Connection, dataset: Dataset, hand: Sequence[NDArray[np.int64]]) -> None:
    """Train these clients, one after the other, whenever asked to."""
    torch.set_num_threads(1)
    keep_freed_memory()  # without it, some processes spend a third of their time on page faults, and others none
    model = network().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    initial = {name: value.clone() for name, value in model.state_dict().items()}
    clients = [
        (
            torch.from_numpy(dataset.train_inputs[indices]).float().div(255).to(memory_format=torch.channels_last),
            torch.from_numpy(dataset.train_labels[indices]),
        )
        for indices in hand
    ]
    connection.send("ready")
    while connection.recv():
        for inputs, labels in clients:
            model.load_state_dict(initial)
            train_bare(model, inputs, labels)
        connection.send("done")


def start_bare(dataset: Dataset, partition: Sequence[NDArray[np.int64]]) -> Callable[[], None]:
    """Start the processes with the bare loops; return what runs them once."""
    context: Any = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    connections = []
    for hand in deal(partition):
        ours, theirs = context.Pipe()
        context.Process(target=serve, args=(theirs, dataset, hand), daemon=True).start()
        ours.recv()
        connections.append(ours)

    def run() -> None:
        for connection in connections:
            connection.send(True)
        for connection in connections:
            connection.recv()

    return run


def main() -> bool:
    """Measure, print, and return whether the target is met."""
    dataset, partition = federation()
    bare = start_bare(dataset, partition)
    with Simulation(
        dataset=dataset,
        model=network,
        partition=partition,
        defense=Defense(MabRflRule()),
        rounds=1 + 2 * REPEATS,
        workers=PROCESSES,
    ) as simulation:
        rounds, training = simulation.run(), []
        next(rounds)  # both sides have made their kernels before the clock starts
        bare()
        candidates = {BARE: bare, ROUND: lambda: training.append(next(rounds).seconds["train"])}
        seconds = best_of(candidates, REPEATS)
        cpu = best_of(candidates, REPEATS, cpu_of_all)
    samples = 3 * sum(map(len, partition))
    print(f"\n{samples:,} samples; bare loops: {samples / seconds[BARE] / PROCESSES:,.0f} samples/s and process")
    times = {BARE: seconds[BARE], TRAINING: min(training), ROUND: seconds[ROUND]}
    title = f"A round of {CLIENTS} MNIST-size clients, {PROCESSES} processes, best of {REPEATS}"
    report(title, times, base=BARE, targets={})
    return report("The same, CPU time of all processes", cpu, base=BARE, targets={ROUND: TARGET})


if __name__ == "__main__":
    sys.exit(not main())
