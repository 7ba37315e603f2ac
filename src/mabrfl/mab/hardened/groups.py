"""Groups that point elsewhere than the others."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mabrfl.mab.hardened.copies import minority
from mabrfl.mab.hardened.dendrogram import Branches, branches
from mabrfl.mab.hardened.opposed import FLOOR, mean_cosines
from mabrfl.vectors.pairs import Indices, Matrix, Vector

_FEWEST = 5
"""Clients among which a group of two is a minority."""
_SMALLEST = 2
_SMALL_GROUP = 0.4
"""How much more separation is asked of a small group: this times ln(clients) / size."""
_ALIGNED = 0.5
"""Groups whose mean directions have at least this cosine never differ."""
_STANDS_OUT = 0.45
"""What is left among the others may differ by at most this share of what the rejected groups differ by."""
_LARGE, _MORE = 0.4, 6.0
"""Of a group with more than this share of the mass more separation is asked, up to 1.6 times at one half: the nearer to
half it is, the likelier it is that the others are the ones who lie."""
_SMALL = 1 / 3
"""Up to this share of the mass a group needs less separation where the others agree. Attackers who are nearly half can
agree among themselves, and with some honest clients, so that the other honest clients are the group."""
_OPPOSITE = -0.25
"""Up to this cosine with the others a group of any size needs less separation where the others agree: whoever is on the
attackers' side by chance would have to point against the other honest clients as well."""
_MIXED = 3.0
"""Honest clients who share a label agree so many times as much as the others do. Attackers whose data are like
everybody's agree among themselves about as much as the others do."""
_BACKED, _ALONE = 0.2, 2.0
"""Excess in the whole update from which it backs what a small layer shows; without it so many times as much is asked
there. Honest clients may differ in a few numbers by more than attackers do, and then they hardly differ in all others:
by up to 0.17 in the whole where the first layer has 0.7 to 1.4 (SGD, seeds 5 and 6); backdoors by 0.2 to 0.5."""
_ONE_BY_ONE = 32
"""So many groups are taken away one by one, each with a clustering of those that are left; there are twice as many
clusterings at most."""


class Separations(NamedTuple):
    """Each group beside all others: D², c, a and b of :func:`separations`."""

    squared: Vector
    cosine: Vector
    inside: Vector
    outside: Vector


def separations(groups: Branches) -> Separations:
    r"""Return the squared distance between each group's mean direction and that of all others, and their cosine.

    Both are corrected for the noise of the individual members. With a and b the mean cosines between
    different members within the group and within the others, and x the mean cosine across,

    .. math:: D^2 = a + b - 2 x, \qquad c = x / \sqrt{a b}.

    Without the correction, small groups would seem farther away than large ones. At the end of training,
    when honest updates are mostly noise, any two halves of them would seem to oppose each other.
    """
    size, others = groups.size, groups.tree.n - groups.size
    across = groups.toward - groups.within
    rest = groups.total - groups.within - 2 * across
    with np.errstate(divide="ignore", invalid="ignore"):
        inside = (groups.within - size) / (size * (size - 1))
        outside = (rest - others) / (others * (others - 1))
        between = across / (size * others)
    cosine = between / np.sqrt(np.clip(inside, FLOOR, None) * np.clip(outside, FLOOR, None))
    return Separations(inside + outside - 2 * between, np.clip(cosine, -1, 1), inside, outside)


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
    credence
        Its mean reputation over that of the others, at most 1.
    mixed
        The mean cosine between the others over that between members: 1 if members agree as much as the others do.
    """

    members: NDArray[np.intp]
    excess: float
    needed: float
    cosine: float
    credence: float
    mixed: float


class Compared(NamedTuple):
    """What a comparison of clients in groups finds.

    Attributes
    ----------
    group
        The group that differs most from the others and points elsewhere; None if there is none.
    spread
        Highest excess of any group, whether it points elsewhere or not.
    more
        Other groups that differ by what is needed or more and have no member in common, if they were asked for.
    """

    group: Group | None
    spread: float
    more: Sequence[Group] = ()


def compare(
    cosines: Matrix,
    mass: Vector,
    *,
    separation: float,
    suspicion: float,
    smallest: int = _SMALLEST,
    members: Indices | None = None,
    several: bool = False,
) -> Compared:
    """Look for the group with less than half of the mass that differs most from the others, or for several."""
    if members is not None:
        mass = mass[members]
    n, total = len(mass), mass.sum()
    if n < _FEWEST:
        return Compared(None, 0.0)
    groups = branches(cosines, members)
    held = groups.sums(mass)
    heavy = held > total / 2  # then it is the others who are the group
    size, held = np.where(heavy, n - groups.size, groups.size), np.where(heavy, total - held, held)
    examined = (size >= smallest) & (n - size >= _SMALLEST)
    if not examined.any():
        return Compared(None, 0.0)
    squared, cosine, inside, outside = separations(groups)
    mixed = np.where(heavy, inside, outside) / np.maximum(np.where(heavy, outside, inside), FLOOR)
    credence = np.minimum(held / size * (n - size) / np.maximum(total - held, FLOOR), 1)
    nearly_half = np.maximum(held / total - _LARGE, 0)
    needed = separation * (1 - suspicion * (1 - credence)) * (1 + _MORE * nearly_half)
    excess = squared - _SMALL_GROUP * np.log(n) / size
    margin = np.where(examined & (cosine < _ALIGNED), excess - needed, -np.inf)
    best = int(np.argmax(margin))
    spread = float(excess[examined].max())
    if not examined[best] or cosine[best] >= _ALIGNED:
        return Compared(None, spread)
    found: list[Group] = []
    free = np.ones(n, dtype=bool)
    for k in [best, *(np.argsort(-margin, kind="stable")[: np.count_nonzero(margin >= 0)] if several else ())]:
        chosen = groups.members(int(k), others=bool(heavy[k]))
        if free[chosen].all():
            free[chosen] = False
            who = chosen if members is None else members[chosen]
            measures = (float(each[k]) for each in (excess, needed, cosine, credence, mixed))
            found.append(Group(who, *measures))
    return Compared(found[0], spread, found[1:])


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
    alike: float = 0.0,
    whole: Matrix | None = None,
    members: Indices | None = None,
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
        By which share the needed excess shrinks where no group differs among the clients that stay: for a group with at
        most a third of all mass, or one that points against the others. It shrinks less the more these differ, and not
        at all where the groups just stand out.
    alike
        By which share the needed excess grows for a group with reputation whose members agree three times as much as
        the others do, as honest clients who share a label do. It grows less the less they agree, and not at all up to
        1.5 times as much. ``clear`` is less for such a group in the same measure.
    whole
        Cosines of the whole updates, of the same clients, if what is compared is a small layer. A group that hardly
        differs there needs twice as much here.
    members
        Rows and columns that are compared, ascending; all if left out.
    """
    if not separation:
        return [], None
    compared = np.arange(len(cosines)) if members is None else members
    settings = {"separation": separation, "suspicion": suspicion, "smallest": smallest}
    groups, spreads = _one_after_the_other(cosines, mass, compared, **settings)
    if whole is not None:
        groups = _backed(groups, whole, compared)
    held = mass[compared].sum()
    total = held + spent
    gone = spent + np.cumsum([mass[group.members].sum() for group in groups])
    shrinking = [
        clear if group.cosine <= _OPPOSITE or mass[group.members].sum() <= _SMALL * total else 0.0 for group in groups
    ]
    rejected: list[Group] = []
    for k, group in enumerate(groups, start=1):
        if mass[group.members].sum() > most * held or not minority(gone[k - 1], total):
            break
        others = max(spreads[k:])
        found = [_beside(each, others, less, alike) for each, less in zip(groups[:k], shrinking, strict=False)]
        if all(each.excess >= each.needed and others <= _STANDS_OUT * each.excess for each in found):
            rejected = found
    return rejected, _beside(groups[0], max(spreads[1:]), shrinking[0], alike) if groups else None


def _backed(groups: Sequence[Group], whole: Matrix, members: Indices) -> list[Group]:
    """Return groups that were taken away one after the other, with what they need by what the whole update shows."""
    found = []
    for group in groups:
        members = np.setdiff1d(members, group.members)
        alone = len(members) < _SMALLEST or _excess(whole, group.members, members) < _BACKED
        found.append(replace(group, needed=group.needed * _ALONE) if alone else group)
    return found


def _excess(cosines: Matrix, group: Indices, others: Indices) -> float:
    """Return the excess of a group beside others; see :class:`Group`."""
    inside, outside = (float(mean_cosines(cosines, each).mean()) for each in (group, others))
    between = float(cosines[np.ix_(group, others)].mean())
    return inside + outside - 2 * between - _SMALL_GROUP * float(np.log(len(group) + len(others))) / len(group)


def _beside(group: Group, others: float, clear: float, alike: float) -> Group:
    """Return the group with the excess that it needs beside ``others`` who differ by so much."""
    unlike = min(max(others, 0.0) / (_STANDS_OUT * group.excess), 1.0) if group.excess > 0 else 1.0
    # 1 for a trusted group that agrees as clients who share a label do, 0 for one that agrees as the others do.
    sharing = group.credence * (1 - min(max(_MIXED * group.mixed - 1, 0.0), 1.0))
    return replace(group, needed=group.needed * (1 - clear * (1 - unlike) * (1 - sharing) + alike * sharing))


def _one_after_the_other(
    cosines: Matrix, mass: Vector, members: Indices, **settings: Any
) -> tuple[list[Group], list[float]]:
    """Take the most different group away, again and again, until half of the mass is gone or nothing differs.

    Return these groups, and the spread of the clients before each and after the last of them was taken away. Attackers
    in very many groups would cost a clustering for each: after the first 32, all that differ by what is needed are
    taken away at once, and nothing is looked for once there are none.
    """
    whole = mass[members].sum()
    groups: list[Group] = []
    spreads: list[float] = []
    for number in itertools.count():
        several = number >= _ONE_BY_ONE
        group, spread, more = compare(cosines, mass, members=members, **settings, several=several)
        spreads.append(spread)
        enough = not minority(whole - mass[members].sum(), whole) or (groups and groups[-1].excess <= 0)
        if group is None or enough or (several and group.excess < group.needed) or number == 2 * _ONE_BY_ONE:
            break
        groups += [group, *more]
        spreads += [spread] * len(more)
        members = np.setdiff1d(members, np.concatenate([each.members for each in (group, *more)]))
    return groups, spreads
