"""Attacks that add a push to honest updates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from mabrfl import vectors
from mabrfl.attacks._directions import Vector, benign_course, each_sends, random_unit
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
