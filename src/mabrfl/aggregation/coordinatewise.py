"""Coordinate-wise rules: no weighted sum of clients, so they need the updates themselves, not the Gram matrix.

Both sort each coordinate's n values. A slice is transposed first, so that the values to sort lie side
by side: six times as fast as :func:`numpy.median` along the first axis.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mabrfl import vectors
from mabrfl.checks import check_whole, quorum
from mabrfl.updates import Cohort, Decision, Floats


def _sorted_columns(part: Floats) -> Floats:
    """Return ``(width, n)``: the values of each column of ``(n, width)``, ascending."""
    return np.sort(np.ascontiguousarray(part.T), axis=1)


def median(part: Floats) -> Floats:
    """Return the median of each column; of an even number of values, the mean of the middle two.

    Examples
    --------
    >>> median(np.array([[1.0, 8.0], [9.0, 2.0], [2.0, 4.0], [3.0, 6.0]]))
    array([2.5, 5. ])
    """
    ordered = _sorted_columns(part)
    n = ordered.shape[1]
    low: Floats = ordered[:, (n - 1) // 2]
    high: Floats = ordered[:, n // 2]
    if n % 2:
        return low
    # Halves are added, not sums halved: the middle two may be near the largest float.
    return np.asarray(low / 2 + high / 2, dtype=part.dtype)


def trimmed_mean(part: Floats, num_trimmed: int) -> Floats:
    """Return the mean of each column without its ``num_trimmed`` smallest and largest values.

    Examples
    --------
    >>> trimmed_mean(np.array([[1.0], [100.0], [3.0], [5.0]]), 1)
    array([4.])
    """
    ordered = _sorted_columns(part)
    kept = ordered[:, num_trimmed : ordered.shape[1] - num_trimmed]
    return np.asarray(np.mean(kept, axis=1, dtype=np.float64), dtype=part.dtype)


@dataclass(frozen=True)
class Median:
    """Coordinate-wise median (Yin et al., ICML 2018): ``g[j] = median of g_1[j], ..., g_n[j]``.

    Judges no client: all are accepted.
    """

    def __call__(self, cohort: Cohort, /) -> Decision:
        """Take the median of every coordinate."""
        return Decision(step=vectors.coordinatewise(cohort.matrix, median))


@dataclass(frozen=True, kw_only=True)
class TrimmedMean:
    """Coordinate-wise trimmed mean (Yin et al., ICML 2018).

    In each coordinate the f smallest and the f largest of the n values are left out and the others
    averaged. Judges no client: all are accepted.

    Parameters
    ----------
    num_malicious
        Bound on the malicious clients of the whole population; f is the cohort's share of it, at
        most (n - 1) // 2, so that something remains.
    strict
        Raise :class:`~mabrfl.errors.QuorumError` instead of recording an event unless n > 2f.
    """

    num_malicious: int
    strict: bool = False

    def __post_init__(self) -> None:
        check_whole("TrimmedMean num_malicious", self.num_malicious)

    def __call__(self, cohort: Cohort, /) -> Decision:
        """Average what is in the middle of every coordinate."""
        events = quorum("trimmed-mean", "n > 2f", cohort, self.num_malicious, excess=1, strict=self.strict)
        f = cohort.expected_malicious(self.num_malicious)
        step = vectors.coordinatewise(cohort.matrix, lambda part: trimmed_mean(part, f))
        return Decision(step=step, events=events, facts={"num_trimmed": f})
