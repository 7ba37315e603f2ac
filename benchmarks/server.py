"""The server step (screen + aggregate) beside one Gram product of the same matrix.

Fixed: 50 clients, the 1,186,378 parameters of the CIFAR-10 network, 15 attackers who send nearly the
same thing, so that every stage of MAB-RFL has something to do.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Mapping

import numpy as np
from benchmarks.timing import best_of, on_one_core, report
from numpy.typing import NDArray

from mabrfl import Defense, Layout, MabRfl, Updates, vectors
from mabrfl.catalog import BUILT_IN, build_defense
from mabrfl.mab.presets import PRESETS
from mabrfl.rng import generator
from mabrfl.simulation.training.models import MODELS

CLIENTS, ATTACKERS, DIMENSION, REPEATS = 50, 15, 1_186_378, 3
MAB_RFL_TARGET, RULE_TARGET = 3.0, 1.6  # times one Gram product
WHOLE, BY_LAYER, BY_LAYER_TARGET = "hardened, no layout", "hardened, with the layout", 1.3
GRAM, OURS = "X @ X.T", "the same by slices, float64"
COORDINATES = frozenset(
    {"median", "trimmed-mean", "weighted-median", "weighted-trimmed-mean", "meamed", "bulyan", "aksel", "sign-majority"}
    | {
        "robust-learning-rate",
        "noisy-norm-bound",
        "flame",
        "lasa",
        "alignins",
        "foolsgold",
        "fldetector",
        "centered-clip",
    }
)
"""Rules that sort or draw a number per coordinate, or keep vectors of the model's size: a Gram product is not enough.

Centered clipping multiplies every update with its last step. See ``peers.py`` for these rules beside others."""


def updates() -> NDArray[np.float32]:
    """Return 35 honest updates with something in common, and 15 that are almost copies of one."""
    rng = generator(0, "benchmark")
    matrix = rng.standard_normal((CLIENTS, DIMENSION), dtype=np.float32)
    common, bad = (rng.standard_normal(DIMENSION, dtype=np.float32) for _ in range(2))
    matrix[:-ATTACKERS] += 0.5 * common
    matrix[-ATTACKERS:] = bad + 0.1 * matrix[-ATTACKERS:]
    return matrix


def rules() -> dict[str, Defense]:
    """Return every rule but MAB-RFL, and a rule after pre-aggregators."""
    made: dict[str, Defense] = {}
    for name, entry in BUILT_IN["defenses"].items():
        if not entry.presets:
            options = {"search": "greedy"} if name == "smea" else {}
            made[name] = build_defense(name, defense_options=options, num_malicious=ATTACKERS)
    for before in ("nnm", "bucketing+nnm"):
        made[f"{before}+krum"] = build_defense("krum", before=before, num_malicious=ATTACKERS)
    return made


def main() -> bool:
    """Measure, print, and return whether MAB-RFL and all rules on the Gram matrix meet their targets."""
    matrix = updates()
    return of_mab_rfl(matrix) & of_rules(matrix) & by_layer(matrix)


def of_mab_rfl(matrix: NDArray[np.float32]) -> bool:
    """Measure the presets of MAB-RFL, on all threads."""
    sent = Updates(range(CLIENTS), matrix)
    steps = steps_of({f"mab-rfl {name}": MabRfl(preset=name) for name in PRESETS}, sent)
    candidates = {**products(matrix), **steps}
    best_of(candidates, 1)  # memory is asked for, and histories begin, before the clock starts
    seconds = best_of(candidates, REPEATS)
    title = f"Server step, n = {CLIENTS}, d = {DIMENSION:,}, best of {REPEATS}"
    return report(title, seconds, base=GRAM, targets=dict.fromkeys(steps, MAB_RFL_TARGET))


def of_rules(matrix: NDArray[np.float32]) -> bool:
    """Measure the CPU time of every rule on one core: other work on the machine does not count."""
    sent = Updates(
        range(CLIENTS),
        matrix,
        layout=Layout({"first.weight": (DIMENSION - 2570,), "last.weight": (10, 256), "last.bias": (10,)}),
        global_weights=matrix[0] - matrix[1],
        root_update=matrix[:10].mean(axis=0),
    )
    candidates = {**products(matrix), **steps_of(rules(), sent)}
    with on_one_core():
        best_of(candidates, 1)
        seconds = best_of(candidates, REPEATS, time.process_time)
    targets = dict.fromkeys(set(seconds) - COORDINATES - {GRAM, OURS}, RULE_TARGET)
    title = f"Every rule, CPU time, n = {CLIENTS}, d = {DIMENSION:,}, best of {REPEATS}"
    return report(title, seconds, base=GRAM, targets=targets)


def products(matrix: NDArray[np.float32]) -> dict[str, Callable[[], object]]:
    """Return one Gram product, and the one that rules use."""
    return {GRAM: lambda: matrix @ matrix.T, OURS: lambda: vectors.gram(matrix)}


def steps_of(defenses: Mapping[str, Defense], sent: Updates) -> dict[str, Callable[[], object]]:
    """Return a server step of each defense, every time for the next round."""
    clock = itertools.count(1)

    def step(defense: Defense) -> Callable[[], object]:
        return lambda: defense.aggregate(sent, round=next(clock))

    return {name: step(defense) for name, defense in defenses.items()}


def by_layer(matrix: NDArray[np.float32]) -> bool:
    """Measure what it costs the preset `hardened` to judge by layer as well."""
    network = MODELS["vgg-lite"]((3, 32, 32), 10)
    layout = Layout.of(dict(network.named_parameters()))
    ids = range(CLIENTS)
    candidates = {
        **steps_of({WHOLE: MabRfl()}, Updates(ids, matrix)),
        **steps_of({BY_LAYER: MabRfl()}, Updates(ids, matrix, layout=layout)),
    }
    best_of(candidates, 1)
    seconds = best_of(candidates, 2 * REPEATS)
    title = f"Judging by layer, n = {CLIENTS}, d = {DIMENSION:,}, best of {2 * REPEATS}"
    return report(title, seconds, base=WHOLE, targets={BY_LAYER: BY_LAYER_TARGET})


if __name__ == "__main__":
    sys.exit(not main())
