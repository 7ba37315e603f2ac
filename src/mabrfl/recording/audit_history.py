"""Which rows of an audit are valid: a run that goes back to a saved state undoes the decisions after it."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Any

DECISIONS = ("reply", "round", "decision")
"""The kinds of rows that are decisions; a ``back`` row undoes them."""


class AuditHistory:
    """The decisions that are still valid, collected row by row: a ``back`` row undoes those after its mark.

    Attributes
    ----------
    undone
        The numbers (``seq``) of the rows that are undone.
    returns
        How often a run went back.
    saved
        The last round that had a saved state when a run started or went back.
    finished
        The last round with a complete record.
    """

    def __init__(self) -> None:
        self.undone: set[int] = set()
        self.returns = self.saved = self.finished = 0
        self._valid = array("q")

    def take(self, row: Mapping[str, Any]) -> None:
        """Take the next row of an audit."""
        kind, number = row.get("kind"), row.get("round")
        if kind in DECISIONS:
            self._valid.append(row["seq"])
        if kind == "round" and type(number) is int:
            self.finished = max(self.finished, number)
        if kind in ("start", "back") and type(number) is int:
            self.saved = max(self.saved, number)
        if kind == "back":
            self.returns += 1
            while self._valid and self._valid[-1] > row["after"]:
                self.undone.add(self._valid.pop())

    def after(self, row: int) -> int:
        """Return how many valid decisions follow this row."""
        return len(self._valid) - bisect_right(self._valid, row)


def valid_rows(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the valid rows: without those of rounds that were run again, so that nothing counts twice."""
    kept, history = list(rows), AuditHistory()
    for row in kept:
        history.take(row)
    return [row for row in kept if row["seq"] not in history.undone]
