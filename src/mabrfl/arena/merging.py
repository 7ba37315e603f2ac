"""Records that grow: finished runs of the arena's folder and of other results are added to them.

A run is added by its key. It does not matter which sweep has run it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from mabrfl.arena.arena_records import (
    KEY_LENGTH,
    DefenseColumn,
    Records,
    Run,
    collect,
    current,
    read_records,
    run_of,
    versions_in,
)
from mabrfl.arena.contest import baseline_folder
from mabrfl.arena.running import having
from mabrfl.arena.scenarios import BASELINE, Named, Scenario, Tier, named, planned
from mabrfl.errors import StateError
from mabrfl.recording.folder import shown
from mabrfl.sweeps.adoption import adoptable
from mabrfl.sweeps.cells import PlannedCell
from mabrfl.sweeps.results import Cell, Results

_Cells = Mapping[tuple[str, Scenario], PlannedCell]


def records_in(file: Path, tier: Tier) -> Records:
    """Return the records of a tier in a file; none if there is no such file.

    Raises
    ------
    StateError
        If the file has no records, or they are of another tier or version.
    """
    if not file.exists():
        return Records(tier, ())
    records = read_records(file)
    if records.tier != tier:
        raise StateError(f"{shown(file)} has records of another tier or version, not of '{tier.name}' {tier.version}")
    return records


def merged(known: Records, columns: Sequence[Named], out: Path, sources: Sequence[Results] = ()) -> Records:
    """Return records with all finished runs that there are of some columns, in the order of these.

    A finished run that the records have stays as it is; one that failed or is void is dropped.

    Parameters
    ----------
    known
        The records so far.
    columns
        The defenses.
    out
        The folder of the arena; it need not exist.
    sources
        Results of other sweeps.
    """
    known = current(known)
    labels = {column.label for column in columns}
    everyone = [*columns, *(column.entrant for column in known.columns if column.runs and column.label not in labels)]
    cells = planned(known.tier, everyone)
    folders = [collect(known.tier, columns, out), collect(*_clean(known.tier), baseline_folder(out))]
    others = _elsewhere(known.tier, everyone, cells, sources)
    found = [_column(column, cells, [known, *folders, others]) for column in everyone]
    return replace(known, columns=tuple(column for column in found if column.runs))


def _clean(tier: Tier) -> tuple[Tier, list[Named]]:
    return tier.with_attacks([]), [named("defense", BASELINE)]


def _elsewhere(tier: Tier, columns: Sequence[Named], cells: _Cells, sources: Sequence[Results]) -> Records:
    """Return the records of what other sweeps have finished."""
    every = list(cells.values())
    finished: Mapping[str, Cell] = adoptable(having(sources, every), every)
    runs: dict[str, dict[Scenario, Run]] = {column.label: {} for column in columns}
    made_with: dict[str, dict[str, str]] = {}
    for (label, scenario), planned_cell in cells.items():
        if (cell := finished.get(planned_cell.key)) is not None:
            runs[label][scenario] = run_of(cell.key, cell.summary or {})
            made_with.setdefault(label, versions_in(cell.manifest))
    return Records(tier, tuple(DefenseColumn(one, runs[one.label], made_with.get(one.label, {})) for one in columns))


def _column(entrant: Named, cells: _Cells, parts: Sequence[Records]) -> DefenseColumn:
    """Return a column with the first finished run of each scenario, in the order of the tier."""
    found = [column for part in parts if (column := part.column(entrant.label)) is not None and column.runs]
    runs: dict[Scenario, Run] = {}
    for scenario in parts[0].tier.scenarios():
        key = cells[entrant.label, scenario].key[:KEY_LENGTH]
        there = (column.runs.get(scenario) for column in found)
        good = (run for run in there if run is not None and run.error is None and run.key == key)
        if (run := next(good, None)) is not None:
            runs[scenario] = run
    return DefenseColumn(entrant, runs, next((column.made_with for column in found if column.made_with), {}))
