"""The server step (screen + aggregate) beside one Gram product of the same matrix.

Fixed: 50 clients, the 1,186,378 parameters of the CIFAR-10 network, 15 attackers who send nearly the
same thing, so that every stage of MAB-RFL has something to do. All threads.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable

import numpy as np
from benchmarks.timing import best_of, report
from numpy.typing import NDArray

from mabrfl import Defense, MabRfl, Updates, vectors
from mabrfl.aggregation import (
    FABA,
    CenteredClip,
    DnC,
    FedAvg,
    GeometricMedian,
    Krum,
    Median,
    MultiKrum,
    TrimmedMean,
)
from mabrfl.layout import Layout
from mabrfl.mab.presets import PRESETS
from mabrfl.protocols import Rule
from mabrfl.rng import generator
from mabrfl.simulation.training.models import MODELS

CLIENTS, ATTACKERS, DIMENSION, REPEATS, TARGET = 50, 15, 1_186_378, 3, 3.0
WHOLE, BY_LAYER, BY_LAYER_TARGET = "hardened, no layout", "hardened, with the layout", 1.3
GRAM, OURS = "X @ X.T", "the same by slices, float64"


def updates() -> NDArray[np.float32]:
    """Return 35 honest updates with something in common, and 15 that are almost copies of one."""
    rng = generator(0, "benchmark")
    matrix = rng.standard_normal((CLIENTS, DIMENSION), dtype=np.float32)
    common, bad = (rng.standard_normal(DIMENSION, dtype=np.float32) for _ in range(2))
    matrix[:-ATTACKERS] += 0.5 * common
    matrix[-ATTACKERS:] = bad + 0.1 * matrix[-ATTACKERS:]
    return matrix


def defenses() -> dict[str, Defense]:
    """Return MAB-RFL in its presets and every other rule."""
    rules: dict[str, Rule] = {
        "fedavg": FedAvg(),
        "krum": Krum(num_malicious=ATTACKERS),
        "multi-krum": MultiKrum(num_malicious=ATTACKERS),
        "faba": FABA(num_malicious=ATTACKERS),
        "dnc": DnC(num_malicious=ATTACKERS),
        "centered-clip": CenteredClip(),
        "geometric-median": GeometricMedian(),
        "median": Median(),
        "trimmed-mean": TrimmedMean(num_malicious=ATTACKERS),
    }
    presets: dict[str, Defense] = {f"mab-rfl {name}": MabRfl(preset=name) for name in PRESETS}
    return presets | {name: Defense(rule) for name, rule in rules.items()}


def main() -> bool:
    """Measure, print, and return whether MAB-RFL and all rules on the Gram matrix meet the target."""
    matrix = updates()
    sent = Updates(range(CLIENTS), matrix)
    clock = itertools.count(1)

    def step(defense: Defense) -> Callable[[], object]:
        return lambda: defense.aggregate(sent, round=next(clock))

    candidates: dict[str, Callable[[], object]] = {
        GRAM: lambda: matrix @ matrix.T,
        OURS: lambda: vectors.gram(matrix),
    }
    candidates |= {name: step(defense) for name, defense in defenses().items()}
    best_of(candidates, 1)  # memory is asked for, and histories begin, before the clock starts
    seconds = best_of(candidates, REPEATS)
    title = f"Server step, n = {CLIENTS}, d = {DIMENSION:,}, best of {REPEATS}"
    # Coordinate-wise rules sort every column; no Gram product can stand for that.
    targets = {name: TARGET for name in seconds if name not in (GRAM, OURS, "median", "trimmed-mean")}
    return report(title, seconds, base=GRAM, targets=targets) & by_layer(matrix)


def by_layer(matrix: NDArray[np.float32]) -> bool:
    """Measure what it costs the preset `hardened` to judge by layer as well."""
    network = MODELS["vgg-lite"]((3, 32, 32), 10)
    layout = Layout.of(dict(network.named_parameters()))
    clock = itertools.count(1)

    def step(sent: Updates) -> Callable[[], object]:
        defense = MabRfl()
        return lambda: defense.aggregate(sent, round=next(clock))

    ids = range(CLIENTS)
    candidates = {WHOLE: step(Updates(ids, matrix)), BY_LAYER: step(Updates(ids, matrix, layout=layout))}
    best_of(candidates, 1)
    seconds = best_of(candidates, 2 * REPEATS)
    title = f"Judging by layer, n = {CLIENTS}, d = {DIMENSION:,}, best of {2 * REPEATS}"
    return report(title, seconds, base=WHOLE, targets={BY_LAYER: BY_LAYER_TARGET})


if __name__ == "__main__":
    sys.exit(not main())
