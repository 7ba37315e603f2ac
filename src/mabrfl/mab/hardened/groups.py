"""Groups and single clients that point elsewhere than the others."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.cluster import hierarchy
from scipy.spatial.distance import squareform

from mabrfl.mab.hardened.copies import minority

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]
Mask = NDArray[np.bool_]

_FEWEST = 4
"""Clients among which one may oppose the others."""
_FEWEST_FOR_GROUPS = 5
"""Clients among which a group of two is a minority."""
_SMALLEST = 2
_FLOOR = 0.01
"""Of a mean cosine under a square root."""
_SMALL_GROUP = 0.4
"""How much more separation is asked of a small group: this times ln(clients) / size."""
_ALIGNED = 0.5
"""Groups whose mean directions have at least this cosine never differ."""
_STANDS_OUT = 0.45
"""What is left among the others may differ by at most this share of what the rejected groups differ by."""
_LARGE, _MORE = 0.4, 6.0
"""Of a group with more than this share of the mass more separation is asked, up to 1.6 times at one half: the nearer to
half it is, the likelier it is that the others are the ones who lie."""
_AGREEMENT = 0.1
"""Mean cosine from which clients agree, so that one of them can oppose the others."""


def branches(cosines: Matrix) -> Mask:
    """Return the groups of Ward's hierarchical clustering as masks, one row each; leaves and the root left out."""
    n = len(cosines)
    # Ward's method needs the distances between unit vectors only, not the vectors.
    distances = np.sqrt(np.clip(2 - 2 * cosines, 0, None))
    np.fill_diagonal(distances, 0)
    merges = hierarchy.linkage(squareform(distances, checks=False), method="ward")
    masks = np.concatenate([np.eye(n, dtype=bool), np.zeros((n - 1, n), dtype=bool)])
    for step, (left, right) in enumerate(merges[:, :2].astype(int)):
        masks[n + step] = masks[left] | masks[right]
    return masks[n:-1]


def separations(cosines: Matrix, groups: Mask) -> tuple[Vector, Vector]:
    r"""Return the squared distance between each group's mean direction and that of all others, and their cosine.

    Both are corrected for the noise of the individual members. With a and b the mean cosines between
    different members within the group and within the others, and x the mean cosine across,

    .. math:: D^2 = a + b - 2 x, \qquad c = x / \sqrt{a b}.

    Without the correction, small groups would seem farther away than large ones. At the end of training,
    when honest updates are mostly noise, any two halves of them would seem to oppose each other.
    """
    chosen = groups.astype(np.float64)
    size = chosen.sum(axis=1)
    others = len(cosines) - size
    toward = chosen @ cosines
    within = (toward * chosen).sum(axis=1)
    across = (toward * (1 - chosen)).sum(axis=1)
    rest = cosines.sum() - within - 2 * across
    with np.errstate(divide="ignore", invalid="ignore"):
        inside = (within - size) / (size * (size - 1))
        outside = (rest - others) / (others * (others - 1))
        between = across / (size * others)
    cosine = between / np.sqrt(np.clip(inside, _FLOOR, None) * np.clip(outside, _FLOOR, None))
    return inside + outside - 2 * between, np.clip(cosine, -1, 1)


@dataclass(frozen=True)
class Group:
    """A group that differs from the others, and by how much.

    Attributes
    ----------
    members
        Who belongs to it.
    excess
        Separation D² from the others, less what is asked of a small group: 0.4 ln(clients) / size.
    needed
        Excess from which it is rejected, if it stands out as well.
    cosine
        Of its mean direction with that of the others.
    """

    members: NDArray[np.intp]
    excess: float
    needed: float
    cosine: float


class Compared(NamedTuple):
    """What a comparison of clients in groups finds.

    Attributes
    ----------
    group
        The group that differs most from the others and points elsewhere; None if there is none.
    spread
        Highest excess of any group, whether it points elsewhere or not.
    """

    group: Group | None
    spread: float


def compare(
    cosines: Matrix, mass: Vector, *, separation: float, suspicion: float, smallest: int = _SMALLEST
) -> Compared:
    """Look for the group with less than half of the mass that differs most from the others."""
    n = len(cosines)
    if n < _FEWEST_FOR_GROUPS:
        return Compared(None, 0.0)
    masks = branches(cosines)
    heavy = masks @ mass > mass.sum() / 2
    masks = np.where(heavy[:, None], ~masks, masks)
    size = masks.sum(axis=1)
    masks = masks[(size >= smallest) & (n - size >= _SMALLEST)]
    if not len(masks):
        return Compared(None, 0.0)
    squared, cosine = separations(cosines, masks)
    size = masks.sum(axis=1)
    credence = np.minimum(masks @ mass / size * (n - size) / np.maximum(~masks @ mass, _FLOOR), 1)
    nearly_half = np.maximum(masks @ mass / mass.sum() - _LARGE, 0)
    needed = separation * (1 - suspicion * (1 - credence)) * (1 + _MORE * nearly_half)
    excess = squared - _SMALL_GROUP * np.log(n) / size
    best = int(np.argmax(np.where(cosine < _ALIGNED, excess - needed, -np.inf)))
    group = Group(np.flatnonzero(masks[best]), float(excess[best]), float(needed[best]), float(cosine[best]))
    return Compared(group if cosine[best] < _ALIGNED else None, float(excess.max()))


def outlying_groups(
    cosines: Matrix,
    mass: Vector,
    *,
    separation: float,
    suspicion: float = 0.3,
    smallest: int = _SMALLEST,
    most: float = 0.5,
    spent: float = 0.0,
    clear: float = 0.0,
) -> tuple[list[Group], Group | None]:
    """Return the groups to reject, and the group that differs most (which may not be rejected).

    Groups are taken away one after the other, the most different one first, until half of the mass is gone. The
    first k of them are rejected, for the largest k for which

    - each differs from those that were left by an excess of ``separation`` (less for one with little reputation, and
      less by the share ``clear`` if the clients that stay do not differ at all),
    - together, and with the mass ``spent``, they hold less than half of all mass, none of them more than the share
      ``most`` of what is compared, and
    - they stand out: no group among the clients that stay, wherever it points, differs from the rest by more than
      0.45 times as much as each of them. Where honest clients come in groups (one label each, say), all of these
      groups differ about as much, so none of them stands out.

    Parameters
    ----------
    cosines
        Of what is compared, ``(n, n)``.
    mass
        The reputation of each client.
    separation, suspicion
        See :class:`~mabrfl.mab.hardened.hardened_options.HardenedOptions`; a separation of 0 rejects nobody.
    smallest, most
        Smaller groups are not examined, and larger ones (by their share of the mass) not rejected.
    spent
        The mass of the clients that are not compared, because they are absent or rejected already.
    clear
        By which share the needed excess shrinks where no group differs among the clients that stay. It shrinks less the
        more these differ, and not at all where the groups just stand out.
    """
    if not separation:
        return [], None
    groups, spreads = _one_after_the_other(cosines, mass, separation=separation, suspicion=suspicion, smallest=smallest)
    total = mass.sum() + spent
    gone = spent + np.cumsum([mass[group.members].sum() for group in groups])
    rejected: list[Group] = []
    for k, group in enumerate(groups, start=1):
        if mass[group.members].sum() > most * mass.sum() or not minority(gone[k - 1], total):
            break
        others = max(spreads[k:])
        found = [_beside(each, others, clear) for each in groups[:k]]
        if all(each.excess >= each.needed and others <= _STANDS_OUT * each.excess for each in found):
            rejected = found
    return rejected, _beside(groups[0], max(spreads[1:]), clear) if groups else None


def _beside(group: Group, others: float, clear: float) -> Group:
    """Return the group with the excess that it needs beside ``others`` who differ by so much."""
    unlike = min(max(others, 0.0) / (_STANDS_OUT * group.excess), 1.0) if group.excess > 0 else 1.0
    return replace(group, needed=group.needed * (1 - clear * (1 - unlike)))


def _one_after_the_other(cosines: Matrix, mass: Vector, **settings: Any) -> tuple[list[Group], list[float]]:
    """Take the most different group away, again and again, until half of the mass is gone or nothing differs.

    Return these groups, and the spread of the clients before each and after the last of them was taken away.
    """
    alive = np.arange(len(cosines))
    groups: list[Group] = []
    spreads: list[float] = []
    while True:
        group, spread = compare(cosines[np.ix_(alive, alive)], mass[alive], **settings)
        spreads.append(spread)
        enough = not minority(mass.sum() - mass[alive].sum(), mass.sum()) or (groups and groups[-1].excess <= 0)
        if group is None or enough:
            return groups, spreads
        groups.append(replace(group, members=alive[group.members]))
        alive = np.setdiff1d(alive, groups[-1].members)


class Opposed(NamedTuple):
    """A single client that opposes all others, and its cosine with their mean."""

    member: int
    cosine: float


def mean_cosines(cosines: Matrix) -> Vector:
    """Return the mean cosine of each client with all others.

    Examples
    --------
    >>> mean_cosines(np.array([[1.0, 0.5, 0.1], [0.5, 1.0, -0.3], [0.1, -0.3, 1.0]]))
    array([ 0.3,  0.1, -0.1])
    """
    return np.asarray((cosines.sum(axis=1) - np.diag(cosines)) / max(len(cosines) - 1, 1))


def opposed_clients(
    cosines: Matrix, mass: Vector, *, opposed: float, among: Mask | None = None, spent: float = 0.0
) -> list[Opposed]:
    r"""Return the clients that point against all others, one after the other, the most opposed one first.

    With x the mean cosine of a client with the others, and b the mean cosine among these, its cosine with their
    noise-free mean is :math:`x / \sqrt b`. The client is opposed if this is -``opposed`` or less while the others
    agree: b is at least 0.1, and those with a positive mean cosine hold more than half of all mass.

    An honest client with labels of its own has a small cosine with the others, and seldom a negative one.

    Parameters
    ----------
    cosines, mass, spent
        As in :func:`outlying_groups`.
    opposed
        See :class:`~mabrfl.mab.hardened.hardened_options.HardenedOptions`.
    among
        Who may be found; everybody if left out.
    """
    suspects = np.ones(len(cosines), dtype=bool) if among is None else among
    found: list[Opposed] = []
    alive = np.arange(len(cosines))
    total = mass.sum() + spent
    while opposed and len(alive) >= _FEWEST:
        n, means = len(alive), mean_cosines(cosines[np.ix_(alive, alive)])
        agreement = (means.sum() - 2 * means) / (n - 2)
        cosine = means / np.sqrt(np.clip(agreement, _FLOOR, None))
        candidates = np.where(suspects[alive] & (agreement >= _AGREEMENT), cosine, np.inf)
        lowest = int(np.argmin(candidates))
        rest = np.delete(alive, lowest)
        agreeing = rest[mean_cosines(cosines[np.ix_(rest, rest)]) > 0]
        if candidates[lowest] > -opposed or not minority(total - mass[agreeing].sum(), total):
            break
        found.append(Opposed(int(alive[lowest]), float(max(cosine[lowest], -1.0))))
        alive = rest
    return found
