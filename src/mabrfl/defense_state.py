"""The progress of a defense, which it remembers beside beliefs, and how states are restored as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mabrfl.errors import StateError
from mabrfl.protocols import Stateful
from mabrfl.rng import ClientId
from mabrfl.updates import as_client_id

_PRECISIONS = (None, "float32", "float64")


@dataclass(frozen=True)
class DefenseProgress:
    """The progress of a defense from round to round.

    Attributes
    ----------
    last_round
        The last round that was judged; 0 before the first.
    population
        How many clients could have been selected last.
    dimension, precision
        Length and type of the updates, fixed by the first that were judged.
    candidates
        The clients that could have been selected last.
    selected_round, selected, events
        The round for which clients were selected last, these clients, and the selector's events.
    """

    last_round: int = 0
    population: int = 0
    dimension: int | None = None
    precision: str | None = None
    selected_round: int = 0
    selected: tuple[ClientId, ...] = ()
    candidates: tuple[ClientId, ...] = ()
    events: tuple[str, ...] = ()

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """The precision as NumPy has it."""
        return None if self.precision is None else np.dtype(self.precision)

    def as_dict(self) -> dict[str, Any]:
        """Return plain numbers, strings and lists."""
        return {
            **vars(self),
            "selected": list(self.selected),
            "candidates": list(self.candidates),
            "events": list(self.events),
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> DefenseProgress:
        """Return what :meth:`as_dict` wrote; anything else is refused."""
        numbers = {name: _whole(name, state[name]) for name in ("last_round", "population", "selected_round")}
        dimension = None if state["dimension"] is None else _whole("dimension", state["dimension"])
        if state["precision"] not in _PRECISIONS:
            raise StateError(f"precision must be float32 or float64; got {state['precision']!r}")
        return cls(
            **numbers,
            dimension=dimension,
            precision=state["precision"],
            selected=tuple(as_client_id(client) for client in state["selected"]),
            candidates=tuple(as_client_id(client) for client in state.get("candidates", ())),
            events=tuple(str(event) for event in state["events"]),
        )


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
        raise StateError(f"{name} must be a whole number from 0; got {value!r}")
    return int(value)


def restore(parts: Sequence[tuple[Any, Mapping[str, Any]]]) -> None:
    """Load each part's state, or none: if one is refused, those loaded before it get their old state back.

    Parts that do not keep a state are passed over.
    """
    stateful = [(part, dict(state)) for part, state in parts if isinstance(part, Stateful)]
    before = [(part, part.state_dict()) for part, _ in stateful]
    try:
        for part, state in stateful:
            part.load_state_dict(state)
    except BaseException:
        for part, state in before:
            part.load_state_dict(state)
        raise
