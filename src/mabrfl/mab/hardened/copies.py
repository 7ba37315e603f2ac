"""Copies: updates with the same residual, and the votes that they get.

A residual is an update less the trusted mean of all updates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.cluster import hierarchy

from mabrfl.vectors.pairs import Matrix, Vector, row_blocks, symmetrise, upper_triangle

_TINY = 1e-9
_ROUNDING = 1e-6
"""Squared length of a residual of unit vectors below which only rounding is left of it."""


def residual_cosines(cosines: Matrix, trust: Vector) -> Matrix:
    r"""Return the cosines of the residuals: unit vectors less their trusted mean.

    .. math:: r_{jk} = \cos(u_j - \bar u,\; u_k - \bar u), \qquad \bar u = \sum_k p_k u_k,\quad p \propto trust

    Honest clients with much data in common send updates that are all alike, with cosines of 0.9 and
    more; their residuals are independent noise. Copies have the same residual. So one threshold fits
    every model, initialisation and data set.

    Examples
    --------
    >>> rows = np.array([[0.8, 0.6, 0.0], [0.8, 0.0, 0.6], [0.8, 0.6, 0.0]])
    >>> (rows @ rows.T)[0].round(2), residual_cosines(rows @ rows.T, np.ones(3))[0].round(2)
    (array([1.  , 0.64, 1.  ]), array([ 1., -1.,  1.]))
    """
    share = trust / max(float(trust.sum()), _TINY)
    toward = cosines @ share
    middle = share @ toward
    squares = np.diag(cosines) - toward - toward + middle
    lengths = np.sqrt(np.clip(squares, _TINY, None))
    # A residual of no more than rounding has no direction.
    scale = np.where(squares > _ROUNDING, 1 / lengths, 0.0)
    result = np.empty(cosines.shape)
    for rows in row_blocks(*cosines.shape):
        inner = np.subtract(cosines[rows], toward[rows, None], out=result[rows])
        inner -= toward
        inner += middle
        inner *= np.outer(scale[rows], scale)
        np.clip(inner, -1, 1, out=inner)
    np.fill_diagonal(result, 1.0)
    return symmetrise(result)


def similar_groups(similarity: Matrix, *thresholds: float) -> list[list[NDArray[np.intp]]]:
    """Return, for each threshold, the groups of two or more in which all pairs are at least so similar, largest first.

    Complete linkage: one update that resembles everybody does not make one group of all, as it would with the
    paper's connected components.

    Examples
    --------
    >>> similar_groups(np.array([[1.0, 0.9, 0.7], [0.9, 1.0, 0.7], [0.7, 0.7, 1.0]]), 0.95, 0.8, 0.6)
    [[], [array([0, 1])], [array([0, 1, 2])]]
    """
    distances = upper_triangle(similarity)
    np.subtract(1, distances, out=distances)
    np.maximum(distances, 0, out=distances)
    if not len(distances) or distances.min() > 1 - min(thresholds):
        return [[] for _ in thresholds]
    merges = hierarchy.linkage(distances, method="complete")
    return [_groups(hierarchy.fcluster(merges, 1 - each, criterion="distance")) for each in thresholds]


def _groups(labels: NDArray[np.integer[Any]]) -> list[NDArray[np.intp]]:
    """Return the members of each label that two or more have, the largest group first, then by first member."""
    order = np.argsort(labels, kind="stable")
    ends = np.flatnonzero(np.diff(labels[order])) + 1
    groups = [group for group in np.split(order, ends) if len(group) > 1]
    return sorted(groups, key=lambda group: (-len(group), int(group[0])))


def disjoint(groups: Sequence[NDArray[np.intp]], members: int) -> list[NDArray[np.intp]]:
    """Return the groups without the members that an earlier group has; those left with one are dropped."""
    taken = np.zeros(members, dtype=bool)
    result = []
    for group in groups:
        left = group[~taken[group]]
        if len(left) > 1:
            taken[left] = True
            result.append(left)
    return result


def minority(part: float, whole: float) -> bool:
    """Whether a part is less than half of the whole, and not by rounding alone.

    Examples
    --------
    >>> minority(0.7 + 0.7 + 0.7, 0.7 * 6), minority(2, 5)
    (False, True)
    """
    return 2 * part < whole * (1 - _TINY)


def majority_is_coherent(mass: Vector, apart: NDArray[np.bool_], grouped: NDArray[np.bool_]) -> bool:
    """Whether the clients that are not ``apart`` are a majority, and are not in such groups themselves.

    Honest clients come in groups as well where each has few labels and much data. So nobody is rejected
    for belonging to a group unless (a) the groups hold less than half of the reputation and (b) less than
    half of the rest is ``grouped`` too.

    Parameters
    ----------
    mass
        Reputation of each client.
    apart
        Members of the groups found.
    grouped
        Members of groups that would be found if less were asked of them.
    """
    rest = ~apart
    return minority(mass[apart].sum(), mass.sum()) and minority(mass[rest & grouped].sum(), mass[rest].sum())


def representative(members: NDArray[np.intp], trust: Vector, consistency: Vector) -> int:
    """Return the client that represents a group of copies.

    The original update resembles its sender's own past; a copy does not. If the update of one member
    resembles its own past clearly more than those of all others, that member represents the group.
    Otherwise the most trusted member does, the first one of several.

    Parameters
    ----------
    members
        Those of the group who sent something this round.
    trust
        Reputation of each client.
    consistency
        Cosine of each client's update with its own momentum of before; NaN without one.
    """
    known = members[np.isfinite(consistency[members])]
    if len(known) == len(members) > 1:
        order = known[np.argsort(-consistency[known], kind="stable")]
        if consistency[order[0]] - consistency[order[1]] >= _CLEARLY:
            return int(order[0])
    return int(members[np.argmax(trust[members])])


_CLEARLY = 0.1
"""Lead in cosine by which an update resembles its sender's own past more than the copies of it do."""


def copy_blame(trust: Vector) -> Vector:
    """Return how much each member of a group of copies is blamed.

    The least trusted member is blamed by (m - 2) / m: of m copies at least all but one are false, and of
    two copies both may be innocent. The others are blamed in proportion to 1 - trust, so that newcomers
    cannot harm an established client by copying it.

    Examples
    --------
    >>> copy_blame(np.array([0.5, 0.5, 0.5, 0.5]))
    array([0.5, 0.5, 0.5, 0.5])
    >>> copy_blame(np.array([1.0, 0.5, 0.5, 0.5]))
    array([0. , 0.5, 0.5, 0.5])
    """
    doubt = 1 - trust
    return np.asarray(max(0.0, (len(trust) - 2) / len(trust)) * doubt / max(float(doubt.max()), _TINY))
