"""The launcher for this machine: one cell at a time in a process, so that a crash costs that cell and nothing else.

A process runs one cell; small cells are run one after another in the same process.
"""

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
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from mabrfl.errors import DatasetError, MabRflError, SweepError, was_killed
from mabrfl.sweeps.cell_process import LOGS, StartMethod, cell_process, inspection_process, is_small, receive, send_next
from mabrfl.sweeps.launchers import Assignment, CellEnded, CellEvent, CellHalted, CellNote

_WARM = "mabrfl.sweeps.preload"
_STOP_SECONDS = 2.0
_SERVER_SECONDS = 5.0
"""How long to wait for a server to end whose files are closed; a busy machine may need seconds."""
_LOST_SECONDS = 60.0
"""How long to wait for cells to end whose server is gone; they look after it every fifth of a second."""
_TICK_SECONDS = 0.25
_UNKNOWN_END = 255
"""The exit code that :mod:`multiprocessing` makes up for a process whose server is gone."""
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def default_start_method(devices: Iterable[str]) -> StartMethod:
    """Return how cells are started: forked from a process that has imported everything, where that is safe."""
    # Importing PyTorch takes seconds; but a forked process cannot use a GPU that its parent has looked for.
    return "forkserver" if sys.platform == "linux" and set(devices) <= {"cpu"} else "spawn"


@dataclass
class _CellProcess:
    """The process of a cell, with our end of its connection.

    ``silent``: it has closed its end. ``halted``: its last event says that something from outside has stopped it.
    ``free``: its cell has ended, and it can run another.
    """

    label: str
    process: BaseProcess
    connection: Connection
    silent: bool = False
    halted: bool = False
    free: bool = False

    def events(self) -> Iterator[CellEvent]:
        """Yield the events that have come since the last call."""
        while not self.silent:
            try:
                if not self.connection.poll():
                    return
                event = receive(self.connection)
            except (EOFError, OSError):
                self.silent = True
                return
            self.halted = isinstance(event, CellHalted)
            if isinstance(event, CellEnded):
                self.free = True
            else:
                yield event


class LocalProcesses:
    """Runs cells in processes of this machine; see :class:`~mabrfl.sweeps.launchers.Launcher`.

    Parameters
    ----------
    method
        How processes are started.
    """

    def __init__(self, method: StartMethod) -> None:
        self._method = method
        self._cells: dict[str, _CellProcess] = {}
        self._free: list[_CellProcess] = []
        self._context: Any = multiprocessing.get_context(method)
        if method == "forkserver":
            self._context.set_forkserver_preload([_WARM])

    def start(self, assignment: Assignment) -> None:
        """Start the process of a cell, or give a small cell to one that is free."""
        while self._free and is_small(assignment):
            cell = self._free.pop()
            try:
                send_next(cell.connection, assignment)
            except OSError:  # it was killed in the meantime
                cell.process.join()
                self._release(cell)
                continue
            cell.label, cell.free = assignment.label, False
            self._cells[assignment.key] = cell
            return
        ours, theirs = self._context.Pipe()
        process = self._context.Process(
            target=cell_process,
            args=(theirs, self._method, assignment),
            name=f"mabrfl-cell-{assignment.key[:8]}",
        )
        self._start(process)
        theirs.close()
        self._cells[assignment.key] = _CellProcess(assignment.label, process, ours)

    def poll(self, timeout: float) -> list[CellEvent]:
        """Wait for events, or for the end of a process."""
        cells = self._cells.values()
        wait(
            [*(cell.connection for cell in cells if not cell.silent), *(cell.process.sentinel for cell in cells)],
            timeout=timeout,
        )
        events: list[CellEvent] = []
        for key, cell in list(self._cells.items()):
            code = cell.process.exitcode  # first: an ended process sends nothing more
            events += cell.events()
            if cell.free:
                self._free.append(self._cells.pop(key))
                events.append(CellEnded(key))
                continue
            if code is None:
                continue
            if self._is_lost(code):
                return events + self._lose_all()
            events.append(self._end(key, killed=cell.halted or was_killed(code), message=_how_it_ended(code)))
        return events

    def stop(self) -> None:
        """End all processes, within a few seconds whatever they do."""
        stop_processes([cell.process for cell in (*self._cells.values(), *self._free)])
        for key in list(self._cells):
            self._end(key)
        while self._free:
            self._release(self._free.pop())

    def inspect(self, pairs: Iterable[tuple[str, str]], deadline: float | None = None) -> dict[tuple[str, str], int]:
        """Return the number of parameters of each (data set, model), as far as they can be built until the deadline.

        Data sets may have to be fetched, which takes as long as it takes.
        """
        results: dict[str, list[Any]] = {"sizes": [], "missing": []}
        ours, theirs = self._context.Pipe(duplex=False)
        process = self._context.Process(target=inspection_process, args=(theirs, self._method, sorted(pairs)))
        self._start(process)
        theirs.close()
        try:
            if ours.poll(None if deadline is None else max(deadline - time.monotonic(), 0.0)):
                results = json.loads(ours.recv_bytes())
        except (EOFError, OSError):
            pass  # the cells themselves will report what has ended it
        finally:
            stop_processes([process])
            ours.close()
        if results["missing"]:
            raise DatasetError(results["missing"][0])
        return {(dataset, model): number for dataset, model, number in results["sizes"]}

    def _start(self, process: BaseProcess) -> None:
        try:
            if self._method == "forkserver":
                # It imports what the cells need before it answers, and Ctrl-C may come while we wait for that.
                with _one_thread(), _interrupts_ignored_by_children():
                    forkserver.ensure_running()
                process.start()
            else:
                with _one_thread(), _interrupts_ignored_by_children():
                    process.start()
        except (EOFError, OSError) as error:
            raise MabRflError(f"cannot start a process for a cell: {error}") from error

    def _end(self, key: str, *, killed: bool = False, message: str = "") -> CellEnded:
        """Release the ended process of a cell."""
        self._release(self._cells.pop(key))
        return CellEnded(key, killed, message)

    def _release(self, cell: _CellProcess) -> None:
        cell.connection.close()
        cell.process.close()

    def _is_lost(self, code: int) -> bool:
        """Whether the true exit code of a process is unknown, because the server that it was forked from is gone."""
        return self._method == "forkserver" and code == _UNKNOWN_END and _server_is_gone()

    def _lose_all(self) -> list[CellEvent]:
        """Wait until all cells have ended whose server was killed, as they do by themselves; none of them has failed.

        Raises
        ------
        SweepError
            If one goes on: others must not start beside it.
        """
        events: list[CellEvent] = []
        deadline = time.monotonic() + _LOST_SECONDS
        while left := [cell for cell in self._cells.values() if not cell.silent]:
            if time.monotonic() >= deadline:
                raise SweepError(
                    f"the server that cells are forked from was killed, and {left[0].label} (process "
                    f"{left[0].process.pid}) goes on without it; no cell has failed: when it has ended, the same "
                    "command goes on"
                )
            wait([cell.connection for cell in left], timeout=_TICK_SECONDS)
            for cell in left:
                events += cell.events()
        for key in list(self._cells):
            note = "the server that its process was forked from was killed, and the process with it"
            events += [CellNote(key, note), self._end(key, killed=True)]
        return events


def _how_it_ended(code: int) -> str:
    how = f"with exit code {code}" if code >= 0 else f"of signal {-code} ({signal.strsignal(-code)})"
    return f"the process of the cell ended {how}; its output is in {LOGS}/"


def _server_is_gone() -> bool:
    """Whether the process that cells are forked from has ended."""
    server = getattr(getattr(forkserver, "_forkserver", None), "_forkserver_pid", None)
    deadline = time.monotonic() + _SERVER_SECONDS
    while server is not None and time.monotonic() < deadline:
        # Its files are closed a moment before it has ended. Its exit code is left for multiprocessing to collect.
        with contextlib.suppress(ChildProcessError):
            if os.waitid(os.P_PID, server, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                time.sleep(0.01)
                continue
        return True
    return server is None


@contextlib.contextmanager
def _interrupts_ignored_by_children() -> Iterator[None]:
    """Have processes that are started in here ignore Ctrl-C from their start; it is for the sweep, which stops them."""
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


def stop_processes(processes: Sequence[BaseProcess]) -> None:
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
