"""Foreign groups: clients with less than half of the reputation whose mean update points elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.cluster import hierarchy

from mabrfl.mab.hardened.copies import majority_is_coherent, minority
from mabrfl.screening.non_sybil import principal_scores

Matrix = NDArray[np.float64]
Mask = NDArray[np.bool_]

_FEWEST = 4
_SMALLEST = 2
_FLOOR = 0.01
"""Of a mean cosine under a square root."""


def branches(cosines: Matrix, which: Literal["every", "first"] = "every") -> Mask:
    """Return the groups of Ward's hierarchical clustering as masks, one row each; leaves and the root left out."""
    n = len(cosines)
    merges = hierarchy.linkage(principal_scores(cosines, 1.0), method="ward")
    masks = np.concatenate([np.eye(n, dtype=bool), np.zeros((n - 1, n), dtype=bool)])
    for step, (left, right) in enumerate(merges[:, :2].astype(int)):
        masks[n + step] = masks[left] | masks[right]
    return masks[n:-1] if which == "every" else masks[merges[-1:, :2].astype(int).ravel()]


def separations(cosines: Matrix, groups: Mask) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
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
class Suspicion:
    """The group that differs most from the others, and by how much."""

    members: NDArray[np.intp]
    separation: float
    needed: float
    cosine: float

    @property
    def rejected(self) -> bool:
        """Whether it differs enough to be rejected."""
        return self.separation >= self.needed


def most_foreign(
    cosines: Matrix,
    mass: NDArray[np.float64],
    *,
    separation: float,
    small_group: float,
    aligned: float,
    suspicion: float,
    groups: Literal["every", "first"] = "every",
    ease: float = 1.0,
) -> Suspicion | None:
    """Return the group with less than half of the mass that differs most from the others; None if there is none."""
    n = len(cosines)
    if n < _FEWEST:
        return None
    masks = branches(cosines, groups)
    heavy = masks @ mass > mass.sum() / 2
    masks = np.where(heavy[:, None], ~masks, masks)
    size = masks.sum(axis=1)
    masks = masks[(size >= _SMALLEST) & (n - size >= _SMALLEST)]
    if not len(masks):
        return None
    squared, cosine = separations(cosines, masks)
    size = masks.sum(axis=1)
    credence = np.minimum(masks @ mass / size * (n - size) / np.maximum(~masks @ mass, _FLOOR), 1)
    needed = ease * (separation * (1 - suspicion * (1 - credence)) + small_group * np.log(n) / size)
    excess = np.where(cosine < aligned, squared - needed, -np.inf)
    best = int(np.argmax(excess))
    if not np.isfinite(excess[best]):
        return None
    return Suspicion(np.flatnonzero(masks[best]), float(squared[best]), float(needed[best]), float(cosine[best]))


def foreign_clients(
    cosines: Matrix,
    mass: NDArray[np.float64],
    *,
    separation: float = 0.5,
    small_group: float = 0.4,
    aligned: float = 0.8,
    suspicion: float = 0.3,
    groups: Literal["every", "first"] = "every",
    guard: bool = True,
    spent: float = 0.0,
) -> tuple[Mask, list[Suspicion]]:
    """Mark the members of groups that are foreign to the rest, one group after the other.

    A group is foreign if

    - it holds less than half of the mass,
    - its mean direction has a squared distance of at least ``separation`` from that of the others (more for
      a small group, since there are many small groups to choose from), and
    - it does not point the same way as the others (``aligned``).

    With the ``guard``, nobody is foreign if the others are not a coherent majority:
    see :func:`~mabrfl.mab.hardened.copies.majority_is_coherent`.

    Parameters
    ----------
    cosines
        Of the clients' momenta.
    mass
        What each client counts: its reputation.
    separation, small_group, aligned, suspicion, groups
        See :class:`~mabrfl.mab.hardened.hardened_options.HardenedOptions`; a separation of 0 marks nobody.
    guard, spent
        Whether majorities are guarded; and the mass of the clients that are not compared, because they are
        absent or rejected already. Foreign clients and these together must be less than half of all.

    Returns
    -------
    foreign, suspicions
        The mask, and each group that was examined.
    """
    if not separation:
        return np.zeros(len(cosines), dtype=bool), []
    settings: dict[str, Any] = {
        "separation": separation,
        "small_group": small_group,
        "aligned": aligned,
        "suspicion": suspicion,
        "groups": groups,
    }
    foreign, suspicions = _one_after_the_other(cosines, mass, np.arange(len(cosines)), 1.0, settings)
    if guard and foreign.any():
        rest = np.flatnonzero(~foreign)
        grouped, _ = _one_after_the_other(cosines, mass, rest, _LENIENT, settings)
        gone = mass[foreign].sum() + spent
        if not (minority(gone, mass.sum() + spent) and majority_is_coherent(mass, foreign, grouped)):
            foreign[:] = False
    return foreign, suspicions


_LENIENT = 0.6
"""Share of the separation that is needed when the guard looks for groups among the others."""


def _one_after_the_other(
    cosines: Matrix, mass: NDArray[np.float64], alive: NDArray[np.intp], ease: float, settings: Mapping[str, Any]
) -> tuple[Mask, list[Suspicion]]:
    """Remove the most foreign group until none is foreign, or half of the mass is removed."""
    marked = np.zeros(len(cosines), dtype=bool)
    suspicions: list[Suspicion] = []
    total = mass[alive].sum()
    while group := most_foreign(cosines[np.ix_(alive, alive)], mass[alive], ease=ease, **settings):
        seats = alive[group.members]
        suspicions.append(Suspicion(seats, group.separation, group.needed, group.cosine))
        if not group.rejected:
            break
        marked[seats] = True
        if not minority(mass[marked].sum(), total):
            break
        alive = np.setdiff1d(alive, seats)
    return marked, suspicions
