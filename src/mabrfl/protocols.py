"""The contracts of selectors, rules, and objects with a state. No implementation is here.

A selector maps :class:`~mabrfl.updates.Candidates` to ids, a rule maps a
:class:`~mabrfl.updates.Cohort` to a :class:`~mabrfl.updates.Decision`; a plain function works for
both. Objects with a state that lasts from round to round also have ``state_dict`` and ``load_state_dict``.
Attacks are described in :mod:`mabrfl.attacks`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from mabrfl.rng import ClientId
from mabrfl.updates import Candidates, Cohort, Decision, Selection


class Selector(Protocol):
    """Stage 1: choose the clients of this round."""

    def __call__(self, candidates: Candidates, /) -> Sequence[ClientId] | Selection:
        """Return the ids to invite; an empty list means that nobody takes part."""


class Rule(Protocol):
    """Stages 4 and 6: accept or reject each update, and decide on the model's step."""

    def __call__(self, cohort: Cohort, /) -> Decision:
        """Judge a cohort of at least one well-formed update."""


@runtime_checkable
class Stateful(Protocol):
    """An object with a state of plain arrays, numbers and strings; nothing is pickled."""

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of everything the next round depends on."""

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Restore what ``state_dict`` returned; refuse anything else with a ``StateError``."""
