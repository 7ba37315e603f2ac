"""Run the columns of a tier: one sweep for each defense, which goes on where it was stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mabrfl.arena.scenarios import Named, Tier, sweep_text
from mabrfl.reports.arrangement import slug
from mabrfl.sweeps.plan import standing
from mabrfl.sweeps.scheduler import run_sweep
from mabrfl.sweeps.sweep_file import Sweep, parse_sweep
from mabrfl.sweeps.sweep_progress import Monitor


@dataclass(frozen=True)
class ColumnProgress:
    """What has come of one column and seed: runs that are done, that failed, and all of them; seconds that it took."""

    label: str
    seed: int
    done: int
    failed: int
    total: int
    seconds: float


def column_folder(out: Path, column: Named) -> Path:
    """Return the folder of a column's sweep."""
    return out / slug(column.label)


def column_sweep(tier: Tier, column: Named, *, clean: bool = True) -> Sweep:
    """Return the sweep of a column."""
    name = f"arena-{tier.name}-{slug(column.label)}"
    return parse_sweep(sweep_text(tier, [column], name, clean=clean), name)


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
        The folder of the arena: each column has one in it.
    clean
        Also run each column with nobody attacking.
    jobs
        Runs at once; one per core by default.
    time_budget
        Seconds after which everything is stopped; the next call goes on.
    monitor
        Makes the monitor of a column's sweep, from its label.
    report
        Called after each column and seed.
    arguments
        The command line, for the manifests.
    """
    deadline = None if time_budget is None else time.monotonic() + time_budget
    for seed in tier.seeds:
        for column in columns:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return False
            began, sweep = time.monotonic(), column_sweep(tier, column, clean=clean)
            progress = run_sweep(
                sweep,
                column_folder(out, column),
                only=[cell for cell in sweep.cells if cell.config.seed == seed],
                rerun=("failed", "stale"),
                jobs=jobs,
                time_budget=left,
                # Runs of a second need none; they start again.
                checkpoint_every=int(any(cell.config.training.engine != "stacked" for cell in sweep.cells)),
                monitor=monitor(column.label) if monitor else None,
                arguments=arguments,
            )
            if report is not None:
                done, failed, total = progress.count("done"), len(progress.failed), len(progress.standings)
                report(ColumnProgress(column.label, seed, done, failed, total, time.monotonic() - began))
            if progress.out_of_time:
                return False
    return True


def count_done(tier: Tier, column: Named, out: Path, *, clean: bool = True) -> tuple[int, int]:
    """Return how many runs of a column are done, and how many there are."""
    cells = column_sweep(tier, column, clean=clean).cells
    folder = column_folder(out, column)
    return sum(standing(folder, cell).status == "done" for cell in cells), len(cells)
