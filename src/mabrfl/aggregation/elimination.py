"""CGE, MoNNA and Aksel: the mean of n - f updates, those of least norm, or those nearest to a point."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mabrfl import vectors
from mabrfl.aggregation.coordinatewise import median
from mabrfl.aggregation.honest_majority import HonestMajority
from mabrfl.aggregation.kept_clients import marked, mean_of_kept
from mabrfl.checks import check_whole
from mabrfl.updates import Cohort, Decision


@dataclass(frozen=True, kw_only=True)
class CGE(HonestMajority):
    r"""Comparative gradient elimination (Gupta, Liu and Vaidya, 2020): the mean of the n - f shortest updates.

    The paper adds the n - f gradients up; with a learning rate of its own that is the same as their mean, which is what
    belongs to updates. The f longest are reported as outliers. Nothing but the length is judged: an attacker that keeps
    its update short is never removed. Needs n > 2f. Of equal norms the lower index in canonical order counts as the
    shorter.

    Parameters
    ----------
    num_malicious
        Bound on the malicious clients of the whole population; f is the cohort's share of it.
    strict
        Raise :class:`~mabrfl.errors.QuorumError` instead of recording an event unless n > 2f.
    """

    def __call__(self, cohort: Cohort, /) -> Decision:
        """Average the shortest updates."""
        f, events = self.expected(cohort, "cge")
        count = len(cohort) - f
        kept = marked(len(cohort), np.argsort(cohort.norms, kind="stable")[:count])
        return mean_of_kept(kept, scores={"norm": cohort.norms}, events=events)


@dataclass(frozen=True, kw_only=True)
class MoNNA(HonestMajority):
    r"""Nearest-neighbour averaging (MoNNA; Farhadkhani et al., ICML 2023): the n - f updates nearest to a pivot.

    .. math:: g = \frac{1}{n - f} \sum_{j \in N_p} x_j

    with :math:`N_p` the n - f updates nearest to the pivot :math:`x_p`, itself included. In the paper there is no
    server: each honest node takes its own vector as the pivot. A server has no vector of its own, so the pivot is by
    default the medoid, the update with the least sum of distances to the others; it does not depend on who has which
    id. ByzFL takes the first row, whoever sent it: ``pivot=0``. A malicious pivot decides on the step.

    The f farthest are reported as outliers. Needs n > 2f.

    Parameters
    ----------
    num_malicious
        Bound on the malicious clients of the whole population; f is the cohort's share of it.
    pivot
        Row of the pivot in canonical order of the clients; the medoid if left out. A row that is not there (the
        cohort is smaller) counts from the start again.
    strict
        Raise :class:`~mabrfl.errors.QuorumError` instead of recording an event unless n > 2f.
    """

    pivot: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pivot is not None:
            check_whole("MoNNA pivot", self.pivot)

    def __call__(self, cohort: Cohort, /) -> Decision:
        """Average the neighbours of the pivot."""
        f, events = self.expected(cohort, "monna")
        distances = np.sqrt(cohort.squared_distances)
        pivot = int(np.argmin(distances.sum(axis=1))) if self.pivot is None else self.pivot % len(cohort)
        far = distances[pivot].copy()
        far[pivot] = -1.0  # a copy of the pivot is as near as the pivot, which must be included
        count = len(cohort) - f
        kept = marked(len(cohort), np.argsort(far, kind="stable")[:count])
        return mean_of_kept(kept, scores={"distance": distances[pivot]}, events=events, facts={"pivot": pivot})


@dataclass(frozen=True, kw_only=True)
class Aksel(HonestMajority):
    r"""Aksel (Boussetta et al., OPODIS 2020): the mean of the n - f updates nearest to the coordinate-wise median.

    .. math:: g = \frac{1}{n - f} \sum_{i \in N} x_i, \qquad N: \text{ the n - f least } \lVert x_i - m \rVert

    with m the median of each coordinate. Needs n > 2f. The package krum has the same. The f farthest are reported as
    outliers. Of equal distances the lower index in canonical order counts as the nearer.

    Parameters
    ----------
    num_malicious
        Bound on the malicious clients of the whole population; f is the cohort's share of it.
    strict
        Raise :class:`~mabrfl.errors.QuorumError` instead of recording an event unless n > 2f.
    """

    def __call__(self, cohort: Cohort, /) -> Decision:
        """Average the neighbours of the median."""
        f, events = self.expected(cohort, "aksel")
        pivot = vectors.coordinatewise(cohort.matrix, median)
        across = vectors.products(cohort.matrix, pivot, cohort.norms)
        square = float(vectors.row_norms(pivot[None])[0]) ** 2
        far = np.sqrt(np.clip(cohort.norms**2 - 2 * across + square, 0, None))
        count = len(cohort) - f
        kept = marked(len(cohort), np.argsort(far, kind="stable")[:count])
        return mean_of_kept(kept, scores={"distance": far}, events=events)
