r"""Attacks that search for the largest harm that still passes a test (Shejwalkar & Houmansadr, NDSS 2021).

All of them send :math:`\tilde g = \hat g + \gamma \Delta`, the benign mean moved along a fixed
direction, and search for the largest :math:`\gamma` that passes. With the benign updates
:math:`g_i`, centred as :math:`y_i = g_i - \hat g`,

.. math:: \|g_i - \tilde g\|^2 = \|y_i\|^2 - 2 \gamma \, y_i \cdot \Delta + \gamma^2 \|\Delta\|^2,

so the long vectors are needed for one Gram matrix and one product with :math:`\Delta` only. A step of the search
costs :math:`O(n^2)`, whatever the size of the model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from mabrfl import vectors
from mabrfl.attacks._statistics import bounded, everyone_sends, finite_benign, mean, std, take
from mabrfl.attacks.base import Attack
from mabrfl.attacks.view import AttackerView, Knowledge
from mabrfl.checks import check_choice, check_positive
from mabrfl.updates import Floats

Direction = Literal["std", "unit", "sign"]


def halving_search(passes: Callable[[float], bool], *, start: float, tolerance: float) -> float:
    """Return the last factor that passed; 0 if none did.

    The search of the authors' code: begin at ``start``; go up by half the last stride after a success,
    down after a failure; stop when the next factor is within ``tolerance`` of the last success. It
    finds the largest passing factor below twice ``start`` if all smaller ones pass as well.

    Examples
    --------
    >>> round(halving_search(lambda factor: factor <= 4.2, start=3.0, tolerance=1e-5), 4)
    4.2
    >>> round(halving_search(lambda factor: True, start=3.0, tolerance=1e-5), 4)
    6.0
    """
    factor, stride, passed = start, start, 0.0
    while abs(passed - factor) > tolerance:
        if passes(factor):
            passed = factor
            factor += stride / 2
        else:
            factor -= stride / 2
        stride /= 2
    return passed


def perturbation(rows: Floats, centre: Floats, direction: Direction, ddof: int = 0) -> Floats:
    """Return the direction in which the mean is moved, away from the benign direction.

    ``"std"``: minus the coordinate-wise deviation; ``"unit"``: minus the mean, scaled to length 1;
    ``"sign"``: minus the signs of the mean.
    """
    if direction == "std":
        return -std(rows, ddof)
    if direction == "sign":
        return -np.sign(centre)
    length = vectors.row_norms(centre[None, :])[0]
    return bounded(-centre.astype(np.float64) / length, centre.dtype) if length > 0 else -centre


@dataclass(frozen=True, eq=False)
class Geometry:
    """Squared distances between b benign updates and a point that moves along a line through their mean.

    Attributes
    ----------
    between
        ``(b, b)`` squared distances between benign updates.
    to_mean
        ``(b,)`` squared distances to their mean.
    along
        ``(b,)`` inner products of the centred updates with the direction.
    squared_length
        Squared length of the direction.
    """

    between: NDArray[np.float64]
    to_mean: NDArray[np.float64]
    along: NDArray[np.float64]
    squared_length: float

    @classmethod
    def of(cls, rows: Floats, norms: NDArray[np.float64], direction: Floats) -> Geometry:
        """Measure the rows; only this function reads the long vectors more than once."""
        inner = vectors.gram(rows, norms)
        length = float(vectors.row_norms(direction[None, :])[0])
        # A power of two as scale changes no digit, and prevents overflow of large rows times a large direction.
        exponent = int(np.frexp(length)[1])
        along = np.ldexp(vectors.products(rows, np.ldexp(direction, -exponent)), exponent)
        to_mean = np.diag(inner) - 2 * inner.mean(axis=1) + inner.mean()
        return cls(vectors.squared_distances(inner), np.clip(to_mean, 0, None), along - along.mean(), length**2)

    def to_point(self, factor: float) -> NDArray[np.float64]:
        """Return the ``(b,)`` squared distances to mean + factor * direction."""
        squares = self.to_mean - 2 * factor * self.along + factor**2 * self.squared_length
        return np.clip(squares, 0, None)

    def with_copies(self, factor: float, copies: int) -> NDArray[np.float64]:
        """Return all squared distances after that many copies of the point are added; the copies come first."""
        count = copies + len(self.between)
        distances = np.zeros((count, count))
        distances[copies:, copies:] = self.between
        distances[:copies, copies:] = self.to_point(factor)
        distances[copies:, :copies] = distances[:copies, copies:].T
        return distances


@dataclass(frozen=True, kw_only=True, eq=False)
class Search(Attack):
    """Base of the attacks that search: the direction, and the start and end of the search."""

    direction: Direction = "std"
    gamma_init: float = 10.0
    tolerance: float = 1e-5
    ddof: int = 0

    knowledge = Knowledge.PARTIAL
    trains = False

    def __post_init__(self) -> None:
        check_choice("direction", self.direction, get_args(Direction))
        check_positive("gamma_init", self.gamma_init)
        check_positive("tolerance", self.tolerance)
        check_choice("ddof", self.ddof, (0, 1))

    def passes(self, geometry: Geometry, view: AttackerView) -> Callable[[float], bool]:
        """Return the test that a factor must pass."""
        raise NotImplementedError(f"{type(self).__name__} must define passes(geometry, view)")

    def gamma(self, geometry: Geometry, view: AttackerView) -> float:
        """Return the factor at the end of the search."""
        if geometry.squared_length == 0:
            return 0.0
        return halving_search(self.passes(geometry, view), start=self.gamma_init, tolerance=self.tolerance)

    def __call__(self, view: AttackerView, /) -> Floats | None:
        """Return the moved mean, once per attacker; None without a benign update."""
        finite, norms = finite_benign(view)
        if len(finite) == 0:
            return None
        rows = take(view.benign, finite)
        centre = mean(rows)
        direction = perturbation(rows, centre, self.direction, self.ddof)
        gamma = self.gamma(Geometry.of(rows, norms, direction), view)
        with np.errstate(over="ignore"):
            return everyone_sends(bounded(centre + centre.dtype.type(gamma) * direction, centre.dtype), view)
