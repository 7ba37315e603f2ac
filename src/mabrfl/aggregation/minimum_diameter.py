"""MDA, minimum-diameter averaging, by an exact search that does not try all subsets.

n - f rows whose distances are all at most D are left exactly if f rows can be removed so that no pair farther apart
than D remains. Those f rows are a vertex cover of the graph of far pairs. A branching search finds one, or shows that
there is none, in a number of steps that grows with f, not with the number of subsets (n over f). The diameter itself is
found by bisection over the distances that occur.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mabrfl.aggregation.honest_majority import HonestMajority
from mabrfl.aggregation.kept_clients import marked, mean_of_kept
from mabrfl.checks import check_whole
from mabrfl.errors import QuorumError
from mabrfl.updates import Cohort, Decision

MAX_STEPS = 300_000
MAX_TIES = 2_000
"""How many subsets of the same diameter are compared; after that, the best one so far."""


class _Search:
    """Vertex covers of a graph, by branching on the vertex with most edges; sets of vertices are bits of an integer."""

    def __init__(self, far: NDArray[np.bool_], max_steps: int) -> None:
        self.edges = [sum(1 << int(other) for other in np.flatnonzero(row)) for row in far]
        self.steps_left = max_steps

    def covers(self, size: int) -> Iterator[int]:
        """Yield covers of at most this size; every one that has no smaller cover inside is among them."""
        yield from self._covers((1 << len(self.edges)) - 1, 0, size)

    def _covers(self, alive: int, chosen: int, left: int) -> Iterator[int]:
        self.steps_left -= 1
        if self.steps_left < 0:
            raise TimeoutError
        vertex, most, total, rest = -1, 0, 0, alive
        while rest:
            bit = rest & -rest
            rest ^= bit
            degree = (self.edges[bit.bit_length() - 1] & alive).bit_count()
            total += degree
            if degree > most:
                vertex, most = bit.bit_length() - 1, degree
        if vertex < 0:
            yield chosen
            return
        if total > 2 * left * most:  # so few vertices cannot cover so many edges
            return
        own, neighbours = 1 << vertex, self.edges[vertex] & alive
        yield from self._covers(alive & ~own, chosen | own, left - 1)
        if most <= left:
            yield from self._covers(alive & ~own & ~neighbours, chosen | neighbours, left - most)


def minimum_diameter(
    squared_distances: NDArray[np.float64], num_removed: int, *, max_steps: int = MAX_STEPS
) -> NDArray[np.bool_]:
    """Mark n - f rows whose largest distance to each other is the least possible.

    Of several such sets, the one with the least sum of squared distances between its rows.

    Parameters
    ----------
    squared_distances
        ``(n, n)`` squared Euclidean distances.
    num_removed
        f; less than n.
    max_steps
        After so many steps of the search it gives up.

    Raises
    ------
    TimeoutError
        If it gives up.

    Examples
    --------
    >>> points = np.array([0.0, 1.0, 2.0, 9.0, 3.5])
    >>> minimum_diameter((points[:, None] - points) ** 2, 2)
    array([ True,  True,  True, False, False])
    """
    n = len(squared_distances)
    levels = np.unique(squared_distances)
    low, high = 0, len(levels) - 1
    while low < high:
        middle = (low + high) // 2
        search = _Search(squared_distances > levels[middle], max_steps)
        if next(search.covers(num_removed), None) is None:
            low = middle + 1
        else:
            high = middle
    best, least, ties = marked(n, []), math.inf, 0
    search = _Search(squared_distances > levels[low], max_steps)
    try:
        for cover in search.covers(num_removed):
            kept = _without(cover, squared_distances, n - num_removed)
            spread = float(squared_distances[np.ix_(kept, kept)].sum())
            ties += 1
            if spread < least * (1 - 1e-12):
                best, least = kept, spread
            if ties >= MAX_TIES:
                break
    except TimeoutError:
        if not best.any():
            raise
    return best


def _without(cover: int, squared_distances: NDArray[np.float64], count: int) -> NDArray[np.bool_]:
    """Mark the rows outside a cover; if they are too many, without those that are farthest from the others."""
    n = len(squared_distances)
    kept = np.array([not cover >> row & 1 for row in range(n)])
    while kept.sum() > count:
        sums = np.where(kept, squared_distances @ kept, -1.0)
        kept[int(np.argmax(sums))] = False
    return kept


@dataclass(frozen=True, kw_only=True)
class MDA(HonestMajority):
    r"""Minimum-diameter averaging (El Mhamdi et al., 2018): the mean of the n - f updates nearest to each other.

    .. math:: S^* = \arg\min_{|S| = n - f} \max_{i, j \in S} \lVert x_i - x_j \rVert,
       \qquad g = \frac{1}{n - f} \sum_{i \in S^*} x_i

    Needs n > 2f. The search is exact, see :func:`minimum_diameter`. ByzFL, krum (``Brute``) and byzpy enumerate all
    subsets, 2.3e12 for n = 50 and f = 15. Of several subsets with the same diameter theirs is the first in order of the
    rows; here it is the one with the least sum of squared distances, whoever has which id. The f others are reported
    as outliers.

    Parameters
    ----------
    num_malicious
        Bound on the malicious clients of the whole population; f is the cohort's share of it.
    max_steps
        Give up with a :class:`~mabrfl.errors.QuorumError` after so many steps of the search.
    strict
        Raise :class:`~mabrfl.errors.QuorumError` instead of recording an event unless n > 2f.
    """

    max_steps: int = MAX_STEPS

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("MDA max_steps", self.max_steps, at_least=1)

    def __call__(self, cohort: Cohort, /) -> Decision:
        """Average the subset of least diameter."""
        f, events = self.expected(cohort, "mda")
        n = len(cohort)
        try:
            kept = minimum_diameter(cohort.squared_distances, f, max_steps=self.max_steps)
        except TimeoutError:
            raise QuorumError(
                f"mda: the best of {math.comb(n, f):,} subsets (n={n}, f={f}) was not found in {self.max_steps:,} "
                "steps; raise max_steps, or use another rule"
            ) from None
        diameter = float(np.sqrt(cohort.squared_distances[np.ix_(kept, kept)].max()))
        return mean_of_kept(kept, events=events, facts={"diameter": diameter})
