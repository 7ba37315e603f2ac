"""One round as a record, and its one line of JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from mabrfl.rng import ClientId
from mabrfl.updates import REASONS, Verdict, as_client_id, canonical

_Kind = TypeVar("_Kind")


@dataclass(frozen=True)
class RoundRecord:
    """One round: the clients, the verdicts with their evidence, and the model's accuracy.

    Attributes
    ----------
    round
        The round's number, from 1.
    accuracy, loss
        Accuracy in percent and mean loss of the global model on the test set, after the round.
    selected
        The clients that were invited.
    verdicts
        One :class:`~mabrfl.updates.Verdict` per client that sent something.
    reputation
        ``{id: (B, M)}`` after the round.
    attackers
        The attackers' ids in this round: the truth, known to the simulator and to evaluation alone.
    events, facts
        Notes on the round as a whole, in words and in plain numbers.
    seconds
        Wall-clock time per stage.
    per_class
        Accuracy in percent per class of the test set.
    attack_success
        Percent of the examples of the attack's goal that the global model classifies as the attack wants, after
        the round; None if the attack has no goal.
    confusion
        A row per class of the test set: how many of its examples the global model takes for each class. None if there
        are too many classes to record it.
    """

    round: int
    accuracy: float
    loss: float
    selected: tuple[ClientId, ...]
    verdicts: Mapping[ClientId, Verdict]
    reputation: Mapping[ClientId, tuple[float, float]] = field(default_factory=dict)
    attackers: frozenset[ClientId] = frozenset()
    events: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    per_class: tuple[float, ...] | None = None
    attack_success: float | None = None
    confusion: tuple[tuple[int, ...], ...] | None = None

    @property
    def sybils(self) -> int:
        """How many clients were rejected as sybils."""
        return self._count("sybil")

    @property
    def outliers(self) -> int:
        """How many clients were rejected as outliers."""
        return self._count("outlier")

    @property
    def malformed(self) -> int:
        """How many clients sent something that is not an update."""
        return self._count("malformed")

    @property
    def otherwise_rejected(self) -> int:
        """How many clients were rejected for a reason of a user's own rule."""
        return sum(not one.accepted and one.reason not in REASONS for one in self.verdicts.values())

    @property
    def caught(self) -> int:
        """How many attackers were rejected."""
        return sum(not verdict.accepted for client, verdict in self.verdicts.items() if client in self.attackers)

    @property
    def missed(self) -> int:
        """How many attackers were accepted."""
        return sum(verdict.accepted for client, verdict in self.verdicts.items() if client in self.attackers)

    @property
    def honest_rejected(self) -> int:
        """How many honest clients were rejected."""
        return sum(not verdict.accepted for client, verdict in self.verdicts.items() if client not in self.attackers)

    def _count(self, reason: str) -> int:
        return sum(verdict.reason == reason for verdict in self.verdicts.values())

    def to_json(self) -> str:
        """Return the record as one line of strict JSON; NaN and infinities become null."""
        # Ids are values, not keys: a JSON key is always a string, and client 1 is not client "1".
        record = {
            "round": self.round,
            "accuracy": self.accuracy,
            "loss": self.loss,
            "per_class": self.per_class,
            "attack_success": self.attack_success,
            **({} if self.confusion is None else {"confusion": self.confusion}),
            "selected": self.selected,
            "verdicts": [
                {"id": client, "accepted": verdict.accepted, "reason": verdict.reason, "evidence": verdict.evidence}
                | ({} if verdict.credit == 1 else {"credit": verdict.credit})
                for client, verdict in self.verdicts.items()
            ],
            "reputation": [[client, *belief] for client, belief in self.reputation.items()],
            "attackers": canonical(self.attackers),
            "events": self.events,
            "facts": self.facts,
            "seconds": self.seconds,
        }
        return json.dumps(plain(record), allow_nan=False, ensure_ascii=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, line: str) -> RoundRecord:
        """Return the record that :meth:`to_json` wrote; a number written as null comes back as NaN."""
        data = json.loads(line)
        return cls(
            round=_round(data["round"]),
            accuracy=_number(data["accuracy"]),
            loss=_number(data["loss"]),
            selected=_ids(data["selected"]),
            verdicts={
                as_client_id(entry["id"]): Verdict(
                    bool(entry["accepted"]),
                    _text(entry["reason"]),
                    _table(entry["evidence"]),
                    _number(entry.get("credit", 1.0)),
                )
                for entry in data["verdicts"]
            },
            reputation={as_client_id(who): (_number(good), _number(bad)) for who, good, bad in data["reputation"]},
            attackers=frozenset(_ids(data["attackers"])),
            events=tuple(_text(event) for event in _list(data["events"])),
            facts=_table(data["facts"]),
            seconds={stage: _number(took) for stage, took in data["seconds"].items()},
            per_class=None if data["per_class"] is None else tuple(_number(share) for share in data["per_class"]),
            # Records of the first versions do not have it.
            attack_success=None if data.get("attack_success") is None else _number(data["attack_success"]),
            confusion=_square(data.get("confusion"), data["per_class"]),
        )


def is_round(value: Any) -> bool:
    """Whether a value that was read is the number of a round: whole, from 1, and of at most nine digits.

    Examples
    --------
    >>> is_round(1), is_round(0), is_round(True), is_round(10**9)
    (True, False, False, False)
    """
    return type(value) is int and 0 < value < 10**9


def plain(value: Any) -> Any:
    """Return a value that JSON can hold: NumPy's numbers and arrays as Python's, NaN and infinities as None."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, Set):
        value = canonical(value)
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return str(value)


def _square(counts: Any, per_class: Any) -> tuple[tuple[int, ...], ...] | None:
    """Return a confusion matrix with a row and a column per class; records of the first versions have none."""
    if counts is None:
        return None
    rows = tuple(tuple(_whole(count) for count in _list(row)) for row in _list(counts))
    if {len(rows), *map(len, rows)} != {len(_list(per_class))}:
        raise ValueError("confusion must have a row and a column per class")
    return rows


def _number(value: Any) -> float:
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"expected a number, got {value!r:.40}")
    return float(value)


def _round(value: Any) -> int:
    if not is_round(value):
        raise ValueError(f"expected the number of a round, got {value!r:.40}")
    return int(value)


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"expected a whole number, got {value!r:.40}")
    return value


def _ids(values: Any) -> tuple[ClientId, ...]:
    return tuple(as_client_id(value) for value in _list(values))


def _text(value: Any) -> Any:
    return _of_kind(str, value)


def _list(value: Any) -> list[Any]:
    return _of_kind(list, value)


def _table(value: Any) -> dict[str, Any]:
    return _of_kind(dict, value)


def _of_kind(kind: type[_Kind], value: Any) -> _Kind:
    if not isinstance(value, kind):
        raise TypeError(f"expected a {kind.__name__}, got {value!r:.40}")
    return value
