"""The median and the trimmed mean of each coordinate, with clients weighted by their numbers of examples.

The numbers are what clients claim. So that no claim buys the result, none counts for more than a multiple of the median
claim.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mabrfl import vectors
from mabrfl.aggregation.averaging import example_weights
from mabrfl.aggregation.honest_majority import HonestMajority
from mabrfl.checks import check_positive
from mabrfl.updates import Cohort, Decision, Floats


def capped_weights(num_examples: NDArray[np.float64], max_ratio: float) -> NDArray[np.float64]:
    """Return each client's share of all examples, no count larger than ``max_ratio`` times the median count.

    Examples
    --------
    >>> capped_weights(np.array([10.0, 10.0, 20.0, 1e9]), 4.0)
    array([0.1, 0.1, 0.2, 0.6])
    """
    counts = np.where(np.isfinite(num_examples) & (num_examples > 0), num_examples, 0.0)
    return example_weights(np.minimum(counts, max_ratio * np.median(counts)))


def _in_order(part: Floats, weights: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return ``(width, n)``: each column's values, ascending, and the weights of those that sent them."""
    columns = np.ascontiguousarray(part.T).astype(np.float64)
    order = np.argsort(columns, axis=1, kind="stable")
    return np.take_along_axis(columns, order, axis=1), weights[order]


def weighted_median(part: Floats, weights: NDArray[np.float64]) -> Floats:
    """Return the value of each column at which half of the weight is reached; if exactly, the mean with the next one.

    Examples
    --------
    >>> weighted_median(np.array([[1.0], [2.0], [9.0]]), np.array([0.2, 0.2, 0.6]))
    array([9.])
    >>> weighted_median(np.array([[1.0], [2.0], [3.0], [4.0]]), np.full(4, 0.25))
    array([2.5])
    """
    values, shares = _in_order(part, weights)
    reached = np.cumsum(shares, axis=1)
    low = np.argmax(reached >= 0.5 - 1e-12, axis=1)[:, None]
    high = np.argmax(reached > 0.5 + 1e-12, axis=1)[:, None]
    middle = np.take_along_axis(values, low, axis=1) / 2 + np.take_along_axis(values, high, axis=1) / 2
    return np.asarray(middle[:, 0], dtype=part.dtype)


def weighted_trimmed_mean(part: Floats, weights: NDArray[np.float64], share: float) -> Floats:
    """Return the weighted mean of each column without this share of the weight at either end.

    A client at the border counts with the part of its weight that is inside.

    Examples
    --------
    >>> weighted_trimmed_mean(np.array([[1.0], [2.0], [3.0], [100.0]]), np.full(4, 0.25), 0.25)
    array([2.5])
    """
    values, shares = _in_order(part, weights)
    end = np.cumsum(shares, axis=1)
    inside = np.minimum(end, 1 - share) - np.maximum(end - shares, share)
    inside = np.clip(inside, 0, None)
    total = np.maximum(inside.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    return np.asarray(np.sum(values * (inside / total), axis=1), dtype=part.dtype)


@dataclass(frozen=True, kw_only=True)
class WeightedMedian:
    """Coordinate-wise median weighted by numbers of examples: half of the *examples* lie on either side.

    With weights :math:`w_i` that sum to one, :math:`g[j]` is the value at which the weights of the clients with smaller
    j-th coordinates reach 1/2; the mean of two if they reach it exactly. With equal numbers it is
    :class:`~mabrfl.aggregation.Median`. It withstands malicious clients that hold less than half of the weight. Judges
    no client: all are accepted.

    Parameters
    ----------
    max_ratio
        No client's number counts for more than this many times the median number.
    """

    max_ratio: float = 10.0

    def __post_init__(self) -> None:
        check_positive("WeightedMedian max_ratio", self.max_ratio)

    def __call__(self, cohort: Cohort, /) -> Decision:
        """Take the weighted median of every coordinate."""
        weights = capped_weights(cohort.num_examples, self.max_ratio)
        step = vectors.coordinatewise(cohort.matrix, lambda part: weighted_median(part, weights))
        return Decision(step=step, evidence=[{"weight": float(weight)} for weight in weights])


@dataclass(frozen=True, kw_only=True)
class WeightedTrimmedMean(HonestMajority):
    """Coordinate-wise trimmed mean weighted by numbers of examples.

    In each coordinate a share f / n of the *weight* is cut off at either end, a client on the border loses a part of
    its weight, and the rest is averaged. No other library of ``docs/peers.md`` has it. With equal numbers it is
    :class:`~mabrfl.aggregation.TrimmedMean`. It withstands malicious clients that hold no more than that share. Judges
    no client: all are accepted.

    Parameters
    ----------
    num_malicious
        Bound on the malicious clients of the whole population; f is the cohort's share of it.
    max_ratio
        No client's number counts for more than this many times the median number.
    strict
        Raise :class:`~mabrfl.errors.QuorumError` instead of recording an event unless n > 2f.
    """

    max_ratio: float = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("WeightedTrimmedMean max_ratio", self.max_ratio)

    def __call__(self, cohort: Cohort, /) -> Decision:
        """Average the middle of the weight of every coordinate."""
        f, events = self.expected(cohort, "weighted-trimmed-mean")
        share = f / len(cohort)
        weights = capped_weights(cohort.num_examples, self.max_ratio)
        step = vectors.coordinatewise(cohort.matrix, lambda part: weighted_trimmed_mean(part, weights, share))
        evidence = [{"weight": float(weight)} for weight in weights]
        return Decision(step=step, evidence=evidence, events=events, facts={"share_trimmed": share})
