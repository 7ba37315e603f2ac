"""What an attacker may see, and what an attack is.

The three levels are the paper's (section "Attack Model"). A view holds nothing that its level does
not include: the simulator hands over everything as :class:`Secrets`, and the view drops the rest, so
that no attack can look at more than it declares, not even by accident.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import InitVar, dataclass, field, fields
from enum import StrEnum
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from mabrfl._checks import check_choice
from mabrfl.errors import ConfigError, KnowledgeError
from mabrfl.rng import ClientId, generator, uniforms
from mabrfl.updates import Floats, Outcome

Rehearsal = Callable[[Floats], Outcome]
Observes = Literal["selected", "all"]


class Knowledge(StrEnum):
    """The paper's three kinds of adversary, weakest first."""

    AGNOSTIC = "agnostic"
    """Knows neither the benign updates nor the defense."""
    PARTIAL = "partial"
    """Knows the benign updates of the round."""
    FULL = "full"
    """Knows the benign updates of the round and the defense."""

    def includes(self, other: Knowledge) -> bool:
        """Whether this level knows all that the other does (``<`` would compare the words).

        Examples
        --------
        >>> Knowledge.FULL.includes(Knowledge.PARTIAL), Knowledge.AGNOSTIC.includes(Knowledge.PARTIAL)
        (True, False)
        """
        levels = list(Knowledge)
        return levels.index(self) >= levels.index(other)


@dataclass(frozen=True, eq=False)
class Secrets:
    """What only some attackers know. The simulator fills in all of it; the view keeps what is allowed.

    Attributes
    ----------
    benign
        ``(b, d)`` updates of benign clients, as the attack ``observes``; b may be 0.
    benign_ids
        Their ids.
    defense_name
        The catalogue name of the defense at the server.
    rehearse
        ``rows -> Outcome``: what a copy of the defense would do with these rows.
    """

    benign: Floats
    benign_ids: tuple[ClientId, ...]
    defense_name: str = ""
    rehearse: Rehearsal | None = None

    def __post_init__(self) -> None:
        if len(self.benign) != len(self.benign_ids):
            raise ValueError(f"one id per row: got {len(self.benign_ids)} ids for {len(self.benign)} benign rows")


@dataclass(frozen=True, eq=False)
class AttackerView:
    """All that one attack sees of one round. Its arrays are read-only.

    Attributes
    ----------
    round
        The round's number, from 1.
    attackers
        The clients that the adversary controls and that were selected, in canonical order.
    num_clients, num_malicious
        K and f: all clients, and all clients that the adversary controls, selected or not.
    knowledge
        What the attack declared.
    global_weights
        ``(d,)`` the public model.
    last_step
        ``(d,)`` difference of the last two public models; None in the first round.
    own_updates
        ``(a, d)`` what the attackers' local training gave, on poisoned data if the attack poisons
        data; None if the attack does not train.
    seed
        Root of the named random streams.
    secrets
        Only for the constructor: see :class:`Secrets`.
    """

    round: int
    attackers: tuple[ClientId, ...]
    num_clients: int
    num_malicious: int
    knowledge: Knowledge
    global_weights: Floats = field(repr=False)
    last_step: Floats | None = field(default=None, repr=False)
    own_updates: Floats | None = field(default=None, repr=False)
    seed: int = 0
    secrets: InitVar[Secrets | None] = None

    def __post_init__(self, secrets: Secrets | None) -> None:
        for entry in fields(self):
            value = getattr(self, entry.name)
            if isinstance(value, np.ndarray):
                object.__setattr__(self, entry.name, _read_only(value))
        allowed: dict[str, Any] = {}
        if secrets is not None and self.knowledge.includes(Knowledge.PARTIAL):
            allowed.update(benign=_read_only(secrets.benign), benign_ids=tuple(secrets.benign_ids))
        if secrets is not None and self.knowledge.includes(Knowledge.FULL):
            allowed.update(defense_name=secrets.defense_name, rehearse=secrets.rehearse)
        object.__setattr__(self, "_allowed", allowed)

    @property
    def shape(self) -> tuple[int, int]:
        """``(a, d)``: the shape of what an attack returns."""
        return len(self.attackers), len(self.global_weights)

    @property
    def benign(self) -> Floats:
        """``(b, d)`` updates of the benign clients of this round (needs partial knowledge)."""
        rows: Floats = self._secret("benign", Knowledge.PARTIAL)
        return rows

    @property
    def benign_ids(self) -> tuple[ClientId, ...]:
        """Ids of the rows of ``benign`` (needs partial knowledge)."""
        ids: tuple[ClientId, ...] = self._secret("benign_ids", Knowledge.PARTIAL)
        return ids

    @property
    def defense_name(self) -> str:
        """Name of the defense at the server (needs full knowledge)."""
        return str(self._secret("defense_name", Knowledge.FULL))

    def rehearse(self, rows: Floats) -> Outcome:
        """Return what the server would do with the benign updates and these rows (needs full knowledge).

        A copy of the real defense, with its present state, is asked; the server notices nothing.
        """
        rehearsal: Rehearsal | None = self._secret("rehearse", Knowledge.FULL)
        if rehearsal is None:
            raise KnowledgeError("rehearse is not available: this view was made without a copy of the defense")
        return rehearsal(rows)

    def rng(self, purpose: str, *key: ClientId) -> np.random.Generator:
        """Return a generator named after the purpose and the round (and, say, one client)."""
        return generator(self.seed, purpose, self.round, *key)

    def preference(self, purpose: str) -> NDArray[np.float64]:
        """One uniform number per benign client, the same in every round of the run (needs partial knowledge)."""
        return uniforms(self.seed, purpose, 0, self.benign_ids)

    def _secret(self, name: str, needed: Knowledge) -> Any:
        if not self.knowledge.includes(needed):
            enough = " or ".join(repr(level.value) for level in Knowledge if level.includes(needed))
            raise KnowledgeError(
                f"{name} is hidden: it needs an attack with knowledge {enough}; this one has {self.knowledge.value!r}"
            )
        allowed: dict[str, Any] = vars(self)["_allowed"]
        if name not in allowed:
            raise KnowledgeError(f"{name} is not available: this view was made without secrets")
        return allowed[name]


def _read_only(array: Floats) -> Floats:
    guarded = array.view()
    guarded.flags.writeable = False
    return guarded


class Attack:
    """Base of the attacks: says what it needs to know, and turns a view into malicious updates.

    A plain function ``view -> rows`` will do as well, see :func:`as_attack`. If what an attack sees is
    finite, so is what it sends; benign rows that are not finite are left out of every statistic.

    Attributes
    ----------
    knowledge
        What the attack needs to see. It is given no more than that.
    trains
        Whether the attackers train locally (``view.own_updates``); False saves the time.
    poisons
        Whether they train on poisoned data (then ``poison`` is called).
    observes
        Whose updates ``view.benign`` holds, for an attack that may see them: those of the benign clients
        ``selected`` this round, or of ``all`` benign clients (the others then train for its eyes only).
    """

    knowledge: Knowledge = Knowledge.AGNOSTIC
    trains: bool = True
    poisons: bool = False
    observes: Observes = "selected"

    def poison(
        self, inputs: NDArray[Any], labels: NDArray[Any], *, num_classes: int, rng: np.random.Generator
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the poisoned form of one attacker's training data; the arrays given are not changed."""
        del num_classes, rng
        return inputs, labels

    def poisoned_at(self, round_number: int, /) -> bool:
        """Whether the attackers train on poisoned data in this round."""
        del round_number
        return self.poisons

    def __call__(self, view: AttackerView, /) -> Floats | None:
        """Return what the attackers send, ``(a, d)``, or None if the attack cannot act in this round.

        By default what their training gave, which is all there is to do for an attack that poisons data.
        """
        return view.own_updates


class FunctionAttack(Attack):
    """An attack made of a plain function, or of any callable object, by :func:`as_attack`."""

    def __init__(self, function: Callable[[AttackerView], Floats | None]) -> None:
        self.function = function
        self.__doc__ = function.__doc__
        self.knowledge = _knowledge(function)
        self.trains = bool(getattr(function, "trains", Attack.trains))
        self.poisons = bool(getattr(function, "poisons", Attack.poisons))
        self.observes = getattr(function, "observes", Attack.observes)
        check_choice(f"observes of attack {_name(function)}", self.observes, get_args(Observes))
        for name in ("poison", "poisoned_at", "state_dict", "load_state_dict"):
            if hasattr(function, name):
                setattr(self, name, getattr(function, name))
        if self.poisons and not hasattr(function, "poison"):
            raise ConfigError(f"attack {_name(function)} says poisons = True but has no poison(inputs, labels, ...)")

    def __call__(self, view: AttackerView, /) -> Floats | None:
        """Call the function."""
        return self.function(view)

    def __repr__(self) -> str:
        return f"FunctionAttack({_name(self.function)})"


def as_attack(candidate: Any) -> Attack:
    """Return an :class:`Attack`: the candidate itself, or a wrapper if it is a plain ``view -> rows``.

    The attributes ``knowledge`` (a :class:`Knowledge` or its word), ``trains`` and ``poisons`` of a
    function are respected; without them it is agnostic, and its attackers train on their own data.

    Examples
    --------
    >>> def reverse(view):
    ...     return -view.own_updates
    >>> as_attack(reverse).knowledge.value
    'agnostic'
    """
    if isinstance(candidate, Attack):
        return candidate
    if isinstance(candidate, type):
        raise ConfigError(f"an attack must be an object, not a class: write {candidate.__name__}(...)")
    if not callable(candidate):
        raise ConfigError(f"an attack must be callable with one argument, the view; got {candidate!r}")
    return FunctionAttack(candidate)


def craft(attack: Attack, view: AttackerView) -> Floats | None:
    """Return what the attackers send, checked: ``(a, d)`` floats of the model's type, or None.

    The numbers themselves are the attack's own affair: NaN and infinities pass, for the server to judge.
    """
    if not view.attackers:
        return None
    rows = attack(view)
    if rows is None:
        return None
    result = np.asarray(rows)
    name = repr(attack) if isinstance(attack, FunctionAttack) else type(attack).__name__
    if result.shape != view.shape:
        raise ConfigError(f"attack {name} must return shape (attackers, parameters) = {view.shape}; got {result.shape}")
    if result.dtype.kind not in "fiu":
        raise ConfigError(f"attack {name} must return real numbers; got an array of {result.dtype}")
    with np.errstate(over="ignore"):
        return result.astype(view.global_weights.dtype, copy=False)


def _knowledge(function: object) -> Knowledge:
    declared = getattr(function, "knowledge", Attack.knowledge)
    try:
        return Knowledge(declared)
    except ValueError:
        levels = ", ".join(level.value for level in Knowledge)
        raise ConfigError(f"knowledge of attack {_name(function)} must be one of {levels}; got {declared!r}") from None


def _name(function: object) -> str:
    return str(getattr(function, "__qualname__", type(function).__qualname__))
