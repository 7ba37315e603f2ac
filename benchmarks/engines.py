"""Clients trained together beside one after the other: a whole round on digits, and the training of other networks.

Fixed: 50 clients on digits with the defaults of the data set, FedAvg, one process; CPU seconds. The other rows are the
local training on random images, 60 to 250 of each client. A network is stacked by default
(``Entry.stacked``) if that is faster.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from benchmarks.timing import best_of, report

from mabrfl import catalog
from mabrfl.config import RunConfig
from mabrfl.config.model import TrainingConfig
from mabrfl.rng import generator
from mabrfl.simulation.data import Dataset
from mabrfl.simulation.simulator import build_simulation
from mabrfl.simulation.training import Engine, Shard, TrainingOptions, initialise
from mabrfl.simulation.training.local import EngineName

CLIENTS, REPEATS, TARGET = 50, 10, 0.2
NETWORKS = {"mlp": 50, "mnist-cnn-small": 10, "mnist-cnn": 10}
"""And how many clients train them: images of 28 x 28."""
LOOP: EngineName = "loop"
STACKED: EngineName = "stacked"


def rounds() -> bool:
    """Compare whole rounds on digits; return whether the target is met."""
    runs = {
        engine: build_simulation(
            RunConfig(defense="fedavg", clients=CLIENTS, rounds=99, workers=1, training=TrainingConfig(engine=engine))
        ).run()
        for engine in (LOOP, STACKED)
    }
    for run in runs.values():
        next(run)  # memory and kernels are there before the clock starts
    seconds = best_of({name: run.__next__ for name, run in runs.items()}, REPEATS, clock=time.process_time)
    title = f"CPU time of a round on digits, {CLIENTS} clients, best of {REPEATS}"
    return report(title, seconds, base=LOOP, targets={STACKED: TARGET})


def training(name: str) -> bool:
    """Compare the training of one network; return whether its entry has the faster engine."""
    rng, shape = generator(0, "benchmark"), (1, 28, 28)
    sizes = rng.integers(60, 250, NETWORKS[name])
    images, labels = rng.integers(0, 256, (sizes.sum(), *shape), dtype=np.uint8), rng.integers(0, 10, sizes.sum())
    dataset = Dataset("random pixels", images, labels, images[:50], labels[:50], 10)
    shards = [Shard(indices) for indices in np.split(np.arange(len(labels)), np.cumsum(sizes)[:-1])]
    engines = {
        engine: Engine(
            lambda: initialise(catalog.build_model(name, shape, 10)), dataset, shards, TrainingOptions(engine=engine)
        )
        for engine in (LOOP, STACKED)
    }

    def train(engine: Engine) -> object:
        return engine.train(range(len(shards)), engine.initial_weights, round=1)

    work: dict[str, Callable[[], object]] = {key: partial(train, engine) for key, engine in engines.items()}
    seconds = best_of(work, 3, clock=time.process_time)
    title = f"CPU time of training {name}, {len(shards)} clients, best of 3"
    faster = seconds[STACKED] < seconds[LOOP]
    if faster != catalog.entry("models", name).stacked:
        print(f"{name}: engine = 'auto' is not the faster one here")
    return report(title, seconds, base=LOOP, targets={})


def main() -> bool:
    """Measure, print, and return whether the target is met."""
    met = rounds()
    for name in NETWORKS:
        training(name)
    return met


if __name__ == "__main__":
    sys.exit(not main())
