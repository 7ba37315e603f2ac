"""A cell on another machine: it runs in a folder there, and its files come back together with its events."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from mabrfl.errors import KilledError, OutputError
from mabrfl.recording.atomic import remove_leftovers, replace_file, sync_folder
from mabrfl.recording.folder import CHECKPOINTS, explained
from mabrfl.recording.ownership import FAILED, OURS, SUMMARY, WRITTEN_ASIDE
from mabrfl.sweeps.cell_process import log_of
from mabrfl.sweeps.launchers import Assignment, CellAdvanced, CellEnded, CellEvent, CellHalted
from mabrfl.sweeps.local_processes import LocalProcesses, default_start_method
from mabrfl.sweeps.plan import folder_of

Files = Mapping[str, bytes]
"""The files of a cell by name; that of its output is ``log``."""

REPORT_SECONDS = 0.5
"""Events come at most this often."""
SEND_SECONDS = 30.0
"""The files of a cell that runs come at most this often: so much work is lost if its machine dies."""

_LOG = "log"
_CHECKPOINT = re.compile(rf"{CHECKPOINTS}/round-\d{{7}}\.(json|safetensors)")


@dataclass(frozen=True)
class CellReport:
    """Events of a cell, in order, and its files at that moment if they are sent along."""

    events: Sequence[CellEvent]
    files: Files | None = None


def run_remotely(assignment: Assignment, files: Files) -> Iterator[CellReport]:
    """Run a cell in a temporary folder of this machine; what ends the iteration also ends the cell.

    Parameters
    ----------
    assignment
        The cell. Its folder is of no use here.
    files
        The files of the cell as far as it has come; it goes on from there.

    Raises
    ------
    KilledError
        If the process that started this one has ended: nobody could stop the cell any more.
    """
    with TemporaryDirectory(prefix="mabrfl-cell-") as place:
        results, key = Path(place), assignment.key
        write_files(results, key, files)
        launcher = LocalProcesses(default_start_method({str(assignment.settings.get("device", "cpu"))}))
        try:
            launcher.start(replace(assignment, results=place))
            yield from _reports(launcher, results, key)
        finally:
            launcher.stop()


def check_data(pairs: Sequence[tuple[str, str]]) -> None:
    """Look whether this machine has the data sets of these (data set, model).

    Raises
    ------
    DatasetError
        If it has not.
    """
    LocalProcesses("spawn").inspect(pairs)


def _reports(launcher: LocalProcesses, results: Path, key: str) -> Iterator[CellReport]:
    events: list[CellEvent] = []
    last = sent = time.monotonic()
    parent = os.getppid()
    while True:
        if os.getppid() != parent:
            raise KilledError("the node that its machine is for the cluster has ended")
        events += map(_as_of_one_machine, launcher.poll(REPORT_SECONDS))
        if any(isinstance(event, CellEnded) for event in events):
            yield CellReport(events, read_files(results, key))
            return
        now = time.monotonic()
        if not events or now < last + REPORT_SECONDS:
            continue
        due = now >= sent + SEND_SECONDS and any(isinstance(event, CellAdvanced) for event in events)
        yield CellReport(events, read_files(results, key) if due else None)
        events, last = [], now
        sent = now if due else sent


def _as_of_one_machine(event: CellEvent) -> CellEvent:
    """Return an event for the sweep: a full disk of one machine is no reason to stop all."""
    return replace(event, cause="killed") if isinstance(event, CellHalted) else event


def read_files(results: Path, key: str) -> dict[str, bytes]:
    """Return the files of a cell in a sweep's folder.

    While the cell runs, they are as if it had been killed at that moment: checkpoints are read before the rounds, of
    which there may be more then, and the last line may be incomplete.
    """
    folder = folder_of(results, key)
    names = sorted(f"{CHECKPOINTS}/{file.name}" for file in _files_in(folder / CHECKPOINTS))
    files = {}
    for name in [*(name for name in names if _CHECKPOINT.fullmatch(name)), *OURS, FAILED, _LOG]:
        try:
            files[name] = _path(results, key, name).read_bytes()
        except FileNotFoundError:
            continue  # there is none, or it was removed a moment ago
    return files


def write_files(results: Path, key: str, files: Files) -> None:
    """Replace the files of a cell in a sweep's folder, each by itself; checkpoints that are not among them are removed.

    The summary comes last: a cell that has one is done.

    Raises
    ------
    OutputError
        If a name is none of a cell's, so that nothing is written, or it cannot be written.
    """
    for name in files:
        if name not in (*OURS, FAILED, _LOG) and not _CHECKPOINT.fullmatch(name):
            raise OutputError(f"a cell has no file of the name {name!r:.80}; nothing was written")
    folder = folder_of(results, key)
    with explained(folder):
        for name in sorted(files, key=_rank):
            path = _path(results, key, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, [files[name]])
        for file in _files_in(folder / CHECKPOINTS):
            if f"{CHECKPOINTS}/{file.name}" not in files:
                file.unlink()
        if folder.is_dir():
            remove_leftovers(folder, WRITTEN_ASIDE)
            sync_folder(folder)


def _rank(name: str) -> tuple[bool, bool, str]:
    """Sort arrays before the documents that name them, and the summary to the end."""
    return name == SUMMARY, not name.endswith(".safetensors"), name


def _path(results: Path, key: str, name: str) -> Path:
    return log_of(results, key) if name == _LOG else folder_of(results, key) / name


def _files_in(folder: Path) -> Iterable[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []
