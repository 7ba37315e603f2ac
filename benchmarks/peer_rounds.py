"""Rounds of federated averaging by one framework, in a process of its own.

Prints a line after each round and waits for one, for benchmarks/peers.py. All do the same work: the same networks and
random pixels, 50 clients of one size, plain SGD, every client in every round, one thread, no evaluation.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mabrfl.simulation.training import MODELS, initialise

CLIENTS, RATE, CLASSES = 50, 0.01, 10


@dataclass(frozen=True)
class Work:
    """What a client does in a round."""

    model: str
    shape: tuple[int, int, int]
    examples: int
    epochs: int
    batch: int


WORKS = {
    "mnist": Work("mnist-cnn", (1, 28, 28), examples=250, epochs=1, batch=64),
    "digits": Work("mlp", (1, 8, 8), examples=70, epochs=3, batch=16),
}


def network(work: Work) -> nn.Module:
    """Return the network with its initial weights."""
    return initialise(MODELS[work.model](work.shape, CLASSES))


def pixels(work: Work) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the images and labels of all clients, one after the other."""
    rng = np.random.default_rng(0)
    count = CLIENTS * work.examples
    return rng.integers(0, 256, (count, *work.shape), dtype=np.uint8), rng.integers(0, CLASSES, count)


@cache
def clients(work: Work) -> list[tuple[Tensor, Tensor]]:
    """Return the same as tensors, by client."""
    images, labels = pixels(work)
    inputs = torch.from_numpy(images).float().div(255)
    parts = (torch.split(all_of, work.examples) for all_of in (inputs, torch.from_numpy(labels)))
    return list(zip(*parts, strict=True))


def done() -> None:
    """Say that a round is done, and wait until that was measured."""
    print("round", flush=True, file=sys.__stdout__)  # some frameworks take sys.stdout for themselves
    sys.stdin.readline()


def train(model: nn.Module, work: Work, inputs: Tensor, labels: Tensor, *, fused: bool = False) -> None:
    """Train on one client's data."""
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, fused=fused)
    for _ in range(work.epochs):
        for chosen in torch.split(torch.randperm(len(inputs)), work.batch):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs[chosen]), labels[chosen]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()


def loop(work: Work, rounds: int, *, tuned: bool = False) -> None:
    """Run a plain loop as one would write it by hand; tuned: channels last, fused SGD."""
    layout = torch.channels_last if tuned else torch.contiguous_format
    model = network(work).to(memory_format=layout)  # type: ignore[call-overload]
    data = [(inputs.to(memory_format=layout), labels) for inputs, labels in clients(work)]
    for _ in range(rounds):
        start = {name: value.clone() for name, value in model.state_dict().items()}
        total = {name: torch.zeros_like(value) for name, value in start.items()}
        for inputs, labels in data:
            model.load_state_dict(start)
            train(model, work, inputs, labels, fused=tuned)
            for name, value in model.state_dict().items():
                total[name] += value
        model.load_state_dict({name: value / CLIENTS for name, value in total.items()})
        done()


def ours(work: Work, rounds: int) -> None:
    """Run the simulator with FedAvg, in one process."""
    from mabrfl import catalog  # noqa: PLC0415
    from mabrfl.catalog import build_defense  # noqa: PLC0415
    from mabrfl.simulation.data import Dataset  # noqa: PLC0415
    from mabrfl.simulation.simulator import Simulation  # noqa: PLC0415
    from mabrfl.simulation.training import TrainingOptions  # noqa: PLC0415

    images, labels = pixels(work)
    dataset = Dataset("random pixels", images, labels, images[:1], labels[:1], CLASSES)
    training = TrainingOptions(
        epochs=work.epochs,
        batch_size=work.batch,
        optimizer="sgd",
        learning_rate=RATE,
        engine="stacked" if catalog.entry("models", work.model).stacked else "loop",
    )
    with Simulation(
        dataset=dataset,
        model=lambda: network(work),
        partition=np.split(np.arange(len(labels)), CLIENTS),
        defense=build_defense("fedavg"),
        training=training,
        rounds=rounds,
    ) as simulation:
        for _ in simulation.run():
            done()


def flower(work: Work, rounds: int) -> None:
    """Run Flower's simulation engine, with as many clients at once as there are cores."""
    from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict  # noqa: PLC0415
    from flwr.clientapp import ClientApp  # noqa: PLC0415
    from flwr.serverapp import Grid, ServerApp  # noqa: PLC0415
    from flwr.serverapp.strategy import FedAvg  # noqa: PLC0415
    from flwr.simulation import run_simulation  # noqa: PLC0415

    client_app, server_app = ClientApp(), ServerApp()

    @client_app.train()
    def fit(message: Message, context: Context) -> Message:
        torch.set_num_threads(1)
        model = network(work)
        model.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
        inputs, labels = clients(work)[int(context.node_config["partition-id"])]
        train(model, work, inputs, labels)
        metrics = MetricRecord({"num-examples": len(labels)})
        return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)

    class Strategy(FedAvg):
        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            result = super().aggregate_train(server_round, replies)
            done()
            return result

    @server_app.main()
    def main(grid: Grid, context: Context) -> None:  # noqa: ARG001
        strategy = Strategy(fraction_evaluate=0.0, min_train_nodes=CLIENTS, min_available_nodes=CLIENTS)
        strategy.start(grid=grid, initial_arrays=ArrayRecord(network(work).state_dict()), num_rounds=rounds)

    run_simulation(server_app, client_app, CLIENTS, backend_config={"client_resources": {"num_cpus": 1}})


def fluke(work: Work, rounds: int) -> None:
    """Run fluke's FedAVG."""
    from fluke import DDict, FlukeENV  # noqa: PLC0415
    from fluke.algorithms.fedavg import FedAVG  # noqa: PLC0415
    from fluke.data import DataSplitter, DummyDataContainer, FastDataLoader  # noqa: PLC0415

    class Rounds:
        def end_round(self, **_: Any) -> None:
            done()

    loaders = [
        FastDataLoader(inputs, labels, num_labels=CLASSES, batch_size=work.batch, shuffle=True)
        for inputs, labels in clients(work)
    ]
    splitter = DataSplitter(dataset=DummyDataContainer(loaders, [None] * CLIENTS, None, CLASSES))
    client = DDict(
        batch_size=work.batch,
        local_epochs=work.epochs,
        loss="CrossEntropyLoss",
        optimizer=DDict(name="SGD", lr=RATE),
        scheduler=DDict(name="StepLR", gamma=1.0, step_size=1),
    )
    settings = DDict(client=client, server=DDict(weighted=True), model=network(work))
    FlukeENV().set_eval_cfg(pre_fit=False, post_fit=False, server=False, locals=False)
    algorithm = FedAVG(n_clients=CLIENTS, data_splitter=splitter, hyper_params=settings)
    algorithm.attach(Rounds())
    algorithm.run(rounds, 1.0)


def fedlab(work: Work, rounds: int) -> None:
    """Run FedLab's serial trainer and synchronous server."""
    from fedlab.contrib.algorithm.basic_client import SGDSerialClientTrainer  # noqa: PLC0415
    from fedlab.contrib.algorithm.basic_server import SyncServerHandler  # noqa: PLC0415
    from torch.utils.data import DataLoader, TensorDataset  # noqa: PLC0415

    class Shards:
        def get_dataloader(self, number: int, batch_size: int) -> Any:
            return DataLoader(TensorDataset(*clients(work)[number]), batch_size, shuffle=True)

    trainer = SGDSerialClientTrainer(network(work), CLIENTS)
    trainer.setup_dataset(Shards())
    trainer.setup_optim(work.epochs, work.batch, RATE)
    server = SyncServerHandler(network(work), rounds, 1.0)
    server.num_clients = CLIENTS
    while not server.if_stop:
        chosen = server.sample_clients()
        trainer.local_process(server.downlink_package, chosen)
        for package in trainer.uplink_package:
            server.load(package)
        done()


FRAMEWORKS: dict[str, tuple[Callable[[Work, int], None], str]] = {
    "mabrfl": (ours, "mabrfl"),
    "PyTorch loop, tuned": (lambda work, rounds: loop(work, rounds, tuned=True), "torch"),
    "PyTorch loop, plain": (loop, "torch"),
    "fluke": (fluke, "fluke-fl"),
    "FedLab": (fedlab, "fedlab"),
    "Flower's simulation": (flower, "flwr"),
}
"""By name: what runs its rounds, and the package of its version."""


def main() -> None:
    """Run ``FRAMEWORK WORK ROUNDS``, the arguments of the process."""
    torch.set_num_threads(1)
    FRAMEWORKS[sys.argv[1]][0](WORKS[sys.argv[2]], int(sys.argv[3]))
