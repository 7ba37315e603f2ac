"""Slow twins of the search for groups: a mask for every group, and every sum taken anew.

They say what is meant; the package takes the same sums along the tree of the clustering.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.cluster import hierarchy
from scipy.spatial.distance import squareform

from mabrfl.mab.hardened import groups
from mabrfl.mab.hardened import opposed as single
from mabrfl.mab.hardened.copies import minority
from mabrfl.mab.hardened.groups import Compared, Group, Separations
from mabrfl.mab.hardened.opposed import Opposed

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]


def among(matrix: Matrix, members: NDArray[np.intp] | None) -> Matrix:
    return matrix if members is None else matrix[np.ix_(members, members)]


def branches(cosines: Matrix) -> NDArray[np.bool_]:
    """Return the groups of Ward's clustering as masks, one row each; leaves and the root left out."""
    n = len(cosines)
    distances = np.sqrt(np.clip(2 - 2 * cosines, 0, None))
    np.fill_diagonal(distances, 0)
    merges = hierarchy.linkage(squareform(distances, checks=False), method="ward")
    masks = np.concatenate([np.eye(n, dtype=bool), np.zeros((n - 1, n), dtype=bool)])
    for step, (left, right) in enumerate(merges[:, :2].astype(int)):
        masks[n + step] = masks[left] | masks[right]
    return masks[n:-1]


def separations(cosines: Matrix, masks: NDArray[np.bool_]) -> Separations:
    """Return D², c, a and b of each group; see :func:`mabrfl.mab.hardened.groups.separations`."""
    chosen = masks.astype(np.float64)
    size = chosen.sum(axis=1)
    others = len(cosines) - size
    toward = chosen @ cosines
    within = (toward * chosen).sum(axis=1)
    across = (toward * (1 - chosen)).sum(axis=1)
    rest = cosines.sum() - within - 2 * across
    inside = (within - size) / (size * (size - 1))
    outside = (rest - others) / (others * (others - 1))
    between = across / (size * others)
    cosine = between / np.sqrt(np.clip(inside, single.FLOOR, None) * np.clip(outside, single.FLOOR, None))
    return Separations(inside + outside - 2 * between, np.clip(cosine, -1, 1), inside, outside)


def compare(
    cosines: Matrix,
    mass: Vector,
    *,
    separation: float,
    suspicion: float,
    smallest: int = 2,
    members: NDArray[np.intp] | None = None,
    several: bool = False,
) -> Compared:
    """Look for the group with less than half of the mass that differs most from the others."""
    assert not several
    who = np.arange(len(cosines)) if members is None else members
    cosines, mass, n = among(cosines, members), mass[who], len(who)
    if n < groups._FEWEST:
        return Compared(None, 0.0)
    masks = branches(cosines)
    heavy = masks @ mass > mass.sum() / 2
    masks = np.where(heavy[:, None], ~masks, masks)
    size = masks.sum(axis=1)
    masks = masks[(size >= smallest) & (n - size >= 2)]
    if not len(masks):
        return Compared(None, 0.0)
    squared, cosine, inside, outside = separations(cosines, masks)
    mixed = outside / np.maximum(inside, single.FLOOR)
    size = masks.sum(axis=1)
    credence = np.minimum(masks @ mass / size * (n - size) / np.maximum(~masks @ mass, single.FLOOR), 1)
    nearly_half = np.maximum(masks @ mass / mass.sum() - groups._LARGE, 0)
    needed = separation * (1 - suspicion * (1 - credence)) * (1 + groups._MORE * nearly_half)
    excess = squared - groups._SMALL_GROUP * np.log(n) / size
    best = int(np.argmax(np.where(cosine < groups._ALIGNED, excess - needed, -np.inf)))
    group = Group(who[masks[best]], *(float(each[best]) for each in (excess, needed, cosine, credence, mixed)))
    return Compared(group if cosine[best] < groups._ALIGNED else None, float(excess.max()))


def mean_cosines(cosines: Matrix) -> Vector:
    return np.asarray((cosines.sum(axis=1) - np.diag(cosines)) / max(len(cosines) - 1, 1))


def opposed_clients(
    cosines: Matrix,
    mass: Vector,
    *,
    opposed: float,
    among: NDArray[np.bool_] | None = None,
    spent: float = 0.0,
    members: NDArray[np.intp] | None = None,
) -> list[Opposed]:
    """Take the most opposed client away, again and again, and compare those that are left anew each time."""
    alive = np.arange(len(cosines)) if members is None else members
    suspects = np.zeros(len(cosines), dtype=bool)
    suspects[alive] = True if among is None else among
    found: list[Opposed] = []
    total = mass[alive].sum() + spent
    while opposed and len(alive) >= single._FEWEST:
        n, means = len(alive), mean_cosines(cosines[np.ix_(alive, alive)])
        agreement = (means.sum() - 2 * means) / (n - 2)
        cosine = means / np.sqrt(np.clip(agreement, single.FLOOR, None))
        candidates = np.where(suspects[alive] & (agreement >= single._AGREEMENT), cosine, np.inf)
        lowest = int(np.argmin(candidates))
        rest = np.delete(alive, lowest)
        agreeing = rest[mean_cosines(cosines[np.ix_(rest, rest)]) > 0]
        if candidates[lowest] > -opposed or not minority(total - mass[agreeing].sum(), total):
            break
        found.append(Opposed(int(alive[lowest]), float(max(cosine[lowest], -1.0))))
        alive = rest
    return found


def similar_groups(similarity: Matrix, *thresholds: float) -> list[list[NDArray[np.intp]]]:
    """Cluster once for each threshold."""
    return [_similar_groups(similarity, threshold) for threshold in thresholds]


def _similar_groups(similarity: Matrix, threshold: float) -> list[NDArray[Any]]:
    if len(similarity) < 2:
        return []
    distance = np.clip(1 - similarity, 0, None)
    np.fill_diagonal(distance, 0)
    merges = hierarchy.linkage(squareform(distance, checks=False), method="complete")
    labels = hierarchy.fcluster(merges, 1 - threshold, criterion="distance")
    found = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    return sorted((group for group in found if len(group) > 1), key=lambda group: (-len(group), int(group[0])))
