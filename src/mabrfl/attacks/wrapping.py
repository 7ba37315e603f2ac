"""Attacks around another one: they change its rounds, its clients' identities, or their claims."""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mabrfl.attacks.base import Attack, as_attack
from mabrfl.attacks.colluding import LIE
from mabrfl.attacks.data_poisoning import LabelFlip
from mabrfl.attacks.independent import SignFlip
from mabrfl.attacks.view import AttackerView
from mabrfl.checks import check_positive, check_whole
from mabrfl.errors import StateError
from mabrfl.protocols import Stateful
from mabrfl.rng import ClientId
from mabrfl.updates import Floats


@dataclass(kw_only=True, eq=False)
class Wrapper(Attack):
    """Base of the attacks that run another attack in some rounds, and are honest in the others.

    It has the knowledge, poison and state of the inner attack. In a configuration ``inner`` is the inner attack's
    name, and options that the wrapper does not have belong to the inner attack.

    Attributes
    ----------
    inner
        The inner attack.
    default_inner
        The name of the default ``inner``, for the catalogue.
    """

    inner: Attack = field(default_factory=LIE)

    default_inner: ClassVar[str] = "lie"

    def __post_init__(self) -> None:
        self.inner = as_attack(self.inner)
        self.knowledge = self.inner.knowledge
        self.observes = self.inner.observes
        self.poisons = self.inner.poisons
        self.constraint = self.inner.constraint
        self.measures = self.inner.measures

    def active_at(self, round_number: int, /) -> bool:
        """Whether the inner attack runs in this round."""
        del round_number
        return True

    def trains_at(self, round_number: int, /) -> bool:
        """Whether the attackers train: in honest rounds, and if the inner attack does."""
        return not self.active_at(round_number) or self.inner.trains_at(round_number)

    def survey(self, inputs: NDArray[Any], labels: NDArray[Any], *, num_classes: int) -> None:
        """Let the inner attack look at the attackers' examples."""
        self.inner.survey(inputs, labels, num_classes=num_classes)

    def poison(
        self, inputs: NDArray[Any], labels: NDArray[Any], *, num_classes: int, rng: np.random.Generator
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the inner attack's poisoned data."""
        return self.inner.poison(inputs, labels, num_classes=num_classes, rng=rng)

    def poisoner(self, place: int, /) -> Attack:
        """Return this attack around the inner attack's poisoner."""
        twin = copy.copy(self)
        twin.inner = self.inner.poisoner(place)
        return twin

    def poisoned_at(self, round_number: int, /) -> bool:
        """Whether the attackers train on poisoned data in this round."""
        return self.active_at(round_number) and self.inner.poisoned_at(round_number)

    def goal(
        self, inputs: NDArray[Any], labels: NDArray[Any], *, num_classes: int
    ) -> tuple[NDArray[Any], NDArray[Any]] | None:
        """Return the inner attack's goal."""
        return self.inner.goal(inputs, labels, num_classes=num_classes)

    def new_identities(self, rejected: Sequence[ClientId], round_number: int, /) -> Collection[ClientId]:
        """Return the clients that the inner attack renames."""
        return self.inner.new_identities(rejected, round_number)

    def claims(self, examples: Sequence[int], /) -> Sequence[float]:
        """Return the inner attack's claims."""
        return self.inner.claims(examples)

    def __call__(self, view: AttackerView, /) -> Floats | None:
        """Return the inner attack's rows, or honest updates."""
        return self.inner(view) if self.active_at(view.round) else view.own_updates

    def state_dict(self) -> dict[str, Any]:
        """Return the inner attack's state."""
        return {"inner": self.inner.state_dict() if isinstance(self.inner, Stateful) else {}}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Restore the inner attack's state."""
        if not isinstance(state.get("inner"), dict):
            raise StateError(f"state of {type(self).__name__} must have the inner attack's; got {sorted(state)}")
        if isinstance(self.inner, Stateful):
            self.inner.load_state_dict(state["inner"])


@dataclass(kw_only=True, eq=False)
class Sleeper(Wrapper):
    """Sleeper: honest for a number of rounds, to earn trust; then another attack to the end.

    Parameters
    ----------
    inner
        The later attack: LIE by default; in a configuration its name, with its options beside it.
    honest_rounds
        Number of honest rounds at the start.

    References
    ----------
    The delayed onset of reputation systems ("traitors"); see F7 in ``docs/attacks.md``.
    """

    honest_rounds: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("honest_rounds", self.honest_rounds)

    def active_at(self, round_number: int, /) -> bool:
        """Whether the honest rounds are over."""
        return round_number > self.honest_rounds


@dataclass(kw_only=True, eq=False)
class OnOff(Wrapper):
    """On-off: another attack and honest rounds in turns, to stay trusted.

    Parameters
    ----------
    inner
        The attack of the rounds that are on: LIE by default; in a configuration its name, with its options beside it.
    on_rounds, off_rounds
        Length of each phase in rounds; the first is on.

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


@dataclass(kw_only=True, eq=False)
class Whitewash(Wrapper):
    """Whitewash: an attacker that was rejected comes back under a new identity, without its bad reputation.

    The server tells each client whether its update was accepted. After ``patience`` rejections an attacker
    leaves, and from the next round on takes part as a new client. For defenses that reject nobody this changes
    nothing.

    Parameters
    ----------
    inner
        The attack that they run: sign flip by default; in a configuration its name, with its options beside it.
    patience
        Rejections after which an attacker gives up its identity.

    References
    ----------
    Whitewashing, known from reputation systems (Feldman et al., Free-riding and whitewashing in peer-to-peer
    systems, IEEE JSAC 2006); see F14 in ``docs/attacks.md``.
    """

    inner: Attack = field(default_factory=SignFlip)
    patience: int = 1
    _rejections: dict[ClientId, int] = field(default_factory=dict, init=False, repr=False)
    _last_round: int = field(default=0, init=False, repr=False)

    default_inner: ClassVar[str] = "sign-flip"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("patience", self.patience, at_least=1)

    def new_identities(self, rejected: Sequence[ClientId], round_number: int, /) -> Collection[ClientId]:
        """Return the clients with ``patience`` rejections under their present identity."""
        if round_number <= self._last_round:  # a new run has begun
            self._rejections.clear()
        self._last_round = round_number
        for client in rejected:
            self._rejections[client] = self._rejections.get(client, 0) + 1
        leaving = [client for client in rejected if self._rejections[client] >= self.patience]
        for client in leaving:
            del self._rejections[client]
        return leaving

    def state_dict(self) -> dict[str, Any]:
        """Return the inner attack's state, and how often each client was rejected under its present identity."""
        counts = {"clients": list(self._rejections), "rejections": list(self._rejections.values())}
        return {**super().state_dict(), **counts, "last_round": self._last_round}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Restore what ``state_dict`` returned."""
        try:
            counts = {client: int(count) for client, count in zip(state["clients"], state["rejections"], strict=True)}
            last_round = int(state["last_round"])
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(f"state of Whitewash must have clients, rejections and last_round; {error!r}") from error
        super().load_state_dict(state)
        self._rejections, self._last_round = counts, last_round


@dataclass(kw_only=True, eq=False)
class Braggart(Wrapper):
    """Braggart: another attack, by clients that claim many times their true number of examples.

    A rule that weights by the number of examples, such as FedAvg, follows the client with the largest claim, and
    cannot check it. For defenses that ignore the number this changes nothing.

    Parameters
    ----------
    inner
        The attack that they run: label flip by default; in a configuration its name, with its options beside it.
    times
        Factor on their true number of examples.

    References
    ----------
    Portnoy, Tirosh, Hendler, Towards federated learning with Byzantine-robust client weighting (Applied
    Sciences 12(17), 2022).
    """

    inner: Attack = field(default_factory=LabelFlip)
    times: float = 1e6

    default_inner: ClassVar[str] = "label-flip"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("times", self.times)

    def claims(self, examples: Sequence[int], /) -> Sequence[float]:
        """Return the claims of the inner attack, times the factor."""
        return [self.times * claim for claim in self.inner.claims(examples)]
