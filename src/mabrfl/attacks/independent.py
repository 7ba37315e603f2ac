"""Attacks of clients that act independently: they need no other client's update, and share nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from mabrfl import vectors
from mabrfl.attacks._statistics import bounded
from mabrfl.attacks.base import Attack
from mabrfl.attacks.view import AttackerView, Knowledge
from mabrfl.checks import check_choice, check_positive
from mabrfl.updates import Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class SignFlip(Attack):
    r"""Sign flip: each attacker trains honestly and sends -scale times its update.

    .. math:: \tilde g_k = - s \, g_k

    FLPoison and byzpy have the same. ByzFL and krum send the reversed *mean* of the honest updates:
    :class:`~mabrfl.attacks.IPM` with epsilon = 1.

    Parameters
    ----------
    scale
        s; above 1 the update is also longer than an honest one.

    References
    ----------
    Li et al., RSA: Byzantine-robust stochastic aggregation methods (AAAI 2019).
    """

    scale: float = 1.0

    knowledge = Knowledge.AGNOSTIC
    trains = True

    def __post_init__(self) -> None:
        check_positive("scale", self.scale)

    def __call__(self, view: AttackerView, /) -> Floats | None:
        """Return the attackers' own updates, reversed."""
        own = view.own_updates
        if own is None:
            return None
        with np.errstate(over="ignore"):
            return bounded(own * own.dtype.type(-self.scale), own.dtype)


@dataclass(frozen=True, kw_only=True, eq=False)
class Gaussian(Attack):
    r"""Gaussian noise: each attacker sends random numbers of its own instead of an update.

    .. math:: \tilde g_k = c_k + \sigma_k \, \varepsilon_k, \qquad \varepsilon_k \sim \mathcal N(0, I_d)

    Parameters
    ----------
    scale
        With ``unit="own-norm"`` the length of the noise relative to the attacker's own honest update,
        :math:`\sigma_k = s \|g_k\| / \sqrt d`; with ``unit="absolute"`` the deviation
        :math:`\sigma_k = s` of every coordinate.
    unit
        See ``scale``. ``"own-norm"`` means the same for every model.
    centre
        ``"zero"``: noise alone, :math:`c_k = 0`; ``"own"``: noise on top of the honest update.

    Notes
    -----
    Attackers train only if the options need their honest update. Each has its own random stream per round, so
    an attacker's noise does not depend on the other selected clients.

    References
    ----------
    Blanchard et al., Machine learning with adversaries (NeurIPS 2017), section 5, with deviation 200.
    """

    scale: float = 10.0
    unit: Literal["own-norm", "absolute"] = "own-norm"
    centre: Literal["zero", "own"] = "zero"

    knowledge = Knowledge.AGNOSTIC

    def __post_init__(self) -> None:
        check_positive("scale", self.scale)
        check_choice("unit", self.unit, ("own-norm", "absolute"))
        check_choice("centre", self.centre, ("zero", "own"))
        object.__setattr__(self, "trains", self.unit == "own-norm" or self.centre == "own")

    def __call__(self, view: AttackerView, /) -> Floats | None:
        """Return one row of noise per attacker."""
        own = view.own_updates
        if self.trains and own is None:
            return None
        rows = np.empty(view.shape, dtype=view.global_weights.dtype)
        sizes = self._deviations(view)
        for row, client in enumerate(view.attackers):
            centre = own[row] if own is not None and self.centre == "own" else 0.0
            # One attacker at a time in float64: a float64 matrix of all of them would need most memory.
            noise = view.rng("gaussian", client).standard_normal(view.shape[1])
            rows[row] = bounded(centre + sizes[row] * noise, rows.dtype)
        return rows

    def _deviations(self, view: AttackerView) -> Floats:
        if self.unit == "absolute" or view.own_updates is None:
            return np.full(view.shape[0], self.scale)
        return np.asarray(self.scale * vectors.row_norms(view.own_updates) / np.sqrt(max(view.shape[1], 1)))


@dataclass(frozen=True, kw_only=True, eq=False)
class Magnitude(Attack):
    r"""Magnitude: each attacker sends its honest update, multiplied by a large factor.

    .. math:: \tilde g_k = s \, g_k

    Its direction is ordinary, and rules that look at directions alone accept it. One such client in n makes the
    mean length, and any step of that length, about :math:`1 + s/n` times as long.

    Parameters
    ----------
    factor
        s.
    """

    factor: float = 100.0

    knowledge = Knowledge.AGNOSTIC
    trains = True

    def __post_init__(self) -> None:
        check_positive("factor", self.factor)

    def __call__(self, view: AttackerView, /) -> Floats | None:
        """Return the attackers' own updates, enlarged."""
        own = view.own_updates
        if own is None:
            return None
        with np.errstate(over="ignore"):
            return bounded(own * own.dtype.type(self.factor), own.dtype)
