"""Coordinate-wise rules: no weighted sum of clients, so they need the updates themselves, not the Gram matrix.

They sort each coordinate's n values. A slice is transposed first, so that the values to sort lie side
by side: six times as fast as :func:`numpy.median` along the first axis.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mabrfl import vectors
from mabrfl.aggregation.honest_majority import HonestMajority
from mabrfl.updates import Cohort, Decision, Floats


def _sorted_columns(part: Floats) -> Floats:
    """Return ``(width, n)``: the values of each column of ``(n, width)``, ascending."""
    ordered = _columns(part)
    ordered.sort(axis=1)
    return ordered


def _columns(part: Floats) -> Floats:
    """Return a copy of ``part.T`` whose values lie side by side.

    Pairs of rows are interleaved first. Then half as many pieces, each twice as large, change places, which takes half
    the time.
    """
    n, width = part.shape
    pairs = np.empty(((n + 1) // 2, width, 2), dtype=part.dtype)
    pairs[:, :, 0] = part[0::2]
    pairs[: n // 2, :, 1] = part[1::2]
    pieces = pairs.view(np.dtype((np.void, 2 * part.itemsize)))[:, :, 0]
    return np.ascontiguousarray(pieces.T).view(part.dtype)[:, :n]


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


def mean_around_median(part: Floats, count: int) -> Floats:
    """Return the mean of the ``count`` values of each column that are nearest to its median.

    They are neighbours in order of size. Of two values equally far from the median, the smaller one counts as nearer.

    Examples
    --------
    >>> mean_around_median(np.array([[1.0], [2.0], [4.0], [9.0], [-9.0]]), 3)
    array([2.33333333])
    """
    ordered = _sorted_columns(part).astype(np.float64)
    n = ordered.shape[1]
    middle = (ordered[:, (n - 1) // 2] / 2 + ordered[:, n // 2] / 2)[:, None]
    first = np.zeros((len(ordered), 1), dtype=np.intp)
    if count < n:  # the window moves up while the value that it would gain is nearer than the one it would lose
        first = np.sum(ordered[:, count:] - middle < middle - ordered[:, : n - count], axis=1, keepdims=True)
    window = np.take_along_axis(ordered, first + np.arange(count), axis=1)
    return np.asarray(np.mean(window, axis=1), dtype=part.dtype)


@dataclass(frozen=True)
class Median:
    """Coordinate-wise median (Yin et al., ICML 2018): ``g[j] = median of g_1[j], ..., g_n[j]``.

    Needs an honest majority. Of an even number of values it is the mean of the middle two; byzpy takes the lower one.
    Judges no client: all are accepted.
    """

    def __call__(self, cohort: Cohort, /) -> Decision:
        """Take the median of every coordinate."""
        return Decision(step=vectors.coordinatewise(cohort.matrix, median))


@dataclass(frozen=True, kw_only=True)
class TrimmedMean(HonestMajority):
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

    def __call__(self, cohort: Cohort, /) -> Decision:
        """Average what is in the middle of every coordinate."""
        f, events = self.expected(cohort, "trimmed-mean")
        step = vectors.coordinatewise(cohort.matrix, lambda part: trimmed_mean(part, f))
        return Decision(step=step, events=events, facts={"num_trimmed": f})


@dataclass(frozen=True, kw_only=True)
class Meamed(HonestMajority):
    r"""Mean around median (Xie, Koyejo and Gupta, 2018).

    .. math:: g[j] = \frac{1}{n - f} \sum_{i \in N_j} x_i[j]

    with :math:`N_j` the n - f clients whose j-th coordinates are nearest to the median of all. Needs n > 2f. byzpy,
    which calls it mean of medians, has the lower median of an even number. Judges no client: all are accepted.

    Parameters
    ----------
    num_malicious
        Bound on the malicious clients of the whole population; f is the cohort's share of it.
    strict
        Raise :class:`~mabrfl.errors.QuorumError` instead of recording an event unless n > 2f.
    """

    def __call__(self, cohort: Cohort, /) -> Decision:
        """Average what is nearest to the median of every coordinate."""
        f, events = self.expected(cohort, "meamed")
        count = len(cohort) - f
        step = vectors.coordinatewise(cohort.matrix, lambda part: mean_around_median(part, count))
        return Decision(step=step, events=events, facts={"num_averaged": count})
