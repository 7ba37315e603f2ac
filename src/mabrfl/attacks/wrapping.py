"""Attacks in time: when another attack is carried out, and when its clients play honest."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mabrfl._checks import check_whole
from mabrfl.attacks.base import Attack, as_attack
from mabrfl.attacks.colluding import LIE
from mabrfl.attacks.view import AttackerView
from mabrfl.errors import StateError
from mabrfl.protocols import Stateful
from mabrfl.updates import Floats


@dataclass(kw_only=True, eq=False)
class Wrapper(Attack):
    """Base of the attacks that carry out another one in some rounds, and are honest in the others.

    It knows, observes, poisons and remembers what the inner attack does. In a configuration ``inner`` is the
    inner attack's name, and options that are not the wrapper's own are the inner attack's.

    Attributes
    ----------
    inner
        The attack that is carried out.
    default_inner
        The name of what ``inner`` is by default, for the catalogue.
    """

    inner: Attack = field(default_factory=LIE)

    default_inner: ClassVar[str] = "lie"

    def __post_init__(self) -> None:
        self.inner = as_attack(self.inner)
        self.knowledge = self.inner.knowledge
        self.observes = self.inner.observes
        self.poisons = self.inner.poisons

    def active_at(self, round_number: int, /) -> bool:
        """Whether the inner attack is carried out in this round."""
        del round_number
        return True

    def trains_at(self, round_number: int, /) -> bool:
        """Honest rounds need training; the others if the inner attack does."""
        return not self.active_at(round_number) or self.inner.trains_at(round_number)

    def poison(
        self, inputs: NDArray[Any], labels: NDArray[Any], *, num_classes: int, rng: np.random.Generator
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the inner attack's poisoned data."""
        return self.inner.poison(inputs, labels, num_classes=num_classes, rng=rng)

    def poisoned_at(self, round_number: int, /) -> bool:
        """Whether the attackers train on poisoned data in this round."""
        return self.active_at(round_number) and self.inner.poisoned_at(round_number)

    def __call__(self, view: AttackerView, /) -> Floats | None:
        """Return what the inner attack sends, or honest updates."""
        return self.inner(view) if self.active_at(view.round) else view.own_updates

    def state_dict(self) -> dict[str, Any]:
        """Return what the inner attack remembers."""
        return {"inner": self.inner.state_dict() if isinstance(self.inner, Stateful) else {}}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Hand a state back to the inner attack."""
        if not isinstance(state.get("inner"), dict):
            raise StateError(f"state of {type(self).__name__} must have the inner attack's; got {sorted(state)}")
        if isinstance(self.inner, Stateful):
            self.inner.load_state_dict(state["inner"])


@dataclass(kw_only=True, eq=False)
class Sleeper(Wrapper):
    """Sleeper: honest for a number of rounds, to earn trust, and then another attack to the end.

    Parameters
    ----------
    inner
        The attack that follows: LIE by default; in a configuration its name, with its options beside it.
    honest_rounds
        How long the attackers behave.

    References
    ----------
    The delayed onset of reputation systems ("traitors"); see F7 in ``docs/attacks.md``.
    """

    honest_rounds: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("honest_rounds", self.honest_rounds)

    def active_at(self, round_number: int, /) -> bool:
        """Whether the attackers have woken up."""
        return round_number > self.honest_rounds


@dataclass(kw_only=True, eq=False)
class OnOff(Wrapper):
    """On-off: another attack for some rounds, honest for some, and so on, to stay just trusted enough.

    Parameters
    ----------
    inner
        The attack of the rounds that are on: LIE by default; in a configuration its name, with its options beside it.
    on_rounds, off_rounds
        How long each phase lasts; the first is on.

    References
    ----------
    The on-off attack of reputation systems (Sun et al., A trust evaluation framework in distributed networks,
    INFOCOM 2006); see F7 in ``docs/attacks.md``.
    """

    on_rounds: int = 5
    off_rounds: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("on_rounds", self.on_rounds, at_least=1)
        check_whole("off_rounds", self.off_rounds, at_least=1)

    def active_at(self, round_number: int, /) -> bool:
        """Whether the round belongs to a phase that is on."""
        return (round_number - 1) % (self.on_rounds + self.off_rounds) < self.on_rounds
