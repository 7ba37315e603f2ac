"""The contracts: three callables and one optional pair of methods. No implementation lives here.

A selector maps :class:`~mabrfl.updates.Candidates` to ids, a rule maps a
:class:`~mabrfl.updates.Cohort` to a :class:`~mabrfl.updates.Decision`; a plain function will do for
both. What carries state from round to round also has ``state_dict`` and ``load_state_dict``.
Attacks are described in :mod:`mabrfl.attacks`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from mabrfl.rng import ClientId
from mabrfl.updates import Candidates, Cohort, Decision, Selection


class Selector(Protocol):
    """Stage 1: who takes part in this round."""

    def __call__(self, candidates: Candidates, /) -> Sequence[ClientId] | Selection:
        """Return the ids to invite; an empty list means that nobody takes part."""


class Rule(Protocol):
    """Stages 4 and 6: who is believed, and where the model moves."""

    def __call__(self, cohort: Cohort, /) -> Decision:
        """Judge a cohort of at least one well-formed update."""


@runtime_checkable
class Stateful(Protocol):
    """Something that remembers: its state is plain arrays, numbers and strings, never pickle."""

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of everything the next round depends on."""

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Restore what ``state_dict`` returned; refuse anything else with a ``StateError``."""
