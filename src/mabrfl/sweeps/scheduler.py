"""Run the cells of a sweep that are not done yet, several at once; stop at any moment, and go on later.

A cell is done when its folder has the summary of a finished run. There is no other book-keeping that could disagree
with it: a sweep that is killed and started again runs exactly the cells without a summary, and begun cells go on after
their last finished round.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path

from mabrfl.errors import DiskError
from mabrfl.recording import remove_checkpoints
from mabrfl.recording.atomic import remove_leftovers, replace_file, write_atomically
from mabrfl.recording.folder import CHECKPOINTS, explained
from mabrfl.recording.ownership import FAILED, PLAN
from mabrfl.runs.observers import find_observer
from mabrfl.sweeps.adoption import Source, adopt, adoptable, forget_half_adopted
from mabrfl.sweeps.cell_process import StartMethod, record_failure
from mabrfl.sweeps.cells import PlannedCell
from mabrfl.sweeps.launchers import (
    Assignment,
    CellAdvanced,
    CellEnded,
    CellEvent,
    CellHalted,
    CellNote,
    CellStarted,
    Launcher,
)
from mabrfl.sweeps.local_processes import LocalProcesses, default_start_method
from mabrfl.sweeps.locking import claimed
from mabrfl.sweeps.plan import Rerun, folder_of, pace_in, plan_entries, refuse_others_folder, standing
from mabrfl.sweeps.results import SWEEP
from mabrfl.sweeps.sharing import Sharing, check_wishes, share_machine
from mabrfl.sweeps.stale import forget_results
from mabrfl.sweeps.sweep_file import Sweep
from mabrfl.sweeps.sweep_progress import CellOutcome, Monitor, RunningCell, SweepProgress

ATTEMPTS = 2
"""How often a cell is started in one sweep if it is killed."""
_TICK_SECONDS = 0.25


def run_sweep(
    sweep: Sweep,
    results: Path | str,
    *,
    only: Sequence[PlannedCell] | None = None,
    adopt_from: Sequence[Source] = (),
    rerun: Collection[Rerun] = (),
    time_budget: float | None = None,
    jobs: int | None = None,
    workers: int | None = None,
    checkpoint_every: int = 1,
    observers: Sequence[str] = (),
    monitor: Monitor | None = None,
    launcher: Launcher | None = None,
    sharing: Sharing | None = None,
    start_method: StartMethod | None = None,
    arguments: Sequence[str] = (),
) -> SweepProgress:
    """Run what is left of a sweep.

    Parameters
    ----------
    sweep
        The cells to run.
    results
        The sweep's folder: new, empty, or its own of last time.
    only
        Run these of its cells alone.
    adopt_from
        Packed files, folders of sweeps, or their results, whose finished cells are taken over if they were not
        begun here.
    rerun
        Run these as well: ``failed`` cells, which go on after their last finished round, and ``stale`` ones, which are
        finished, but with other code of the user's own than that of today. These keep their results until they start.
    time_budget
        Seconds after which everything is stopped; the next call goes on.
    jobs, workers
        Cells at once and processes per cell; :mod:`~mabrfl.sweeps.sharing` has the defaults.
    checkpoint_every
        Rounds between checkpoints of a cell.
    observers
        Names of observers (``module:Name``, or that of an entry point); each cell has its own.
    monitor
        Follows the sweep.
    launcher
        Runs the cells; processes of this machine by default.
    sharing
        How the cells share what the launcher has, in place of ``jobs`` and ``workers``.
    start_method
        How these processes are started; by default the fastest method that is safe.
    arguments
        The command line, for the manifests.

    Raises
    ------
    ConfigError
        If ``jobs`` or ``workers`` make no sense, or there is no such observer.
    DatasetError
        If a data set is missing; no cell has failed then.
    StateError
        If a cell to be adopted is not what its key says.
    OutputError
        If another sweep runs in this folder or has left its results there, or it cannot be written to. If the disk is
        full, everything is stopped with a :class:`~mabrfl.errors.DiskError`, and no cell has failed by that.
    SweepError
        If the launcher loses control over a running cell.
    """
    check_wishes(jobs, workers)
    for name in observers:
        find_observer(name)
    results = Path(results)
    cells = sweep.cells if only is None else only
    launcher = launcher or LocalProcesses(start_method or default_start_method({cell.config.device for cell in cells}))
    assignment = partial(
        Assignment,
        str(results),
        checkpoint_every=checkpoint_every,
        observers=list(observers),
        arguments=list(arguments),
    )
    deadline = None if time_budget is None else time.monotonic() + time_budget
    found = adoptable(adopt_from, sweep.cells)
    with claimed(results):
        refuse_others_folder(results, sweep.name, sweep.cells)
        _write_plan(sweep, results)
        adopted = adopt(results, sweep.cells, found)
        progress = SweepProgress({cell.key: standing(results, cell) for cell in cells}, adopted=adopted)
        progress.pace = pace_in(results, progress.standings.values())
        scheduler = _Scheduler(results, launcher, assignment, progress, monitor=monitor or Monitor(), deadline=deadline)
        scheduler.queue(rerun)
        left = [cell.config for cell in progress.waiting]
        sizes = launcher.inspect({(config.dataset, config.model) for config in left}, deadline) if left else {}
        progress.sharing = sharing or share_machine(left, jobs=jobs, workers=workers, sizes=sizes)
        scheduler.run()
    return progress


def _write_plan(sweep: Sweep, results: Path) -> None:
    plan = json.dumps(plan_entries(sweep.cells, sweep.name), indent=1, allow_nan=False) + "\n"
    with explained(results):
        remove_leftovers(results, (SWEEP, PLAN))
        replace_file(results / SWEEP, [sweep.text])
        write_atomically(results / PLAN, plan)


class _Scheduler:
    """Keeps the machine busy until no cell is left."""

    def __init__(
        self,
        results: Path,
        launcher: Launcher,
        assignment: Callable[..., Assignment],
        progress: SweepProgress,
        *,
        monitor: Monitor,
        deadline: float | None,
    ) -> None:
        self._results, self._launcher, self._assignment = results, launcher, assignment
        self._progress, self._monitor, self._deadline = progress, monitor, deadline
        self._attempts: dict[str, int] = {}
        self._discarded: set[str] = set()

    def queue(self, rerun: Collection[Rerun]) -> None:
        """Queue the cells that are to run."""
        with explained(self._results):
            self._queue(rerun)

    def _queue(self, rerun: Collection[Rerun]) -> None:
        for known in list(self._progress.standings.values()):
            if known.status == "failed" and "failed" in rerun:
                # From here on it counts as a begun cell: it runs in the next sweep if this one is stopped.
                (folder_of(self._results, known.cell.key) / FAILED).unlink(missing_ok=True)
                known = standing(self._results, known.cell)  # noqa: PLW2901
                self._progress.standings[known.cell.key] = known
            if (known.stale and "stale" in rerun) or (known.damaged and "failed" in rerun):
                self._progress.standings[known.cell.key] = known.anew()
                self._progress.waiting.append(known.cell)
                self._discarded.add(known.cell.key)
            elif known.status in ("running", "missing"):
                forget_half_adopted(folder_of(self._results, known.cell.key))
                self._progress.waiting.append(known.cell)
            elif known.status == "done":
                self._clear(known.cell)

    def _clear(self, cell: PlannedCell) -> None:
        """Remove the checkpoints of a finished cell; the cell may have been killed before it did so."""
        with explained(self._results):
            remove_checkpoints(folder_of(self._results, cell.key) / CHECKPOINTS)

    def run(self) -> None:
        """Run the queue; whatever ends this, no cell runs afterwards."""
        progress = self._progress
        self._monitor.begin(progress)
        try:
            while progress.waiting or progress.running:
                if self._deadline is not None and time.monotonic() >= self._deadline:
                    progress.out_of_time = True
                    break
                while progress.waiting and len(progress.running) < progress.sharing.jobs:
                    self._start(progress.waiting.popleft())
                self._listen()
        finally:
            self._stop_all()

    def _start(self, cell: PlannedCell) -> None:
        progress = self._progress
        if cell.key in self._discarded:
            self._discarded.remove(cell.key)
            forget_results(folder_of(self._results, cell.key))
        workers = progress.sharing.workers_for(len(progress.running) + len(progress.waiting) + 1)
        settings = {**cell.config.model_dump(mode="json"), "workers": workers}
        self._launcher.start(self._assignment(cell.key, cell.label, settings))
        running = progress.running[cell.key] = RunningCell(cell, workers, progress.standings[cell.key].rounds)
        self._attempts[cell.key] = self._attempts.get(cell.key, 0) + 1
        if not running.round:
            self._monitor.started(running)

    def _listen(self) -> None:
        left = _TICK_SECONDS if self._deadline is None else self._deadline - time.monotonic()
        for event in self._launcher.poll(min(max(left, 0.0), _TICK_SECONDS)):
            self._handle(event, self._progress.running[event.key])
        self._monitor.tick()

    def _handle(self, event: CellEvent, running: RunningCell) -> None:
        match event:
            case CellStarted(after_round=after, notes=notes):
                running.round = after
                # Only now is it known where a begun cell goes on: not every round has a good checkpoint.
                if self._progress.standings[event.key].rounds:
                    self._monitor.started(running)
                for note in notes:
                    self._monitor.noted(running, note)
            case CellAdvanced(round=number, accuracy=accuracy, seconds=seconds):
                running.round, running.accuracy = number, accuracy
                self._progress.pace.learn(running.cell.config, seconds * running.workers)
                self._monitor.advanced(running)
            case CellHalted(cause="disk", message=message):
                # It would be the same with every other cell.
                raise DiskError(message)
            case CellHalted(message=message) | CellNote(message=message):
                self._monitor.noted(running, message)
            case CellEnded():
                self._finish(running, event)

    def _finish(self, running: RunningCell, end: CellEnded) -> None:
        """Find the outcome of a cell: by its folder first of all, and then by how it ended."""
        progress, cell = self._progress, running.cell
        del progress.running[cell.key]
        known = standing(self._results, cell)
        outcome: CellOutcome = "killed"
        if known.status in ("done", "failed"):
            outcome = "done" if known.status == "done" else "failed"
            if outcome == "done":
                self._clear(cell)
        elif not end.killed:
            record_failure(folder_of(self._results, cell.key), "Crash", end.message)
            known, outcome = standing(self._results, cell), "failed"
        elif self._attempts[cell.key] < ATTEMPTS:
            progress.waiting.append(cell)
        else:
            progress.killed.append(cell)
        progress.standings[cell.key] = known
        self._monitor.ended(known, outcome, time.monotonic() - running.started)

    def _stop_all(self) -> None:
        self._launcher.stop()
        stopped = []
        for running in list(self._progress.running.values()):
            del self._progress.running[running.cell.key]
            known = self._progress.standings[running.cell.key] = standing(self._results, running.cell)
            outcome: CellOutcome = "done" if known.status == "done" else "stopped"
            self._monitor.ended(known, outcome, time.monotonic() - running.started)
            if known.status in ("running", "missing"):
                stopped.append(running.cell)
        # They come first in what is left.
        self._progress.waiting.extendleft(reversed(stopped))
