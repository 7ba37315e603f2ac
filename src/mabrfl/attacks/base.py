"""The base of all attacks, and plain functions as attacks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from mabrfl.attacks.view import AttackerView, Knowledge, Observes
from mabrfl.checks import check_choice
from mabrfl.errors import ConfigError
from mabrfl.rng import ClientId
from mabrfl.updates import Floats


class Attack:
    """Base of the attacks: it declares the knowledge it needs, and turns a view into malicious updates.

    A plain function ``view -> rows`` works as well, see :func:`as_attack`. An attack that sees finite numbers
    sends finite numbers; benign rows that are not finite are left out of every statistic.

    Attributes
    ----------
    knowledge
        The knowledge that the attack needs, or its word (``"partial"``). Its view holds no more than that.
    trains
        Whether the attackers train locally (``view.own_updates``); False saves the time. See also ``trains_at``.
    poisons
        Whether they train on poisoned data (then ``poison`` is called).
    constraint
        Weight of the distance to the global model in their loss, from 0 to 1, when they train on poisoned data.
    measures
        Whether it measures models on the attackers' own examples (``view.own_accuracy``).
    observes
        The updates in ``view.benign``, for an attack that may see them: those of the benign clients
        ``selected`` this round, or of ``all`` benign clients (the others then train only to be observed).
    """

    knowledge: Knowledge = Knowledge.AGNOSTIC
    trains: bool = True
    poisons: bool = False
    constraint: float = 0.0
    measures: bool = False
    observes: Observes = "selected"

    def survey(self, inputs: NDArray[Any], labels: NDArray[Any], *, num_classes: int) -> None:
        """Look at all training examples of the attackers together, before ``poison`` and ``goal``; nothing by default.

        Called once for an attack that poisons data, and again when a run is resumed.
        """
        del inputs, labels, num_classes

    def poison(
        self, inputs: NDArray[Any], labels: NDArray[Any], *, num_classes: int, rng: np.random.Generator
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the poisoned form of one attacker's training data; the given arrays are not changed."""
        del num_classes, rng
        return inputs, labels

    def poisoner(self, place: int, /) -> Attack:
        """Return the attack whose ``poison`` an attacker uses; itself by default.

        ``place`` counts the adversary's clients from 0, in canonical order: for clients that divide their work.
        """
        del place
        return self

    def trains_at(self, round_number: int, /) -> bool:
        """Whether the attackers train locally in this round."""
        del round_number
        return self.trains

    def poisoned_at(self, round_number: int, /) -> bool:
        """Whether the attackers train on poisoned data in this round."""
        del round_number
        return self.poisons

    def goal(
        self, inputs: NDArray[Any], labels: NDArray[Any], *, num_classes: int
    ) -> tuple[NDArray[Any], NDArray[Any]] | None:
        """Return the test examples that the attack wants misclassified, and the labels it wants; None without a goal.

        The share of them that the global model classifies that way is the attack success rate, measured every
        round. The given arrays, inputs and labels of the test set, are not changed.
        """
        del inputs, labels, num_classes
        return None

    def new_identities(self, rejected: Sequence[ClientId], round_number: int, /) -> Collection[ClientId]:
        """Return the rejected attackers that come back under a new identity; none by default.

        Called after a round in which the server rejected some attackers; the server tells each client its verdict.
        From the next round on the server knows them under new ids and does not know the old ones. The attack
        still sees its clients under their old numbers.
        """
        del rejected, round_number
        return ()

    def claims(self, examples: Sequence[int], /) -> Sequence[float]:
        """Return the numbers of examples that the attackers claim, given the true ones; the truth by default."""
        return examples

    def __call__(self, view: AttackerView, /) -> Floats | None:
        """Return what the attackers send, ``(a, d)``, or None if the attack cannot act in this round.

        By default the updates of their training, which is enough for an attack that poisons data.
        """
        return view.own_updates


_HOOKS = (
    "survey",
    "poison",
    "poisoner",
    "poisoned_at",
    "trains_at",
    "goal",
    "new_identities",
    "claims",
    "state_dict",
    "load_state_dict",
)
"""Methods of an attack that a callable object may have too."""


class FunctionAttack(Attack):
    """An attack made of a plain function, or of any callable object, by :func:`as_attack`."""

    def __init__(self, function: Callable[[AttackerView], Floats | None]) -> None:
        self.function = function
        self.__doc__ = function.__doc__
        self.knowledge = _knowledge(function)
        self.trains = bool(getattr(function, "trains", Attack.trains))
        self.poisons = bool(getattr(function, "poisons", Attack.poisons))
        self.constraint = float(getattr(function, "constraint", Attack.constraint))
        self.observes = getattr(function, "observes", Attack.observes)
        check_choice(f"observes of attack {_name(function)}", self.observes, get_args(Observes))
        for name in _HOOKS:
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
        object.__setattr__(candidate, "knowledge", _knowledge(candidate))  # a class may declare it by its word
        return candidate
    if isinstance(candidate, type):
        raise ConfigError(f"an attack must be an object, not a class: write {candidate.__name__}(...)")
    if not callable(candidate):
        raise ConfigError(f"an attack must be callable with one argument, the view; got {candidate!r}")
    return FunctionAttack(candidate)


def craft(attack: Attack, view: AttackerView) -> Floats | None:
    """Return what the attackers send, checked: ``(a, d)`` floats of the model's type, or None.

    The numbers are not checked: NaN and infinities pass, and the server judges them.
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
