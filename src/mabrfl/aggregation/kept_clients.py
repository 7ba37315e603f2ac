"""The decision that many rules end in: some clients are kept and averaged, the others are not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mabrfl.checks import outliers
from mabrfl.updates import Cohort, Decision


def mean_of_kept(
    kept: NDArray[np.bool_],
    *,
    rejected: NDArray[np.bool_] | None = None,
    scale: NDArray[np.float64] | None = None,
    scores: Mapping[str, NDArray[Any]] | None = None,
    events: tuple[str, ...] = (),
    facts: Mapping[str, Any] | None = None,
) -> Decision:
    """Return the decision for the mean of the kept rows.

    Parameters
    ----------
    kept
        Which of the n rows are averaged; at least one.
    rejected
        Which clients are reported as outliers; those that are not kept if left out.
    scale
        A factor per row, where rows are clipped before they are averaged.
    scores
        Evidence: name -> one number per client.
    """
    weights = kept / kept.sum() * (1.0 if scale is None else scale)
    columns = {"weight": weights, **(scores or {})}
    return Decision(
        weights=weights,
        reasons=outliers(len(kept), np.flatnonzero(~kept if rejected is None else rejected)),
        evidence=[{name: float(values[row]) for name, values in columns.items()} for row in range(len(kept))],
        events=events,
        facts=facts or {},
    )


def marked(n: int, rows: Any) -> NDArray[np.bool_]:
    """Return ``(n,)`` marks: True for these rows."""
    marks = np.zeros(n, dtype=bool)
    marks[rows] = True
    return marks


def squared_distances_to_mean(cohort: Cohort, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the squared distance of each row to the weighted sum of all rows."""
    towards = cohort.gram @ weights
    return np.asarray(np.clip(np.diag(cohort.gram) - 2 * towards + weights @ towards, 0, None))
