"""Directions, and rows with a chosen cosine to them: the parts of sybils with noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mabrfl import vectors
from mabrfl.attacks._statistics import bounded, finite_benign, mean, take
from mabrfl.attacks.view import AttackerView
from mabrfl.checks import check_positive
from mabrfl.errors import ConfigError
from mabrfl.rng import ClientId
from mabrfl.updates import Floats

Vector = NDArray[np.float64]
Noise = Literal["fresh", "fixed"]


def check_fraction(name: str, value: Any) -> None:
    """Refuse anything but a number from 0 to 1."""
    check_positive(name, value, or_zero=True)
    if value > 1:
        raise ConfigError(f"{name} must be at most 1; got {value!r}")


def unit(vector: Floats) -> Vector | None:
    """Return a vector scaled to length 1; None if it has no direction.

    Examples
    --------
    >>> unit(np.array([3.0, 4.0]))
    array([0.6, 0.8])
    >>> unit(np.zeros(2)) is None
    True
    """
    length = vectors.row_norms(vector[None, :])[0]
    if not (np.isfinite(length) and length > 0):
        return None
    return np.asarray(vector.astype(np.float64) / length)


def random_unit(rng: np.random.Generator, width: int, away_from: Sequence[Vector] = ()) -> Vector:
    """Return a random direction orthogonal to these unit vectors, which must be orthogonal to each other.

    Zeros if no direction is left, as in a model with fewer parameters than vectors.
    """
    drawn = rng.standard_normal(width)
    for _ in range(2):  # the second time removes what rounding left
        for axis in away_from:
            drawn -= (drawn @ axis) * axis
    left = unit(drawn) if width > len(away_from) else None
    return np.zeros(width) if left is None else left


def leaning(axis: Vector, noise: Vector, cosine: float) -> Vector:
    r"""Return the unit vector :math:`c\,a + \sqrt{1 - c^2}\,n`, whose cosine with the axis is c.

    Two of them with the same c and orthogonal noises have the cosine :math:`c^2`.

    Examples
    --------
    >>> leaning(np.array([1.0, 0.0]), np.array([0.0, 1.0]), 0.6)
    array([0.6, 0.8])
    """
    return np.asarray(cosine * axis + np.sqrt(1 - cosine**2) * noise)


def noise_of(
    view: AttackerView, purpose: str, client: ClientId, noise: Noise, away_from: Sequence[Vector] = ()
) -> Vector:
    """Return a client's own random direction: another in each round, or one for the whole run."""
    stream = view.rng if noise == "fresh" else view.lasting_rng
    return random_unit(stream(purpose, client), view.shape[1], away_from)


def each_sends(view: AttackerView, row: Callable[[int, ClientId], Vector]) -> Floats:
    """Return one row per attacker: ``row(place, client)``, computed one at a time in float64."""
    rows = np.empty(view.shape, dtype=view.global_weights.dtype)
    for place, client in enumerate(view.attackers):
        rows[place] = bounded(row(place, client), rows.dtype)
    return rows


def benign_course(view: AttackerView) -> tuple[Vector, float] | None:
    """Return the direction of the mean benign update, and the median benign length.

    None if there is no benign update, or if their mean is zero.
    """
    finite, norms = finite_benign(view)
    if len(finite) == 0:
        return None
    course = unit(mean(take(view.benign, finite)))
    return None if course is None else (course, float(np.median(norms)))
