"""Run the cells of a sweep that are not done yet, several at once; stop at any moment, and go on later.

A cell is done when its folder has the summary of a finished run. There is no other book-keeping, so that nothing
can be out of step with it: a sweep that is killed and started again runs exactly the cells without one, and those
that were in the middle go on after their last finished round.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Collection, Sequence
from multiprocessing.connection import wait
from pathlib import Path

from mabrfl.errors import DiskError, SweepError, was_killed
from mabrfl.recording import remove_checkpoints
from mabrfl.recording.atomic import remove_leftovers, replace_file, write_atomically
from mabrfl.recording.folder import CHECKPOINTS, explained
from mabrfl.recording.ownership import FAILED
from mabrfl.sweeps.adoption import adopt, adoptable, forget_half_adopted
from mabrfl.sweeps.cell_process import LOGS, StartMethod, record_failure
from mabrfl.sweeps.cells import PlannedCell
from mabrfl.sweeps.launchers import Job, Launcher, default_start_method, stop
from mabrfl.sweeps.locking import claimed
from mabrfl.sweeps.plan import Rerun, folder_of, pace_in, plan_entries, refuse_others_folder, standing
from mabrfl.sweeps.results import PLAN, SWEEP
from mabrfl.sweeps.sharing import check_wishes, share_machine
from mabrfl.sweeps.stale import forget_results
from mabrfl.sweeps.sweep_file import Sweep
from mabrfl.sweeps.sweep_progress import Monitor, Outcome, Progress, Unwatched

ATTEMPTS = 2
"""How often a cell is started in one sweep if its process is killed."""
_TICK_SECONDS = 0.25
_LOST_SECONDS = 10.0
"""How long to wait for cells to end whose server is gone; they look after it every fifth of a second."""


def run_sweep(
    sweep: Sweep,
    results: Path | str,
    *,
    only: Sequence[PlannedCell] | None = None,
    adopt_from: Sequence[Path | str] = (),
    rerun: Collection[Rerun] = (),
    time_budget: float | None = None,
    jobs: int | None = None,
    workers: int | None = None,
    checkpoint_every: int = 1,
    monitor: Monitor | None = None,
    start_method: StartMethod | None = None,
    arguments: Sequence[str] = (),
) -> Progress:
    """Run what is left of a sweep.

    Parameters
    ----------
    sweep
        What to run.
    results
        The sweep's folder: new, empty, or its own of last time.
    only
        Run these of its cells alone.
    adopt_from
        Packed files, or folders of sweeps, whose finished cells are taken over if they were not begun here.
    rerun
        Run these as well: ``failed`` cells, which go on after their last finished round, and ``stale`` ones, which are
        finished, but with other code of the user's own than that of today. These keep their results until they start.
    time_budget
        Seconds after which everything is stopped, to be gone on with by the next call.
    jobs, workers
        Cells at once and processes per cell; see :mod:`~mabrfl.sweeps.sharing` for what is chosen otherwise.
    checkpoint_every
        Rounds between checkpoints of a cell.
    monitor
        Is told how it goes on.
    start_method
        How processes are started; chosen by what is safe.
    arguments
        The command line, for the record.

    Raises
    ------
    ConfigError
        If ``jobs`` or ``workers`` make no sense.
    DatasetError
        If a data set is missing; no cell has failed then.
    StateError
        If a cell to be adopted is not what its key says.
    OutputError
        If another sweep runs in this folder or has left its results there, or it cannot be written to. If the disk is
        full, everything is stopped with a :class:`~mabrfl.errors.DiskError`, and no cell has failed by that.
    SweepError
        If the server that cells are forked from is killed, and a cell goes on without it.
    """
    check_wishes(jobs, workers)
    results = Path(results)
    cells = sweep.cells if only is None else only
    method = start_method or default_start_method({cell.config.device for cell in cells})
    deadline = None if time_budget is None else time.monotonic() + time_budget
    found = adoptable(adopt_from, sweep.cells)
    with claimed(results):
        refuse_others_folder(results, sweep.name, sweep.cells)
        _write_plan(sweep, results)
        adopted = adopt(results, sweep.cells, found)
        progress = Progress({cell.key: standing(results, cell) for cell in cells}, adopted=adopted)
        progress.pace = pace_in(results, progress.standings.values())
        launcher = Launcher(results, method, arguments=arguments, checkpoint_every=checkpoint_every)
        scheduler = _Scheduler(results, launcher, progress, monitor or Unwatched(), deadline)
        scheduler.queue(rerun)
        left = [cell.config for cell in progress.waiting]
        sizes = launcher.inspect({(config.dataset, config.model) for config in left}, deadline) if left else {}
        progress.sharing = share_machine(left, jobs=jobs, workers=workers, sizes=sizes)
        scheduler.run()
    return progress


def _write_plan(sweep: Sweep, results: Path) -> None:
    plan = json.dumps(plan_entries(sweep.cells, sweep.name), indent=1, allow_nan=False) + "\n"
    with explained(results):
        remove_leftovers(results, (SWEEP, PLAN))
        replace_file(results / SWEEP, [sweep.text])
        write_atomically(results / PLAN, plan)


class _Scheduler:
    """Keeps the machine busy until nothing is left to do."""

    def __init__(
        self, results: Path, launcher: Launcher, progress: Progress, monitor: Monitor, deadline: float | None
    ) -> None:
        self._results, self._launcher, self._progress = results, launcher, progress
        self._monitor, self._deadline = monitor, deadline
        self._attempts: dict[str, int] = {}
        self._stale: set[str] = set()

    def queue(self, rerun: Collection[Rerun]) -> None:
        """Line up the cells that are to run."""
        with explained(self._results):
            self._queue(rerun)

    def _queue(self, rerun: Collection[Rerun]) -> None:
        for known in list(self._progress.standings.values()):
            if known.status == "failed" and "failed" in rerun:
                # From here on it is a cell like others that were begun: whatever happens now, it is not lost.
                (folder_of(self._results, known.cell.key) / FAILED).unlink(missing_ok=True)
                known = standing(self._results, known.cell)  # noqa: PLW2901
                self._progress.standings[known.cell.key] = known
            if known.stale and "stale" in rerun:
                self._progress.standings[known.cell.key] = known.anew()
                self._progress.waiting.append(known.cell)
                self._stale.add(known.cell.key)
            elif known.status in ("running", "missing"):
                forget_half_adopted(folder_of(self._results, known.cell.key))
                self._progress.waiting.append(known.cell)
            elif known.status == "done":
                self._clear(known.cell)

    def _clear(self, cell: PlannedCell) -> None:
        """Remove the checkpoints of a finished cell: the last thing that it does, if it is not killed before."""
        with explained(self._results):
            remove_checkpoints(folder_of(self._results, cell.key) / CHECKPOINTS)

    def run(self) -> None:
        """Run them, and stop everything if anything stops this."""
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
        if cell.key in self._stale:
            self._stale.remove(cell.key)
            forget_results(folder_of(self._results, cell.key))
        workers = progress.sharing.workers_for(len(progress.running) + len(progress.waiting) + 1)
        job = self._launcher.start(cell, workers)
        job.round = progress.standings[cell.key].rounds
        progress.running[cell.key] = job
        self._attempts[cell.key] = self._attempts.get(cell.key, 0) + 1
        if not job.round:
            self._monitor.started(job)

    def _begun(self, job: Job, notes: Sequence[str]) -> None:
        """Pass on where a cell goes on, which only its process knows: not every round has a good checkpoint."""
        if self._progress.standings[job.cell.key].rounds:
            self._monitor.started(job)
        for note in notes:
            self._monitor.noted(job, note)

    def _listen(self) -> None:
        running = list(self._progress.running.values())
        left = _TICK_SECONDS if self._deadline is None else self._deadline - time.monotonic()
        wait(
            [*(job.connection for job in running if not job.deaf), *(job.process.sentinel for job in running)],
            timeout=min(max(left, 0.0), _TICK_SECONDS),
        )
        for job in running:
            ended = job.ended
            self._hear(job)
            if ended and self._launcher.has_lost(job):
                self._lose()
                break
            if ended:
                self._finish(job)
        self._monitor.tick()

    def _hear(self, job: Job) -> None:
        """Take note of what a cell says."""
        for message in job.news():
            if message["kind"] == "begun":
                self._begun(job, message["notes"])
            elif message["kind"] == "advanced":
                self._progress.pace.learn(job.cell.config, message["seconds"] * job.workers)
                self._monitor.advanced(job)
            elif message["cause"] == "disk":
                # It would be the same with every other cell.
                raise DiskError(message["told"])
            else:
                self._monitor.noted(job, message["told"])

    def _lose(self) -> None:
        """Wait until all cells have ended whose server was killed, as they do by themselves; none of them has failed.

        Raises
        ------
        SweepError
            If one goes on: others must not start beside it.
        """
        jobs, deadline = list(self._progress.running.values()), time.monotonic() + _LOST_SECONDS
        while left := [job for job in jobs if not job.deaf]:
            if time.monotonic() >= deadline:
                raise SweepError(
                    f"the server that cells are forked from was killed, and {left[0].cell.label} (process "
                    f"{left[0].process.pid}) goes on without it; no cell has failed: when it has ended, the same "
                    "command goes on"
                )
            wait([job.connection for job in left], timeout=_TICK_SECONDS)
            for job in left:
                self._hear(job)
        for job in jobs:
            self._monitor.noted(job, "the server that its process was forked from was killed, and the process with it")
            self._finish(job, lost=True)

    def _finish(self, job: Job, *, lost: bool = False) -> None:
        """Find out what became of a cell, by its folder first of all, and then by how its process ended."""
        progress, key, code = self._progress, job.cell.key, job.process.exitcode or 0
        del progress.running[key]
        job.close()
        known = standing(self._results, job.cell)
        outcome: Outcome = "killed"
        if known.status in ("done", "failed"):
            outcome = "done" if known.status == "done" else "failed"
            if outcome == "done":
                self._clear(job.cell)
        elif not (lost or job.halted or was_killed(code)):
            record_failure(folder_of(self._results, key), "Crash", _last_words(code))
            known, outcome = standing(self._results, job.cell), "failed"
        elif self._attempts[key] < ATTEMPTS:
            progress.waiting.append(job.cell)
        else:
            progress.killed.append(job.cell)
        progress.standings[key] = known
        self._monitor.ended(known, outcome, time.monotonic() - job.started)

    def _stop_all(self) -> None:
        jobs = list(self._progress.running.values())
        stop([job.process for job in jobs])
        for job in jobs:
            del self._progress.running[job.cell.key]
            known = self._progress.standings[job.cell.key] = standing(self._results, job.cell)
            job.close()
            self._monitor.ended(known, "done" if known.status == "done" else "stopped", time.monotonic() - job.started)
        # They are part of what is left, and the first of it.
        now = [self._progress.standings[job.cell.key] for job in jobs]
        stopped = [entry.cell for entry in now if entry.status in ("running", "missing")]
        self._progress.waiting.extendleft(reversed(stopped))


def _last_words(code: int) -> str:
    how = f"with exit code {code}" if code >= 0 else f"of signal {-code} ({signal.strsignal(-code)})"
    return f"the process of the cell ended {how}; what it printed is in {LOGS}/"
