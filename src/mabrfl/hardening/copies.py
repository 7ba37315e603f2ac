"""Copies: updates that agree in what is not common to all, and what becomes of their votes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.cluster import hierarchy
from scipy.spatial.distance import squareform

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

_EXACT = 1 - 1e-4
"""Raw cosine of updates that are the same but for rounding."""
_TINY = 1e-9


def residual_cosines(cosines: Matrix, trust: Vector) -> Matrix:
    r"""Return the cosines of what is left of unit vectors when their trusted mean is taken off.

    .. math:: r_{jk} = \cos(u_j - \bar u,\; u_k - \bar u), \qquad \bar u = \sum_k p_k u_k,\quad p \propto trust

    Honest clients with much data in common send updates that are all alike, with cosines of 0.9 and
    more; their residuals are independent noise. Copies have the same residual. So one threshold will
    do whatever the model, its initialisation and the data.

    Examples
    --------
    >>> rows = np.array([[0.8, 0.6, 0.0], [0.8, 0.0, 0.6], [0.8, 0.6, 0.0]])
    >>> (rows @ rows.T)[0].round(2), residual_cosines(rows @ rows.T, np.ones(3))[0].round(2)
    (array([1.  , 0.64, 1.  ]), array([ 1., -1.,  1.]))
    """
    share = trust / max(float(trust.sum()), _TINY)
    toward = cosines @ share
    inner = cosines - toward[:, None] - toward[None, :] + share @ toward
    lengths = np.sqrt(np.clip(np.diag(inner), _TINY, None))
    result = inner / np.outer(lengths, lengths)
    # Copies of the mean have no residual to speak of; being the same is enough.
    result = np.where(cosines >= _EXACT, 1.0, np.clip(result, -1, 1))
    return np.asarray((result + result.T) / 2)


def similar_groups(
    similarity: Matrix, threshold: float, grouping: Literal["all-pairs", "chains"] = "all-pairs"
) -> list[NDArray[np.intp]]:
    """Return the groups of two or more in which all pairs are at least this similar, largest first.

    With ``chains`` it is enough to be linked by others (the paper's connected components); then one
    update that resembles everybody makes one group of all.
    """
    n = len(similarity)
    if n < 2:
        return []
    distance = np.clip(1 - similarity, 0, None)
    np.fill_diagonal(distance, 0)
    method: Literal["complete", "single"] = "complete" if grouping == "all-pairs" else "single"
    merges = hierarchy.linkage(squareform(distance, checks=False), method=method)
    labels = hierarchy.fcluster(merges, 1 - threshold, criterion="distance")
    groups = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    found = [group for group in groups if len(group) > 1]
    return sorted(found, key=lambda group: (-len(group), int(group[0])))


@dataclass(frozen=True)
class Group:
    """Copies of one another: seats of the panel."""

    members: NDArray[np.intp]
    guarded: bool
    """They hold half of the reputation or more: more likely the honest majority, and left alone."""


def copied_groups(
    found: Sequence[tuple[NDArray[np.intp], float]], trust: Vector, *, guard: bool, seats: int
) -> list[Group]:
    """Make the groups found disjoint, and mark those that are too large to be believed.

    Parameters
    ----------
    found
        Groups of seats, each with the reputation of all who were compared; a seat stays in the first.
    trust
        Reputation of each seat.
    guard
        Whether groups with half or more of that reputation are left alone.
    seats
        Number of seats.
    """
    taken = np.zeros(seats, dtype=bool)
    result = []
    for group, compared in found:
        members = group[~taken[group]]
        if len(members) < 2:
            continue
        guarded = guard and 2 * float(trust[members].sum()) >= compared
        if not guarded:
            taken[members] = True
        result.append(Group(members, guarded))
    return result


def representative(members: NDArray[np.intp], trust: Vector, consistency: Vector, lead: float) -> tuple[int, bool]:
    """Return who speaks for a group of copies, and whether it is told apart as the original.

    The original's update resembles its own past; a copy's past is another client's, or its own other
    behaviour. If one member leads the others in this by ``lead``, it is the original. Otherwise the
    most trusted member speaks for the group, the first one if several are.

    Parameters
    ----------
    members
        Seats of the group.
    trust
        Reputation of each seat.
    consistency
        Cosine of each seat's update with its own momentum of before; NaN without one, or without an
        update this round.
    lead
        0 tells nobody apart.
    """
    known = members[np.isfinite(consistency[members])]
    if lead and len(known) > 1:
        order = known[np.argsort(-consistency[known], kind="stable")]
        if consistency[order[0]] - consistency[order[1]] >= lead:
            return int(order[0]), True
    return int(members[np.argmax(trust[members])]), False


def copy_blame(size: int) -> float:
    """How much each copy is blamed in a group of this size, when the original is not told apart.

    Of m copies all but one are false at least, of two copies perhaps neither knows: (m - 2) / m.

    Examples
    --------
    >>> [round(copy_blame(size), 2) for size in (2, 3, 16)]
    [0.0, 0.33, 0.88]
    """
    return max(0.0, (size - 2) / size)
