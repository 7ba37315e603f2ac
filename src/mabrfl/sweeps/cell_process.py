"""The process of a cell: it runs the cell, reports on it, and ends with the sweep.

It may end at any moment, by any signal: the next sweep goes on with its folder. Small cells run one after another in
the same process, because to start one takes longer than they do.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import math
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

from mabrfl.catalog import BUILT_IN, KINDS
from mabrfl.config import RunConfig, config_hash, resolve
from mabrfl.config.toml import one_line
from mabrfl.errors import DatasetError, DiskError, KilledError, StateError
from mabrfl.recording import RoundRecord
from mabrfl.recording.atomic import write_atomically
from mabrfl.recording.folder import FULL, explained, shown
from mabrfl.recording.ownership import FAILED
from mabrfl.runs import Observer, RunStart, run
from mabrfl.sweeps.launchers import (
    Assignment,
    CellAdvanced,
    CellEnded,
    CellEvent,
    CellHalted,
    CellNote,
    CellStarted,
)
from mabrfl.sweeps.plan import folder_of
from mabrfl.sweeps.results import KEY_LENGTH

StartMethod = Literal["forkserver", "spawn", "fork"]
ReportEvent = Callable[[CellEvent], None]

LOGS = "logs"
_WATCH_SECONDS = 0.2
_LONGEST_ERROR = 500
_EVENTS = {kind.__name__: kind for kind in (CellStarted, CellAdvanced, CellNote, CellHalted, CellEnded)}


def log_of(results: Path, key: str) -> Path:
    """Return the file with the output of a cell's process; there is none if it printed nothing."""
    return results / LOGS / f"{key[:KEY_LENGTH]}.txt"


def record_failure(folder: Path, kind: str, error: str) -> None:
    """Write ``failed.json``: one line on why a cell failed.

    Raises
    ------
    OutputError
        If it cannot be written.
    """
    line = one_line(error)[:_LONGEST_ERROR] or kind
    failure = {"error": line, "kind": kind, "at": datetime.now(UTC).isoformat(timespec="seconds")}
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / FAILED, json.dumps(failure, indent=2) + "\n")


def run_assignment(assignment: Assignment, report: ReportEvent) -> None:
    """Run a cell, and report on it.

    A failure of the cell itself is recorded in its folder. A full disk or a killed worker is no failure of the cell:
    the sweep hears of it, and decides.

    Parameters
    ----------
    assignment
        The cell.
    report
        Called with each event. An error of it stops the cell, which has not failed by that.
    """
    folder = folder_of(Path(assignment.results), assignment.key)
    try:
        _run(assignment, folder, report)
    except DiskError as error:
        report(CellHalted(assignment.key, "disk", one_line(str(error))))
    except KilledError as error:
        report(CellHalted(assignment.key, "killed", one_line(str(error))))


def _run(assignment: Assignment, folder: Path, report: ReportEvent) -> None:
    progress = _ProgressReporter(assignment.key, report)
    try:
        config = resolve(RunConfig(**assignment.settings))
        if config_hash(config) != assignment.key:
            raise StateError(f"the cell's settings have the hash {config_hash(config)}, not {assignment.key}")
        run(
            config,
            folder,
            observers=assignment.observers,
            checkpoint_every=assignment.checkpoint_every,
            arguments=assignment.arguments,
            essential=[progress],
            report=progress.note,
        )
    except (DiskError, KilledError):
        raise
    except Exception as error:  # whatever a user's own rule raises: the sweep goes on
        if isinstance(error, OSError) and error.errno in FULL:
            raise DiskError(f"a disk is full, for the run in {shown(folder)}: {error}") from error
        traceback.print_exc()
        record_failure(folder, type(error).__name__, str(error))


class _ProgressReporter(Observer):
    """Reports to the sweep where a cell starts, and each of its rounds; notes are printed into the log as well."""

    def __init__(self, key: str, report: ReportEvent) -> None:
        self._key, self._report = key, report

    def started(self, run: RunStart) -> None:
        notes = [one_line(note) for note in run.notes]
        sys.stdout.writelines(f"note: {note}\n" for note in notes)
        self._send(CellStarted(self._key, run.after_round, notes))

    def round_done(self, record: RoundRecord) -> None:
        accuracy = record.accuracy if math.isfinite(record.accuracy) else None
        self._send(CellAdvanced(self._key, record.round, accuracy, sum(record.seconds.values())))

    def note(self, message: str) -> None:
        """Report an observer that failed."""
        sys.stdout.write(f"note: {one_line(message)}\n")
        self._send(CellNote(self._key, one_line(message)))

    def _send(self, event: CellEvent) -> None:
        try:
            self._report(event)
        except Exception as error:
            raise KilledError(f"the sweep cannot be reached: {error}") from error


def is_small(assignment: Assignment) -> bool:
    """Whether the process of a cell may run others after it: a short run that leaves nothing behind.

    Its clients are trained together in this one process, nobody watches it, and no code in it is the user's own, which
    could keep something from one run to the next.
    """
    settings = assignment.settings
    names = [(kind, settings[kind.removesuffix("s")]) for kind in KINDS]
    names += [("preaggregators", name) for name in settings["before"].split("+") if name]
    names += [("attacks", settings["attack_options"].get("inner", "none"))]
    return (
        settings["workers"] == 1
        and settings["training"]["engine"] == "stacked"
        and not assignment.observers
        and all(name in BUILT_IN[kind] for kind, name in names)
    )


def cell_process(connection: Connection, method: StartMethod, assignment: Assignment) -> None:
    """Run a cell, and after a small one those that are sent then; the main function of a process."""
    from mabrfl.simulation.training.workers import keep_freed_memory  # noqa: PLC0415 (torch: the sweep itself does without)

    _settle(method)
    keep_freed_memory()  # this process is a worker too, if the cell has no others
    halted: list[CellHalted] = []

    def send(event: CellEvent) -> None:
        halted.extend([event] if isinstance(event, CellHalted) else [])
        try:
            connection.send_bytes(json.dumps([type(event).__name__, asdict(event)]).encode())
        except BrokenPipeError:
            os._exit(1)  # the sweep is gone

    while True:
        _run_logged(assignment, send)
        if halted or not is_small(assignment):
            return
        send(CellEnded(assignment.key))
        try:
            assignment = Assignment(**json.loads(connection.recv_bytes()))
        except (EOFError, OSError):
            return  # the sweep has no other cell


def _run_logged(assignment: Assignment, send: ReportEvent) -> None:
    log = log_of(Path(assignment.results), assignment.key)
    try:
        with explained(log.parent), _output_to(log):
            run_assignment(assignment, send)
        if not log.stat().st_size:
            log.unlink()
    except DiskError as error:
        send(CellHalted(assignment.key, "disk", one_line(str(error))))


def send_next(connection: Connection, assignment: Assignment) -> None:
    """Have a process that has ended a small cell run another."""
    connection.send_bytes(json.dumps(asdict(assignment)).encode())


def receive(connection: Connection) -> CellEvent:
    """Return the next event that the process of a cell has sent."""
    name, fields = json.loads(connection.recv_bytes())
    return _EVENTS[name](**fields)


def inspection_process(connection: Connection, method: StartMethod, pairs: Sequence[tuple[str, str]]) -> None:
    """Look at data sets and models before the first cell; the main function of a process of its own."""
    from mabrfl import catalog  # noqa: PLC0415 (only needed in this process)

    _settle(method)
    results: dict[str, list[Any]] = {"sizes": [], "missing": []}
    for dataset, model in pairs:
        # The cell itself will report any other error.
        with contextlib.suppress(Exception):
            try:
                data = catalog.build_dataset(dataset)
            except DatasetError as error:
                results["missing"].append(str(error))
                continue
            network = catalog.build_model(model, data.train_inputs.shape[1:], data.num_classes)
            results["sizes"].append((dataset, model, sum(weights.numel() for weights in network.parameters())))
    connection.send_bytes(json.dumps(results).encode())


def _settle(method: StartMethod) -> None:
    """Have this process end by the sweep alone, and with the sweep."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the sweep, which stops its cells
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, args=(method,), daemon=True).start()


def _end_with_parent(method: StartMethod) -> None:
    parent, server = multiprocessing.parent_process(), os.getppid()
    # Forked siblings hold copies of each other's pipes, so that these tell nothing about the parent.
    while parent is not None and (parent.is_alive() if method == "forkserver" else server == parent.pid):
        if os.getppid() != server:
            break  # without the server that it was forked from, nobody would hear how this process ends
        time.sleep(_WATCH_SECONDS)
    os._exit(1)


@contextlib.contextmanager
def _output_to(path: Path) -> Iterator[None]:
    """Send all output, of any library, to a file: the terminal belongs to the sweep."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8", errors="backslashreplace", buffering=1) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        faulthandler.enable(2)
        with contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
            yield
