"""Single clients that point against all others."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mabrfl.mab.hardened.copies import minority
from mabrfl.vectors.pairs import Indices, Matrix, Vector, row_sums

Mask = NDArray[np.bool_]

FLOOR = 0.01
"""Of a mean cosine under a square root."""
_FEWEST = 4
"""Clients among which one may oppose the others."""
_AGREEMENT = 0.1
"""Mean cosine from which clients agree, so that one of them can oppose the others."""


class Opposed(NamedTuple):
    """A single client that opposes all others, and its cosine with their mean."""

    member: int
    cosine: float


def mean_cosines(cosines: Matrix, members: Indices | None = None) -> Vector:
    """Return the mean cosine of each client with all others, of all or of some ``members``.

    Examples
    --------
    >>> mean_cosines(np.array([[1.0, 0.5, 0.1], [0.5, 1.0, -0.3], [0.1, -0.3, 1.0]]))
    array([ 0.3,  0.1, -0.1])
    """
    sums = _with_others(cosines, members)
    return np.asarray(sums / max(len(sums) - 1, 1))


def _with_others(cosines: Matrix, members: Indices | None) -> Vector:
    own = np.diag(cosines) if members is None else cosines[members, members]
    return np.asarray(row_sums(cosines, members) - own)


def opposed_clients(
    cosines: Matrix,
    mass: Vector,
    *,
    opposed: float,
    among: Mask | None = None,
    spent: float = 0.0,
    members: Indices | None = None,
) -> list[Opposed]:
    r"""Return the clients that point against all others, one after the other, the most opposed one first.

    With x the mean cosine of a client with the others, and b the mean cosine among these, its cosine with their
    noise-free mean is :math:`x / \sqrt b`. The client is opposed if this is -``opposed`` or less while the others
    agree: b is at least 0.1, and those with a positive mean cosine hold more than half of all mass.

    An honest client with labels of its own has a small cosine with the others, and seldom a negative one.

    Parameters
    ----------
    cosines, mass, spent, members
        As in :func:`~mabrfl.mab.hardened.groups.outlying_groups`.
    opposed
        See :class:`~mabrfl.mab.hardened.hardened_options.HardenedOptions`.
    among
        Which of the members may be found; everybody if left out.
    """
    found: list[Opposed] = []
    alive = np.arange(len(cosines)) if members is None else members
    suspects = np.ones(len(alive), dtype=bool) if among is None else among
    total = mass[alive].sum() + spent
    if not opposed or len(alive) < _FEWEST:
        return found
    sums = _with_others(cosines, members)
    while len(alive) >= _FEWEST:
        n = len(alive)
        means = sums / (n - 1)
        agreement = (means.sum() - 2 * means) / (n - 2)
        cosine = means / np.sqrt(np.clip(agreement, FLOOR, None))
        candidates = np.where(suspects & (agreement >= _AGREEMENT), cosine, np.inf)
        lowest = int(np.argmin(candidates))
        rest = np.delete(alive, lowest)
        sums = np.delete(sums, lowest) - cosines[rest, alive[lowest]]
        if candidates[lowest] > -opposed or not minority(total - mass[rest[sums > 0]].sum(), total):
            break
        found.append(Opposed(int(alive[lowest]), float(max(cosine[lowest], -1.0))))
        alive, suspects = rest, np.delete(suspects, lowest)
    return found
