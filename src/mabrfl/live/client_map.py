"""The clients of a run for the live page: every client in every round, its reputation, and its story."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from mabrfl.errors import ConfigError
from mabrfl.recording.audit import safe_text
from mabrfl.recording.client_states import STATES, states_in
from mabrfl.recording.evaluation import attacker_ids
from mabrfl.recording.record import RoundRecord
from mabrfl.recording.stories import RunStory
from mabrfl.rng import ClientId
from mabrfl.updates import REASONS

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
"""A state of the map is one character: its place in the list of states."""
_MOST_LINES = 60
"""Clients with a line in the chart of reputations: those with the lowest, if there are more."""


def handle_of(client: ClientId) -> str:
    """Return the text by which the page asks for a client; client 1 is not client "1"."""
    return json.dumps(client)


def clients_document(story: RunStory) -> dict[str, Any]:
    """Return the rows of the map (attackers last, where the truth is known), its columns, and the reputations."""
    records = story.records
    attackers = attacker_ids(records) if story.truth else frozenset()
    rows = sorted(story.clients, key=lambda client: client in attackers)
    words = _states(records)
    digits = dict(zip(words, _DIGITS, strict=False))
    counts = _counts(records)
    trusts = {client: [_trust(record.reputation.get(client)) for record in records] for client in rows}
    return {
        "rounds": [record.round for record in records],
        "states": [[state, label] for (state, _), label in words.items()],
        "columns": [_column(record, rows, digits) for record in records],
        "clients": [
            {
                "handle": handle_of(client),
                "name": safe_text(client),
                **{name: count[client] for name, count in counts.items()},
                "trust": trust[-1],
                **({"attacker": client in attackers} if story.truth else {}),
            }
            for client, trust in trusts.items()
        ],
        "trusts": _lowest(trusts),
    }


def story_document(story: RunStory, handle: str, number: str) -> dict[str, Any]:
    """Return the story of a client, and what happened to it in one round if a number is given.

    Raises
    ------
    ConfigError
        If there is no such client or round.
    """
    known = {handle_of(client): client for client in story.clients}
    if handle not in known:
        raise ConfigError(f"unknown client {safe_text(handle, 40)}")
    client = known[handle]
    moment = []
    if number:
        if not (number.isascii() and number.isdigit() and len(number) < 10):
            raise ConfigError(f"round must be a whole number; got {safe_text(number, 40)}")
        moment = [f"round {int(number)}", story.sentence(client, int(number))]
    return {
        "handle": handle,
        "name": safe_text(client),
        "moment": moment,
        "summary": story.summary(client),
        "chapters": story.chapters(client),
        "trust": [_trust(record.reputation.get(client)) for record in story.records],
    }


def _states(records: Sequence[RoundRecord]) -> dict[tuple[str, str], str]:
    """Return the states on the map by their kind and reason, each with its label; a user's own reasons are named."""
    words = {(state, state): label for state, (label, _) in STATES.items()}
    for record in records:
        for verdict in record.verdicts.values():
            own = not verdict.accepted and verdict.reason not in REASONS
            if own and len(words) < len(_DIGITS):
                words.setdefault(("otherwise", verdict.reason), f"rejected: {safe_text(verdict.reason, 40)}")
    return words


def _column(record: RoundRecord, rows: Sequence[ClientId], digits: Mapping[tuple[str, str], str]) -> str:
    states = states_in(record)
    column = []
    for client in rows:
        state = states.get(client, "absent")
        reason = record.verdicts[client].reason if state == "otherwise" else state
        column.append(digits.get((state, reason), digits[state, state]))
    return "".join(column)


def _counts(records: Sequence[RoundRecord]) -> dict[str, Counter[ClientId]]:
    counts: dict[str, Counter[ClientId]] = {"invited": Counter(), "accepted": Counter(), "rejected": Counter()}
    for record in records:
        counts["invited"].update(set(record.selected))
        for client, verdict in record.verdicts.items():
            counts["accepted" if verdict.accepted else "rejected"][client] += 1
    return counts


def _trust(counts: tuple[float, float] | None) -> int | None:
    """Return B / (B + M) in percent; None for a client without a reputation."""
    total = sum(counts) if counts is not None else 0.0
    share = counts[0] / total if counts is not None and total > 0 else -1.0
    return round(100 * share) if 0 <= share <= 1 else None


def _lowest(trusts: Mapping[ClientId, list[int | None]]) -> dict[str, list[int | None]]:
    """Return the reputations over the rounds of the clients that have one, those with the lowest at the end."""
    last = {client: trust[-1] for client, trust in trusts.items() if trust and trust[-1] is not None}
    lowest = sorted(last, key=lambda client: last[client] or 0)[:_MOST_LINES]
    return {handle_of(client): trusts[client] for client in lowest}
