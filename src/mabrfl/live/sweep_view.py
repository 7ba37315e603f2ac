"""A sweep for the live page: its cells as they are planned, begun, finished or failed."""

from __future__ import annotations

import json
import re
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from mabrfl.config.differences import flat
from mabrfl.errors import ConfigError
from mabrfl.live.run_view import RunView, stamp_of
from mabrfl.live.tails import Tail
from mabrfl.recording.audit import safe_text
from mabrfl.recording.encoding import MALFORMED
from mabrfl.recording.files import read_object
from mabrfl.recording.folder import ROUNDS, SUMMARY
from mabrfl.recording.ownership import FAILED, PLAN
from mabrfl.recording.record import is_round
from mabrfl.runs.finished import finished_summary
from mabrfl.sweeps.cells import label_of
from mabrfl.sweeps.plan import folder_of, last_plan
from mabrfl.sweeps.results import KEY_LENGTH

QUIET_SECONDS = 120.0
"""A cell without news for this long, and for ten of its rounds, is shown as begun, not as running."""
_KEY = re.compile(rf"[0-9a-f]{{{KEY_LENGTH},128}}")
_KIND = ("dataset", "model", "clients", "defense")
"""Cells that agree in these have rounds of about the same length."""


class SweepView:
    """Follows a sweep; the pages of its cells are those of runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._planned: tuple[Any, list[_CellView]] = (None, [])
        self._runs: dict[str, RunView] = {}

    def stamp(self) -> tuple[Any, ...]:
        """Return a value that changes with the files, and with the time, since cells may fall silent."""
        return (int(time.time() / 30), *(cell.stamp() for cell in self._cells()))

    def document(self) -> dict[str, Any]:
        """Return what the page shows."""
        cells = self._cells()
        rows = [cell.row() for cell in cells]
        counts = {status: sum(row["status"] == status for row in rows) for status in _STATUSES}
        done, planned = (sum(row[name] or 0 for row in rows) for name in ("done", "planned"))
        return {
            "kind": "sweep",
            "title": self.folder.name,
            "state": "finished" if counts["done"] == len(rows) and rows else "going",
            "counts": counts,
            "done": done,
            "planned": planned,
            "eta": _time_left(rows, counts["running"]),
            "changed": max((row["changed"] for row in rows), default=0.0),
            "cells": [
                {name: row[name] for name in _COLUMNS}
                for row in sorted(rows, key=lambda row: _STATUSES.index(row["status"]))
            ],
            "notes": [] if cells else [f"{PLAN} has no cells, or is damaged."],
        }

    def run(self, key: str) -> RunView:
        """Return the run of a cell.

        Raises
        ------
        ConfigError
            If the plan has no cell with exactly this key.
        """
        label = {cell.key: cell.label for cell in self._cells()}.get(key)
        if label is None:
            raise ConfigError(f"the sweep has no cell {safe_text(key, 40)}")
        return self._runs.setdefault(key, RunView(folder_of(self.folder, key), label))

    def _cells(self) -> list[_CellView]:
        """Return the cells of the plan; what is known of them is kept if the plan is written anew."""
        stamp, cells = self._planned
        now = stamp_of(self.folder / PLAN)
        if stamp != now:
            known = {cell.key: cell for cell in cells}
            entries = [entry for entry in last_plan(self.folder) if _KEY.fullmatch(entry["key"])]
            labels = _labels(entries)
            cells = [
                known.get(entry["key"]) or _CellView(self.folder, entry, labels[entry["key"]]) for entry in entries
            ]
            self._planned = now, cells
        return cells


_STATUSES = ("running", "failed", "begun", "done", "missing")
_MOST_BESIDES = 4
_COLUMNS = ("key", "label", "status", "done", "planned", "accuracy", "pace", "error")


class _CellView:
    """One cell; its files are read again when they have changed."""

    def __init__(self, results: Path, entry: Mapping[str, Any], label: str) -> None:
        self.key, self.label, self.folder = entry["key"], label, folder_of(results, entry["key"])
        config = entry.get("config", {})
        self.kind = tuple(str(config.get(name)) for name in _KIND)
        rounds = config.get("rounds")
        self.planned = rounds if is_round(rounds) else None
        self._tail = Tail(lambda: [self.folder / ROUNDS])
        self._rounds, self._last = 0, b""
        self._known: tuple[Any, dict[str, Any]] = (None, {})

    def stamp(self) -> tuple[Any, ...]:
        return tuple(stamp_of(self.folder / name) for name in (ROUNDS, SUMMARY, FAILED))

    def row(self) -> dict[str, Any]:
        """Return the line of the cell: its status, its rounds, and the accuracy after the last of them."""
        stamp = self.stamp()
        if self._known[0] != stamp:
            self._known = stamp, self._read()
        row = dict(self._known[1])
        if row["status"] == "begun" and time.time() - row["changed"] < max(QUIET_SECONDS, 10 * (row["pace"] or 0.0)):
            row["status"] = "running"
        return row

    def _read(self) -> dict[str, Any]:
        summary, failure = finished_summary(self.folder, self.key), read_object(self.folder / FAILED, strict=False)
        row = {"key": self.key, "label": self.label, "kind": self.kind, "planned": self.planned, "error": ""}
        row["changed"] = max(changed for changed, _ in self.stamp())
        if summary is not None:
            done, seconds = summary.get("rounds") or 0, summary.get("seconds")
            pace = seconds / done if done and seconds else None
            return {**row, "status": "done", "done": done, "accuracy": summary.get("final_accuracy"), "pace": pace}
        row |= self._progress()
        if failure:
            return {**row, "status": "failed", "error": safe_text(failure.get("error", "unknown"), 300)}
        return {**row, "status": "begun" if (self.folder / ROUNDS).is_file() else "missing"}

    def _progress(self) -> dict[str, Any]:
        """Return how far an unfinished run is; only the last of its lines is parsed."""
        anew, lines = self._tail.read()
        self._rounds = len(lines) + (0 if anew else self._rounds)
        self._last = lines[-1] if lines else b"" if anew else self._last
        try:
            last = json.loads(self._last)
            accuracy, pace = last["accuracy"], float(sum(last["seconds"].values()))
        except MALFORMED:
            accuracy = pace = None
        known = isinstance(accuracy, int | float)
        return {"done": self._rounds, "accuracy": accuracy if known else None, "pace": pace}


def _labels(entries: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return a label for each cell: its place on the axes and, where others have the same, the settings that differ."""
    groups: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for entry in entries:
        groups[label_of(entry.get("axes", {}))].append(entry)
    labels = {}
    for label, group in groups.items():
        settings = [flat(entry.get("config", {})) for entry in group]
        names = [name for name in settings[0] if any(other.get(name) != settings[0][name] for other in settings[1:])]
        for count in range(_MOST_BESIDES + 1):
            besides = [label_of({name: own.get(name) for name in names[:count]}) for own in settings]
            if len(set(besides)) == len(group):
                break
        for entry, own in zip(group, besides, strict=True):
            labels[entry["key"]] = safe_text(", ".join(filter(None, (label, own))) or entry["key"][:8], 300)
    return labels


def _time_left(rows: Sequence[Mapping[str, Any]], running: int) -> float | None:
    """Estimate the time that the rest takes if as many cells run at once as now; None if none is running.

    A round takes as long as the median of the cells of its kind, or of all cells if none of its kind was measured.
    """
    paces: defaultdict[Any, list[float]] = defaultdict(list)
    for row in rows:
        if row["pace"]:
            paces[row["kind"]].append(row["pace"])
            paces[None].append(row["pace"])
    if not running or not paces:
        return None
    typical = {kind: median(measured) for kind, measured in paces.items()}
    left = [row for row in rows if row["status"] in ("running", "begun", "missing")]
    rounds = ((max((row["planned"] or 0) - row["done"], 0), row["kind"]) for row in left)
    return float(sum(number * typical.get(kind, typical[None]) for number, kind in rounds)) / running
