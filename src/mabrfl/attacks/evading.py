"""An attacker that decides by search when to attack, from what it sees of selections alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mabrfl.attacks.base import Attack
from mabrfl.attacks.independent import SignFlip
from mabrfl.attacks.view import AttackerView
from mabrfl.attacks.wrapping import Wrapper
from mabrfl.checks import check_whole
from mabrfl.errors import ConfigError, StateError
from mabrfl.updates import Floats

Array = NDArray[np.float64]

RATES: Array = np.linspace(0.0, 1.0, 5)[:, None]
"""The suspected shares of noticed attacks, one row each."""

LONGEST = 12
"""The longest horizon: 4,096 plans."""


class Seen(NamedTuple):
    """A round in which an attacker was selected: its number, who was selected, and whether they attacked."""

    round: int
    selected: tuple[bool, ...]
    attacked: bool


class Belief(NamedTuple):
    """What the adversary believes of the server.

    Attributes
    ----------
    odds
        The probability of each of ``RATES``.
    good, bad
        ``(rates, clients)`` the reputation that each client would have then: accepted and rejected updates, plus 1.
    """

    odds: Array
    good: Array
    bad: Array


def believed(history: Sequence[Seen], clients: int) -> Belief:
    """Return the belief after these rounds; in rounds that are missing between them nobody was selected.

    Examples
    --------
    >>> belief = believed([Seen(1, (True,), True), Seen(2, (True,), True), Seen(3, (True,), True)], 1)
    >>> belief.odds.round(2)
    array([0.37, 0.27, 0.18, 0.12, 0.06])
    """
    good, bad = np.ones((len(RATES), clients)), np.ones((len(RATES), clients))
    evidence, last = np.zeros(len(RATES)), 0
    for seen in history:
        chance, selected = good / (good + bad), np.array(seen.selected)
        evidence += (seen.round - last - 1) * np.log1p(-chance).sum(axis=1)
        evidence += np.log(np.where(selected, chance, 1 - chance)).sum(axis=1)
        noticed = RATES * seen.attacked
        good, bad, last = good + selected * (1 - noticed), bad + selected * noticed, seen.round
    odds = np.exp(evidence - evidence.max())
    return Belief(odds / odds.sum(), good, bad)


def best_plan(belief: Belief, horizon: int) -> tuple[bool, ...]:
    """Return in which of the next rounds to attack, the most accepted attacks in expectation; see :class:`Evade`."""
    plans = np.array(list(product((False, True), repeat=horizon)))
    good, bad = (np.repeat(counts[None], len(plans), axis=0) for counts in (belief.good, belief.bad))
    gain = np.zeros((len(plans), len(RATES)))
    for attack in plans.T:
        chance, noticed = good / (good + bad), RATES * attack[:, None, None]
        gain += attack[:, None] * (chance * (1 - RATES)).mean(axis=2)
        good, bad = good + chance * (1 - noticed), bad + chance * noticed
    gain += 2 * horizon * (good / (good + bad) * (1 - RATES)).mean(axis=2)
    # Rounding must not decide between equal plans: the first of them attacks last.
    return tuple(plans[np.argmax((gain @ belief.odds).round(9))].tolist())


@dataclass(kw_only=True, eq=False)
class Evade(Wrapper):
    r"""Evade: attack or behave in each round as a search over the coming rounds finds best, by a guess of reputations.

    The adversary sees which of its clients are selected, and nothing else of the server. It supposes a server that
    keeps a reputation Beta(B, M) for each client and selects it with probability B / (B + M), as MAB-RFL does, and
    that notices an unknown share d of attacks. The selections so far give each d in 0, 0.25, ..., 1 a probability. A
    search over all plans of ``horizon`` rounds maximises the expected number of accepted attacks,

    .. math:: \sum_{t} x_t \frac{B_t}{B_t + M_t} (1 - d) + 2 h \frac{B_h}{B_h + M_h} (1 - d), \quad x_t \in \{0, 1\},

    whose last term is the later use of the trust that is left. All attackers carry out the first decision of the best
    plan, and the search begins anew in the next round.

    Parameters
    ----------
    inner
        The attack: sign flip by default; in a configuration its name, with its options beside it.
    horizon
        h: rounds to look ahead, at most 12.

    Notes
    -----
    The paper poses the same problem, a partially observable Markov decision process, and samples its tree of plans
    (Monte Carlo tree search). Its text is not free: the model of the server, the reward, the common decision
    and the complete search are ours.

    References
    ----------
    Liu et al., Learning to evade: adaptive and stealthy attack on reputation-based federated learning (IEEE
    Communications Letters 30, 2026).
    """

    inner: Attack = field(default_factory=SignFlip)
    horizon: int = 8
    _history: list[Seen] = field(default_factory=list, init=False, repr=False)

    default_inner: ClassVar[str] = "sign-flip"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("horizon", self.horizon, at_least=1)
        if self.horizon > LONGEST:
            raise ConfigError(f"horizon must be at most {LONGEST}; got {self.horizon}")

    def active_at(self, round_number: int, /) -> bool:
        """Whether the best plan begins with an attack."""
        history = [seen for seen in self._history if seen.round < round_number]
        clients = len(history[0].selected) if history else 1
        return best_plan(believed(history, clients), self.horizon)[0]

    def __call__(self, view: AttackerView, /) -> Floats | None:
        """Return the inner attack's rows, or honest updates; remember who was selected."""
        active = self.active_at(view.round)
        if self._history and view.round <= self._history[-1].round:  # a new run has begun
            self._history = []
        self._history.append(Seen(view.round, tuple(each in view.attackers for each in view.controlled), active))
        return self.inner(view) if active else view.own_updates

    def state_dict(self) -> dict[str, Any]:
        """Return the inner attack's state, and what was seen."""
        seen = [[one.round, one.attacked, *one.selected] for one in self._history]
        return {**super().state_dict(), "seen": seen}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Restore what ``state_dict`` returned."""
        try:
            rows = [(int(number), bool(attacked), rest) for number, attacked, *rest in state["seen"]]
            history = [Seen(number, tuple(map(bool, rest)), attacked) for number, attacked, rest in rows]
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(f"state of Evade must have the rounds that it has seen; {error!r}") from error
        super().load_state_dict(state)
        self._history = history
