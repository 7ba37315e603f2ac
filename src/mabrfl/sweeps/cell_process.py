"""What the process of a cell does: run it, say how it goes on, and end with the sweep.

It needs no goodbye: whenever it ends, by whatever signal, its folder can be gone on with.
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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

from mabrfl.config import RunConfig, config_hash, resolve
from mabrfl.config.toml import one_line
from mabrfl.errors import DatasetError, DiskError, KilledError, StateError
from mabrfl.recording import RoundRecord
from mabrfl.recording.atomic import write_atomically
from mabrfl.recording.folder import FULL, explained, shown
from mabrfl.recording.ownership import FAILED
from mabrfl.runs.session import run_cell
from mabrfl.sweeps.plan import folder_of
from mabrfl.sweeps.results import KEY_LENGTH

StartMethod = Literal["forkserver", "spawn", "fork"]
Halt = Literal["disk", "killed"]
"""What may stop a cell from outside: a full disk, or the death of one of its workers."""

LOGS = "logs"
_WATCH_SECONDS = 0.2
_LONGEST_ERROR = 500


def log_of(results: Path, key: str) -> Path:
    """Return the file with what a cell's process printed; there is none if it printed nothing."""
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


@dataclass(frozen=True)
class Assignment:
    """What the process of a cell is told.

    Attributes
    ----------
    results
        The sweep's folder.
    key, settings
        The cell: its identity and its configuration.
    options
        For :func:`~mabrfl.runs.session.run_cell`.
    """

    results: str
    key: str
    settings: Mapping[str, Any]
    options: Mapping[str, Any]


def cell_process(connection: Connection, method: StartMethod, told: Assignment) -> None:
    """Run a cell; this is what its process does.

    Whatever is the cell's own fault is recorded as its failure. What is not, a full disk or a killed worker, is told to
    the sweep, which knows what to do.
    """
    from mabrfl.simulation.training.workers import keep_freed_memory  # noqa: PLC0415 (torch: the sweep itself does without)

    _settle(method)
    keep_freed_memory()  # this process is a worker too, if the cell has no others
    reporter, folder = _Reporter(connection), folder_of(Path(told.results), told.key)
    log = log_of(Path(told.results), told.key)
    try:
        with explained(log.parent), _output_to(log):
            _run(told, folder, reporter)
        if not log.stat().st_size:
            log.unlink()
    except DiskError as error:
        reporter.halted("disk", str(error))
    except KilledError as error:
        reporter.halted("killed", str(error))


def _run(told: Assignment, folder: Path, reporter: _Reporter) -> None:
    """Run a cell, and record it if it fails by its own fault."""
    try:
        config = resolve(RunConfig(**told.settings))
        if config_hash(config) != told.key:
            raise StateError(f"the cell's settings have the hash {config_hash(config)}, not {told.key}")
        run_cell(config, folder, on_start=reporter.begun, on_record=reporter.advanced, **told.options)
    except BrokenPipeError:
        os._exit(1)
    except (DiskError, KilledError):
        raise
    except Exception as error:  # whatever a user's own rule raises: the sweep goes on
        if isinstance(error, OSError) and error.errno in FULL:
            raise DiskError(f"a disk is full, for the run in {shown(folder)}: {error}") from error
        traceback.print_exc()
        record_failure(folder, type(error).__name__, str(error))


def inspection_process(connection: Connection, method: StartMethod, pairs: Sequence[tuple[str, str]]) -> None:
    """Look at data sets and models before the first cell; this is what that process does."""
    from mabrfl import catalog  # noqa: PLC0415 (only needed in this process)

    _settle(method)
    found: dict[str, list[Any]] = {"sizes": [], "missing": []}
    for dataset, model in pairs:
        # Whatever else is wrong with it, the cell itself will say so.
        with contextlib.suppress(Exception):
            try:
                data = catalog.build_dataset(dataset)
            except DatasetError as error:
                found["missing"].append(str(error))
                continue
            network = catalog.build_model(model, data.train_inputs.shape[1:], data.num_classes)
            found["sizes"].append((dataset, model, sum(weights.numel() for weights in network.parameters())))
    connection.send_bytes(json.dumps(found).encode())


@dataclass(frozen=True)
class _Reporter:
    """Tells the sweep where a cell begins, and about each round."""

    connection: Connection

    def begun(self, after_round: int, notes: Sequence[str]) -> None:
        """Say after which round the cell goes on; what there is to note about it goes into the cell's log as well."""
        lines = [one_line(note) for note in notes]
        sys.stdout.writelines(f"note: {line}\n" for line in lines)
        self._send({"kind": "begun", "round": after_round, "notes": lines})

    def advanced(self, record: RoundRecord) -> None:
        """Say what came of a round."""
        accuracy = record.accuracy if math.isfinite(record.accuracy) else None
        seconds = sum(record.seconds.values())
        self._send({"kind": "advanced", "round": record.round, "accuracy": accuracy, "seconds": seconds})

    def halted(self, cause: Halt, told: str) -> None:
        """Say why the cell cannot go on, which is no fault of its."""
        self._send({"kind": "halted", "cause": cause, "told": one_line(told)})

    def _send(self, told: Mapping[str, Any]) -> None:
        self.connection.send_bytes(json.dumps(told).encode())


def _settle(method: StartMethod) -> None:
    """Be a process that the sweep alone ends, and that ends with the sweep."""
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
    """Send what is printed, by whatever library, to a file: the terminal is the sweep's."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8", errors="backslashreplace", buffering=1) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        faulthandler.enable(2)
        with contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
            yield
