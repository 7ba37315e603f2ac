"""Sweeps: every cell is run once, none is lost, whatever happens to whichever process."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from killing import SWEEP_KILLS, InterruptAfter, Sitting, Trial, ended, forked, kill_at_random, outcome, recorded
from mabrfl import runs
from mabrfl.config import load_config
from mabrfl.errors import ConfigError, DatasetError, OutputError
from mabrfl.recording import RunFolder, read_rounds, save_checkpoint
from mabrfl.sweeps.estimate import Pace, estimate
from mabrfl.sweeps.locking import claimed
from mabrfl.sweeps.plan import Standing, folder_of, plan_entries, standing
from mabrfl.sweeps.results import load_results
from mabrfl.sweeps.scheduler import run_sweep
from mabrfl.sweeps.sharing import Sharing, share_machine
from mabrfl.sweeps.sweep_file import Sweep, parse_sweep
from mabrfl.sweeps.sweep_progress import Monitor, RunningCell, SweepProgress
from waiting import HANGS, Clock, wait_until

pytestmark = pytest.mark.usefixtures("ready_to_fork")


BASE = """
[base]
dataset = "digits"
clients = 6
workers = 1
rounds = 3
training.epochs = 1
partition.sizes = [8, 16]
"""

OWN = '''
"""Rules of a user, with some misfortunes."""
import os, signal, time
from pathlib import Path

import numpy as np

from mabrfl.updates import Decision


class Misfortune:
    def __init__(self, *, kind: str = "none", at: int = 2, place: str = "."):
        self.kind, self.at, self.place = kind, at, Path(place)

    def __call__(self, cohort):
        if cohort.round == self.at:
            if self.kind == "exception":
                raise RuntimeError("a bug\\nin my own rule")
            if self.kind == "crash":
                os.kill(os.getpid(), signal.SIGSEGV)
            if self.kind == "exit":
                os._exit(3)
            if self.kind == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.kind == "killed once" and not (self.place / "once").exists():
                (self.place / "once").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            if self.kind == "fails until mended" and not (self.place / "mended").exists():
                raise ValueError("not mended yet")
        if self.kind == "slow":
            time.sleep(0.3)
        print("said by a rule")
        return Decision(weights=np.full(len(cohort), 1 / len(cohort)))
'''


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "misfortunes.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "misfortunes", raising=False)


def sweep(text: str) -> Sweep:
    return parse_sweep((BASE + text).encode())


def misfortunes(*kinds: str, place: Path = Path(), rounds: int = 3) -> Sweep:
    points = ", ".join(f'{{ label = "{kind}", defense_options.kind = "{kind}", rounds = {rounds} }}' for kind in kinds)
    rule = f'defense = "misfortunes:Misfortune"\ndefense_options.place = "{place}"'
    return sweep(f"{rule}\n[axes]\nkind = [{points}]")


def run(wanted: Sweep, results: Path, **settings: Any) -> SweepProgress:
    return run_sweep(wanted, results, **{"start_method": "fork", "jobs": 2, "workers": 1, **settings})


def by_label(progress: SweepProgress) -> dict[str, Any]:
    return {str(known.cell.axes["kind"]): known for known in progress.standings.values()}


class Journal(Monitor):
    """Writes down what was started and how it ended."""

    def __init__(self) -> None:
        self.starts: list[str] = []
        self.ends: list[str] = []
        self.workers: list[int] = []
        self.rounds: list[int] = []
        self.notes: list[str] = []

    def started(self, job: Any) -> None:
        self.starts.append(job.cell.key)
        self.workers.append(job.workers)
        self.rounds.append(job.round)

    def noted(self, job: Any, note: str) -> None:
        self.notes.append(note)

    def ended(self, known: Any, outcome: str, seconds: float) -> None:
        self.ends.append(outcome)


def test_a_sweep_leaves_what_the_contract_says_and_never_runs_a_cell_again(tmp_path: Path) -> None:
    wanted = sweep("[axes]\ndefense = ['fedavg', 'median']\nseed = [0, 1]")
    journal = Journal()
    progress = run(wanted, tmp_path / "r", monitor=journal)
    assert (progress.count("done"), progress.left, journal.ends) == (4, 0, ["done"] * 4)
    assert sorted(journal.starts) == sorted(cell.key for cell in wanted.cells)
    assert sorted(os.listdir(tmp_path / "r")) == [".lock", "cells", "cells.json", "logs", "sweep.toml"]
    assert (tmp_path / "r" / "sweep.toml").read_bytes() == wanted.text
    plan = json.loads((tmp_path / "r" / "cells.json").read_text())
    assert [entry["key"] for entry in plan] == [cell.key for cell in wanted.cells]
    assert plan[0]["axes"] == {"defense": "fedavg", "seed": 0}
    for cell in wanted.cells:
        folder = tmp_path / "r" / "cells" / cell.key[:16]
        assert sorted(os.listdir(folder)) == ["config.toml", "manifest.json", "rounds.jsonl", "summary.json"]
        assert json.loads((folder / "summary.json").read_text())["config_hash"] == cell.key
    results = load_results(tmp_path / "r")
    assert [cell.status for cell in results.cells] == ["done"] * 4
    again = Journal()
    assert run(wanted, tmp_path / "r", monitor=again).count("done") == 4
    assert again.starts == []


def test_a_cell_that_other_code_has_finished_stays_finished_and_says_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, module = sweep(""), sys.modules["mabrfl.recording.manifest"]
    for version, starts in (("0.0.1", 1), ("0.0.2", 0)):
        monkeypatch.setattr(module, "__version__", version)
        monkeypatch.setattr(module, "source_commit", lambda package, told=version: {"commit": told, "dirty": False})
        journal = Journal()
        assert run(wanted, tmp_path / "r", monitor=journal).count("done") == 1
        assert len(journal.starts) == starts
    manifest = json.loads((folder_of(tmp_path / "r", wanted.cells[0].key) / "manifest.json").read_text())
    assert (manifest["versions"]["mabrfl"], manifest["source"]["commit"]) == ("0.0.1", "0.0.1")
    run(wanted, tmp_path / "new")
    manifest = json.loads((folder_of(tmp_path / "new", wanted.cells[0].key) / "manifest.json").read_text())
    assert manifest["source"]["commit"] == "0.0.2"


def test_a_cell_of_a_sweep_is_the_same_run_as_by_itself(tmp_path: Path) -> None:
    wanted = sweep("[axes]\nattack = ['label-flip']\nattackers = [2]")
    run(wanted, tmp_path / "r", jobs=1, workers=2)
    runs.run(wanted.cells[0].config, tmp_path / "alone")
    ours, alone = outcome(folder_of(tmp_path / "r", wanted.cells[0].key)), outcome(tmp_path / "alone")
    assert ours["summary"] == alone["summary"]
    assert ours["records"] == alone["records"]


@pytest.mark.usefixtures("own")
def test_a_failure_is_recorded_in_one_line_and_the_sweep_goes_on(tmp_path: Path) -> None:
    wanted = misfortunes("exception", "crash", "exit", "none")
    journal = Journal()
    progress = run(wanted, tmp_path / "r", monitor=journal)
    found = by_label(progress)
    assert {label: known.status for label, known in found.items()} == {
        "exception": "failed",
        "crash": "failed",
        "exit": "failed",
        "none": "done",
    }
    failure = json.loads((folder_of(tmp_path / "r", found["exception"].cell.key) / "failed.json").read_text())
    assert failure["error"].startswith("your defense 'misfortunes:Misfortune' failed at line 18 of misfortunes.py (")
    assert failure["error"].endswith("): RuntimeError: a bug in my own rule")
    assert failure["kind"] == "OwnCodeError"
    assert failure["at"].endswith("+00:00")
    assert "signal 11" in found["crash"].error
    assert "exit code 3" in found["exit"].error
    log = tmp_path / "r" / "logs" / f"{found['exception'].cell.key[:16]}.txt"
    assert "Traceback" in log.read_text()
    assert "said by a rule" in log.read_text()
    assert [cell.status for cell in load_results(tmp_path / "r").cells] == ["failed", "failed", "failed", "done"]
    again = Journal()
    assert len(run(wanted, tmp_path / "r", monitor=again).failed) == 3
    assert again.starts == []


@pytest.mark.usefixtures("own")
def test_missing_data_is_said_once_and_is_no_failure_of_any_cell(tmp_path: Path) -> None:
    (tmp_path / "lost.py").write_text("def data():\n    raise OSError('the disk is in the other room')\n")
    wanted = sweep("[axes]\ndataset = ['lost:data']\nseed = [0, 1]")
    with pytest.raises(DatasetError, match="the disk is in the other room"):
        run(wanted, tmp_path / "r")
    assert not (tmp_path / "r" / "cells").exists()


@pytest.mark.usefixtures("own")
def test_a_failed_cell_runs_again_on_request_and_goes_on_where_it_was(tmp_path: Path) -> None:
    wanted = misfortunes("fails until mended", place=tmp_path)
    folder = folder_of(tmp_path / "r", wanted.cells[0].key)
    for rerun in ([], ["failed"]):
        (failed,) = run(wanted, tmp_path / "r", rerun=rerun).failed
        assert failed.error.endswith("ValueError: not mended yet")
    (tmp_path / "mended").touch()
    assert run(wanted, tmp_path / "r").count("done") == 0
    assert run(wanted, tmp_path / "r", rerun=["failed"]).count("done") == 1
    assert not (folder / "failed.json").exists()
    manifest = json.loads((folder / "manifest.json").read_text())
    assert [sitting["after_round"] for sitting in manifest["resumed"]] == [1, 1]


@pytest.mark.usefixtures("own")
def test_a_killed_cell_is_no_failure_and_is_tried_once_more(tmp_path: Path) -> None:
    wanted = misfortunes("killed once", "killed", place=tmp_path)
    journal = Journal()
    progress = run(wanted, tmp_path / "r", monitor=journal)
    found = by_label(progress)
    assert (found["killed once"].status, found["killed"].status) == ("done", "running")
    assert sorted(journal.ends) == ["done", "killed", "killed", "killed"]
    assert [cell.axes["kind"] for cell in progress.killed] == ["killed"]
    assert not list((tmp_path / "r").rglob("failed.json"))
    assert found["killed"].rounds == 1


class Hurries(Monitor):
    """Puts the sweep's clock an hour forward when a round is done."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def advanced(self, job: Any) -> None:
        self.clock.ahead = 3600.0


def run_out_of_time(wanted: Sweep, results: Path, monkeypatch: pytest.MonkeyPatch) -> SweepProgress:
    """Run a sweep, cell after cell, whose time budget ends after its first round."""
    clock = Clock()
    with monkeypatch.context() as patch:
        patch.setattr("mabrfl.sweeps.scheduler.time", clock)
        return run(wanted, results, time_budget=3600.0, jobs=1, monitor=Hurries(clock))


@pytest.mark.usefixtures("own")
def test_a_time_budget_stops_everything_and_the_next_sweep_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = misfortunes("slow", "none", rounds=6)
    progress = run_out_of_time(wanted, tmp_path / "r", monkeypatch)
    assert progress.out_of_time
    assert progress.count("done") < 2
    assert run(wanted, tmp_path / "r").count("done") == 2


@pytest.mark.usefixtures("own")
def test_two_sweeps_do_not_run_in_one_folder(tmp_path: Path) -> None:
    wanted = misfortunes("slow", rounds=10_000)
    child = forked(lambda: run(wanted, tmp_path / "r"))
    wait_until((tmp_path / "r" / "cells.json").exists, "the other sweep does not begin")
    with pytest.raises(OutputError, match=f"another sweep \\(process {child}\\) is running"):
        run(wanted, tmp_path / "r")
    os.kill(child, signal.SIGKILL)
    assert ended(child) == -signal.SIGKILL
    with claimed(tmp_path / "r"):
        assert (tmp_path / "r" / ".lock").read_text() == f"{os.getpid()}\n"


def test_a_folder_that_is_not_a_sweeps_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(OutputError, match="not empty and not that of a sweep"):
        run(sweep(""), tmp_path)
    assert os.listdir(tmp_path) == ["thesis.tex"]


def test_a_folder_of_another_sweep_is_refused_and_one_of_an_older_state_is_not(tmp_path: Path) -> None:
    def named(name: str, seeds: str) -> Sweep:
        return parse_sweep((BASE + f"[axes]\nseed = {seeds}").encode(), default_name=name)

    def plan() -> bytes:
        return (tmp_path / "cells.json").read_bytes() + (tmp_path / "sweep.toml").read_bytes()

    run(named("one", "[0]"), tmp_path)
    before = plan()
    with pytest.raises(OutputError, match="is the folder of another sweep, one: none of its cells is one of other"):
        run(named("other", "[1]"), tmp_path)
    assert plan() == before
    for sweep_of_it in (named("other", "[0, 1]"), named("other", "[2]")):
        run(sweep_of_it, tmp_path, only=[])
        assert plan() != before


def test_the_name_of_a_sweep_is_known_from_its_file_if_the_plan_does_not_say_it(tmp_path: Path) -> None:
    wanted = parse_sweep(b"name = 'one'\n" + BASE.encode())
    run(wanted, tmp_path, only=[])
    entries = json.loads((tmp_path / "cells.json").read_text())
    (tmp_path / "cells.json").write_text(
        json.dumps([{key: entry[key] for key in ("key", "config", "axes")} for entry in entries])
    )
    with pytest.raises(OutputError, match="another sweep, one"):
        run(sweep("seed = 7"), tmp_path)
    run(parse_sweep(b"name = 'one'\n" + BASE.replace("clients = 6", "clients = 7").encode()), tmp_path, only=[])


def test_a_copied_folder_without_its_hidden_file_is_a_sweeps_all_the_same(tmp_path: Path) -> None:
    wanted = sweep("")
    run(wanted, tmp_path, only=[])
    (tmp_path / ".lock").unlink()
    run(wanted, tmp_path, only=[])
    (tmp_path / ".lock").unlink()
    (tmp_path / "cells.json").write_text('{"somebody": "else\'s"}')
    with pytest.raises(OutputError, match="not that of a sweep"):
        run(wanted, tmp_path, only=[])


class Sitter(Monitor):
    """Writes down what is missing when a sweep begins, what it starts, and what ends."""

    def __init__(self, trial: SweepTrial, path: Path, journal: Path) -> None:
        self.trial, self.path, self.journal = trial, path, journal

    def write(self, line: Any) -> None:
        with open(self.journal, "a") as file:
            file.write(json.dumps(line) + "\n")

    def begin(self, progress: Any) -> None:
        self.write(self.trial.missing(self.path))

    def started(self, job: Any) -> None:
        self.write(["started", job.cell.key, job.round])

    def ended(self, known: Any, outcome: str, seconds: float) -> None:
        self.write([outcome, known.cell.key, known.rounds])


class SweepTrial(Trial):
    """A sweep, without and with interruptions."""

    whom = ("itself", "first", "all")

    def __init__(self, wanted: Sweep, whole: Path) -> None:
        self.wanted = wanted
        run(wanted, whole)
        self.expected = {cell.key: outcome(folder_of(whole, cell.key)) for cell in wanted.cells}
        self.finished: dict[Path, tuple[int, int, bytes]] = {}

    def work(self, path: Path, journal: Path) -> None:
        progress = run(self.wanted, path, monitor=Sitter(self, path, journal))
        assert progress.count("done") == len(self.wanted.cells)

    def missing(self, path: Path) -> dict[str, int]:
        """Return the cells that are not finished, with the number of rounds recorded of each."""
        folders = {cell.key: folder_of(path, cell.key) for cell in self.wanted.cells}
        return {key: recorded(folder) for key, folder in folders.items() if not (folder / "summary.json").exists()}

    def rounds(self, path: Path) -> tuple[int, bool]:
        return sum(recorded(folder_of(path, cell.key)) for cell in self.wanted.cells), bool(self.missing(path))

    def check(self, path: Path, journal: Path, sitting: Sitting) -> None:
        self.look(path)
        lines = journal.read_text().splitlines() if journal.exists() else []
        if not lines:
            return
        missing, *events = map(json.loads, lines)
        assert {key for _, key, _ in events} <= missing.keys(), "a finished cell was started"
        starts = [(key, after) for event, key, after in events if event == "started"]
        times = Counter(key for key, _ in starts)
        # If the process of a cell was killed, and the sweep was not, that cell is started once more.
        assert times.total() - len(times) <= (sitting.killed and sitting.complete), "a cell was started twice"
        assert times.keys() == missing.keys() or not sitting.complete, "a cell was left out"
        for key, after in starts:
            assert after >= missing[key] - 1, "it did not go on after its last finished round"

    def look(self, path: Path) -> None:
        """Check that nobody touches what is finished."""
        for file, before in self.finished.items():
            assert seen(file) == before, f"{file}: it was finished, and has changed"
        for summary in path.glob("cells/*/summary.json"):
            self.finished |= {file: seen(file) for file in summary.parent.iterdir() if file.is_file()}

    def compare(self, path: Path) -> None:
        again = Journal()
        run(self.wanted, path, monitor=again)  # removes the checkpoints of a cell that was killed after its summary
        assert (again.starts, again.ends) == ([], []), "a finished cell was started"
        self.look(path)
        found = {cell.key: outcome(folder_of(path, cell.key)) for cell in self.wanted.cells}
        assert found == self.expected, "a cell ended as another run"
        assert len(list((path / "cells").iterdir())) == len(self.expected)
        self.finished.clear()


def seen(file: Path) -> tuple[int, int, bytes]:
    found = file.stat()
    return found.st_ino, found.st_mtime_ns, file.read_bytes()


def test_a_sweep_killed_at_random_moments_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    wanted = sweep("attack = 'lie'\nattackers = 2\n[axes]\ndefense = ['mab-rfl', 'centered-clip']\nseed = [0, 1]")
    killed = kill_at_random(SweepTrial(wanted, tmp_path / "sweep"), tmp_path / "killed", 6, "a sweep")
    assert len(killed) == 6
    assert len({sitting.rounds for sitting in killed}) > 1, "all came after the same round"


@pytest.mark.slow
def test_many_kills_of_sweeps_lose_nothing_and_repeat_nothing(tmp_path: Path) -> None:
    wanted = sweep(f"attack = 'lie'\nattackers = 2\n[axes]\nseed = {list(range(4))}\ndefense = ['fedavg', 'krum']")
    killed = kill_at_random(SweepTrial(wanted, tmp_path / "sweep"), tmp_path / "killed", SWEEP_KILLS, "many sweeps")
    assert len(killed) == SWEEP_KILLS
    assert len({sitting.rounds for sitting in killed}) > 12, "all came after the same few rounds"


def test_a_checkpoint_that_a_finished_cell_could_not_remove_is_removed_later(tmp_path: Path) -> None:
    wanted = sweep("")
    run(wanted, tmp_path / "r")
    left = folder_of(tmp_path / "r", wanted.cells[0].key) / "checkpoint"
    save_checkpoint(left, {}, round=2, config_hash=wanted.cells[0].key)
    assert run(wanted, tmp_path / "r").count("done") == 1
    assert not left.exists()


def begun(wanted: Sweep, results: Path, rounds: int, checkpoint_every: int = 1) -> Path:
    """Run some rounds of a sweep's first cell, and return its folder."""
    folder = folder_of(results, wanted.cells[0].key)
    with pytest.raises(KeyboardInterrupt):
        runs.run(wanted.cells[0].config, folder, observers=[InterruptAfter(rounds)], checkpoint_every=checkpoint_every)
    (results / "cells.json").write_text(json.dumps(plan_entries(wanted.cells, wanted.name)))
    (results / ".lock").touch()
    return folder


def test_a_refused_checkpoint_is_told_and_logged_and_the_true_round_with_it(tmp_path: Path) -> None:
    wanted = sweep("")
    folder = begun(wanted, tmp_path / "r", rounds=2)
    (newest,) = (folder / "checkpoint").glob("*2.json")
    newest.write_bytes(newest.read_bytes()[:-20])
    journal = Journal()
    assert run(wanted, tmp_path / "r", monitor=journal).count("done") == 1
    assert journal.rounds == [1]
    (note,) = journal.notes
    assert "round 2" in note
    assert f"note: {note}" in (tmp_path / "r" / "logs" / f"{wanted.cells[0].key[:16]}.txt").read_text().splitlines()


def test_a_cell_is_said_to_go_on_where_its_checkpoint_is_not_where_its_records_end(tmp_path: Path) -> None:
    wanted = parse_sweep(BASE.replace("rounds = 3", "rounds = 6").encode())
    begun(wanted, tmp_path / "r", rounds=5, checkpoint_every=2)
    journal = Journal()
    assert run(wanted, tmp_path / "r", monitor=journal).count("done") == 1
    assert (journal.rounds, journal.notes) == ([4], [])


def test_only_some_cells_are_run_and_the_plan_keeps_all(tmp_path: Path) -> None:
    wanted = sweep("[axes]\nseed = [0, 1]")
    progress = run(wanted, tmp_path / "r", only=wanted.cells[1:])
    assert list(progress.standings) == [wanted.cells[1].key]
    assert [cell.status for cell in load_results(tmp_path / "r").cells] == ["missing", "done"]


def test_a_summary_of_another_run_is_not_taken_for_ones_own(tmp_path: Path) -> None:
    wanted = sweep("[axes]\nseed = [0, 1]")
    run(wanted, tmp_path / "r", only=wanted.cells[:1])
    one, other = (folder_of(tmp_path / "r", cell.key) for cell in wanted.cells)
    one.rename(other)
    assert standing(tmp_path / "r", wanted.cells[1]).status != "done"
    progress = run(wanted, tmp_path / "r", only=wanted.cells[1:])
    assert progress.failed[0].error.endswith("is another one: seed: 0 -> 1")


def test_cores_that_are_left_over_become_workers() -> None:
    assert Sharing(8, 1).workers_for(100) == 1
    assert Sharing(8, 1).workers_for(2) == 4
    assert Sharing(2, 2).workers_for(1) == 4
    config = sweep("").cells[0].config
    assert share_machine([config] * 9, cores=4, memory=2**40) == Sharing(4, 1)
    assert share_machine([config] * 9, cores=4, memory=2**40, workers=2) == Sharing(2, 2)
    assert share_machine([config] * 9, cores=4, memory=2**40, jobs=2) == Sharing(2, 2)
    assert share_machine([config] * 9, cores=4, memory=2**40, jobs=9, workers=3) == Sharing(9, 3)
    assert share_machine([config] * 9, cores=4, memory=1) == Sharing(1, 4)
    on_gpu = config.model_copy(update={"device": "cuda"})
    assert share_machine([on_gpu] * 9, cores=4, memory=2**40).jobs == 1
    assert share_machine([], cores=4, memory=2**40) == Sharing(1, 4)
    for wrong in ({"jobs": 0}, {"workers": -1}, {"jobs": 5000}):
        with pytest.raises(ConfigError, match="must be from 1 to 4096"):
            share_machine([config], **wrong)


def test_estimates_come_from_runs_that_are_alike_or_are_unknown(tmp_path: Path) -> None:
    wanted = sweep("[axes]\ndefense = ['fedavg', 'median']\nseed = [0, 1]")
    pace = Pace()
    fedavg, median = wanted.cells[0].config, wanted.cells[2].config
    assert pace.per_round(fedavg) is None
    pace.learn(fedavg, 3.0, rounds=3)
    pace.learn(fedavg, 6.0)
    assert pace.per_round(fedavg) == 3.0
    assert pace.per_round(median) == 3.0  # the same data and model: better than nothing
    pace.learn(median, 10.0)
    assert (pace.per_round(fedavg), pace.per_round(median)) == (3.0, 10.0)
    guess = estimate([(fedavg, 10), (median, 1)], pace, Sharing(1, 1))
    assert (guess.seconds, guess.unknown) == (40.0, 0)
    assert estimate([(fedavg, 10), (median, 1)], pace, Sharing(2, 1)).seconds == 30.0
    assert estimate([(fedavg, 10)], Pace(), Sharing(1, 1)).unknown == 1


def test_a_busy_hour_does_not_spoil_the_pace() -> None:
    config, pace = sweep("").cells[0].config, Pace()
    for seconds in (6.9, 7.1, 36.6, 7.0, 36.0):
        pace.learn(config, seconds)
    assert pace.per_round(config) == 7.1
    pace.learn(config, 7.3)
    assert pace.per_round(config) == pytest.approx(7.2)
    pace.learn(config, 5.0, rounds=7)  # a run's rounds count as many times as there are
    assert pace.per_round(config) == 5.0
    pace.learn(config, 1.0, rounds=0)
    assert pace.per_round(config) == 5.0


@pytest.mark.parametrize(
    "other",
    [
        "clients = 7",
        "partition.sizes = [8, 17]",
        "training.epochs = 2",
        "training.batch_size = 4",
        "training.optimizer = 'sgd'",
        "selector = 'uniform'\nselector_options.num_selected = 3",
    ],
)
def test_runs_whose_rounds_cost_something_else_are_judged_by_their_own(other: str) -> None:
    base = "base.dataset = 'digits'\nbase.defense = 'fedavg'\n"
    (usual,), (unusual,) = (
        parse_sweep((base + more).encode()).cells
        for more in ("", "".join(f"base.{line}\n" for line in other.splitlines()))
    )
    pace = Pace()
    pace.learn(usual.config, 1.0, rounds=9)
    assert pace.per_round(unusual.config) == 1.0
    pace.learn(unusual.config, 5.0)
    assert (pace.per_round(usual.config), pace.per_round(unusual.config)) == (1.0, 5.0)


@pytest.mark.parametrize("other", ["seed = 3", "training.learning_rate = 0.5", "attack = 'lie'"])
def test_runs_whose_rounds_cost_the_same_are_judged_together(other: str) -> None:
    (usual,), (same,) = (
        parse_sweep(f"base.dataset = 'digits'\n{more}".encode()).cells for more in ("", f"base.{other}")
    )
    pace = Pace()
    pace.learn(usual.config, 1.0, rounds=9)
    pace.learn(same.config, 5.0)
    assert pace.per_round(same.config) == 1.0


@pytest.mark.parametrize(
    ("rounds", "sharing", "seconds"),
    [
        ([10], Sharing(1, 1), 100),
        ([10], Sharing(1, 2), 50),
        ([10], Sharing(2, 1), 50),  # what another cell would have had is its own
        ([10, 10], Sharing(2, 1), 100),
        ([10, 10], Sharing(1, 2), 100),
        ([10, 10], Sharing(2, 2), 50),
        ([10, 10, 10], Sharing(2, 1), 200),
        ([1, 1, 10], Sharing(2, 1), 110),
        ([10, 1, 1, 1], Sharing(2, 1), 100),
        ([], Sharing(2, 1), 0),
    ],
)
def test_an_estimate_plays_the_sweep_through(rounds: list[int], sharing: Sharing, seconds: float) -> None:
    config, pace = sweep("").cells[0].config, Pace()
    pace.learn(config, 10.0)
    guess = estimate([(config, number) for number in rounds], pace, sharing)
    assert (guess.seconds, guess.unknown) == (seconds, 0)


def test_what_runs_counts_with_the_processes_it_has() -> None:
    wanted = sweep("[axes]\nseed = [0, 1, 2]\nrounds = [10]")
    pace, (first, second, third) = Pace(), wanted.cells
    pace.learn(first.config, 10.0)
    running = {
        cell.key: RunningCell(cell, workers, round=done) for cell, workers, done in ((first, 4, 2), (second, 1, 9))
    }
    standings = {cell.key: Standing(cell, "missing") for cell in wanted.cells}
    progress = SweepProgress(standings, running=running, sharing=Sharing(2, 1), pace=pace)
    assert progress.remaining().seconds == 80 / 4
    progress.waiting.append(third)
    # The second one ends after 10 seconds; the third one takes its place, on one core beside the first one.
    assert progress.remaining().seconds == 10 + 100


def test_nothing_known_of_a_cell_keeps_no_other_from_being_estimated() -> None:
    known, other = sweep("[axes]\ndataset = ['digits', 'mnist']").cells
    pace = Pace()
    pace.learn(known.config, 10.0)
    guess = estimate([(other.config, 5), (known.config, 10)], pace, Sharing(2, 1), [(other.config, 3, 1)])
    assert (guess.seconds, guess.unknown) == (100.0, 2)


@pytest.mark.usefixtures("own")
def test_what_the_time_budget_has_stopped_is_part_of_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    progress = run_out_of_time(misfortunes("slow", rounds=10_000), tmp_path / "r", monkeypatch)
    guess = progress.remaining()
    assert progress.out_of_time
    assert guess.unknown == 0
    assert guess.seconds > 200


def test_a_standing_measures_rounds_of_finished_and_of_unfinished_runs(tmp_path: Path) -> None:
    wanted = sweep("[axes]\nseed = [0, 1, 2]")
    run(wanted, tmp_path / "r", only=wanted.cells[:1])
    done, _, missing = (standing(tmp_path / "r", cell) for cell in wanted.cells)
    assert (done.status, done.rounds, done.rounds_left) == ("done", 3, 0)
    assert (missing.status, missing.rounds, missing.core_seconds, missing.rounds_left) == ("missing", 0, None, 3)
    assert done.core_seconds is not None
    assert done.core_seconds > 0

    folder = folder_of(tmp_path / "r", wanted.cells[1].key)
    with pytest.raises(KeyboardInterrupt):
        runs.run(wanted.cells[1].config, folder, observers=[InterruptAfter()])
    begun = standing(tmp_path / "r", wanted.cells[1])
    assert (begun.status, begun.rounds, begun.rounds_left) == ("running", 1, 2)
    assert begun.core_seconds is not None
    rounds = folder_of(tmp_path / "r", wanted.cells[1].key) / "rounds.jsonl"
    (record,) = read_rounds(rounds).records
    slow, slowest = (replace(record, seconds={"training": seconds}) for seconds in (100.0, 800.0))
    quick = replace(record, seconds={"training": 1.0, "server": 2.0})
    rounds.write_text("".join(f"{each.to_json()}\n" for each in (quick, slowest, quick, slow, quick)))
    workers = load_config(rounds.with_name("config.toml")).workers
    assert workers is not None
    assert standing(tmp_path / "r", wanted.cells[1]).core_seconds == 3.0 * workers


def test_the_process_ids_of_dead_sweeps_do_not_matter(tmp_path: Path) -> None:
    child = forked(lambda: None)
    ended(child)
    (tmp_path / ".lock").write_text(f"{child}\n")
    with claimed(tmp_path):
        assert (tmp_path / ".lock").read_text() == f"{os.getpid()}\n"


def test_a_cell_ends_with_its_sweep(tmp_path: Path) -> None:
    long = parse_sweep(BASE.replace("rounds = 3", "rounds = 1_000_000").encode())
    folder = folder_of(tmp_path / "r", long.cells[0].key)
    child = forked(lambda: run(long, tmp_path / "r"))
    wait_until(lambda: recorded(folder), "no round is recorded")
    os.kill(child, signal.SIGKILL)
    assert ended(child) == -signal.SIGKILL
    # The lock of a run is free when its process has ended.
    RunFolder.resume(folder, patience=HANGS).close()
    assert 0 < recorded(folder) < 1_000_000
