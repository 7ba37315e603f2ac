"""The decisions of an operator: who is banned, who is pinned, and the application of new requests."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mabrfl.defense import Defense
from mabrfl.flower.state_folder import now
from mabrfl.recording.audit import safe_text
from mabrfl.recording.requests import OperatorRequest
from mabrfl.rng import ClientId
from mabrfl.updates import as_client_id, canonical

log = logging.getLogger("flwr")


@dataclass
class OperatorDecisions:
    """The decisions in force, which are part of the saved state.

    Attributes
    ----------
    banned
        Not invited, neither to train nor to evaluate.
    pinned
        Invited to every round.
    applied
        The names of the requests that were applied since the last saved state but one: their files may still exist.
    """

    banned: set[ClientId] = field(default_factory=set)
    pinned: set[ClientId] = field(default_factory=set)
    applied: list[str] = field(default_factory=list)

    def as_state(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "banned": canonical(self.banned),
            "pinned": canonical(self.pinned),
            "applied": list(self.applied),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any] | None) -> OperatorDecisions:
        """Return the decisions of :meth:`as_state`; none for a state from before there were any."""
        if state is None:
            return cls()
        banned, pinned = ({as_client_id(client) for client in state[name]} for name in ("banned", "pinned"))
        return cls(banned, pinned, [str(name) for name in state["applied"]])

    def apply(self, request: OperatorRequest, defense: Defense) -> dict[str, Any]:
        """Apply a request; return its row for the audit."""
        client = request.client
        before = _reputation(defense, client)
        if request.action == "ban":
            self.banned.add(client)
            self.pinned.discard(client)
        elif request.action == "forgive":
            self.banned.discard(client)
            _with_reputations(defense, "forget", client)
        elif request.action == "pin":
            self.pinned.add(client)
        elif request.action == "unpin":
            self.pinned.discard(client)
        elif request.to is not None:
            for group in (self.banned, self.pinned):
                if client in group:
                    group.remove(client)
                    group.add(request.to)
            _with_reputations(defense, "rename", client, request.to)
        self.applied.append(request.name)
        log.warning(
            "the operator %s: %s %s (%s)", *map(safe_text, (request.by, request.action, client, request.reason))
        )
        return {
            "kind": "decision",
            "time": now(),
            "requested": safe_text(request.time),
            "action": request.action,
            "client": safe_text(client) if isinstance(client, str) else client,
            "to": safe_text(request.to) if isinstance(request.to, str) else request.to,
            "reason": safe_text(request.reason),
            "by": safe_text(request.by),
            "reputation_before": before,
            "reputation_after": _reputation(defense, request.to if request.to is not None else client),
        }


def _reputation(defense: Defense, client: ClientId) -> Any:
    return getattr(defense, "reputation", {}).get(client)


def _with_reputations(defense: Defense, method: str, *clients: ClientId) -> None:
    """Change reputations; a defense of the user's own may have none."""
    change = getattr(defense, method, None)
    if callable(change):
        change(*clients)
