"""Attacks that add a push to honest updates."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from mabrfl import vectors
from mabrfl.attacks._directions import Vector, benign_course, check_fraction, each_sends, random_unit
from mabrfl.attacks._statistics import mean, std
from mabrfl.attacks.base import Attack
from mabrfl.attacks.view import AttackerView, Knowledge
from mabrfl.checks import check_choice, check_positive
from mabrfl.rng import ClientId
from mabrfl.updates import Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class Growing(Attack):
    r"""Growing: honest updates plus a push that grows from nothing, by the same amount in every round.

    .. math:: \tilde g_k = g_k + r \, t \, \|g_k\| \, a

    in round t. No round differs much from the one before, so a defense that compares a client with its own past sees
    no change.

    Parameters
    ----------
    growth
        r: by how much the push grows in a round, relative to the attacker's honest update. With the default it is as
        long as that update in round 20.
    direction
        a: ``"opposed"``, opposite to the benign mean (needs partial knowledge), or ``"orthogonal"``, a random direction
        drawn once for the run, which is almost orthogonal to honest updates (needs no knowledge).

    References
    ----------
    None known; see F7 and F11 in ``docs/attacks.md``.
    """

    growth: float = 0.05
    direction: Literal["opposed", "orthogonal"] = "opposed"

    trains = True

    def __post_init__(self) -> None:
        check_positive("growth", self.growth)
        check_choice("direction", self.direction, ("opposed", "orthogonal"))
        opposed = self.direction == "opposed"
        object.__setattr__(self, "knowledge", Knowledge.PARTIAL if opposed else Knowledge.AGNOSTIC)

    def __call__(self, view: AttackerView, /) -> Floats | None:
        """Return the attackers' own updates with the push of this round; None without a benign update to oppose."""
        own, push = view.own_updates, self.push(view)
        if own is None or push is None:
            return None
        sizes = np.nan_to_num(self.growth * view.round * vectors.row_norms(own))

        def row(place: int, _: ClientId) -> Vector:
            return np.asarray(own[place] + sizes[place] * push)

        return each_sends(view, row)

    def push(self, view: AttackerView) -> Vector | None:
        """Return a."""
        if self.direction == "orthogonal":
            return random_unit(view.lasting_rng("growing-push"), view.shape[1])
        benign = benign_course(view)
        return None if benign is None else -benign[0]


@dataclass(frozen=True, kw_only=True, eq=False)
class StatisticalMimicry(Attack):
    r"""Statistical mimicry: honest updates blended with synthetic ones of the same statistics, and a lasting drift.

    .. math:: \tilde g_k = (1 - \alpha) \, g_k + \alpha \, (\mu + \sigma \odot \varepsilon_k)
              + \min(\delta_0 \, \rho^{\,t-1}, \delta_{max}) \, \|g_k\| \, a

    with mean and deviation of the attackers' own honest updates, noise :math:`\varepsilon_k` of each round, and one
    random direction a for the run.

    Parameters
    ----------
    blend
        :math:`\alpha`: the synthetic part.
    drift
        :math:`\delta_0`: length of the drift in the first round, relative to the attacker's honest update.
    growth
        :math:`\rho`: its growth per round.
    limit
        :math:`\delta_{max}`.

    Notes
    -----
    The authors' code takes the statistics of a client's own past models and an absolute drift. Here they are those of
    the attackers in this round, so the attack has no state, and the drift means the same for every model.

    References
    ----------
    Younesi et al., FLARE: adaptive multi-dimensional reputation for robust client reliability in federated learning
    (arXiv 2511.14715, 2025); the defaults are the authors'.
    """

    blend: float = 0.5
    drift: float = 0.1
    growth: float = 1.2
    limit: float = 2.0

    knowledge = Knowledge.AGNOSTIC
    trains = True

    def __post_init__(self) -> None:
        check_fraction("blend", self.blend)
        for name in ("drift", "growth", "limit"):
            check_positive(name, getattr(self, name))

    def length(self, round_number: int) -> float:
        """Return the length of the drift in this round."""
        logarithm = math.log(self.drift) + (round_number - 1) * math.log(self.growth)
        return math.exp(min(logarithm, math.log(self.limit)))

    def __call__(self, view: AttackerView, /) -> Floats | None:
        """Return one row per attacker."""
        own = view.own_updates
        if own is None:
            return None
        centre, spread = mean(own).astype(np.float64), std(own).astype(np.float64)
        drift = self.length(view.round) * random_unit(view.lasting_rng("statistical-mimicry"), view.shape[1])
        lengths = np.nan_to_num(vectors.row_norms(own))

        def row(place: int, client: ClientId) -> Vector:
            noise = view.rng("statistical-mimicry", client).standard_normal(view.shape[1])
            mixed = (1 - self.blend) * own[place] + self.blend * (centre + spread * noise)
            return np.asarray(mixed + lengths[place] * drift)

        return each_sends(view, row)
