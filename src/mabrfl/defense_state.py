"""The progress of a defense, which is part of its state, and :func:`restore` for several states at once."""

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
        How many clients could be selected in the last selection.
    dimension, precision
        Length and type of the updates, fixed by the first judged ones.
    candidates
        The clients that could be selected in the last selection.
    selected_round, selected, events
        Of the last selection: its round, the clients it selected, and the selector's events.
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
        """The precision as a NumPy type."""
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
        """Return the progress that :meth:`as_dict` wrote; refuse anything else."""
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
    """Load the states of all parts, or of none: if a part refuses its state, the others get their old state back.

    Parts without a state are skipped.
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
