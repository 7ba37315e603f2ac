"""Pre-aggregators: what is done to the updates before a rule judges them (see :mod:`mabrfl.aggregation.mixing`)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from mabrfl.aggregation.clipping import RadiusUnit
from mabrfl.aggregation.honest_majority import HonestMajority
from mabrfl.aggregation.mixing import Mixing
from mabrfl.checks import check_choice, check_positive, check_whole
from mabrfl.rng import uniforms
from mabrfl.updates import Cohort


def nearest_neighbours(squared_distances: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Return the mixing matrix of means over each row's ``count`` nearest rows, itself included.

    Of equally near rows, the one of lower index counts as nearer.

    Examples
    --------
    >>> points = np.array([0.0, 1.0, 3.0])
    >>> nearest_neighbours((points[:, None] - points) ** 2, 2)
    array([[0.5, 0.5, 0. ],
           [0.5, 0.5, 0. ],
           [0. , 0.5, 0.5]])
    """
    distances = squared_distances.copy()
    np.fill_diagonal(distances, -1.0)  # a copy of a row is as near as the row itself, which must be included
    order = np.argsort(distances, axis=1, kind="stable")[:, :count]
    weights = np.zeros_like(distances)
    np.put_along_axis(weights, order, 1.0 / count, axis=1)
    return weights


@dataclass(frozen=True, kw_only=True)
class NNM(HonestMajority):
    r"""Nearest-neighbour mixing (Allouah et al., AISTATS 2023): each update becomes the mean of its n - f nearest.

    .. math:: y_i = \frac{1}{n - f} \sum_{j \in N_i} x_j

    with :math:`N_i` the n - f updates nearest to :math:`x_i`, itself included. The paper proves that Krum, the
    geometric median, the coordinate-wise median and the trimmed mean after it have the best possible order of error,
    O(f / n), if n > 2f. Without it, with heterogeneous data, they do not. Ties are decided by the canonical order of
    the clients.

    Parameters
    ----------
    num_malicious
        Bound on the malicious clients of the whole population; f is the cohort's share of it.
    strict
        Raise :class:`~mabrfl.errors.QuorumError` instead of recording an event unless n > 2f.
    """

    def __call__(self, cohort: Cohort, /) -> Mixing:
        """Average the neighbours of each update."""
        f, events = self.expected(cohort, "nnm")
        return Mixing(nearest_neighbours(cohort.squared_distances, len(cohort) - f), events)


@dataclass(frozen=True, kw_only=True)
class Bucketing:
    r"""Bucketing (Karimireddy et al., ICLR 2022): a rule sees the means of random groups of s updates.

    A random permutation of the clients is cut into :math:`\lceil n/s \rceil` buckets, the last one may be smaller, and
    each becomes its mean. The rule gets these means, with the same f: each malicious client spoils one bucket. So a
    rule that asks for n >= 2f + 3 updates asks for that many *buckets*; with fewer it records an event, or raises if it
    is strict. The paper requires :math:`f / n \le \delta_{\max} / s`, where :math:`\delta_{\max}` is the share of
    malicious rows that the rule withstands.

    The permutation is drawn from a stream named by seed and round, one number per client. (FLPoison shuffles the rows
    of a matrix with ``random.shuffle``, which duplicates some and loses others.)

    Parameters
    ----------
    bucket_size
        s. The paper uses 2; 1 only permutes.
    """

    bucket_size: int = 2

    def __post_init__(self) -> None:
        check_whole("Bucketing bucket_size", self.bucket_size, at_least=1)

    def __call__(self, cohort: Cohort, /) -> Mixing:
        """Average random buckets."""
        order = np.argsort(uniforms(cohort.seed, "bucketing", cohort.round, cohort.ids), kind="stable")
        weights = np.zeros((math.ceil(len(order) / self.bucket_size), len(order)))
        for bucket in range(len(weights)):
            members = order[bucket * self.bucket_size : (bucket + 1) * self.bucket_size]
            weights[bucket, members] = 1.0 / len(members)
        return Mixing(weights, facts={"num_buckets": len(weights)})


def clip_factors(norms: NDArray[np.float64], bound: float) -> NDArray[np.float64]:
    """Return the factor ``min(1, bound / norm)`` of each row.

    Examples
    --------
    >>> clip_factors(np.array([1.0, 4.0, 0.0]), 2.0)
    array([1. , 0.5, 1. ])
    """
    return np.divide(bound, norms, out=np.ones_like(norms), where=norms > bound)


@dataclass(frozen=True, kw_only=True)
class NormBound:
    r"""Norm bound, also called static clipping (Sun et al., 2019): updates longer than a bound are scaled down to it.

    .. math:: y_i = x_i \cdot \min(1, c / \lVert x_i \rVert)

    Parameters
    ----------
    bound
        c, in units of ``bound_unit``. By default the median norm of the round's updates, for the reasons given at
        :class:`~mabrfl.aggregation.CenteredClip`.
    bound_unit
        ``"median-norm"``, or ``"absolute"`` to give c itself, as the paper does.
    """

    bound: float = 1.0
    bound_unit: RadiusUnit = "median-norm"

    def __post_init__(self) -> None:
        check_positive("NormBound bound", self.bound)
        check_choice("NormBound bound_unit", self.bound_unit, get_args(RadiusUnit))

    def __call__(self, cohort: Cohort, /) -> Mixing:
        """Scale down what is too long."""
        unit = 1.0 if self.bound_unit == "absolute" else float(np.median(cohort.norms))
        factors = clip_factors(cohort.norms, self.bound * unit)
        return Mixing(np.diag(factors), facts={"bound": self.bound * unit, "num_bounded": int(np.sum(factors < 1))})


@dataclass(frozen=True, kw_only=True)
class ARC:
    r"""Adaptive robust clipping (Allouah et al., ICLR 2025): the k longest updates are scaled to the next norm.

    With :math:`k = \lfloor 2 (f/n) (n - f) \rfloor`, the updates longer than the (k + 1)-th longest are scaled to its
    norm. The bound adapts to the round, no honest update is lost, and, unlike a static bound, the robustness that the
    rule behind it guarantees is kept (Theorem 3.2). It is meant for use before NNM and a rule, with f < n / 2.
    (ByzFL's changes the caller's array.)

    Parameters
    ----------
    num_malicious
        Bound on the malicious clients of the whole population; f is the cohort's share of it.
    """

    num_malicious: int

    def __post_init__(self) -> None:
        check_whole("ARC num_malicious", self.num_malicious)

    def __call__(self, cohort: Cohort, /) -> Mixing:
        """Scale down the longest updates."""
        n, f = len(cohort), cohort.expected_malicious(self.num_malicious)
        count = 2 * f * (n - f) // n
        bound = float(np.sort(cohort.norms)[n - count - 1])
        factors = clip_factors(cohort.norms, bound)
        return Mixing(np.diag(factors), facts={"arc_bound": bound, "num_clipped_by_arc": int(np.sum(factors < 1))})
