"""A sweep runs its cells by any launcher; the cells have observers of their own."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from killing import outcome
from mabrfl.config import load_config, resolve
from mabrfl.errors import ConfigError, DiskError, SweepError
from mabrfl.sweeps import cell_process
from mabrfl.sweeps.cell_process import run_assignment
from mabrfl.sweeps.launchers import Assignment, CellEnded, CellEvent, CellHalted
from mabrfl.sweeps.local_processes import LocalProcesses
from mabrfl.sweeps.plan import folder_of
from mabrfl.sweeps.scheduler import run_sweep
from mabrfl.sweeps.sweep_file import Sweep, parse_sweep
from mabrfl.sweeps.sweep_progress import Monitor, SweepProgress

pytestmark = pytest.mark.usefixtures("ready_to_fork")


TEXT = """
[base]
dataset = "digits"
clients = 6
workers = 1
rounds = 2
training.epochs = 1
partition.sizes = [8, 16]
[axes]
defense = ["fedavg", "watched:broken"]
seed = [0, 1]
"""

OWN = '''
"""A rule and observers of a user."""
import os
from pathlib import Path


def broken(cohort):
    raise RuntimeError("no luck")


class Diary:
    def round_done(self, record):
        with open(Path(__file__).with_name("diary.txt"), "a") as file:
            file.write(f"{os.getpid()} {id(self)} {record.round}\\n")


class Fragile:
    def round_done(self, record):
        raise ValueError("no network")
'''


@pytest.fixture(autouse=True)
def _own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "watched.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "watched", raising=False)


@pytest.fixture
def wanted() -> Sweep:
    return parse_sweep(TEXT.encode())


class Journal(Monitor):
    def __init__(self) -> None:
        self.ends: list[str] = []
        self.notes: list[str] = []

    def noted(self, running: Any, note: str) -> None:
        self.notes.append(note)

    def ended(self, known: Any, outcome: str, seconds: float) -> None:
        self.ends.append(outcome)


class InThisProcess:
    """Runs a cell as soon as it is started; some are killed, once each, before they begin."""

    def __init__(self, *killed: str) -> None:
        self.killed = list(killed)
        self.assignments: list[Assignment] = []
        self.events: list[CellEvent] = []
        self.stops = 0

    def inspect(self, pairs: Iterable[tuple[str, str]], deadline: float | None) -> dict[tuple[str, str], int]:
        assert list(pairs) == [("digits", "mlp")]
        return {}

    def start(self, assignment: Assignment) -> None:
        # Whatever a cluster does with it, it is plain data.
        self.assignments.append(Assignment(**json.loads(json.dumps(vars(assignment)))))
        if assignment.key in self.killed:
            self.killed.remove(assignment.key)
            self.events.append(CellEnded(assignment.key, killed=True))
            return
        run_assignment(self.assignments[-1], self.events.append)
        self.events.append(CellEnded(assignment.key, message="it vanished"))

    def poll(self, timeout: float) -> list[CellEvent]:
        assert timeout <= 0.25
        events, self.events = self.events, []
        return events

    def stop(self) -> None:
        self.stops += 1


def local(wanted: Sweep, results: Path, **settings: Any) -> SweepProgress:
    return run_sweep(wanted, results, start_method="fork", jobs=2, workers=1, **settings)


def test_a_launcher_of_ones_own_runs_a_sweep_as_local_processes_do(wanted: Sweep, tmp_path: Path) -> None:
    launcher, journal = InThisProcess(wanted.cells[0].key), Journal()
    progress = run_sweep(
        wanted, tmp_path / "r", launcher=launcher, jobs=2, workers=1, checkpoint_every=2, monitor=journal
    )
    assert (progress.count("done"), progress.count("failed"), progress.left) == (2, 2, 0)
    assert all(known.error.endswith("RuntimeError: no luck") for known in progress.failed)
    assert sorted(journal.ends) == ["done", "done", "failed", "failed", "killed"]
    assert [each.key for each in launcher.assignments] == [*(cell.key for cell in wanted.cells), wanted.cells[0].key]
    assert {each.checkpoint_every for each in launcher.assignments} == {2}
    assert [each.settings["workers"] for each in launcher.assignments] == [1, 1, 1, 1, 2], "the last one has all cores"
    assert launcher.assignments[0].label == "defense=fedavg, seed=0"
    assert launcher.stops == 1
    local(wanted, tmp_path / "local")
    for cell in wanted.cells[:2]:
        assert outcome(folder_of(tmp_path / "r", cell.key)) == outcome(folder_of(tmp_path / "local", cell.key))


def test_a_cell_that_ends_without_a_result_has_failed_with_the_launchers_words(wanted: Sweep, tmp_path: Path) -> None:
    class Nothing(InThisProcess):
        def start(self, assignment: Assignment) -> None:
            self.events.append(CellEnded(assignment.key, message="it vanished"))

    progress = run_sweep(wanted, tmp_path / "r", only=wanted.cells[:1], launcher=Nothing(), jobs=1, workers=1)
    assert [known.error for known in progress.failed] == ["it vanished"]


@pytest.mark.parametrize("error", [DiskError, SweepError])
def test_whatever_ends_a_sweep_the_launcher_stops_its_cells(
    wanted: Sweep, tmp_path: Path, error: type[Exception]
) -> None:
    class Unlucky(InThisProcess):
        def start(self, assignment: Assignment) -> None:
            self.events.append(CellHalted(assignment.key, "disk", "no room"))

        def poll(self, timeout: float) -> list[CellEvent]:
            if error is SweepError:
                raise SweepError("no room")
            return super().poll(timeout)

    launcher, journal = Unlucky(), Journal()
    with pytest.raises(error, match="no room"):
        run_sweep(wanted, tmp_path / "r", launcher=launcher, jobs=2, workers=1, monitor=journal)
    assert (launcher.stops, journal.ends) == (1, ["stopped", "stopped"])
    assert not list(tmp_path.rglob("failed.json"))


def test_a_sweep_that_a_cell_cannot_reach_stops_the_cell_which_has_not_failed(wanted: Sweep, tmp_path: Path) -> None:
    def unreachable(event: CellEvent) -> None:
        raise ConnectionError("the cluster is gone")

    cell = wanted.cells[0]
    assignment = Assignment(str(tmp_path), cell.key, cell.label, cell.config.model_dump(mode="json"))
    with pytest.raises(ConnectionError, match="the cluster is gone"):
        run_assignment(assignment, unreachable)
    assert not list(tmp_path.rglob("failed.json"))


def test_every_cell_has_observers_of_its_own_and_one_that_raises_is_a_note(wanted: Sweep, tmp_path: Path) -> None:
    journal, cells = Journal(), wanted.cells[:2]
    observers = ["watched:Diary", "watched:Fragile"]
    progress = local(wanted, tmp_path / "r", only=cells, observers=observers, monitor=journal)
    assert (progress.count("done"), journal.ends) == (2, ["done", "done"])
    lines = [line.split() for line in (tmp_path / "diary.txt").read_text().splitlines()]
    assert sorted(number for _, _, number in lines) == ["1", "1", "2", "2"]
    assert len({process for process, _, _ in lines}) == 2
    assert len(journal.notes) == 2, "one for each cell"
    assert all("observer watched:Fragile failed in round_done (watched.py, line " in note for note in journal.notes)
    for cell in cells:
        log = (tmp_path / "r" / "logs" / f"{cell.key[:16]}.txt").read_text()
        assert "no network" in log
    local(wanted, tmp_path / "alone", only=cells)
    for cell in cells:
        assert outcome(folder_of(tmp_path / "r", cell.key)) == outcome(folder_of(tmp_path / "alone", cell.key))


def test_an_observer_that_there_is_not_is_said_once_and_nothing_is_run(wanted: Sweep, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="module 'watched' has no 'Diry'; did you mean 'Diary'"):
        local(wanted, tmp_path / "r", observers=["watched:Diry"])
    assert not (tmp_path / "r").exists()


SMALL = """
base = { clients = 6, rounds = 2, training.epochs = 1, partition.sizes = [8, 16] }
axes.attack = [{ label = "backdoor", attack = "backdoor", attackers = 2 }, { label = "nobody", attack = "none" }]
axes.defense = ["mab-rfl", "krum", "fldetector"]
"""


def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note the names of the processes of cells that are started."""
    names: list[str] = []
    start = LocalProcesses._start

    def noted(self: LocalProcesses, process: Any) -> None:
        names.extend([process.name] if process.name.startswith("mabrfl-cell-") else [])
        start(self, process)

    monkeypatch.setattr(LocalProcesses, "_start", noted)
    return names


def test_small_cells_run_one_after_another_in_one_process_as_they_do_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, small = started(monkeypatch), parse_sweep(SMALL.encode())
    results = tmp_path / "r"
    run_sweep(small, results, start_method="fork", jobs=1, workers=1, checkpoint_every=0)
    assert len(names) == 1
    run_sweep(small, tmp_path / "alone", launcher=InThisProcess(), jobs=1, workers=1)
    for cell in small.cells:
        assert outcome(folder_of(results, cell.key)) == outcome(folder_of(tmp_path / "alone", cell.key))


def test_a_process_that_dies_in_a_small_cell_costs_that_cell_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, small, calls = started(monkeypatch), parse_sweep(SMALL.encode()), []
    fine = cell_process.run

    def dies_the_second_time(*arguments: Any, **settings: Any) -> Any:
        calls.append(1)
        return os._exit(3) if len(calls) == 2 else fine(*arguments, **settings)

    monkeypatch.setattr(cell_process, "run", dies_the_second_time)
    progress = run_sweep(small, tmp_path / "r", only=small.cells[:3], start_method="fork", jobs=1, workers=1)
    assert [progress.standings[cell.key].status for cell in small.cells[:3]] == ["done", "failed", "done"]
    assert "exit code 3" in progress.failed[0].error
    assert len(names) == 2


@pytest.mark.parametrize(
    ("settings", "observers"),
    [
        ({"defense": "watched:broken"}, []),
        ({"attack": "sleeper", "attackers": 2, "attack_options.inner": "mabrfl.attacks:LIE"}, []),
        ({"training.engine": "loop"}, []),
        ({"workers": 2}, []),
        ({}, ["watched:Diary"]),
    ],
)
def test_a_cell_that_may_leave_something_behind_has_a_process_of_its_own(
    settings: dict[str, Any], observers: list[str]
) -> None:
    def assignment(settings: dict[str, Any], observers: list[str]) -> Assignment:
        config = resolve(load_config(None, {"workers": 1, **settings}))
        return Assignment("r", "key", "label", config.model_dump(mode="json"), observers=observers)

    assert cell_process.is_small(assignment({"before": "nnm", "defense": "krum"}, []))
    assert not cell_process.is_small(assignment(settings, observers))
