"""What several test files need: cohorts made by hand, and cohorts made by chance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mabrfl import vectors
from mabrfl.layout import Layout
from mabrfl.rng import ClientId
from mabrfl.updates import Cohort, Decision, Floats


def make_cohort(
    matrix: ArrayLike,
    ids: Sequence[ClientId] | None = None,
    round: int = 1,
    population: int | None = None,
    seed: int = 0,
    *,
    num_examples: ArrayLike | None = None,
    layout: Layout | None = None,
    global_weights: Floats | None = None,
    root_update: Floats | None = None,
) -> Cohort:
    """Return a read-only cohort in canonical order (numbers before words, each ascending).

    Rows are taken over as they are (float64 unless they already are float32); the population is the
    cohort itself unless given.
    """
    rows = np.asarray(matrix)
    rows = np.array(rows, dtype=rows.dtype if rows.dtype == np.float32 else np.float64, ndmin=2)
    names = list(range(len(rows))) if ids is None else list(ids)
    counts = np.ones(len(rows)) if num_examples is None else np.asarray(num_examples, dtype=np.float64)
    order = sorted(range(len(rows)), key=lambda row: (isinstance(names[row], str), names[row]))
    rows = np.ascontiguousarray(rows[order])
    rows.setflags(write=False)
    return Cohort(
        ids=tuple(names[row] for row in order),
        matrix=rows,
        norms=vectors.row_norms(rows),
        num_examples=counts[order],
        round=round,
        population=len(rows) if population is None else population,
        seed=seed,
        layout=layout,
        global_weights=global_weights,
        root_update=root_update,
    )


def step_of(cohort: Cohort, decision: Decision) -> Floats:
    """Return the step that a decision stands for."""
    if decision.step is not None:
        return decision.step
    assert decision.weights is not None
    return vectors.combine(decision.weights, cohort.matrix if decision.rows is None else decision.rows)


def rejected_rows(cohort: Cohort, decision: Decision) -> set[int]:
    """Return the rows that a decision does not accept."""
    reasons = decision.reasons or ["accepted"] * len(cohort)
    assert len(reasons) == len(cohort)
    return {row for row, reason in enumerate(reasons) if reason != "accepted"}


def random_cohorts(
    count: int, *, dtype: Any = np.float64, least: int = 1, seed: int = 0
) -> Iterator[tuple[Cohort, int]]:
    """Yield cohorts of all sizes and scales with attackers of several kinds, and the number f to defend against.

    f runs from none to nearly half; the last f rows are the attackers'. All rows differ.
    """
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        n, d = int(rng.integers(least, 21)), int(rng.integers(1, 61))
        f = int(rng.integers(0, (n - 1) // 2 + 1))
        rows = rng.normal(size=(n, d)) + rng.normal(size=d) * rng.choice([0.0, 1.0])
        benign = rows[: n - f]
        noise = rng.normal(size=(f, d))
        kind = number % 5
        if kind == 1:
            rows[n - f :] = 30 * noise
        elif kind == 2:
            rows[n - f :] = -3 * benign.mean(axis=0) + 0.1 * noise
        elif kind == 3:
            rows[n - f :] = benign.mean(axis=0) - benign.std(axis=0) + 0.05 * noise
        elif kind == 4:
            rows[n - f :] *= 0.01
        rows *= 10.0 ** rng.uniform(-3, 3)
        yield make_cohort(rows.astype(dtype), round=number + 1, seed=seed), f


def random_rows(count: int, width: int = 40, seed: int = 0, dtype: Any = np.float64) -> Floats:
    """Return random updates: columns of different sizes around 0.3."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((count, width)) * rng.uniform(0.5, 2.0, width) + 0.3).astype(dtype)
