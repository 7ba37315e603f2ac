"""What happened to each client in a round, in one word: for the map of clients in pictures and on the live page."""

from __future__ import annotations

from collections.abc import Mapping

from mabrfl.recording.record import RoundRecord
from mabrfl.rng import ClientId
from mabrfl.updates import REASONS

# Shades differ in lightness too, so that the map survives grey printing.
STATES: Mapping[str, tuple[str, str]] = {
    "absent": ("not selected", "#F2F2F2"),
    "silent": ("selected, sent nothing", "#BDBDBD"),
    "accepted": ("accepted", "#8CC5E8"),
    "sybil": ("rejected: sybil", "#D55E00"),
    "outlier": ("rejected: outlier", "#8B2F7B"),
    "malformed": ("rejected: malformed", "#111111"),
    "otherwise": ("rejected otherwise", "#E6B800"),
}
"""Each state: what it is called, and its colour."""


def states_in(record: RoundRecord) -> dict[ClientId, str]:
    """Return the state of each client that took part in a round; all others were absent."""
    judged = {
        client: verdict.reason if verdict.reason in REASONS else "otherwise"
        for client, verdict in record.verdicts.items()
    }
    return dict.fromkeys(record.selected, "silent") | judged
