"""A Flower federation for the live page, read from a strategy's state_dir: its audit and its status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mabrfl.errors import StateError
from mabrfl.live.client_map import clients_document, handle_of, story_document
from mabrfl.live.run_view import stamp_of
from mabrfl.live.tails import Tail
from mabrfl.recording.audit import AUDIT, START, checked_line, safe_text
from mabrfl.recording.audit_files import audit_files
from mabrfl.recording.audit_records import records_of_audit
from mabrfl.recording.status import STATUS, FederationStatus, read_status, strategy_is_running
from mabrfl.recording.stories import RunStory

_LAST_DECISIONS = 20


class FederationView:
    """Follows a federation by its audit; each line is checked once, when it is read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._start()

    def _start(self) -> None:
        self._tail = Tail(lambda: audit_files(self.folder / AUDIT))
        self._rows: list[dict[str, Any]] = []
        self._problem = ""

    def stamp(self) -> tuple[Any, ...]:
        """Return a value that changes with the files, and with whether a strategy is running."""
        files = [*audit_files(self.folder / AUDIT), self.folder / STATUS]
        return (strategy_is_running(self.folder), *(stamp_of(file) for file in files))

    def document(self) -> dict[str, Any]:
        """Return what the page shows."""
        story, notes = self._story(), []
        try:
            status = read_status(self.folder)
        except StateError as error:
            status, notes = None, [str(error)]
        clients = clients_document(story)
        return {
            "kind": "federation",
            "title": self.folder.name,
            "state": "running" if strategy_is_running(self.folder) else "stopped",
            "error": "",
            "settings": [],
            "done": story.records[-1].round if story.records else 0,
            "planned": None,
            "pace": None if status is None else sum(status.seconds.values()),
            "eta": None,
            "changed": stamp_of(self.folder / AUDIT)[0] if status is None else status.time,
            "figures": [] if status is None else _figures(status),
            "curves": [],
            "notes": notes,
            "alerts": [] if status is None else [alert.model_dump(mode="json") for alert in status.alerts],
            "audit": {
                "lines": len(self._rows),
                "head": self._rows[-1]["sha256"] if self._rows else START,
                "problem": self._problem,
                "decisions": [_decision(row) for row in self._rows if row.get("kind") == "decision"][-_LAST_DECISIONS:],
            },
            **clients,
            "clients": _named(clients["clients"], status),
        }

    def story(self, handle: str, number: str) -> dict[str, Any]:
        """Return the story of a client."""
        return story_document(self._story(), handle, number)

    def _story(self) -> RunStory:
        if self._problem:  # it may be mended: read all of it again
            self._start()
        anew, lines = self._tail.read()
        if anew:
            self._rows = []
        for line in lines:
            row = checked_line(line, len(self._rows) + 1, self._rows[-1]["sha256"] if self._rows else START)
            if isinstance(row, str):
                self._problem = f"line {len(self._rows) + 1}: {row}"
                break
            self._rows.append(row)
        return RunStory(records_of_audit(self._rows), truth=False)


def _figures(status: FederationStatus) -> list[list[str]]:
    known = (
        ("nodes-available", "nodes available"),
        ("nodes-selected", "nodes invited"),
        ("replies-accepted", "replies accepted"),
        ("replies-rejected", "replies rejected"),
        ("replies-quarantined", "replies quarantined"),
        ("replies-missing", "replies missing"),
    )
    figures = [[word, f"{status.figures[name]:.0f}"] for name, word in known if name in status.figures]
    return figures + [[safe_text(name, 40), f"{value:.4g}"] for name, value in list(status.metrics.items())[:6]]


def _named(clients: Sequence[Mapping[str, Any]], status: FederationStatus | None) -> list[dict[str, Any]]:
    """Return the clients with the names of their nodes and the operator's decisions about them."""
    known = {} if status is None else {handle_of(client.id): client for client in status.clients}
    rows = []
    for client in clients:
        row, found = dict(client), known.get(client["handle"])
        if found is not None:
            row |= {"node": safe_text(found.name, 80), "banned": found.banned, "pinned": found.pinned}
        rows.append(row)
    return rows


def _decision(row: Mapping[str, Any]) -> dict[str, str]:
    return {name: safe_text(row.get(name, "")) for name in ("time", "round", "action", "client", "by", "reason")}
