"""A run for the live page, read from its folder as it grows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from mabrfl.config.toml import parse_toml
from mabrfl.errors import MabRflError
from mabrfl.live.client_map import clients_document, story_document
from mabrfl.live.tails import Tail
from mabrfl.recording.audit import safe_text
from mabrfl.recording.encoding import MALFORMED
from mabrfl.recording.evaluation import detection
from mabrfl.recording.files import read_bytes, read_object
from mabrfl.recording.folder import CONFIG, ROUNDS, SUMMARY
from mabrfl.recording.ownership import FAILED, SERIES
from mabrfl.recording.record import RoundRecord, is_round
from mabrfl.recording.stories import RunStory

RECENT = 20
"""Rounds whose median time is the pace."""
_SHOWN = ("dataset", "model", "defense", "preset", "before", "selector", "attack", "attackers", "clients", "seed")


class RunView:
    """Follows one run.

    Parameters
    ----------
    folder
        Of the run.
    title
        For the head of the page; the name of the folder if empty.
    """

    def __init__(self, folder: Path, title: str = "") -> None:
        self.folder, self.title = folder, title
        self._tail = Tail(lambda: [folder / ROUNDS])
        self._records: list[RoundRecord] = []
        self._damaged = 0

    def stamp(self) -> tuple[Any, ...]:
        """Return a value that changes with the files."""
        return tuple(stamp_of(self.folder / name) for name in (ROUNDS, CONFIG, SUMMARY, FAILED, SERIES))

    def document(self) -> dict[str, Any]:
        """Return what the page shows."""
        story = self._story()
        records, config = story.records, self._config()
        summary, failure = (read_object(self.folder / name, strict=False) for name in (SUMMARY, FAILED))
        planned = rounds if is_round(rounds := config.get("rounds")) else None
        pace = pace_of(records)
        left = None if planned is None else planned - len(records)
        return {
            "kind": "run",
            "title": self.title or self.folder.name,
            "state": _state(summary, failure),
            "error": safe_text(failure.get("error", ""), 1000),
            "settings": [[name, _short(config[name])] for name in _SHOWN if config.get(name) not in (None, "", [])],
            "done": len(records),
            "planned": planned,
            "pace": pace,
            "eta": None if pace is None or left is None else pace * max(left, 0),
            "changed": stamp_of(self.folder / ROUNDS)[0],
            "figures": _figures(records),
            "curves": _curves(records) or self._adopted_curves(),
            "notes": self._notes(records),
            **clients_document(story),
        }

    def story(self, handle: str, number: str) -> dict[str, Any]:
        """Return the story of a client."""
        return story_document(self._story(), handle, number)

    def _story(self) -> RunStory:
        """Return the rounds so far; lines that are none are left out."""
        anew, lines = self._tail.read()
        if anew:
            self._records, self._damaged = [], 0
        for line in lines:
            try:
                self._records.append(RoundRecord.from_json(line.decode("utf-8", "replace")))
            except MALFORMED:
                self._damaged += 1
        config = self._config()
        selector, options = config.get("selector"), config.get("defense_options")
        return RunStory(
            list(self._records),
            selector if isinstance(selector, str) else "",
            options if isinstance(options, dict) else {},
        )

    def _config(self) -> dict[str, Any]:
        """Return the settings as the file has them: nothing is resolved, so that no code of a user is imported."""
        try:
            return parse_toml(read_bytes(self.folder / CONFIG), CONFIG)
        except MabRflError:
            return {}

    def _adopted_curves(self) -> list[dict[str, Any]]:
        """Return the curves of a cell that a sweep took over from packed results: it has no rounds."""
        series = read_object(self.folder / SERIES, strict=False).get("series")
        columns = series if isinstance(series, dict) else {}
        rounds = columns.get("round")
        return [
            curve(name, percent, rounds, columns[key])
            for key, name, percent in _CURVES
            if isinstance(rounds, list) and isinstance(columns.get(key), list) and len(columns[key]) == len(rounds)
        ]

    def _notes(self, records: Sequence[RoundRecord]) -> list[str]:
        notes = [f"{self._damaged} lines of {ROUNDS} are damaged and left out."] if self._damaged else []
        if not records and (self.folder / SERIES).is_file():
            notes.append("This run was taken over from packed results, which have no single verdicts.")
        if records and records[-1].events:
            notes.append(f"Events in round {records[-1].round}: {safe_text(', '.join(records[-1].events), 500)}.")
        return notes


_CURVES = (("accuracy", "Accuracy", True), ("loss", "Loss", False), ("attack_success", "Attack success", True))


def stamp_of(path: Path) -> tuple[float, int]:
    """Return when a file was last changed, and its size; zeros if there is none."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return 0.0, 0
    return found.st_mtime, found.st_size


def pace_of(records: Sequence[RoundRecord]) -> float | None:
    """Return the median time of the last rounds in seconds."""
    took = [seconds for record in records[-RECENT:] if math.isfinite(seconds := sum(record.seconds.values()))]
    return median(took) if took else None


def curve(name: str, percent: bool, rounds: Sequence[Any], values: Sequence[Any]) -> dict[str, Any]:
    """Return a line over the rounds; what is not a finite number becomes a gap."""
    return {"name": name, "percent": percent, "rounds": list(rounds), "values": [_number(value) for value in values]}


def _curves(records: Sequence[RoundRecord]) -> list[dict[str, Any]]:
    curves = []
    for key, name, percent in _CURVES:
        values = [getattr(record, key) for record in records]
        if any(_number(value) is not None for value in values):
            curves.append(curve(name, percent, [record.round for record in records], values))
    return curves


def _figures(records: Sequence[RoundRecord]) -> list[list[str]]:
    if not records:
        return []
    last, counts = records[-1], detection(records)
    loss = _number(last.loss)
    figures = [["accuracy", _percent(last.accuracy)], ["loss", "-" if loss is None else f"{loss:.3f}"]]
    if last.attack_success is not None:
        figures.append(["attack success", _percent(last.attack_success)])
    figures += [["selected in the last round", str(len(last.selected))]]
    if any(record.attackers for record in records):
        honest = counts.honest_rejected + counts.honest_accepted
        figures += [
            ["attackers' updates rejected", f"{counts.caught} of {counts.caught + counts.missed}"],
            ["honest updates rejected", f"{counts.honest_rejected} of {honest}"],
        ]
    return figures


def _state(summary: Mapping[str, Any], failure: Mapping[str, Any]) -> str:
    if summary.get("interrupted") is False:
        return "finished"
    if failure:
        return "failed"
    return "interrupted" if summary.get("interrupted") is True else "going"


def _percent(value: float) -> str:
    return f"{value:.2f} %" if math.isfinite(value) else "-"


def _number(value: Any) -> float | None:
    number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300
    return float(f"{value:.6g}") if number else None


def _short(value: Any) -> str:
    return safe_text(", ".join(map(str, value)) if isinstance(value, list) else value, 80)
