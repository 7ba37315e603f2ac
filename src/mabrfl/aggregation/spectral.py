"""DnC, divide and conquer: outliers along the direction in which the updates spread most."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from mabrfl import vectors
from mabrfl.aggregation.honest_majority import HonestMajority
from mabrfl.checks import check_choice, check_positive, check_whole, outliers
from mabrfl.updates import Cohort, Decision, Floats

Combine = Literal["intersection", "union"]


def spectral_scores(sample: Floats) -> NDArray[np.float64]:
    r"""Return how much of the spread along the top singular vector is due to each row; they sum to 1.

    With C the centred rows and v their top right singular vector, the outlier score of NDSS'21 is
    :math:`\langle c_i, v \rangle^2 = \sigma^2 u_i^2`, u being the top eigenvector of :math:`C C^\top`,
    which is n x n. Returned is :math:`u_i^2`: the same order, free of the sample's scale. Zeros if all
    rows are equal.

    Examples
    --------
    >>> spectral_scores(np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [-3.0, 0.0]])).round(3)
    array([0.083, 0.083, 0.083, 0.75 ])
    """
    rows = sample.astype(np.float64)
    largest = np.max(np.abs(rows), initial=0.0)
    rows /= largest or 1.0
    inner = vectors.gram(rows - rows.mean(axis=0))
    # Below this nothing is left of the rows' differences but the rounding of their mean.
    if np.trace(inner) <= rows.size * (len(rows) * np.finfo(np.float64).eps) ** 2:
        return np.zeros(len(rows))
    last = len(rows) - 1
    top = scipy.linalg.eigh(inner, subset_by_index=[last, last])[1]
    return np.asarray(top[:, 0] ** 2, dtype=np.float64)


@dataclass(frozen=True, kw_only=True)
class DnC(HonestMajority):
    r"""Divide and conquer (Shejwalkar and Houmansadr, NDSS 2021).

    Repeat: take a random subset of the coordinates, centre the updates there, project them on the top
    right singular vector v, score each by :math:`\langle g_i - \mu, v \rangle^2`, and call the n - cf
    lowest good. The step is the mean of the (full) updates that were good every time. The others are
    reported as outliers. Of equal scores the lower index in canonical order counts as the lower.

    Coordinates are drawn from a stream named by seed and round; they depend on nothing else, the number
    of clients included.

    Parameters
    ----------
    num_malicious
        Bound on the malicious clients of the whole population; f is the cohort's share of it.
    num_iterations
        How often to repeat. The authors released no code of DnC, public ones use 1 or 5, and the values
        of the NDSS paper's own runs were not at hand to check. Default 1, for two reasons. It is what
        the MAB-RFL paper describes for its comparison: one projection, after which the K - m = f
        updates with the highest scores are removed. And each pass may remove another cf clients, the
        more so the less there is to find: of 50 clean Gaussian updates, five passes keep about ten with
        f = 15 and a handful with f = 24. More passes belong with a ``filter_fraction`` below 1.
    num_coordinates
        Size of the subset; all coordinates if there are fewer. Default 10,000, as most public ones have.
    filter_fraction
        c: how many to remove in each pass, as a multiple of f (rounded up; at least one client stays).
        Default 1, the same everywhere.
    normalise
        Score the updates scaled to unit length. (The step is the mean of the updates as they are.)
    combine
        Keep those that were good every time (``"intersection"``, the paper) or ever (``"union"``).
    strict
        Raise :class:`~mabrfl.errors.QuorumError` instead of recording an event unless n > 2f.

    Notes
    -----
    If nobody was good every time, the n - cf clients with the lowest scores summed over the passes are
    kept, and the event ``dnc-empty-intersection`` is recorded. (Public code returns a zero step, or the
    mean of the union, then.)
    """

    num_iterations: int = 1
    num_coordinates: int = 10_000
    filter_fraction: float = 1.0
    normalise: bool = False
    combine: Combine = "intersection"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("DnC num_iterations", self.num_iterations, at_least=1)
        check_whole("DnC num_coordinates", self.num_coordinates, at_least=1)
        check_positive("DnC filter_fraction", self.filter_fraction)
        check_choice("DnC combine", self.combine, ("intersection", "union"))

    def __call__(self, cohort: Cohort, /) -> Decision:
        """Remove those that stick out, average the rest."""
        f, events = self.expected(cohort, "dnc")
        n, removed = len(cohort), self._num_removed(len(cohort), f)
        scores = np.array([spectral_scores(sample) for sample in self._samples(cohort)])
        good = _lowest(scores, n - removed)
        kept = good.any(axis=0) if self.combine == "union" else good.all(axis=0)
        if not kept.any():
            kept = _lowest(scores.sum(axis=0)[None], n - removed)[0]
            events += (f"dnc-empty-intersection: kept the {n - removed} lowest summed scores of {n}",)
        return Decision(
            weights=kept / kept.sum(),
            reasons=outliers(n, np.flatnonzero(~kept)),
            evidence=[
                {"score": float(score), "times_kept": int(times)}
                for score, times in zip(scores.mean(axis=0), good.sum(axis=0), strict=True)
            ],
            events=events,
        )

    def _num_removed(self, n: int, f: int) -> int:
        share = self.filter_fraction * f
        # 0.28 * 25 is a little more than 7 in floating point, and must not become 8.
        return min(math.ceil(round(share, 9)), n - 1)

    def _samples(self, cohort: Cohort) -> Iterator[Floats]:
        rng, width = cohort.rng("dnc"), cohort.matrix.shape[1]
        norms = np.where(cohort.norms > 0, cohort.norms, 1.0)[:, None]
        for _ in range(self.num_iterations):
            sample = cohort.matrix
            if width > self.num_coordinates:
                columns = rng.choice(width, self.num_coordinates, replace=False, shuffle=False)
                sample = np.take(cohort.matrix, np.sort(columns), axis=1)
            yield sample / norms if self.normalise else sample


def _lowest(scores: NDArray[np.float64], count: int) -> NDArray[np.bool_]:
    """Mark the ``count`` lowest of each row of scores; of equal ones, those that come first."""
    order = np.argsort(scores, axis=1, kind="stable")[:, :count]
    marks = np.zeros(scores.shape, dtype=bool)
    np.put_along_axis(marks, order, True, axis=1)
    return marks
