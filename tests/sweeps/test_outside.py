"""What befalls a cell from outside (a full disk, a killed worker, a killed server) is no failure of the cell."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest

from killing import outcome
from mabrfl.errors import DiskError, SweepError
from mabrfl.sweeps.plan import folder_of
from mabrfl.sweeps.scheduler import run_sweep
from mabrfl.sweeps.sweep_file import Sweep, parse_sweep
from mabrfl.sweeps.sweep_progress import Monitor, SweepProgress
from waiting import HANGS

pytestmark = pytest.mark.usefixtures("ready_to_fork")


TEXT = """
name = "tiny"
[base]
dataset = "digits"
clients = 6
rounds = 4
training.epochs = 1
partition.sizes = [8, 16]
defense = "befallen:Befallen"
[axes]
seed = [0, 1]
"""

OWN = '''
"""A rule to which something happens."""
import errno, multiprocessing, os, signal, time
from pathlib import Path

import numpy as np

from mabrfl.updates import Decision


class Befallen:
    def __init__(self, *, by: str = "nothing", place: str = "."):
        self.by, self.place = by, Path(place)
        self.calls = 0

    def __call__(self, cohort):
        self.calls += 1
        while self.by == "a gate" and self.calls == 3 and not (self.place / "open").exists():
            time.sleep(0.01)
        if cohort.round == 2 and not (self.place / "mended").exists():
            if self.by == "death of a worker":
                os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)
            if self.by == "death of a worker once" and not (self.place / "once").exists():
                (self.place / "once").touch()
                os.kill(multiprocessing.active_children()[0].pid, signal.SIGTERM)
            if self.by == "crash of a worker":
                os.kill(multiprocessing.active_children()[0].pid, signal.SIGSEGV)
            if self.by == "exit":
                os._exit(255)
            if self.by == "full disk of its own":
                raise OSError(errno.ENOSPC, "No space left on device", "/elsewhere")
        return Decision(weights=np.full(len(cohort), 1 / len(cohort)))
'''


@pytest.fixture(autouse=True)
def _own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "befallen.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "befallen", raising=False)


class Journal(Monitor):
    """Writes down how cells ended, and what there was to note."""

    def __init__(self) -> None:
        self.ends: list[str] = []
        self.notes: list[str] = []

    def noted(self, job: Any, note: str) -> None:
        self.notes.append(note)

    def ended(self, known: Any, outcome: str, seconds: float) -> None:
        self.ends.append(outcome)


def sweep(tmp_path: Path, by: str = "nothing") -> Sweep:
    options = f'defense_options.by = "{by}"\ndefense_options.place = "{tmp_path}"\n[axes]'
    return parse_sweep(TEXT.replace("[axes]", options).encode())


def run(wanted: Sweep, results: Path, **settings: Any) -> SweepProgress:
    return run_sweep(wanted, results, **{"start_method": "fork", "jobs": 2, "workers": 1, **settings})


def failures(results: Path) -> list[Path]:
    return list(results.rglob("failed.json"))


def fill_the_disk(monkeypatch: pytest.MonkeyPatch, number: int, place: Path, after: int = 0) -> None:
    """Have nothing more written once this many writes are done, until the place has a file 'room'."""
    written, left = os.write, [after]

    def write(handle: int, data: Any) -> int:
        left[0] -= 1
        if left[0] < 0 and os.fstat(handle).st_nlink and not (place / "room").exists() and _is_file(handle):
            raise OSError(number, os.strerror(number))
        return written(handle, data)

    monkeypatch.setattr("mabrfl.recording.atomic.os.write", write)


def _is_file(handle: int) -> bool:
    return "/cells/" in os.readlink(f"/proc/self/fd/{handle}")


@pytest.mark.skipif(sys.platform != "linux", reason="looks up open files in /proc")
@pytest.mark.parametrize(("number", "after"), [(errno.ENOSPC, 0), (errno.EDQUOT, 4), (errno.EROFS, 7)])
def test_a_full_disk_stops_the_sweep_and_is_no_failure_of_any_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, after: int
) -> None:
    wanted, journal = sweep(tmp_path), Journal()
    fill_the_disk(monkeypatch, number, tmp_path, after)
    with pytest.raises(DiskError, match=rf"cannot write to output folder '.*/r/cells/\w+': {os.strerror(number)}"):
        run(wanted, tmp_path / "r", jobs=1, monitor=journal)
    assert (failures(tmp_path / "r"), journal.ends) == ([], ["stopped"])
    (tmp_path / "room").touch()
    assert run(wanted, tmp_path / "r").count("done") == 2
    run(wanted, tmp_path / "whole")
    for cell in wanted.cells:
        assert outcome(folder_of(tmp_path / "r", cell.key)) == outcome(folder_of(tmp_path / "whole", cell.key))


@pytest.mark.skipif(sys.platform != "linux", reason="looks up open files in /proc")
def test_a_failure_that_cannot_be_recorded_on_a_full_disk_stops_the_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The cell's own process cannot say that it is full: it ends at once, and the sweep itself wants to record that.
    monkeypatch.setattr("mabrfl.sweeps.cell_process.run", lambda *arguments, **options: os._exit(3))
    fill_the_disk(monkeypatch, errno.ENOSPC, tmp_path)
    with pytest.raises(DiskError, match="/r/cells/"):
        run(sweep(tmp_path), tmp_path / "r")
    assert failures(tmp_path / "r") == []


def test_a_full_disk_that_a_rule_of_ones_own_writes_to_stops_the_sweep(tmp_path: Path) -> None:
    wanted = sweep(tmp_path, "full disk of its own")
    with pytest.raises(DiskError, match=r"a disk is full, for the run in '.*/r/cells/.*No space left .* '/elsewhere'"):
        run(wanted, tmp_path / "r")
    assert failures(tmp_path / "r") == []
    (tmp_path / "mended").touch()
    assert run(wanted, tmp_path / "r").count("done") == 2


def test_a_worker_that_was_killed_is_no_failure_of_its_cell(tmp_path: Path) -> None:
    wanted, journal = sweep(tmp_path, "death of a worker"), Journal()
    progress = run(wanted, tmp_path / "r", only=wanted.cells[:1], workers=2, monitor=journal)
    assert (failures(tmp_path / "r"), journal.ends) == ([], ["killed", "killed"])
    assert [cell.key for cell in progress.killed] == [wanted.cells[0].key]
    assert len(journal.notes) == 2
    assert all(note.endswith("died (exit code -9); was it killed because memory ran out?") for note in journal.notes)
    (tmp_path / "mended").touch()
    assert run(wanted, tmp_path / "r", workers=2).count("done") == 2
    run(wanted, tmp_path / "whole")
    for cell in wanted.cells:
        assert outcome(folder_of(tmp_path / "r", cell.key)) == outcome(folder_of(tmp_path / "whole", cell.key))


def test_a_cell_whose_worker_was_killed_is_tried_once_more(tmp_path: Path) -> None:
    wanted, journal = sweep(tmp_path, "death of a worker once"), Journal()
    progress = run(wanted, tmp_path / "r", only=wanted.cells[:1], workers=2, monitor=journal)
    assert (progress.count("done"), journal.ends) == (1, ["killed", "done"])


def test_a_worker_that_crashed_is_a_failure(tmp_path: Path) -> None:
    wanted = sweep(tmp_path, "crash of a worker")
    (failed,) = run(wanted, tmp_path / "r", only=wanted.cells[:1], workers=2).failed
    assert failed.error.endswith("died (exit code -11)")


class KillsTheServer(Journal):
    """Kills the server that cells are forked from, once, when both are at work; the cells lost, it opens their gate."""

    def __init__(self, gate: Path) -> None:
        super().__init__()
        self.gate = gate
        self.killed: list[int] = []
        self.alive: list[bool] = []

    def advanced(self, job: Any) -> None:
        running = [process.pid for process in multiprocessing.active_children() if process.pid is not None]
        if not self.killed and len(running) == 2:
            os.kill(forkserver._forkserver._forkserver_pid, signal.SIGKILL)  # type: ignore[attr-defined]
            self.killed = running

    def ended(self, known: Any, outcome: str, seconds: float) -> None:
        super().ended(known, outcome, seconds)
        if outcome == "killed":
            self.alive += [is_at_work(process) for process in self.killed]
            self.gate.touch()


def is_at_work(process: int) -> bool:
    """Whether a process is there, and the system is not taking it apart."""
    exiting = 0x4
    try:
        return not int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[6]) & exiting
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="there alone cells have a server")
def test_killing_the_server_that_cells_are_forked_from_fails_none_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Every process waits in its third round, so that both cells are at work when the server is killed.
    wanted = parse_sweep(sweep(tmp_path, "a gate").text.replace(b"rounds = 4", b"rounds = 9"))
    served = partial(run, wanted, tmp_path / "r", start_method="forkserver")
    with monkeypatch.context() as patch:
        patch.setattr("mabrfl.sweeps.local_processes._LOST_SECONDS", 0.0)
        with pytest.raises(SweepError, match=r"server .* was killed, and seed=\d \(process \d+\) goes on without it"):
            served(monitor=KillsTheServer(tmp_path / "open"))
    assert failures(tmp_path / "r") == []
    journal = KillsTheServer(tmp_path / "open")
    progress = served(monitor=journal)
    assert (progress.count("done"), failures(tmp_path / "r")) == (2, [])
    assert sorted(journal.ends) == ["done", "done", "killed", "killed"]
    assert journal.alive == [False] * 4
    assert sum("was killed, and the process with it" in note for note in journal.notes) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="there alone cells have a server")
def test_a_cell_that_ends_with_the_code_of_a_lost_one_has_failed_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mabrfl.sweeps.local_processes._SERVER_SECONDS", 0.0)
    wanted = sweep(tmp_path, "exit")
    (failed,) = run(wanted, tmp_path / "r", only=wanted.cells[:1], start_method="forkserver").failed
    assert "exit code 255" in failed.error


def test_the_command_line_says_that_the_disk_is_full_and_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from mabrfl.cli.main import main

    def refuse(*arguments: Any, **options: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    call: Callable[[], int] = partial(main, ["sweep", "tiny.toml", "--jobs", "1", "--workers", "1"])
    (tmp_path / "tiny.toml").write_text(TEXT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr("mabrfl.cli.sweep.run_sweep", partial(run_sweep, start_method="fork"))
    with monkeypatch.context() as patch:
        patch.setattr("mabrfl.recording.folder.write_all", refuse)
        assert call() == 6
    told = capsys.readouterr().err
    assert told.startswith("error: cannot write to output folder 'runs/tiny/cells/")
    assert "No space left on device; no cell has failed by that: make room, and go on with: mabrfl sweep tiny" in told
    assert call() == 0


def test_the_time_budget_holds_for_a_data_set_that_does_not_come(tmp_path: Path) -> None:
    waits = f"import time\ndef data():\n    time.sleep({HANGS})\n    raise OSError('nothing stopped it')\n"
    (tmp_path / "slow.py").write_text(waits)
    wanted = parse_sweep(TEXT.replace('"digits"', '"slow:data"').encode())
    progress = run(wanted, tmp_path / "r", time_budget=0.5)
    assert (progress.out_of_time, progress.left) == (True, 2)
    assert not (tmp_path / "r" / "cells").exists()
