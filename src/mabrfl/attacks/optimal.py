"""LIE and IPM with the factor that harms the real defense most, found by rehearsal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mabrfl.attacks._statistics import bounded, everyone_sends, finite_benign, mean, std, take
from mabrfl.attacks.base import Attack
from mabrfl.attacks.view import AttackerView, Knowledge
from mabrfl.checks import check_positive, check_whole
from mabrfl.updates import Floats

GOLDEN = (np.sqrt(5) - 1) / 2


def line_maximum(
    objective: Callable[[float], float], *, start: float = 1.0, largest: float = 100.0, evaluations: int = 20
) -> float:
    """Return where a function of a positive number was largest in a line search.

    The factor is doubled as long as the value grows, up to ``largest``. The remaining evaluations shrink the interval
    around the best factor in golden sections.

    Examples
    --------
    >>> round(line_maximum(lambda factor: -(factor - 4.2) ** 2, evaluations=30), 3)
    4.2
    >>> line_maximum(lambda factor: factor, largest=50.0)
    50.0
    """
    tried = {0.0: -np.inf}

    def value(factor: float) -> float:
        if factor not in tried:
            found = objective(factor)
            tried[factor] = found if np.isfinite(found) else -np.inf
        return tried[factor]

    best, following = 0.0, min(start, largest)
    while len(tried) <= evaluations and value(following) > value(best):
        best, following = following, min(2 * following, largest)
    low, high = best / 2 if best > start else 0.0, following
    while len(tried) < evaluations and high > low:
        left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
        low, high = (low, right) if value(left) >= value(right) else (left, high)
    return float(max(tried, key=lambda factor: tried[factor]))


@dataclass(frozen=True, kw_only=True, eq=False)
class Optimal(Attack):
    """Base of the attacks that rehearse their factor: the options of the search."""

    evaluations: int = 20
    largest: float = 100.0

    knowledge = Knowledge.FULL
    trains = False

    def __post_init__(self) -> None:
        check_whole("evaluations", self.evaluations, at_least=1)
        check_positive("largest", self.largest)

    def line(self, rows: Floats, centre: Floats) -> tuple[Floats, Floats]:
        """Return the point and the direction of the line, given the benign updates and their mean."""
        raise NotImplementedError(f"{type(self).__name__} must define line(rows, centre)")

    def __call__(self, view: AttackerView, /) -> Floats | None:
        """Return the most harmful point that was tried, once per attacker; None without a benign update."""
        finite, _ = finite_benign(view)
        if len(finite) == 0:
            return None
        rows = take(view.benign, finite)
        centre = mean(rows)
        point, direction = (part.astype(np.float64) for part in self.line(rows, centre))

        def sent(factor: float) -> Floats:
            return everyone_sends(bounded(point + factor * direction, rows.dtype), view)

        def harm(factor: float) -> float:
            step = view.rehearse(sent(factor)).step
            return float(np.linalg.norm(step.astype(np.float64) - centre))

        return sent(line_maximum(harm, largest=self.largest, evaluations=self.evaluations))


@dataclass(frozen=True, kw_only=True, eq=False)
class OptimalLIE(Optimal):
    r"""Optimal LIE: the benign mean, shifted by as many benign deviations as move the real step furthest.

    .. math:: \max_z \; \| \text{step}(\hat g - z \sigma) - \hat g \|

    The step is the one of a copy of the server's defense, with its present state.

    Parameters
    ----------
    evaluations
        Rehearsals in a round.
    largest
        The largest z. Plain averaging moves the further, the larger z is.

    References
    ----------
    The line search of ByzFL (Gonzalez et al., 2025) for Baruch et al., A little is enough (NeurIPS 2019).
    """

    def line(self, rows: Floats, centre: Floats) -> tuple[Floats, Floats]:
        """Return the mean and minus the deviation."""
        return centre, -std(rows)


@dataclass(frozen=True, kw_only=True, eq=False)
class OptimalIPM(Optimal):
    r"""Optimal IPM: the benign mean, reversed, with the length that moves the real step furthest.

    .. math:: \max_\varepsilon \; \| \text{step}(-\varepsilon \hat g) - \hat g \|

    Parameters
    ----------
    evaluations, largest
        As in :class:`OptimalLIE`, for :math:`\varepsilon`.

    References
    ----------
    The line search of ByzFL (Gonzalez et al., 2025) for Xie et al., Fall of empires (UAI 2019).
    """

    def line(self, rows: Floats, centre: Floats) -> tuple[Floats, Floats]:
        """Return zero and minus the mean."""
        del rows
        return np.zeros_like(centre), -centre
