"""Adoption: a sweep takes finished cells over from other results, mostly a packed file, and does not run them.

An adopted cell has the folder of a finished run, except that ``series.json``, with the series of a packed file, stands
in place of ``rounds.jsonl``. To tables, figures, reports and packing it is a cell like any
other, and packing the sweep again gives the packed cell again, to the byte. Its manifest has the fingerprints of the
user's own code that made it, so that a cell made with other code is reported like any other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mabrfl.catalog import check_code
from mabrfl.config import dump_toml, load_config, resolve
from mabrfl.config.differences import flat, value_label
from mabrfl.config.identity import identity
from mabrfl.errors import ConfigError, StateError
from mabrfl.recording.atomic import remove_leftovers, sync_folder, write_atomically
from mabrfl.recording.folder import CONFIG, MANIFEST, SUMMARY, explained, shown
from mabrfl.recording.ownership import SERIES, WRITTEN_ASIDE
from mabrfl.sweeps.cells import PlannedCell
from mabrfl.sweeps.plan import Standing, folder_of, standing
from mabrfl.sweeps.results import Cell, Results, load_results
from mabrfl.sweeps.series import compact

Source = Path | str | Results
"""A packed file, the folder of a sweep, or results that were read already."""
_NAMES = ("dataset", "model", "defense", "selector", "attack")


def adoptable(sources: Iterable[Source], cells: Sequence[PlannedCell]) -> dict[str, Cell]:
    """Return the finished cells of a sweep that other results have, by key; the first results that have one win.

    Parameters
    ----------
    sources
        Packed files or folders of sweeps, or their results. Their other cells, of another sweep or an older state of
        this one, are left alone.
    cells
        The sweep's.

    Raises
    ------
    StateError
        If results cannot be read, have no cell of this sweep at all, or have one that is not what its key says.
    """
    planned = {cell.key: cell for cell in cells}
    finished: dict[str, Cell] = {}
    for source in sources:
        results = source if isinstance(source, Results) else load_results(source)
        known = [cell for cell in results.cells if cell.key in planned]
        if not known:
            raise StateError(f"{_name_of(source)} has no cell of this sweep; is it the right file?")
        for cell in known:
            if cell.status == "done":
                _check(cell, planned[cell.key], source)
                finished.setdefault(cell.key, cell)
    return finished


def _name_of(source: Source) -> str:
    return source.name if isinstance(source, Results) else shown(source)


def adopt(results: Path, cells: Sequence[PlannedCell], finished: Mapping[str, Cell]) -> int:
    """Take over those cells that were not begun in a sweep's folder, and return how many."""
    wanted = [cell for cell in cells if cell.key in finished and standing(results, cell).status == "missing"]
    for cell in wanted:
        _write(folder_of(results, cell.key), cell, finished[cell.key])
    return len(wanted)


def forget_half_adopted(folder: Path) -> None:
    """Remove the series of a cell whose adoption was interrupted and that is run now."""
    if (folder / SERIES).is_file():
        with explained(folder):
            (folder / SERIES).unlink()


def with_adopted(known: Standing, finished: Mapping[str, Cell]) -> Standing:
    """Return where a cell would stand if it were adopted: for a plan, which touches nothing."""
    cell = finished.get(known.cell.key)
    if known.status != "missing" or cell is None or cell.summary is None:
        return known
    rounds, seconds = int(cell.summary["rounds"]), cell.measured("seconds")
    took = seconds / rounds if seconds and rounds else None
    code = check_code(known.cell.plain_config, cell.manifest.get("code"))
    return Standing(known.cell, "done", rounds, took, cell.measured("final_accuracy"), code=code)


def _check(cell: Cell, planned: PlannedCell, source: Source) -> None:
    """Refuse a cell that was changed: a sweep that adopts it would publish it."""
    if wrong := _difference(cell, planned):
        raise StateError(
            f"{_name_of(source)} was changed: cell {planned.label} is not what its key says: {wrong}; nothing is "
            "adopted"
        )


def _difference(cell: Cell, planned: PlannedCell) -> str:
    """Return in what a cell is not the finished run that was planned; an empty text if it is that run."""
    summary, rounds = cell.summary or {}, planned.config.rounds
    if other := _other_settings(cell.config, planned):
        return other
    if summary.get("config_hash") != cell.key:
        return f"its summary is that of {summary.get('config_hash')!r}"
    if summary.get("interrupted") is not False or summary.get("rounds") != rounds:
        return f"expected all of {rounds} rounds, got {summary.get('rounds')!r}"
    if cell.series.get("round") != list(range(1, rounds + 1)):
        return f"expected a series of {rounds} rounds"
    if cell.series.get("accuracy", [None])[-1] != compact(summary.get("final_accuracy")):
        return f"its last round and its summary differ in accuracy, which is {summary.get('final_accuracy')!r} there"
    return ""


def _other_settings(config: Mapping[str, Any], planned: PlannedCell) -> str:
    """Return in which setting a recorded configuration is another run; only names of the planned run are looked up."""
    ours: dict[str, Any] = {name: getattr(planned.config, name) for name in _NAMES}
    theirs = {name: config[name] for name in _NAMES}
    if ours == theirs:
        try:
            recorded = resolve(load_config(None, flat(config)))
        except ConfigError as error:
            return f"its settings are not those of a run: {error}"
        ours, theirs = flat(identity(planned.config)), flat(identity(recorded))
    for key in sorted(key for key in theirs.keys() | ours.keys() if theirs.get(key) != ours.get(key)):
        return f"expected {key} = {value_label(ours.get(key))}, got {value_label(theirs.get(key))}"
    return ""


def _write(folder: Path, planned: PlannedCell, cell: Cell) -> None:
    """Write a cell's folder; the summary comes last, because a cell with a summary is done."""
    # The number of processes is not recorded. Most cells of sweeps have one.
    config = planned.config.model_copy(update={"workers": 1})
    adopted = {"seed": config.seed, "config_hash": cell.key, "adopted": datetime.now(UTC).isoformat(timespec="seconds")}
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(folder, WRITTEN_ASIDE)
        write_atomically(folder / CONFIG, dump_toml(config))
        write_atomically(folder / MANIFEST, _json({**cell.manifest, **adopted}))
        kept = {"series": cell.series, "clients": cell.clients, "events": cell.events}
        write_atomically(folder / SERIES, json.dumps(kept, allow_nan=False, separators=(",", ":")) + "\n")
        write_atomically(folder / SUMMARY, _json(cell.summary))
        sync_folder(folder)


def _json(document: Any) -> str:
    return json.dumps(document, indent=2, allow_nan=False) + "\n"
