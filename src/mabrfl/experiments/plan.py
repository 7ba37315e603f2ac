"""What a sweep has done, what is left, what has changed since last time, and how long it will take."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mabrfl.config import ResolvedConfig, load_config
from mabrfl.errors import MabRflError, StateError
from mabrfl.experiments.cells import PlannedCell, flat, value_label
from mabrfl.experiments.files import parse_json, read_bytes
from mabrfl.experiments.identity import finished_summary
from mabrfl.experiments.results import CELLS, FAILED, KEY_LENGTH, PLAN, Status
from mabrfl.recording import read_rounds
from mabrfl.recording.folder import CONFIG, ROUNDS

_MOST_SHOWN = 3


@dataclass(frozen=True)
class Standing:
    """Where one cell stands.

    Attributes
    ----------
    cell
        The cell.
    status
        ``done``, ``failed``, ``running`` (begun, not finished) or ``missing``.
    rounds
        How many rounds are finished.
    core_seconds
        What a round took, times the number of processes that worked on it; None if none was measured.
    accuracy
        After the last round, if the cell is done.
    error
        Why it failed, in one line.
    """

    cell: PlannedCell
    status: Status
    rounds: int = 0
    core_seconds: float | None = None
    accuracy: float | None = None
    error: str = ""

    @property
    def rounds_left(self) -> int:
        """How many rounds are still to be run."""
        return 0 if self.status == "done" else max(self.cell.config.rounds - self.rounds, 0)


def folder_of(results: Path, key: str) -> Path:
    """Return the folder of the run of a cell."""
    return results / CELLS / key[:KEY_LENGTH]


def standing(results: Path, cell: PlannedCell) -> Standing:
    """Look up where a cell stands; whatever cannot be read counts as not done."""
    folder = folder_of(results, cell.key)
    summary = finished_summary(folder, cell.key)
    if summary is not None:
        rounds = int(summary.get("rounds") or 0)
        took = float(summary.get("seconds") or 0.0) * _workers(folder) / rounds if rounds else None
        return Standing(cell, "done", rounds, took, summary.get("final_accuracy"))
    rounds, took = _measured(folder)
    if (folder / FAILED).is_file():
        return Standing(cell, "failed", rounds, took, error=_error(folder / FAILED))
    begun = (folder / ROUNDS).is_file()
    return Standing(cell, "running" if begun else "missing", rounds, took)


def _measured(folder: Path) -> tuple[int, float | None]:
    """Return how many rounds of an unfinished run there are, and what one took."""
    try:
        records = read_rounds(folder).records
    except StateError:
        return 0, None
    if not records:
        return 0, None
    return len(records), sum(sum(record.seconds.values()) for record in records) * _workers(folder) / len(records)


def _workers(folder: Path) -> int:
    try:
        return load_config(folder / CONFIG).workers or 1
    except MabRflError:
        return 1


def _error(path: Path) -> str:
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["error"])
    except (OSError, ValueError, KeyError, TypeError):
        return "unknown"


class Pace:
    """What a round takes, in seconds times processes, learnt from rounds of runs that are alike.

    A run is judged by those with the same data, model, clients, training, defense and selector; failing those, by
    those with the same data, model and defense; failing those, by data and model alone.
    """

    def __init__(self, standings: Iterable[Standing] = ()) -> None:
        self._total: defaultdict[tuple[Any, ...], list[float]] = defaultdict(lambda: [0.0, 0.0])
        for known in standings:
            if known.core_seconds is not None:
                self.learn(known.cell.config, known.core_seconds, known.rounds)

    def learn(self, config: ResolvedConfig, core_seconds: float, rounds: int = 1) -> None:
        """Take note of some rounds."""
        for level in _levels(config):
            total = self._total[level]
            total[0] += core_seconds * rounds
            total[1] += rounds

    def per_round(self, config: ResolvedConfig) -> float | None:
        """Return what a round of this run is going to take; None if nothing like it was measured."""
        for level in _levels(config):
            if level in self._total:
                seconds, rounds = self._total[level]
                return seconds / rounds
        return None


def _levels(config: ResolvedConfig) -> tuple[tuple[Any, ...], ...]:
    data = (config.dataset, config.model)
    size = (config.clients, config.partition.sizes, config.training.epochs)
    return (*data, *size, config.defense, config.selector), (*data, config.defense), data


@dataclass(frozen=True)
class Estimate:
    """How long what is left will take.

    Attributes
    ----------
    seconds
        Of the cells of which something is known, on this many processes at once.
    unknown
        How many cells are left of which nothing is known.
    """

    seconds: float
    unknown: int


def estimate(left: Iterable[tuple[ResolvedConfig, int]], pace: Pace, processes: int) -> Estimate:
    """Estimate the time for these runs, each with its number of rounds left."""
    total, longest, unknown = 0.0, 0.0, 0
    for config, rounds in left:
        took = pace.per_round(config)
        if took is None:
            unknown += 1
        else:
            total += took * rounds
            longest = max(longest, took * rounds)
    # The last cells do not fill the machine: on average half a cell per process but one is waited for.
    spread = longest * (processes - 1) / (2 * processes) if processes > 1 else 0.0
    return Estimate(total / max(processes, 1) + spread, unknown)


def last_plan(results: Path) -> list[dict[str, Any]]:
    """Return the cells that the sweep in this folder had when it last ran; none if it never did."""
    if not (results / PLAN).is_file():
        return []
    found = parse_json(read_bytes(results / PLAN), results / PLAN)
    if not isinstance(found, list) or not all(isinstance(entry, dict) and "key" in entry for entry in found):
        raise StateError(f"{PLAN} in the results folder is not the plan of a sweep")
    return found


def changes(before: Sequence[Mapping[str, Any]], cells: Sequence[PlannedCell]) -> dict[str, str]:
    r"""Return, for each cell that is not what it was at the same place on the axes last time, what is different.

    Examples
    --------
    >>> from mabrfl.experiments.grid import parse_sweep
    >>> old, new = (parse_sweep(b"axes.seed = [1]\nbase.rounds = %d" % rounds).cells for rounds in (5, 6))
    >>> list(changes([{"key": c.key, "config": c.plain_config, "axes": dict(c.axes)} for c in old], new).values())
    ['rounds: 5 -> 6']
    """
    known = {entry["key"] for entry in before}
    places = {json.dumps(entry.get("axes", {}), sort_keys=True): entry for entry in before}
    found = {}
    for cell in cells:
        entry = places.get(json.dumps(dict(cell.axes), sort_keys=True))
        if cell.key not in known and entry is not None:
            found[cell.key] = _difference(flat(entry.get("config", {})), cell.settings)
    return found


def _difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    absent = object()
    keys = [key for key in (*now, *(before.keys() - now.keys())) if before.get(key, absent) != now.get(key, absent)]
    told = [f"{key}: {_shown(before, key)} -> {_shown(now, key)}" for key in keys[:_MOST_SHOWN]]
    more = len(keys) - _MOST_SHOWN
    return ", ".join(told) + (f" and {more} more" if more > 0 else "")


def _shown(settings: Mapping[str, Any], key: str) -> str:
    return value_label(settings[key]) if key in settings else "not set"


def plan_entries(cells: Sequence[PlannedCell]) -> list[dict[str, Any]]:
    """Return the cells as ``cells.json`` has them."""
    return [{"key": cell.key, "config": cell.plain_config, "axes": dict(cell.axes)} for cell in cells]
