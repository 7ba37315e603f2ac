"""Results of many runs, from a sweep's folder or a packed file.

A packed file (:mod:`mabrfl.sweeps.packing`) is strict JSON under gzip with the same bytes for the same results.
It holds the data for tables, figures and reports (configurations, summaries, one list per quantity over the rounds) and
no weights.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Hashable, Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from mabrfl.config import count_attackers
from mabrfl.config.identity import completed
from mabrfl.config.toml import parse_toml
from mabrfl.errors import StateError
from mabrfl.recording import read_rounds
from mabrfl.recording.files import parse_json, read_bytes, read_object
from mabrfl.recording.folder import CONFIG, MANIFEST, ROUNDS, shown
from mabrfl.recording.ownership import FAILED, PLAN, SERIES
from mabrfl.runs.finished import damage, finished_summary
from mabrfl.sweeps.rows import Rows, client_rows, round_rows, run_rows, verdict_rows
from mabrfl.sweeps.series import Column, event_counts, per_client, per_round

CELLS, SWEEP = "cells", "sweep.toml"
"""Names in a sweep's folder, with ``PLAN``."""
KEY_LENGTH = 16
"""Characters of a cell's key in the name of its folder."""
DAMAGED = "damaged"
"""The kind of error of a finished run whose files contradict each other: it is left out, and counts as failed."""
FORMAT, VERSION = "mabrfl-results", 2
PACKED_ENDING = ".json.gz"

Status = Literal["done", "failed", "running", "missing"]
STATUSES: tuple[Status, ...] = ("done", "failed", "running", "missing")

_KEPT = ("series", "clients", "events")
_ORIGIN = ("versions", "platform", "machine", "cpu_count", "data_fingerprint", "source", "code")
_MANIFEST_KEYS = (*_ORIGIN, "started", "ended")


class _Essentials(BaseModel):
    """The settings that tables and figures need."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)

    dataset: str
    model: str
    defense: str
    preset: str
    selector: str
    attack: str
    attackers: Annotated[int | float, Field(ge=0)]
    clients: Annotated[int, Field(ge=1)]
    rounds: Annotated[int, Field(ge=1)]
    seed: int
    training: dict[str, Any]
    partition: dict[str, Any]


def _with_essentials(config: dict[str, Any]) -> dict[str, Any]:
    _Essentials.model_validate(config)
    return completed(config)


class Cell(BaseModel):
    """One run of a sweep, finished or not.

    Attributes
    ----------
    key
        The configuration's hash.
    config
        The resolved configuration.
    axes
        The settings that the sweep varies, with this cell's values.
    status
        ``done``; ``failed`` (then ``error`` says why; a damaged run counts as failed);
        ``running``: started, not finished; ``missing``: not started.
    summary
        The numbers of ``summary.json``, if it is done.
    error
        ``{"error": one line, "kind": class name, "at": time}`` of a run that failed.
    manifest
        The origin of the run: versions, machine, data, commit, times.
    series
        One list per quantity with an entry per round, see :func:`~mabrfl.sweeps.series.per_round`.
    clients
        One list per quantity with an entry per client, see :func:`~mabrfl.sweeps.series.per_client`.
    events
        The number of rounds with each kind of event.
    folder
        The folder of the run; None if it was read from a packed file.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    key: Annotated[str, Field(min_length=1, max_length=200)]
    config: Annotated[dict[str, Any], AfterValidator(_with_essentials)]
    axes: dict[str, Any] = {}
    status: Status
    summary: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    manifest: dict[str, Any] = {}
    series: dict[str, Column] = {}
    clients: dict[str, list[Any]] = {}
    events: dict[str, int] = {}
    folder: Annotated[Path | None, Field(exclude=True, repr=False)] = None

    @model_validator(mode="after")
    def _check(self) -> Cell:
        if self.status == "done" and self.summary is None:
            raise ValueError("a cell that is done must have a summary")
        for name, columns in (("series", self.series), ("clients", self.clients)):
            if len({len(column) for column in columns.values()}) > 1:
                raise ValueError(f"{name} must have lists of one length")
        if self.series and "round" not in self.series:
            raise ValueError("series must have 'round'")
        for name in self.clients.keys() & {"selected", "rejected", "last_selected", "last_accepted"}:
            if not all(isinstance(count, int) for count in self.clients[name]):
                raise ValueError(f"clients.{name} must hold whole numbers")
        return self

    @property
    def num_attackers(self) -> int:
        """How many clients attack."""
        return count_attackers(self.config["attackers"], self.config["clients"])

    @property
    def percent(self) -> float:
        """How many percent of the clients attack."""
        return 100 * self.num_attackers / int(self.config["clients"])

    @property
    def rounds_done(self) -> int:
        """How many rounds are recorded."""
        return len(self.series.get("round", ()))

    def measured(self, name: str) -> float | None:
        """Return a number of the summary; None if the run is not done or has no such number."""
        value = (self.summary or {}).get(name) if self.status == "done" else None
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


class Results(BaseModel):
    """The cells of one sweep, in the order of its plan."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: str = ""
    sweep: str | None = None
    cells: list[Cell]

    def count(self, status: Status) -> int:
        """Return how many cells have this status."""
        return sum(cell.status == status for cell in self.cells)

    def runs(self) -> Rows:
        """Return one row per run: settings, status, and the numbers of its summary; ``.frame()`` makes a data frame."""
        return run_rows(self.cells)

    def rounds(self) -> Rows:
        """Return one row per round of each run: accuracy, loss, counts, and every number among the facts."""
        return round_rows(self.cells)

    def clients(self) -> Rows:
        """Return one row per client of each run: in truth an attacker or not, how often selected and rejected."""
        return client_rows(self.cells)

    def verdicts(self) -> Rows:
        """Return one row per verdict of each run, with its evidence; packed results have none."""
        return verdict_rows(self.cells)


def load_results(path: Path | str, *, rounds: bool = True) -> Results:
    """Read results.

    Parameters
    ----------
    path
        A sweep's folder, a packed file, the folder of a single run, or a folder with any of these, which are then read
        together. A run with several copies counts once: the copy with most rounds, and the first of these.
    rounds
        Whether to read the rounds of the runs in a folder, which is slow; without them the cells have no series,
        clients and events.

    Raises
    ------
    StateError
        If there are no results, or something is damaged; the message names the file.

    Examples
    --------
    >>> import tempfile
    >>> from mabrfl import RunConfig
    >>> from mabrfl.runs import run
    >>> with tempfile.TemporaryDirectory() as place:
    ...     result = run(RunConfig(rounds=2, workers=1), Path(place) / "a")
    ...     results = load_results(Path(place) / "a")
    ...     [row["round"] for row in results.rounds()], results.verdicts()[0]["reason"]
    ([1, 2], 'accepted')
    """
    path = Path(path)
    results = _load(path, rounds)
    if results is None:
        below = [part for entry in sorted(_entries(path)) if (part := _load(entry, rounds)) is not None]
        if not below:
            raise StateError(f"{shown(path)} holds no results: no sweep's {PLAN}, no folder of a run, no packed file")
        text = "\n".join(part.sweep for part in below if part.sweep)
        cells = [cell for part in below for cell in part.cells]
        results = Results(name=path.resolve().name, sweep=text or None, cells=cells)
    return results.model_copy(update={"cells": _once(results.cells)})


def load_all(paths: list[Path] | list[str]) -> list[Results]:
    """Read several results; of a run in several of them, keep the copy with most rounds, and the first of these."""
    loaded = [load_results(path) for path in paths]
    kept = {id(cell) for cell in _once([cell for results in loaded for cell in results.cells])}
    return [
        results.model_copy(update={"cells": [cell for cell in results.cells if id(cell) in kept]}) for results in loaded
    ]


def one_per_seed(cells: Iterable[Cell]) -> list[Cell]:
    """Return cells that differ only in their seed, in order of the seeds; one per seed, with most rounds.

    One run may have two keys, since what has no effect on it can be written in two ways: 0.3 of 50 attackers, and 15.
    """
    return sorted(_furthest(cells, lambda cell: cell.config["seed"]), key=lambda cell: int(cell.config["seed"]))


def _once(cells: Iterable[Cell]) -> list[Cell]:
    """Return one cell per key: the one with most rounds, and the first of these."""
    return _furthest(cells, lambda cell: cell.key)


def _furthest(cells: Iterable[Cell], same: Callable[[Cell], Hashable]) -> list[Cell]:
    """Keep one of the cells that are the same: a finished one, or the one with most rounds, and the first of these."""
    candidates = list(cells)
    best: dict[Hashable, Cell] = {}
    for cell in candidates:
        other = best.setdefault(same(cell), cell)
        if _rank(cell) < _rank(other):
            best[same(cell)] = cell
    return [cell for cell in candidates if best[same(cell)] is cell]


def _rank(cell: Cell) -> tuple[bool, int, int]:
    """Return a sort key: finished cells first, then those with most rounds."""
    return cell.status != "done", -cell.rounds_done, STATUSES.index(cell.status)


def _load(path: Path, rounds: bool) -> Results | None:
    """Return the results of a packed file, a sweep's folder or the folder of a run; None for another folder."""
    if not os.path.isdir(path):
        return _load_packed(path)
    name = path.resolve().name
    if (path / PLAN).is_file():
        text = read_bytes(path / SWEEP).decode("utf-8", "replace") if (path / SWEEP).is_file() else None
        return Results(name=name, sweep=text, cells=_planned(path, rounds))
    return Results(name=name, cells=[_unplanned(path, rounds)]) if (path / CONFIG).is_file() else None


def _entries(folder: Path) -> list[Path]:
    """Return the entries of a folder that may be results: folders, and files with the ending of packed ones."""
    try:
        return [entry for entry in folder.iterdir() if entry.is_dir() or entry.name.endswith(PACKED_ENDING)]
    except OSError as error:
        raise StateError(f"cannot read {shown(folder)}: {error.strerror}") from error


def _load_packed(path: Path) -> Results:
    # Unlike those of Path, these return False for names that the file system does not accept.
    if not os.path.exists(path):
        raise StateError(f"there are no results at {shown(path)}")
    if not os.path.isfile(path):
        raise StateError(f"{shown(path)} is neither a folder nor a regular file")
    document = parse_json(read_bytes(path, packed=True), path)
    if not isinstance(document, dict) or document.pop("format", None) != FORMAT:
        raise StateError(f"{shown(path)} is not a packed results file")
    version = document.pop("version", None)
    if version != VERSION:
        raise StateError(f"{shown(path)} is in version {version!r} of its format; this program reads {VERSION}")
    try:
        return Results(**{**document, "name": path.name.removesuffix(PACKED_ENDING)})
    except (ValidationError, TypeError) as error:
        raise StateError(f"{shown(path)} is damaged: {_first_of(error)}") from error


def _planned(path: Path, rounds: bool) -> list[Cell]:
    plan = parse_json(read_bytes(path / PLAN), path / PLAN)
    if not isinstance(plan, list) or not all(isinstance(entry, dict) for entry in plan):
        raise StateError(f"{shown(path / PLAN)} is not the plan of a sweep")
    cells = []
    for entry in plan:
        key = entry.get("key")
        if not isinstance(key, str) or not re.fullmatch(rf"[0-9a-f]{{{KEY_LENGTH},128}}", key):
            raise StateError(f"{shown(path / PLAN)}: a cell's key must be a hash; got {key!r}")
        planned = {"key": key, "config": entry.get("config"), "axes": entry.get("axes", {})}
        cells.append(_cell(path / CELLS / key[:KEY_LENGTH], planned, rounds))
    return cells


def _unplanned(folder: Path, rounds: bool) -> Cell:
    config = parse_toml(read_bytes(folder / CONFIG), f"config file {shown(folder / CONFIG)}")
    manifest = read_object(folder / MANIFEST)
    return _cell(folder, {"key": manifest.get("config_hash") or folder.name, "config": config}, rounds)


def _cell(folder: Path, planned: dict[str, Any], rounds: bool) -> Cell:
    """Return the cell with the results in its folder, if any."""
    fields: dict[str, Any] = {**planned, "status": "missing", "folder": folder}
    summary = finished_summary(folder, planned["key"])
    wrong = "" if summary is None else damage(folder, summary)
    done = summary is not None and not wrong  # if not, it runs again, and damage does not matter
    manifest = read_object(folder / MANIFEST, strict=done)
    fields["manifest"] = {name: manifest[name] for name in _MANIFEST_KEYS if name in manifest}
    if done:
        fields |= {"status": "done", "summary": summary}
    elif wrong:
        fields |= {"status": "failed", "error": _damaged(folder, wrong)}
    elif (folder / FAILED).is_file():
        fields |= {"status": "failed", "error": read_object(folder / FAILED, strict=False) or {"error": "unknown"}}
    elif (folder / ROUNDS).is_file():
        fields["status"] = "running"
    if rounds and (folder / ROUNDS).is_file():
        try:
            records = read_rounds(folder).records
        except StateError as error:
            records = ()
            if done:
                fields |= {"status": "failed", "summary": None, "error": _damaged(folder, str(error))}
        fields |= {
            "series": per_round(records),
            "clients": per_client(records),
            "events": event_counts(records),
        }
    elif rounds and fields["status"] == "done" and (folder / SERIES).is_file():
        fields |= {name: value for name, value in read_object(folder / SERIES).items() if name in _KEPT}
    try:
        return Cell(**fields)
    except ValidationError as error:
        raise StateError(f"the run in {shown(folder)} is damaged: {_first_of(error)}") from error


def _damaged(folder: Path, wrong: str) -> dict[str, str]:
    return {"error": f"the run in {shown(folder)} is damaged: {wrong}", "kind": DAMAGED}


def _first_of(error: ValidationError | TypeError) -> str:
    if isinstance(error, TypeError):
        return str(error)
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
