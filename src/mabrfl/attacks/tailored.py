"""AGR-tailored against MAB-RFL: the adversary tries its updates on a copy of the real defense."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from mabrfl.attacks._directions import (
    Noise,
    Vector,
    benign_course,
    check_fraction,
    each_sends,
    leaning,
    noise_of,
    random_unit,
    unit,
)
from mabrfl.attacks._statistics import bounded, finite_benign, std, take
from mabrfl.attacks.base import Attack
from mabrfl.attacks.view import AttackerView, Knowledge
from mabrfl.checks import check_choice, check_positive, check_whole
from mabrfl.errors import ConfigError
from mabrfl.updates import Floats

HARMLESS, OPPOSITE = 0.0, 2.0
"""The smallest strength (along the benign mean, as if honest), and the largest (directly against it)."""


@dataclass(frozen=True)
class Trial:
    """One rehearsal: the rows sent, how many were accepted, and the damage.

    Attributes
    ----------
    rows
        The updates that the attackers would send.
    accepted
        How many of their updates the defense accepted.
    damage
        The distance that the model moves against the benign mean: minus the step's component along it.
    """

    rows: Floats
    accepted: int
    damage: float


@dataclass(frozen=True, kw_only=True, eq=False)
class AgrMabRfl(Attack):
    r"""AGR-tailored against MAB-RFL: the most harmful rows that a copy of the real defense accepts.

    .. math:: \max_{\gamma, c} \; -\langle \text{step}, \hat u \rangle \quad\text{s.t. all } \tilde g_k
              \text{ are accepted}, \qquad
              \tilde g_k = s L \, (\sqrt c \, d(\gamma) + \sqrt{1 - c} \, n_k),

    .. math:: d(\gamma) = (1 - \gamma) \, \hat u + \sqrt{1 - (1 - \gamma)^2} \; w

    :math:`\hat u` is the direction of the benign mean, L the median benign length, :math:`n_k` each attacker's own
    noise, c their mutual cosine. The strength :math:`\gamma` turns the common push from the mean (0) over the side
    direction w (1) to directly against the mean (2). For each mutual cosine, bisection finds the largest strength
    that a copy of the server's defense, with its present state, accepts. The attackers send the most harmful of
    these. If no strength is accepted for all attackers, they send the rows that are accepted for most of them.

    Parameters
    ----------
    cosines
        The mutual cosines c to try. Small ones hide a weak push in noise, like the common part of honest updates.
    steps
        Rehearsals per cosine: at most ``len(cosines) * steps`` in a round.
    side
        w: ``"std"``, minus the benign deviation as in AGR-tailored, or ``"random"``, a direction drawn once for
        the run; in both cases the part orthogonal to the mean.
    scale
        s: length relative to a benign update; the preset ``hardened`` does not clip the default.
    noise
        ``"fresh"``: new in each round; ``"fixed"``: each attacker keeps its own.

    Notes
    -----
    It looks one round ahead: a defense with a memory may notice the sum of several rounds later.

    It works against every defense, because it only needs the verdicts. Against a defense that accepts everybody it
    sends the strength 2.

    References
    ----------
    The optimisation of Shejwalkar, Houmansadr, Manipulating the Byzantine (NDSS 2021), with the real defense
    of Wan et al., MAB-RFL (IJCAI 2022) in place of Krum.
    """

    cosines: Sequence[float] = (0.9, 0.5, 0.25, 0.1, 0.05, 0.02)
    steps: int = 6
    side: Literal["std", "random"] = "std"
    scale: float = 1.5
    noise: Noise = "fresh"

    knowledge = Knowledge.FULL
    trains = False

    def __post_init__(self) -> None:
        if isinstance(self.cosines, str) or len(self.cosines) == 0:
            raise ConfigError(f"cosines must be a list of at least one number; got {self.cosines!r}")
        for cosine in self.cosines:
            check_fraction("cosines", cosine)
        check_whole("steps", self.steps, at_least=1)
        check_choice("side", self.side, ("std", "random"))
        check_positive("scale", self.scale)
        check_choice("noise", self.noise, get_args(Noise))

    def __call__(self, view: AttackerView, /) -> Floats | None:
        """Return the most harmful rows that passed; None without a benign update."""
        benign = benign_course(view)
        if benign is None:
            return None
        course, length = benign
        side = self._side(view, course)
        axes = [course, side] if side.any() else [course]
        noises = each_sends(view, lambda _, client: noise_of(view, "agr-mab-rfl", client, self.noise, axes))
        best: Trial | None = None
        for cosine in sorted(self.cosines, reverse=True):
            low, high = HARMLESS, OPPOSITE
            for step in range(self.steps):
                strength = (high, low)[step] if step < 2 else (low + high) / 2
                push = leaning(course, side, 1 - strength)
                trial = rehearsed(view, disguised(push, noises, cosine, self.scale * length), course)
                best = trial if best is None else max(best, trial, key=lambda one: (one.accepted, one.damage))
                passed = trial.accepted == len(view.attackers)
                if passed and strength == OPPOSITE:
                    break  # no strength is larger at this cosine
                if not passed and strength == HARMLESS:
                    break  # the cosine itself is rejected
                low, high = (strength, high) if passed else (low, strength)
        return None if best is None else best.rows

    def _side(self, view: AttackerView, course: Vector) -> Vector:
        """Return w; zeros if nothing is orthogonal to the mean."""
        if self.side == "random":
            return random_unit(view.lasting_rng("agr-mab-rfl-side"), view.shape[1], [course])
        spread = unit(std(take(view.benign, finite_benign(view)[0])))
        if spread is None:
            return np.zeros(view.shape[1])
        across = unit((spread @ course) * course - spread)
        return np.zeros(view.shape[1]) if across is None else across


def disguised(push: Vector, noises: Floats, cosine: float, length: float) -> Floats:
    """Return rows of that length and mutual cosine, with their common part along the push."""
    dtype = noises.dtype
    rows = (math.sqrt(cosine) * push).astype(dtype) + dtype.type(math.sqrt(1 - cosine)) * noises
    with np.errstate(over="ignore"):
        return bounded(rows * dtype.type(min(length, float(np.finfo(dtype).max))), dtype)


def rehearsed(view: AttackerView, rows: Floats, course: Vector) -> Trial:
    """Return what the server would do with these rows."""
    outcome = view.rehearse(rows)
    verdicts = [outcome.verdicts.get(client) for client in view.attackers]
    accepted = sum(verdict is not None and verdict.accepted for verdict in verdicts)
    return Trial(rows, accepted, -float(outcome.step.astype(np.float64) @ course))
