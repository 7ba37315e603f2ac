r"""CAF and SMEA: rules that look at the largest eigenvalue of the updates' covariance, from the Gram matrix.

With weights c that sum to C, and the mean :math:`\mu = \sum_i c_i x_i / C`, the covariance
:math:`\frac1C \sum_i c_i (x_i - \mu)(x_i - \mu)^\top` is d x d, but has the eigenvalues of the n x n matrix
:math:`\frac1C \sqrt{c_i c_j} \langle x_i - \mu, x_j - \mu \rangle`. So the eigenvector is exact. (ByzFL makes one
power iteration from a random start: five calls on the same input differ by up to 43 %.)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from mabrfl.aggregation.honest_majority import HonestMajority
from mabrfl.aggregation.kept_clients import marked, mean_of_kept
from mabrfl.checks import check_choice, check_whole
from mabrfl.errors import QuorumError
from mabrfl.updates import Cohort, Decision

MAX_SUBSETS = 50_000
_BATCH = 1024
Search = Literal["exact", "greedy"]


def centred(gram: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the inner products of the rows minus their weighted mean."""
    towards = gram @ (weights / weights.sum())
    return np.asarray(gram - towards[:, None] - towards + weights @ towards / weights.sum())


def top_projections(gram: NDArray[np.float64], weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
    r"""Return the largest eigenvalue of the weighted covariance, and each row's squared projection on its eigenvector.

    Returns
    -------
    eigenvalue, projections
        :math:`\lambda` and :math:`\tau_i = \langle x_i - \mu, v \rangle^2`.

    Examples
    --------
    >>> rows = np.array([[0.0, 1.0], [0.0, -1.0], [3.0, 0.0], [-3.0, 0.0]])
    >>> value, projections = top_projections(rows @ rows.T, np.ones(4))
    >>> round(value, 6), projections.round(6)
    (4.5, array([0., 0., 9., 9.]))
    """
    inner = centred(gram, weights)
    roots = np.sqrt(weights)
    last = len(gram) - 1
    values, vectors_of = scipy.linalg.eigh(roots[:, None] * inner * roots, subset_by_index=[last, last])
    scatter = max(float(values[0]), 0.0)
    if scatter == 0.0:
        return 0.0, np.zeros(len(gram))
    projections = (inner @ (roots * vectors_of[:, 0])) ** 2 / scatter
    return scatter / float(weights.sum()), np.asarray(projections)


@dataclass(frozen=True, kw_only=True)
class CAF(HonestMajority):
    r"""Covariance-bound agnostic filter (Allouah, Guerraoui and Stephan, ICML 2025): weights that shrink with spread.

    Start with :math:`c_i = 1`. While :math:`\sum_i c_i > n - 2f`: form the weighted mean and covariance, their largest
    eigenvalue :math:`\lambda` with its eigenvector v, and :math:`\tau_i = \langle x_i - \mu_c, v \rangle^2`; then

    .. math:: c_i \leftarrow c_i (1 - \tau_i / \max_j \tau_j)

    The step is the mean that had the least :math:`\lambda`. Needs n > 2f; no bound on the covariance of honest updates
    need be known. Judges no client: all are accepted, with their weights as evidence.

    Parameters
    ----------
    num_malicious
        Bound on the malicious clients of the whole population; f is the cohort's share of it.
    strict
        Raise :class:`~mabrfl.errors.QuorumError` instead of recording an event unless n > 2f.
    """

    def __call__(self, cohort: Cohort, /) -> Decision:
        """Shrink weights along the direction of largest spread."""
        f, events = self.expected(cohort, "caf")
        n = len(cohort)
        gram = cohort.gram / (float(np.diag(cohort.gram).max()) or 1.0)
        weights, best, least, rounds = np.ones(n), np.ones(n), math.inf, 0
        while weights.sum() > n - 2 * f:
            value, projections = top_projections(gram, weights)
            rounds += 1
            if value < least:
                best, least = weights, value
            largest = projections[weights > 0].max()
            if largest <= np.finfo(np.float64).eps:  # all rows with weight are one
                break
            weights = weights * np.clip(1 - projections / largest, 0, 1)
        best = best / best.sum()
        return Decision(
            weights=best,
            evidence=[{"weight": float(weight)} for weight in best],
            events=events,
            facts={"iterations": rounds},
        )


@dataclass(frozen=True, kw_only=True)
class SMEA(HonestMajority):
    r"""Smallest maximum eigenvalue averaging (Allouah et al., ICML 2023): the n - f updates that spread least.

    .. math:: S^* = \arg\min_{|S| = n - f} \lambda_{\max}\Big( \frac{1}{|S|} \sum_{i \in S}
       (x_i - \bar x_S)(x_i - \bar x_S)^\top \Big)

    and the step is the mean over :math:`S^*`. Needs n > 2f. All subsets are tried, so that n and f must be small: 4,845
    subsets for n = 20 and f = 4, but 2.3e12 for n = 50 and f = 15. The f others are reported as outliers. Of equal
    subsets the first in order of the rows is taken.

    Parameters
    ----------
    num_malicious
        Bound on the malicious clients of the whole population; f is the cohort's share of it.
    search
        ``"exact"`` (the paper) raises :class:`~mabrfl.errors.QuorumError` if there are more than ``max_subsets``
        subsets. ``"greedy"`` removes, f times, the update with the largest projection on the top eigenvector of those
        that remain: not the paper's rule, but for any n.
    max_subsets
        How many subsets ``"exact"`` tries at most.
    strict
        Raise :class:`~mabrfl.errors.QuorumError` instead of recording an event unless n > 2f.
    """

    search: Search = "exact"
    max_subsets: int = MAX_SUBSETS

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("SMEA search", self.search, get_args(Search))
        check_whole("SMEA max_subsets", self.max_subsets, at_least=1)

    def __call__(self, cohort: Cohort, /) -> Decision:
        """Average the subset with the least largest eigenvalue."""
        f, events = self.expected(cohort, "smea")
        n = len(cohort)
        scale = float(np.diag(cohort.gram).max()) or 1.0
        gram = centred(cohort.gram / scale, np.ones(n))
        if self.search == "greedy":
            kept = _greedy(gram, f)
        else:
            subsets = math.comb(n, f)
            if subsets > self.max_subsets:
                raise QuorumError(
                    f"smea tries at most max_subsets={self.max_subsets:,} subsets; n={n}, f={f} has {subsets:,}; "
                    "search='greedy' goes with any number"
                )
            kept = marked(n, least_spread(gram, n - f))
        value, _ = top_projections(gram[np.ix_(kept, kept)], np.ones(n - f))
        return mean_of_kept(kept, events=events, facts={"largest_eigenvalue": value * scale})


def least_spread(gram: NDArray[np.float64], count: int) -> NDArray[np.intp]:
    """Return the ``count`` rows whose covariance has the least largest eigenvalue, of all such subsets.

    Examples
    --------
    >>> points = np.array([[0.0], [1.0], [9.0], [1.5]])
    >>> least_spread(points @ points.T, 3)
    array([0, 1, 3])
    """
    best, least = np.arange(count), math.inf
    projector = np.eye(count) - 1 / count
    for rows in _batches(len(gram), count):
        inner = projector @ gram[rows[:, :, None], rows[:, None, :]] @ projector
        values = np.linalg.eigvalsh(inner)[:, -1]
        place = int(np.argmin(values))
        if values[place] < least:
            best, least = rows[place], float(values[place])
    return best


def _batches(n: int, count: int) -> Iterator[NDArray[np.intp]]:
    subsets = itertools.combinations(range(n), count)
    while batch := list(itertools.islice(subsets, _BATCH)):
        yield np.array(batch, dtype=np.intp)


def _greedy(gram: NDArray[np.float64], num_removed: int) -> NDArray[np.bool_]:
    kept = np.ones(len(gram), dtype=bool)
    for _ in range(num_removed):
        rows = np.flatnonzero(kept)
        _, projections = top_projections(gram[np.ix_(rows, rows)], np.ones(len(rows)))
        kept[rows[int(np.argmax(projections))]] = False
    return kept
