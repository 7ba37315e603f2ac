"""The processes of a sweep: one for each cell, so that a crash costs that cell and nothing else."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from mabrfl.errors import DatasetError, MabRflError
from mabrfl.sweeps.cell_process import Assignment, StartMethod, cell_process, inspection_process
from mabrfl.sweeps.cells import PlannedCell

_WARM = "mabrfl.sweeps.preload"
_STOP_SECONDS = 2.0
_SERVER_SECONDS = 0.5
_UNKNOWN_END = 255
"""The exit code that :mod:`multiprocessing` makes up for a process whose server is gone."""
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def default_start_method(devices: Iterable[str]) -> StartMethod:
    """Return how cells are started: forked from a process that has imported everything, where that is safe."""
    # Importing PyTorch takes seconds; but a forked process cannot use a GPU that its parent has looked for.
    return "forkserver" if sys.platform == "linux" and set(devices) <= {"cpu"} else "spawn"


@dataclass
class Job:
    """A cell whose process is running.

    Attributes
    ----------
    cell, workers
        What runs, and on how many processes.
    round, accuracy
        The last finished round, and the accuracy after it. Until the process has said after which round it goes on,
        the round is the last recorded one.
    started
        When, by the monotonic clock.
    deaf
        Whether the process has closed its end of the connection.
    halted
        Whether it has said that something from outside has stopped it.
    """

    cell: PlannedCell
    workers: int
    process: BaseProcess = field(repr=False)
    connection: Connection = field(repr=False)
    round: int = 0
    accuracy: float | None = None
    started: float = field(default_factory=time.monotonic)
    deaf: bool = False
    halted: bool = False

    def news(self) -> Iterator[dict[str, Any]]:
        """Yield what the process has said since the last time; the job is then as it was when that was said."""
        while not self.deaf:
            try:
                if not self.connection.poll():
                    return
                message = json.loads(self.connection.recv_bytes())
            except (EOFError, OSError):
                self.deaf = True
                return
            self.halted = message["kind"] == "halted"
            if not self.halted:
                self.round, self.accuracy = message["round"], message.get("accuracy")
            yield message

    @property
    def ended(self) -> bool:
        """Whether the process has ended."""
        return self.process.exitcode is not None

    def close(self) -> None:
        """Let go of an ended process."""
        self.connection.close()
        self.process.close()


class Launcher:
    """Starts the processes of cells.

    Parameters
    ----------
    results
        The sweep's folder.
    method
        How processes are started.
    arguments
        The sweep's command line, for the record.
    checkpoint_every
        Rounds between checkpoints.
    """

    def __init__(
        self, results: Path, method: StartMethod, *, arguments: Sequence[str] = (), checkpoint_every: int = 1
    ) -> None:
        self._results, self._method = results, method
        self._arguments, self._checkpoint_every = list(arguments), checkpoint_every
        self._context: Any = multiprocessing.get_context(method)
        if method == "forkserver":
            self._context.set_forkserver_preload([_WARM])

    def start(self, cell: PlannedCell, workers: int) -> Job:
        """Start a cell's process."""
        ours, theirs = self._context.Pipe(duplex=False)
        settings = {**cell.config.model_dump(mode="json"), "workers": workers}
        options = {"arguments": self._arguments, "checkpoint_every": self._checkpoint_every}
        process = self._context.Process(
            target=cell_process,
            args=(theirs, self._method, Assignment(str(self._results), cell.key, settings, options)),
            name=f"mabrfl-cell-{cell.key[:8]}",
        )
        self._start(process)
        theirs.close()
        return Job(cell, workers, process, ours)

    def has_lost(self, job: Job) -> bool:
        """Whether nobody knows how a cell's process ended, or whether it did: who would know is gone.

        That is the server that cells are forked from, their true parent.
        """
        return self._method == "forkserver" and job.process.exitcode == _UNKNOWN_END and _server_is_gone()

    def inspect(self, pairs: Iterable[tuple[str, str]], deadline: float | None = None) -> dict[tuple[str, str], int]:
        """Return the number of parameters of each (data set, model), as far as they can be built until the deadline.

        That is a time of the monotonic clock. Data sets may have to be fetched, which takes as long as it takes.

        Raises
        ------
        DatasetError
            If a data set is missing and cannot be fetched: better said once than by every cell.
        """
        found: dict[str, list[Any]] = {"sizes": [], "missing": []}
        ours, theirs = self._context.Pipe(duplex=False)
        process = self._context.Process(target=inspection_process, args=(theirs, self._method, sorted(pairs)))
        self._start(process)
        theirs.close()
        try:
            if ours.poll(None if deadline is None else max(deadline - time.monotonic(), 0.0)):
                found = json.loads(ours.recv_bytes())
        except (EOFError, OSError):
            pass  # whatever ended it, the cells themselves will say so
        finally:
            stop([process])
            ours.close()
        if found["missing"]:
            raise DatasetError(found["missing"][0])
        return {(dataset, model): number for dataset, model, number in found["sizes"]}

    def _start(self, process: BaseProcess) -> None:
        try:
            if self._method == "forkserver":
                # It imports what the cells need before it answers, and whoever waits for that may press Ctrl-C.
                with _one_thread(), _unborn_ignore_interrupts():
                    forkserver.ensure_running()
                process.start()
            else:
                with _one_thread(), _unborn_ignore_interrupts():
                    process.start()
        except (EOFError, OSError) as error:
            raise MabRflError(f"cannot start a process for a cell: {error}") from error


def _server_is_gone() -> bool:
    """Whether the process that cells are forked from has ended."""
    server = getattr(getattr(forkserver, "_forkserver", None), "_forkserver_pid", None)
    deadline = time.monotonic() + _SERVER_SECONDS
    while server is not None and time.monotonic() < deadline:
        # Its files are closed a moment before it has ended. It is only looked at: who starts the next one buries it.
        with contextlib.suppress(ChildProcessError):
            if os.waitid(os.P_PID, server, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                time.sleep(0.01)
                continue
        return True
    return server is None


@contextlib.contextmanager
def _unborn_ignore_interrupts() -> Iterator[None]:
    """Have processes that are started in here ignore Ctrl-C from birth; it is for the sweep, which stops them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # Of all that a process could do about a signal, only this is passed on to a new program.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Have processes that are started in here do arithmetic on one thread; libraries look for this when loaded."""
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def stop(processes: Sequence[BaseProcess]) -> None:
    """End processes, within a few seconds whatever they do."""
    try:
        for process in processes:
            process.terminate()
        deadline = time.monotonic() + _STOP_SECONDS
        for process in processes:
            process.join(max(0.0, deadline - time.monotonic()))
    finally:
        for process in processes:
            if process.exitcode is None:
                process.kill()
        for process in processes:
            process.join()
