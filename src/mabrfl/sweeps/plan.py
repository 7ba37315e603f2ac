"""The plan of a sweep: where its cells stand, and what has changed since last time."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, Literal

from mabrfl.catalog import CodeCheck, check_code
from mabrfl.config import load_config, resolve
from mabrfl.config.differences import difference, differing_keys, flat, value_label
from mabrfl.config.toml import parse_toml
from mabrfl.errors import MabRflError, OutputError, StateError
from mabrfl.recording import read_rounds
from mabrfl.recording.files import parse_json, read_bytes
from mabrfl.recording.folder import CONFIG, ROUNDS, shown
from mabrfl.recording.ownership import FAILED, PLAN
from mabrfl.runs.finished import damage, finished_summary, read_manifest
from mabrfl.sweeps.cells import PlannedCell
from mabrfl.sweeps.estimate import Pace
from mabrfl.sweeps.results import CELLS, KEY_LENGTH, SWEEP, Status

Rerun = Literal["failed", "stale"]
"""Cells that run again only on request: those that failed, and those finished with other code than that of today."""
_NO_CODE = CodeCheck()


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
        Seconds of a round times the number of its processes: the median of an unfinished run, the mean of a finished
        one; None if none was measured.
    accuracy
        After the last round, if the cell is done.
    error
        Why it failed, in one line.
    code
        Whether it was made with the user's own code as it is today; if not, a cell that is not done starts again.
    damaged
        Whether it failed because the files of the finished run contradict each other.
    """

    cell: PlannedCell
    status: Status
    rounds: int = 0
    core_seconds: float | None = None
    accuracy: float | None = None
    error: str = ""
    code: CodeCheck = _NO_CODE
    damaged: bool = False

    @property
    def stale(self) -> bool:
        """Whether the cell is done, with other code than that of today."""
        return self.status == "done" and bool(self.code.changed)

    def anew(self) -> Standing:
        """Return where the cell stands if it is run again."""
        return replace(self, status="missing", rounds=0, accuracy=None)

    @property
    def rounds_left(self) -> int:
        """How many rounds are still to be run."""
        return 0 if self.status == "done" else max(self.cell.config.rounds - self.rounds, 0)


def folder_of(results: Path, key: str) -> Path:
    """Return the folder of the run of a cell."""
    return results / CELLS / key[:KEY_LENGTH]


def standing(results: Path, cell: PlannedCell) -> Standing:
    """Look up where a cell stands; a summary that cannot be read counts as missing."""
    folder = folder_of(results, cell.key)
    known = _standing_in(folder, cell)
    if known.status == "missing":
        return known
    code = check_code(cell.plain_config, _recorded_code(folder))
    # A cell that was begun with other code starts again.
    rounds = 0 if code.changed and known.status != "done" else known.rounds
    return replace(known, code=code, rounds=rounds)


def _recorded_code(folder: Path) -> Any:
    try:
        return read_manifest(folder).get("code")
    except MabRflError:
        return None


def _standing_in(folder: Path, cell: PlannedCell) -> Standing:
    summary = finished_summary(folder, cell.key)
    if summary is not None:
        if wrong := damage(folder, summary):
            return Standing(cell, "failed", error=f"the run in {shown(folder)} is damaged: {wrong}", damaged=True)
        rounds = int(summary.get("rounds") or 0)
        took = float(summary.get("seconds") or 0.0) * _workers(folder) / rounds if rounds else None
        return Standing(cell, "done", rounds, took, summary.get("final_accuracy"))
    rounds, took = _measured(folder)
    if (folder / FAILED).is_file():
        return Standing(cell, "failed", rounds, took, error=_error(folder / FAILED))
    begun = (folder / ROUNDS).is_file()
    return Standing(cell, "running" if begun else "missing", rounds, took)


def _measured(folder: Path) -> tuple[int, float | None]:
    """Return the number of rounds of an unfinished run, and the time of one."""
    try:
        records = read_rounds(folder).records
    except StateError:
        return 0, None
    took = [seconds for record in records if math.isfinite(seconds := sum(record.seconds.values()))]
    return len(records), median(took) * _workers(folder) if took else None


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


def pace_in(results: Path, standings: Iterable[Standing]) -> Pace:
    """Return the time of rounds, learnt from these cells and all others in a sweep's folder.

    The others are cells that were not asked for, and those of older states of the sweep's file: a changed setting makes
    another cell, but mostly not another kind of round.
    """
    known = {entry.cell.key[:KEY_LENGTH]: entry for entry in standings}
    folders = sorted((results / CELLS).iterdir()) if (results / CELLS).is_dir() else []
    others = (_other(folder) for folder in folders if folder.name not in known)
    return Pace([*known.values(), *(entry for entry in others if entry is not None)])


def _other(folder: Path) -> Standing | None:
    """Return where another run of the folder stands, if its configuration can be read."""
    try:
        key, config = read_manifest(folder).get("config_hash"), resolve(load_config(folder / CONFIG))
    except MabRflError:
        return None
    return _standing_in(folder, PlannedCell(str(key), config, {}))


def last_plan(results: Path) -> list[dict[str, Any]]:
    """Return the cells that the sweep in this folder had when it last ran; none if it never did, or that is damaged."""
    try:
        return _read_plan(results)
    except StateError:
        return []


def damage_of_plan(results: Path) -> str:
    """Return a message on a plan of last time that cannot be read; an empty one if it can, or there is none."""
    try:
        _read_plan(results)
    except StateError as error:
        return f"{error}; what has changed since last time is unknown, and the sweep writes a new one"
    return ""


def _read_plan(results: Path) -> list[dict[str, Any]]:
    if not (results / PLAN).is_file():
        return []
    entries = parse_json(read_bytes(results / PLAN), results / PLAN)
    if not isinstance(entries, list) or not all(_is_entry(entry) for entry in entries):
        raise StateError(f"{shown(results / PLAN)} is not the plan of a sweep")
    return entries


def _is_entry(entry: Any) -> bool:
    tables = (entry.get(name, {}) for name in ("config", "axes")) if isinstance(entry, dict) else [None]
    return all(isinstance(table, dict) for table in tables) and isinstance(entry.get("key"), str)


def is_sweeps_folder(results: Path) -> bool:
    """Whether a sweep has left its plan in a folder."""
    return bool(last_plan(results))


def refuse_others_folder(results: Path, name: str, cells: Sequence[PlannedCell]) -> None:
    """Refuse a folder whose sweep has another name and no cell in common with this one.

    Raises
    ------
    OutputError
        If it is such a folder. An older state of the same file is allowed, and so are the same cells under a new name.
    """
    if not (results / PLAN).is_file():
        return
    before = last_plan(results)
    theirs = (before[0].get("sweep") if before else None) or _name_in(results / SWEEP)
    if theirs in (None, name) or {entry["key"] for entry in before} & {cell.key for cell in cells}:
        return
    raise OutputError(
        f"{shown(results)} is the folder of another sweep, {value_label(theirs)}: none of its cells is one of {name}; "
        "choose another with --out"
    )


def _name_in(file: Path) -> Any:
    """Return the name in a sweep file; plans of earlier versions do not have it."""
    try:
        return parse_toml(read_bytes(file), "").get("name")
    except MabRflError:
        return None


def changes(before: Sequence[Mapping[str, Any]], cells: Sequence[PlannedCell]) -> dict[str, str]:
    r"""Return, for each cell that differs from the one at the same place on the axes last time, what differs.

    Parameters
    ----------
    before
        The plan of last time.
    cells
        All of the sweep's, now.

    Examples
    --------
    >>> from mabrfl.sweeps.sweep_file import parse_sweep
    >>> old, new = (parse_sweep(b"axes.seed = [1]\nbase.rounds = %d" % rounds).cells for rounds in (5, 6))
    >>> list(changes([{"key": c.key, "config": c.plain_config, "axes": dict(c.axes)} for c in old], new).values())
    ['rounds: 5 -> 6']
    """
    known, planned = {entry["key"] for entry in before}, {cell.key for cell in cells}
    places: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for entry in before:
        # A cell that is still planned has no successor.
        if entry["key"] not in planned:
            places[_place(entry.get("axes", {}))].append(flat(entry.get("config", {})))
    changed = {}
    for cell in cells:
        # Several grids may have cells at one place; a cell is the successor of the most similar one.
        there = places.get(_place(cell.axes), [])
        if cell.key not in known and there:
            now = cell.settings
            nearest = min(there, key=lambda settings: len(differing_keys(settings, now)))
            changed[cell.key] = difference(nearest, now)
    return changed


def _place(axes: Mapping[str, Any]) -> str:
    return json.dumps(dict(axes), sort_keys=True)


def plan_entries(cells: Sequence[PlannedCell], name: str) -> list[dict[str, Any]]:
    """Return the cells of the sweep of this name as ``cells.json`` has them."""
    return [{"sweep": name, "key": cell.key, "config": cell.plain_config, "axes": dict(cell.axes)} for cell in cells]
