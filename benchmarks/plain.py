"""Simple rules and attacks beside plain NumPy: FedAvg, trimmed mean, LIE and IPM at n = 50, d = 1.2 million.

NumPy is written as one would write it: once in single precision throughout, and once with sums in double precision, as
ours are. Ours also look at every row first, so that a row of NaN costs its sender alone. CPU seconds of one core.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))  # as a script, this file knows its own folder only

from benchmarks.timing import best_of, on_one_core, report

from mabrfl import Defense, FedAvg, TrimmedMean, Updates
from mabrfl.attacks import IPM, LIE
from mabrfl.attacks.view import AttackerView, Knowledge, Secrets
from mabrfl.rng import generator

CLIENTS, ATTACKERS, DIMENSION, REPEATS = 50, 15, 1_186_378, 5
SINGLE, DOUBLE, OURS = "NumPy, single precision", "NumPy, sums in double precision", "mabrfl"


def main() -> bool:
    """Measure and print; there are no targets, see docs/performance.md."""
    matrix = generator(0, "benchmark").standard_normal((CLIENTS, DIMENSION), dtype=np.float32)
    sent, f = Updates(range(CLIENTS), matrix), ATTACKERS
    weights = np.full(CLIENTS, 1 / CLIENTS, dtype=np.float32)
    benign = matrix[:-ATTACKERS]
    view = AttackerView(
        round=1,
        num_clients=CLIENTS,
        num_malicious=ATTACKERS,
        attackers=tuple(range(ATTACKERS)),
        knowledge=Knowledge.PARTIAL,
        global_weights=matrix[0],
        secrets=Secrets(benign, tuple(range(ATTACKERS, CLIENTS))),
    )

    def step(defense: Defense) -> object:
        return defense.aggregate(sent, round=1)

    tables: dict[str, dict[str, Callable[[], object]]] = {
        "FedAvg": {
            SINGLE: lambda: weights @ matrix,
            DOUBLE: lambda: np.average(matrix, axis=0, weights=weights.astype(np.float64)),
            OURS: lambda: step(Defense(FedAvg())),
        },
        "trimmed mean": {
            SINGLE: lambda: np.sort(matrix, axis=0)[f:-f].mean(axis=0),
            DOUBLE: lambda: np.sort(matrix, axis=0)[f:-f].mean(axis=0, dtype=np.float64),
            OURS: lambda: step(Defense(TrimmedMean(num_malicious=f))),
        },
        "LIE": {
            SINGLE: lambda: benign.mean(axis=0) - 1.5 * benign.std(axis=0),
            DOUBLE: lambda: benign.mean(axis=0, dtype=np.float64) - 1.5 * benign.std(axis=0, dtype=np.float64),
            OURS: lambda: LIE(z=1.5)(view),
        },
        "IPM": {
            SINGLE: lambda: -3 * benign.mean(axis=0),
            DOUBLE: lambda: -3 * benign.mean(axis=0, dtype=np.float64),
            OURS: lambda: IPM()(view),
        },
    }
    for name, candidates in tables.items():
        with on_one_core():
            best_of(candidates, 1)
            seconds = best_of(candidates, REPEATS, clock=time.process_time)
        report(f"{name}, n = {CLIENTS}, d = {DIMENSION:,}, best of {REPEATS}", seconds, base=DOUBLE, targets={})
    return True


if __name__ == "__main__":
    sys.exit(not main())
