"""The records of the arena: the scores of every run in one small file, with what is needed to repeat each.

The file is strict JSON under gzip. It has the tier, and for each column one list per quantity with an entry per
scenario, in the tier's order; null stands for a run that is missing. Records come with the package, so that a defense
can be placed among the others without running these: complete ones of ``quick``, and ``laptop`` as far as it was run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any

from mabrfl.arena.running import column_sweeps
from mabrfl.arena.scenarios import Named, Scenario, Tier, parse_tier, place_of, planned
from mabrfl.errors import ConfigError, StateError
from mabrfl.recording import read_rounds
from mabrfl.recording.files import parse_json, read_bytes
from mabrfl.recording.folder import ROUNDS, shown
from mabrfl.runs.finished import finished_summary, read_manifest
from mabrfl.sweeps.packing import write_packed
from mabrfl.sweeps.plan import folder_of, standing

FORMAT, VERSION = "mabrfl-arena", 1
KEY_LENGTH = 16
_SERVER = ("select", "screen", "aggregate")
"""Stages of a round that belong to the defense."""
_MADE_WITH = ("mabrfl", "torch", "numpy")


@dataclass(frozen=True)
class Run:
    """The scores of one run.

    Attributes
    ----------
    key
        The beginning of the run's key.
    accuracy
        After the last round, in percent; None if the model is no longer finite.
    success
        How many percent of the attack's goal were reached after the last round; None if it has none.
    rejected
        How many percent of the honest clients' updates were rejected.
    caught
        How many percent of the attackers' updates were rejected; None if there were none.
    milliseconds
        Of the defense in a round: to select, screen and aggregate; None for a run that was taken over from another
        sweep.
    error
        Why the run failed; such a run has no scores.
    """

    key: str
    accuracy: float | None = None
    success: float | None = None
    rejected: float | None = None
    caught: float | None = None
    milliseconds: float | None = None
    error: str | None = None


_COLUMNS = tuple(field.name for field in fields(Run))


@dataclass(frozen=True)
class DefenseColumn:
    """All runs of one defense, by scenario, and the versions that they were made with."""

    entrant: Named
    runs: Mapping[Scenario, Run]
    made_with: Mapping[str, str]

    @property
    def label(self) -> str:
        """The name of the defense in the arena."""
        return self.entrant.label


@dataclass(frozen=True)
class Records:
    """The columns of a tier."""

    tier: Tier
    columns: tuple[DefenseColumn, ...]

    def column(self, label: str) -> DefenseColumn | None:
        """Return the column of a defense, if there is one."""
        return next((column for column in self.columns if column.label == label), None)

    def with_columns(self, others: Sequence[DefenseColumn]) -> Records:
        """Return the records with other columns in place of those with the same labels, or behind them."""
        new = {column.label: column for column in others}
        kept = [new.pop(column.label, column) for column in self.columns]
        return replace(self, columns=(*kept, *new.values()))

    def seeds(self) -> tuple[int, ...]:
        """Return the seeds with any finished run."""
        known = {scenario.seed for column in self.columns for scenario in column.runs}
        return tuple(seed for seed in self.tier.seeds if seed in known)


def collect(tier: Tier, columns: Sequence[Named], out: Path, *, clean: bool = True) -> Records:
    """Return the records of the runs in a folder of the arena; runs that are not finished are left out."""
    runs: dict[str, dict[Scenario, Run]] = {column.label: {} for column in columns}
    made_with: dict[str, dict[str, str]] = {}
    for one in column_sweeps(tier, columns, out, clean=clean):
        for cell in one.sweep.cells:
            label, scenario = place_of(cell.axes)
            known, folder = standing(one.folder, cell), folder_of(one.folder, cell.key)
            if known.status == "failed":
                runs[label][scenario] = Run(cell.key[:KEY_LENGTH], error=known.error)
            elif known.status == "done" and not known.stale:
                runs[label][scenario] = _scores(folder, cell.key)
                made_with.setdefault(label, versions_in(read_manifest(folder)))
    found = (DefenseColumn(column, runs[column.label], made_with.get(column.label, {})) for column in columns)
    return Records(tier, tuple(found))


def _scores(folder: Path, key: str) -> Run:
    run = run_of(key, finished_summary(folder, key) or {})
    if not (folder / ROUNDS).is_file():  # taken over from packed results
        return run
    records = read_rounds(folder).records
    server = sum(record.seconds.get(stage, 0.0) for record in records for stage in _SERVER)
    return replace(run, milliseconds=float(f"{1000 * server / max(len(records), 1):.2g}"))


def run_of(key: str, summary: Mapping[str, Any]) -> Run:
    """Return the scores that the summary of a finished run has."""
    return Run(
        key[:KEY_LENGTH],
        accuracy=_rounded(summary.get("final_accuracy")),
        success=_rounded(summary.get("attack_success")),
        rejected=_percent(summary.get("honest_rejected_rate")),
        caught=_percent(summary.get("detection_recall")),
    )


def _rounded(value: Any) -> float | None:
    return None if value is None else round(float(value), 2)


def _percent(value: Any) -> float | None:
    return None if value is None else round(100 * float(value), 1)


def versions_in(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Return the versions that a run was made with, of those programs that matter."""
    versions = manifest.get("versions", {})
    return {name: str(versions[name]) for name in _MADE_WITH if name in versions}


def write_records(records: Records, file: Path) -> None:
    """Write records; the same records have the same bytes.

    Raises
    ------
    OutputError
        If the file cannot be written.
    """
    scenarios = list(records.tier.scenarios())
    columns = [
        {
            "entrant": column.entrant.table(),
            "made_with": dict(column.made_with),
            "runs": {
                name: [getattr(column.runs[one], name) if one in column.runs else None for one in scenarios]
                for name in _COLUMNS
                if any(getattr(run, name) is not None for run in column.runs.values())
            },
        }
        for column in records.columns
    ]
    write_packed({"format": FORMAT, "version": VERSION, "tier": records.tier.document(), "columns": columns}, file)


def read_records(file: Path) -> Records:
    """Read records.

    Raises
    ------
    StateError
        If there are none, or they are damaged, or of another version.
    """
    document = parse_json(read_bytes(file, packed=True), file)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise StateError(f"{shown(file)} has no records of the arena")
    if document.get("version") != VERSION:
        version = document.get("version")
        raise StateError(f"{shown(file)} is in version {version!r} of its format; this program reads {VERSION}")
    try:
        tier = parse_tier(document["tier"])
        scenarios = list(tier.scenarios())
        columns = [_column(entry, scenarios) for entry in document["columns"]]
        return Records(tier, tuple(columns))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StateError(f"{shown(file)} is damaged: {type(error).__name__}: {error}") from error


def _column(entry: Mapping[str, Any], scenarios: Sequence[Scenario]) -> DefenseColumn:
    settings = dict(entry["entrant"])
    entrant = Named(settings.pop("label"), settings)
    runs: dict[Scenario, Run] = {}
    lists = entry["runs"]
    for place, scenario in enumerate(scenarios):
        values = {name: column[place] for name, column in lists.items()}
        if values.get("key") is not None:
            runs[scenario] = Run(**values)
    return DefenseColumn(entrant, runs, entry["made_with"])


def current(records: Records) -> Records:
    """Return records without the runs that are void: of names whose behaviour has changed since they were made.

    The key of a run says so. All seeds and shares have the same names, so that one key for each task and attack is
    enough.
    """
    return replace(records, columns=tuple(_current(records.tier, column) for column in records.columns))


def _current(tier: Tier, column: DefenseColumn) -> DefenseColumn:
    samples = {(run.task, run.attack): run for run in reversed(list(column.runs))}
    shares = {run.share for run in samples.values() if run.share}
    one_each = replace(tier, seeds=tuple({run.seed for run in samples.values()}), shares=tuple(shares))
    one_each = one_each if shares else one_each.with_attacks([])
    try:
        keys = {scenario: cell.key for (_, scenario), cell in planned(one_each, [column.entrant]).items()}
    except ConfigError:  # the defense is no longer there
        return replace(column, runs={})
    void = {place for place, run in samples.items() if not keys[run].startswith(column.runs[run].key)}
    return replace(
        column, runs={run: scores for run, scores in column.runs.items() if (run.task, run.attack) not in void}
    )


def part_of(records: Records, tier: Tier) -> Records:
    """Return the runs of records with the seeds and the tasks of a tier."""
    tasks = {task.label for task in tier.tasks}
    columns = [
        replace(
            column,
            runs={run: scores for run, scores in column.runs.items() if run.seed in tier.seeds and run.task in tasks},
        )
        for column in records.columns
    ]
    return Records(tier, tuple(columns))


def committed(tier: Tier) -> Records:
    """Return the records that come with the package; none of a tier without them, or of another version of it."""
    place = resources.files("mabrfl.arena") / "data" / f"{tier.name}.json.gz"
    if tier.drawn_from is None and place.is_file():
        with resources.as_file(place) as file:
            records = read_records(file)
        if tier.is_part_of(records.tier):
            return current(part_of(records, tier))
    return Records(tier, ())
