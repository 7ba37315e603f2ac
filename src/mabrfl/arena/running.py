"""Run the columns of a tier by ordinary sweeps, which go on where they were stopped.

Each column is a sweep of its own. Columns of few runs, such as those of a single attack, are one sweep together. Runs
that other sweeps have finished under the same key are taken over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mabrfl.arena.scenarios import BASELINE, NOBODY, Named, Tier, place_of, sweep_text
from mabrfl.reports.arrangement import slug
from mabrfl.sweeps.adoption import adoptable
from mabrfl.sweeps.cells import PlannedCell
from mabrfl.sweeps.plan import standing
from mabrfl.sweeps.results import Results
from mabrfl.sweeps.scheduler import run_sweep
from mabrfl.sweeps.sweep_file import Sweep, parse_sweep
from mabrfl.sweeps.sweep_progress import Monitor

TOGETHER = 2
"""Up to this many attacks, all columns are one sweep."""


@dataclass(frozen=True)
class ColumnProgress:
    """What has come of a part of a sweep: its runs that are done, that failed, and all of them; seconds that it took.

    ``adopted`` runs of the whole sweep were taken over from other results.
    """

    label: str
    seed: int
    done: int
    failed: int
    total: int
    seconds: float
    adopted: int = 0


@dataclass(frozen=True)
class ColumnSweep:
    """The sweep of one column or more, its folder, and a label for the user."""

    sweep: Sweep
    folder: Path
    label: str


def column_sweeps(tier: Tier, columns: Sequence[Named], out: Path, *, clean: bool = True) -> Iterator[ColumnSweep]:
    """Yield the sweeps of some columns, each when it is asked for."""
    if len(tier.attacks) <= TOGETHER and len(columns) > 1:
        groups = {", ".join(attack.label for attack in tier.attacks) or "nobody attacks": tuple(columns)}
    else:
        groups = {column.label: (column,) for column in columns}
    for label, group in groups.items():
        name = f"arena-{tier.name}-{slug(label)}"
        yield ColumnSweep(parse_sweep(sweep_text(tier, group, name, clean=clean), name), out / slug(label), label)


@dataclass(frozen=True)
class ColumnPart:
    """Runs of a sweep that are run before others, with their label for the user and their seed."""

    of: ColumnSweep
    cells: tuple[PlannedCell, ...]
    label: str
    seed: int


def column_parts(tier: Tier, columns: Sequence[Named], out: Path, *, clean: bool = True) -> Iterator[ColumnPart]:
    """Yield what is run in its order: seed by seed, and task by task if a tier is scored so.

    Then FedAvg with nobody attacking comes first, since all losses are measured by it.
    """
    labels = [task.label for task in tier.tasks]
    apart = clean and tier.by_task and len(columns) > 1 and len(tier.attacks) > TOGETHER
    measure = [column for column in columns if apart and column.label == BASELINE]
    for seed in tier.seeds:
        for tasks in [[label] for label in labels] if tier.by_task else [labels]:
            name = f", {tasks[0]}" if tier.by_task else ""
            for one in column_sweeps(tier, measure, out):
                some = [cell for cell in _chosen(one, seed, tasks) if place_of(cell.axes)[1].attack == NOBODY]
                yield ColumnPart(one, tuple(some), f"{one.label}{name}, nobody attacks", seed)
            for one in column_sweeps(tier, columns, out, clean=clean):
                yield ColumnPart(one, tuple(_chosen(one, seed, tasks)), f"{one.label}{name}", seed)


def _chosen(one: ColumnSweep, seed: int, tasks: Sequence[str]) -> list[PlannedCell]:
    return [cell for cell in one.sweep.cells if cell.config.seed == seed and cell.axes["task"] in tasks]


def having(sources: Sequence[Results], cells: Sequence[PlannedCell]) -> list[Results]:
    """Return those results that have any of these cells; results of other sweeps mostly have none of a column."""
    keys = {cell.key for cell in cells}
    return [results for results in sources if any(cell.key in keys for cell in results.cells)]


def run_columns(
    tier: Tier,
    columns: Sequence[Named],
    out: Path,
    *,
    clean: bool = True,
    adopt_from: Sequence[Results] = (),
    jobs: int | None = None,
    time_budget: float | None = None,
    monitor: Callable[[str], Monitor] | None = None,
    report: Callable[[ColumnProgress], None] | None = None,
    arguments: Sequence[str] = (),
) -> bool:
    """Run what is left of some columns, in the order of :func:`column_parts`, and say whether everything was run.

    Parameters
    ----------
    tier
        The scenarios.
    columns
        The defenses, in order.
    out
        The folder of the arena: each sweep has one in it.
    clean
        Also run each column with nobody attacking.
    adopt_from
        Results whose finished runs are taken over.
    jobs
        Runs at once; one per core by default.
    time_budget
        Seconds after which everything is stopped; the next call goes on.
    monitor
        Makes the monitor of a sweep, from its label.
    report
        Called after each part.
    arguments
        The command line, for the manifests.
    """
    deadline = None if time_budget is None else time.monotonic() + time_budget
    for part in column_parts(tier, columns, out, clean=clean):
        began = time.monotonic()
        if deadline is not None and began >= deadline:
            return False
        cells = part.of.sweep.cells
        progress = run_sweep(
            part.of.sweep,
            part.of.folder,
            only=part.cells,
            adopt_from=having(adopt_from, cells),
            rerun=("failed", "stale"),
            jobs=jobs,
            time_budget=None if deadline is None else deadline - began,
            # Runs of a second need none; they start again.
            checkpoint_every=int(any(cell.config.training.engine != "stacked" for cell in cells)),
            monitor=monitor(part.label) if monitor else None,
            arguments=arguments,
        )
        if report is not None:
            done, failed, total = progress.count("done"), len(progress.failed), len(progress.standings)
            seconds = time.monotonic() - began
            report(ColumnProgress(part.label, part.seed, done, failed, total, seconds, progress.adopted))
        if progress.out_of_time:
            return False
    return True


def count_done(
    tier: Tier, columns: Sequence[Named], out: Path, *, clean: bool = True, adopt_from: Sequence[Results] = ()
) -> tuple[int, int, int]:
    """Return how many runs of some columns are done, how many can be taken over, and how many there are."""
    done = adopted = total = 0
    for one in column_sweeps(tier, columns, out, clean=clean):
        finished = adoptable(having(adopt_from, one.sweep.cells), one.sweep.cells)
        for cell in one.sweep.cells:
            status = standing(one.folder, cell).status
            done += status == "done"
            adopted += status == "missing" and cell.key in finished
            total += 1
    return done, adopted, total
