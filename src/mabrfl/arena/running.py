"""Run the columns of a tier by ordinary sweeps, which go on where they were stopped.

Each column is a sweep of its own. Columns of few runs, such as those of a single attack, are one sweep together.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mabrfl.arena.scenarios import Named, Tier, sweep_text
from mabrfl.reports.arrangement import slug
from mabrfl.sweeps.plan import standing
from mabrfl.sweeps.scheduler import run_sweep
from mabrfl.sweeps.sweep_file import Sweep, parse_sweep
from mabrfl.sweeps.sweep_progress import Monitor

TOGETHER = 2
"""Up to this many attacks, all columns are one sweep."""


@dataclass(frozen=True)
class ColumnProgress:
    """What has come of one sweep and seed: runs that are done, that failed, and all of them; seconds that it took."""

    label: str
    seed: int
    done: int
    failed: int
    total: int
    seconds: float


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


def run_columns(
    tier: Tier,
    columns: Sequence[Named],
    out: Path,
    *,
    clean: bool = True,
    jobs: int | None = None,
    time_budget: float | None = None,
    monitor: Callable[[str], Monitor] | None = None,
    report: Callable[[ColumnProgress], None] | None = None,
    arguments: Sequence[str] = (),
) -> bool:
    """Run what is left of some columns, seed by seed, and say whether everything was run.

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
    jobs
        Runs at once; one per core by default.
    time_budget
        Seconds after which everything is stopped; the next call goes on.
    monitor
        Makes the monitor of a sweep, from its label.
    report
        Called after each sweep and seed.
    arguments
        The command line, for the manifests.
    """
    deadline = None if time_budget is None else time.monotonic() + time_budget
    for seed in tier.seeds:
        for one in column_sweeps(tier, columns, out, clean=clean):
            began = time.monotonic()
            if deadline is not None and began >= deadline:
                return False
            cells = one.sweep.cells
            progress = run_sweep(
                one.sweep,
                one.folder,
                only=[cell for cell in cells if cell.config.seed == seed],
                rerun=("failed", "stale"),
                jobs=jobs,
                time_budget=None if deadline is None else deadline - began,
                # Runs of a second need none; they start again.
                checkpoint_every=int(any(cell.config.training.engine != "stacked" for cell in cells)),
                monitor=monitor(one.label) if monitor else None,
                arguments=arguments,
            )
            if report is not None:
                done, failed, total = progress.count("done"), len(progress.failed), len(progress.standings)
                report(ColumnProgress(one.label, seed, done, failed, total, time.monotonic() - began))
            if progress.out_of_time:
                return False
    return True


def count_done(tier: Tier, columns: Sequence[Named], out: Path, *, clean: bool = True) -> tuple[int, int]:
    """Return how many runs of some columns are done, and how many there are."""
    standings = [
        standing(one.folder, cell).status
        for one in column_sweeps(tier, columns, out, clean=clean)
        for cell in one.sweep.cells
    ]
    return standings.count("done"), len(standings)
