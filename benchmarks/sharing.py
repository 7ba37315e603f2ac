"""Two cells side by side with one process each, beside the same two one after the other with two processes each.

This is what ``mabrfl sweep`` chooses between (``mabrfl.sweeps.sharing``). Fixed: 50 clients of MNIST's or a tenth
of CIFAR-10's size, 3 epochs, batch 64, Adam, 10,000 test examples, plain averaging, two cores. Pixels are random;
they cost what real ones cost.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parent.parent))  # as a script, this file knows its own folder only

from benchmarks.timing import best_of, report

from mabrfl import Defense
from mabrfl.aggregation import FedAvg
from mabrfl.rng import generator
from mabrfl.simulation.data import Dataset
from mabrfl.simulation.simulator import Simulation
from mabrfl.simulation.training import MODELS, initialise
from mabrfl.simulation.training.workers import keep_freed_memory

CLIENTS, CELLS, REPEATS = 50, 2, 2
SIDE_BY_SIDE, IN_TURN = "side by side, 1 process each", "in turn, 2 processes each"


@dataclass(frozen=True)
class Setting:
    """A model and the data of its clients."""

    model: str
    shape: tuple[int, int, int]
    sizes: tuple[int, int]


SETTINGS = (
    Setting("mnist-cnn-small", (1, 28, 28), (10, 500)),
    Setting("mnist-cnn", (1, 28, 28), (10, 500)),
    Setting("vgg-tiny", (3, 32, 32), (120, 200)),
)


def simulation(setting: Setting, workers: int) -> Simulation:
    """Return a federation on random images."""
    rng = generator(0, "benchmark")
    sizes = rng.integers(setting.sizes[0], setting.sizes[1] + 1, CLIENTS)
    total = int(sizes.sum())

    def images(count: int) -> NDArray[Any]:
        return rng.integers(0, 256, (count, *setting.shape), dtype=np.uint8)

    labels = rng.integers(0, 10, total + 10_000)
    data = Dataset("random pixels", images(total), labels[:total], images(10_000), labels[total:], 10)
    return Simulation(
        dataset=data,
        model=lambda: initialise(MODELS[setting.model](setting.shape, 10)),
        partition=np.split(np.arange(total), np.cumsum(sizes)[:-1]),
        defense=Defense(FedAvg()),
        rounds=1_000,
        workers=workers,
    )


def serve(connection: Connection, setting: Setting, workers: int) -> None:
    """Run a round whenever asked to."""
    keep_freed_memory()
    with simulation(setting, workers) as cell:
        rounds = cell.run()
        next(rounds)
        connection.send("ready")
        while connection.recv():
            next(rounds)
            connection.send("done")


def start(setting: Setting, workers: int) -> Connection:
    """Start a process with one cell."""
    context: Any = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    ours, theirs = context.Pipe()
    context.Process(target=serve, args=(theirs, setting, workers)).start()
    ours.recv()
    connection: Connection = ours
    return connection


def measure(setting: Setting) -> bool:
    """Measure a round of two cells both ways, and print them."""
    beside, alone = [start(setting, 1) for _ in range(CELLS)], start(setting, CELLS)

    def side_by_side() -> None:
        for connection in beside:
            connection.send(True)
        for connection in beside:
            connection.recv()

    def in_turn() -> None:
        for _ in range(CELLS):
            alone.send(True)
            alone.recv()

    candidates: dict[str, Callable[[], object]] = {IN_TURN: in_turn, SIDE_BY_SIDE: side_by_side}
    seconds = best_of(candidates, REPEATS)
    for connection in (*beside, alone):
        connection.send(False)
    title = f"A round of {CELLS} cells of {setting.model}, best of {REPEATS}"
    return report(title, seconds, base=IN_TURN, targets={SIDE_BY_SIDE: 1.0})


def main() -> bool:
    """Measure, print, and return whether side by side is the better way throughout."""
    met = [measure(setting) for setting in SETTINGS]
    return all(met)


if __name__ == "__main__":
    sys.exit(not main())
