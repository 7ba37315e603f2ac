"""``mabrfl sweep``: what it shows, and how it ends."""

from __future__ import annotations

import importlib
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import mabrfl as package
from killing import SEED, InterruptAfter, outcome, recorded
from mabrfl import runs
from mabrfl.cli.once import duration
from mabrfl.recording import read_rounds, read_summary
from mabrfl.sweeps.cell_process import record_failure
from mabrfl.sweeps.plan import folder_of
from mabrfl.sweeps.scheduler import run_sweep
from mabrfl.sweeps.sweep_file import load_sweep, parse_sweep
from waiting import HANGS, wait_until

pytestmark = pytest.mark.usefixtures("ready_to_fork")

TEXT = """
name = "tiny"
[base]
dataset = "digits"
clients = 6
rounds = 2
training.epochs = 1
partition.sizes = [8, 16]
[axes]
defense = ["fedavg", "median"]
seed = [0, 1]
"""


@pytest.fixture
def call(mabrfl: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Any]:
    """Call ``mabrfl sweep``, with processes that are forked from this one."""
    (tmp_path / "tiny.toml").write_text(TEXT)
    monkeypatch.setattr("mabrfl.cli.sweep.run_sweep", partial(run_sweep, start_method="fork"))
    return partial(mabrfl, "sweep", "tiny.toml", "--jobs", "2", "--workers", "1")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--launcher", "rya"], "--launcher: unknown 'rya'; did you mean 'ray'?"),
        (["--address", "head:6379"], "--address is for --launcher ray"),
        (["--cpus", "2", "--launcher", "local"], "--cpus is for --launcher ray"),
        (["--launcher", "ray", "--address", "ray://head:10001"], "is for Ray's client"),
        (["--launcher", "ray", "--cpus", "0", "--plan"], "CPUs must be above 0, and at most 4096; got 0"),
    ],
)
def test_a_cluster_that_makes_no_sense_is_refused(call: Callable[..., Any], options: list[str], said: str) -> None:
    ended = call(*options)
    assert ended.code in (2, 3)
    assert said in " ".join(ended.err.replace("│", " ").split())
    assert not Path("runs").exists()


@pytest.fixture(scope="module")
def finished_half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of the sweep with its cells of seed 0 done."""
    results = tmp_path_factory.mktemp("half") / "tiny"
    sweep = parse_sweep(TEXT.encode())
    half = [cell for cell in sweep.cells if cell.config.seed == 0]
    run_sweep(sweep, results, only=half, start_method="fork", jobs=2, workers=1)
    return results


@pytest.fixture
def half(finished_half: Path, tmp_path: Path) -> Path:
    """A copy of these results, where the sweep looks for them."""
    return Path(shutil.copytree(finished_half, tmp_path / "runs" / "tiny"))


def test_a_sweep_says_what_it_does_line_by_line(call: Callable[..., Any], tmp_path: Path) -> None:
    done = call()
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == "tiny: 4 cells, 0 done, 4 to run; 2 at once with 1 process(es) each"
    assert lines[1] == "[0/4] started: defense=fedavg, seed=0"
    assert sum("done: defense=" in line and "ETA" in line for line in lines) >= 3
    assert lines[-1] == "4 of 4 cells are done; results in runs/tiny"
    again = call()
    assert again.out.splitlines() == [
        "tiny: 4 cells, 4 done, 0 to run",
        "4 of 4 cells are done; results in runs/tiny",
    ]


def test_the_plan_says_what_runs_and_touches_nothing(call: Callable[..., Any], tmp_path: Path) -> None:
    before = call("--plan")
    assert before.code == 0
    assert "4 cells: 4 to do; time unknown" in before.out
    assert not (tmp_path / "runs").exists()


@pytest.mark.usefixtures("half")
def test_the_plan_of_a_sweep_that_was_begun_judges_by_its_rounds_and_says_what_has_changed(
    call: Callable[..., Any], tmp_path: Path
) -> None:
    half = call("--plan").out
    assert "4 cells: 2 done, 2 to do; about" in half
    assert "judged by measured rounds" in half
    (tmp_path / "tiny.toml").write_text(TEXT.replace("epochs = 1", "epochs = 2").replace("[0, 1]", "[0, 1, 2]"))
    changed = call("--plan").out
    assert "changed since last time, so 4 run again: training.epochs: 1 -> 2" in changed
    assert "4 cells of last time are no longer in the file" in changed
    assert "6 cells: 6 to do" in changed
    (tmp_path / "tiny.toml").write_text(TEXT)
    assert "changed" not in call("--plan").out


@pytest.mark.usefixtures("half")
def test_the_plan_heeds_the_options_of_the_run(
    call: Callable[..., Any], mabrfl: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("mabrfl.sweeps.sharing.available_cores", lambda: 6)
    for options, processes in (
        (("--jobs", "1"), 6),
        (("--jobs", "1", "--workers", "2"), 2),
        (("--jobs", "4"), 4),
        (("--workers", "3"), 6),
        (("--workers", "5"), 5),
        ((), 6),
    ):
        assert f"on {processes} processes" in mabrfl("sweep", "tiny.toml", "--plan", *options).out, options
    assert "time budget stops it" in call("--plan", "--time-budget", "0.001s").out
    assert "time budget" not in call("--plan", "--time-budget", "9h").out
    record_failure(folder_of(tmp_path / "runs" / "tiny", load_sweep("tiny.toml").cells[1].key), "Error", "no luck")
    assert "2 done, 1 failed, 1 to do; about" in call("--plan").out
    one = call("--plan", "--only", "defense=fedavg").out
    assert one.splitlines()[-1] == "2 cells: 1 done, 1 failed"
    again = call("--plan", "--rerun", "failed", "--only", "defense=fedavg").out
    assert "2 cells: 1 done, 1 failed; 1 that failed run again; about" in again


@pytest.mark.usefixtures("half")
def test_what_is_done_is_not_said_to_have_changed(call: Callable[..., Any], tmp_path: Path) -> None:
    other = TEXT.replace("epochs = 1", "epochs = 2")
    (tmp_path / "tiny.toml").write_text(other)
    assert call("--only", "seed=1", "--only", "defense=median").code == 0
    (tmp_path / "tiny.toml").write_text(TEXT)
    assert "so 2 run again: training.epochs: 2 -> 1" in call("--plan").out
    assert "changed" not in call("--plan", "--only", "seed=0").out


def test_only_takes_several_values_and_keys(call: Callable[..., Any], tmp_path: Path) -> None:
    out = call("--plan", "--only", "defense=median", "--only", "seed=0", "--only", "seed=1").out
    assert "2 cells: 2 to do" in out
    assert "fedavg" not in out


def test_failed_cells_are_listed_and_are_an_error_of_their_own(call: Callable[..., Any], tmp_path: Path) -> None:
    rule = "def broken(cohort):\n    raise RuntimeError('no [bold]luck[/bold]')\n"
    (tmp_path / "mine.py").write_text(rule)
    (tmp_path / "tiny.toml").write_text(TEXT.replace('"median"', '"mine:broken"'))
    done = call()
    assert done.code == 9
    assert done.out.count("failed: defense=mine:broken, seed=") == 2
    assert done.out.count("RuntimeError: no [bold]luck[/bold]") == 4
    assert done.err == "error: 2 of 4 cells failed; --rerun failed runs them again\n"
    again = call()
    assert again.code == 9
    assert "2 done, 0 to run, 2 failed earlier" in again.out
    assert "your defense" in call("--plan").out
    (tmp_path / "mine.py").write_text(
        "from mabrfl.aggregation import FedAvg\ndef broken(cohort):\n    return FedAvg()(cohort)\n"
    )
    del sys.modules["mine"]
    importlib.invalidate_caches()
    assert call("--rerun", "failed").code == 0


def test_a_refused_checkpoint_is_a_note_with_the_name_of_the_cell(call: Callable[..., Any], tmp_path: Path) -> None:
    cell = load_sweep(tmp_path / "tiny.toml").cells[0]
    folder = folder_of(tmp_path / "runs" / "tiny", cell.key)
    with pytest.raises(KeyboardInterrupt):
        runs.run(cell.config, folder, observers=[InterruptAfter()])
    (tmp_path / "runs" / "tiny" / ".lock").touch()
    (folder / "checkpoint" / "round-0000001.json").write_text("{}")
    lines = call("--only", "seed=0", "--only", "defense=fedavg").out.splitlines()
    assert lines[1] == "[0/1] started: defense=fedavg, seed=0"
    assert lines[2].startswith("note: defense=fedavg, seed=0: checkpoint of round 1 refused: round-0000001.json: ")
    assert lines[3] == "note: defense=fedavg, seed=0: no usable checkpoint: starting again with round 1"


def test_time_runs_out_without_an_error(call: Callable[..., Any]) -> None:
    done = call("--time-budget", "0.000001s")
    assert (done.code, done.err) == (0, "")
    assert "time is up: 4 cells are left; go on with: mabrfl sweep tiny.toml --jobs 2 --workers 1\n" in done.out
    assert "0 of 4 cells are done" in done.out


def test_the_command_to_go_on_with_runs_what_this_one_would_have(
    mabrfl: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls: list[dict[str, Any]] = []

    def interrupted(sweep: object, results: Path, **settings: Any) -> None:
        calls.append({**settings, "results": results, "monitor": None, "arguments": None})
        raise KeyboardInterrupt

    monkeypatch.setattr("mabrfl.cli.sweep.run_sweep", interrupted)
    (tmp_path / "my sweep.toml").write_text(TEXT)
    where = ["--out", "it's here", "--from", "a.json.gz", "--from", "b c"]
    what = ["--only", "defense=fedavg", "--only", "seed=0", "--only", "seed=1"]
    how = ["--jobs", "3", "--workers", "2", "--checkpoint-every", "0"]
    for options in (
        [],
        what,
        [*where, *what, *how],
        [*how, "--time-budget", "1h", "--rerun", "failed", "--rerun", "stale"],
    ):
        done = mabrfl("sweep", "my sweep.toml", *options)
        assert done.code == 130
        said, _, command = done.err.rstrip("\n").partition("go on with: ")
        assert said == "interrupted; "
        program, *arguments = shlex.split(command)
        assert program == "mabrfl"
        assert mabrfl(*arguments).code == 130
        first, again = calls[-2:]
        assert again == {**first, "time_budget": None, "rerun": [which for which in first["rerun"] if which == "stale"]}
    assert "'my sweep.toml'" in command


def test_a_killed_cell_has_not_failed_and_the_end_says_so(call: Callable[..., Any], tmp_path: Path) -> None:
    rule = """
import os, signal
from mabrfl.aggregation import FedAvg
def killed(cohort):
    if cohort.round == 2 and not os.path.exists("mended"):
        os.kill(os.getpid(), signal.SIGKILL)
    return FedAvg()(cohort)
def broken(cohort):
    raise RuntimeError("no luck")
"""
    (tmp_path / "mine.py").write_text(rule)
    sys.modules.pop("mine", None)
    importlib.invalidate_caches()
    (tmp_path / "tiny.toml").write_text(
        TEXT.replace('"median"', '"mine:killed", "mine:broken"').replace("[0, 1]", "[0]")
    )
    done = call("--only", "defense=fedavg", "--only", "defense=mine:killed")
    assert done.code == 9
    assert done.err == "error: 1 of 2 cells were killed; the next sweep goes on where they stopped\n"
    assert done.out.splitlines()[-1].startswith("killed: defense=mine:killed, seed=0: its process was killed twice")
    both = call()
    assert both.code == 9
    assert both.err.startswith("error: 1 of 3 cells failed; --rerun failed runs them again; 1 of 3 cells were killed; ")
    (tmp_path / "mended").touch()
    again = call("--only", "defense=mine:killed")
    assert (again.code, again.err) == (0, "")
    assert "started after round 1: defense=mine:killed, seed=0" in again.out


def test_a_terminal_gets_a_table_in_place(call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("TTY_INTERACTIVE", "1"), ("FORCE_COLOR", "1"), ("LINES", "30")):
        monkeypatch.setenv(name, value)
    out = call().out
    for word in ("running", "round", "accuracy", "of 4 cells", "ETA", "done"):
        assert word in out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["no.toml"], 3, "error: sweep file 'no.toml' does not exist"),
        (["used"], 3, "error: sweep file 'used' is a folder\n"),
        (["bad.toml"], 3, "sweep file 'bad.toml': axes.sed: there is no such setting; did you mean 'seed'?"),
        (["tiny.toml", "--only", "seed"], 2, "--only takes KEY=VALUE"),
        (["tiny.toml", "--only", "sed=1"], 3, "neither an axis nor a setting 'sed'; did you mean 'seed'?"),
        (["tiny.toml", "--only", "seed=7"], 3, "no cell of the sweep has seed=7"),
        (
            ["tiny.toml", "--only", "defense=fedavg", "--only", "defense=medain"],
            3,
            "no cell of the sweep has defense=medain; did you mean 'median'?",
        ),
        (["tiny.toml", "--time-budget", "soon"], 2, "'soon' is not a time such as 90m, 1h30m or 45s"),
        (["tiny.toml", "--time-budget", "0m"], 2, "is not a time"),
        (["tiny.toml", "--jobs", "0"], 3, "jobs must be from 1 to 4096; got 0"),
        (["tiny.toml", "--out", "used"], 6, "not empty and not that of a sweep"),
        (["tiny.toml", "--out", "used/file"], 6, "used/file"),
        (["tiny.toml", "--out", "used/file/below"], 6, "used/file' is a file"),
        (["tiny.toml", "--plan", "--jobs", "0"], 3, "jobs must be from 1 to 4096; got 0"),
        (["tiny.toml", "--plan", "--out", "used"], 6, "not empty and not that of a sweep"),
        (["tiny.toml", "--plan", "--out", "used/file"], 6, "used/file"),
        (["tiny.toml", "--plan", "--out", "used/file/below"], 6, "used/file' is a file"),
        (["tiny.toml", "--checkpoint-every", "-3"], 2, "--checkpoint-every takes a number of rounds"),
    ],
)
def test_a_mistake_is_one_line_and_runs_nothing(
    mabrfl: Callable[..., Any], tmp_path: Path, arguments: list[str], code: int, message: str
) -> None:
    (tmp_path / "tiny.toml").write_text(TEXT)
    (tmp_path / "bad.toml").write_text("axes.sed = [1]")
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").touch()
    done = mabrfl("sweep", *arguments)
    assert (done.code, done.out) == (code, "")
    assert message in done.err
    assert done.err.count("\n") == 1
    assert sorted(os.listdir(tmp_path)) == ["bad.toml", "tiny.toml", "used"]


def test_times_are_read_as_people_write_them() -> None:
    assert [duration(text) for text in ("90m", "1h30m", "1.5h", "45s", "1h1m1s")] == [5400, 5400, 5400, 45, 3661]
    for text in ("", "90", "m", "-3m", "1m1h", "1..5h", "inf"):
        with pytest.raises(Exception, match="is not a time"):
            duration(text)


ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(package.__file__).resolve().parents[1]), "COLUMNS": "200"}


def started(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "mabrfl", "sweep", "tiny.toml", *arguments],
        cwd=folder,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


GATED = """
import pathlib, time
from mabrfl.aggregation import FedAvg
def gated(cohort):
    while cohort.round > 2 and not pathlib.Path("open").exists():
        time.sleep(0.01)
    return FedAvg()(cohort)
"""


def test_a_real_sweep_stops_at_ctrl_c_and_goes_on(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(GATED)
    (tmp_path / "tiny.toml").write_text(TEXT.replace("rounds = 2", "rounds = 4").replace("median", "mine:gated"))
    checkpoints = (tmp_path / "runs" / "tiny" / "cells").glob
    with started(tmp_path, "--only", "defense=mine:gated") as process:
        # A round is recorded a moment before its checkpoint is there.
        wait_until(lambda: any(checkpoints("*/checkpoint/round-*2.json")), "no second round is done")
        # As a terminal does it: everybody in the foreground gets the signal.
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=HANGS)
    assert process.returncode == 130
    assert err == "interrupted; go on with: mabrfl sweep tiny.toml --only defense=mine:gated\n", err
    assert "Traceback" not in out
    wait_until(lambda: not alive(process.pid), "a process of the sweep is still there")
    begun = {path: read_rounds(path.parent).records for path in (tmp_path / "runs").rglob("rounds.jsonl")}
    assert not list((tmp_path / "runs").rglob("failed.json"))
    (tmp_path / "open").touch()
    with started(tmp_path, "--only", "defense=mine:gated") as process:
        out, err = process.communicate(timeout=HANGS)
    assert (process.returncode, err) == (0, "")
    assert "started after round 2: defense=mine:gated" in out
    for path, records in begun.items():
        whole = max(len(records) - 1, 0)  # the last may have been torn
        assert read_rounds(path.parent).records[:whole] == records[:whole]
        assert read_summary(path.parent)["rounds"] == 4


def wait_for_more_rounds(process: subprocess.Popen[str], folders: list[Path], more: int) -> None:
    """Wait until a sweep has recorded so many rounds more, or has ended."""
    enough = sum(map(recorded, folders)) + more
    while process.poll() is None and sum(map(recorded, folders)) < enough:
        time.sleep(0.01)


@pytest.mark.slow
def test_a_real_sweep_killed_again_and_again_ends_as_one_that_was_not(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(TEXT.replace("rounds = 2", "rounds = 60"))
    keys = [cell.key for cell in load_sweep(tmp_path / "tiny.toml").cells]
    with started(tmp_path, "--out", "whole", "--jobs", "1", "--workers", "2") as process:
        process.communicate(timeout=HANGS)
    assert process.returncode == 0
    expected = [outcome(folder_of(tmp_path / "whole", key)) for key in keys]
    draw, kills = random.Random(SEED), 0
    for number in range(20):
        folders = [folder_of(tmp_path / f"killed-{number}", key) for key in keys]
        complete = False
        while not complete:
            with started(tmp_path, "--out", f"killed-{number}") as process:
                if kills < 8:
                    wait_for_more_rounds(process, folders, draw.randrange(60))
                    end = draw.choice([os.kill, os.killpg])  # cells end with their sweep, or all at once
                    if process.poll() is None:
                        end(process.pid, signal.SIGKILL)
                process.communicate(timeout=HANGS)
            assert process.returncode in (0, -signal.SIGKILL)
            complete = process.returncode == 0
            kills += not complete and not all((folder / "summary.json").exists() for folder in folders)
        assert [outcome(folder) for folder in folders] == expected, f"MABRFL_KILL_SEED={SEED}"
        if kills == 8:
            break
    assert kills == 8


def test_a_sweep_goes_on_from_packed_results_and_the_plan_knows(
    call: Callable[..., Any], mabrfl: Callable[..., Any], half: Path, tmp_path: Path
) -> None:
    half.parent.rename("elsewhere")
    assert mabrfl("pack", "elsewhere/tiny", "tiny.json.gz").code == 0
    plan = call("--plan", "--from", "tiny.json.gz")
    assert "4 cells: 2 done, 2 to do; about" in plan.out
    assert not (tmp_path / "runs").exists()
    done = call("--from", "tiny.json.gz")
    assert done.out.splitlines()[0].startswith("tiny: 4 cells, 2 done, 2 to run, 2 adopted")
    assert done.out.splitlines()[-1] == "4 of 4 cells are done; results in runs/tiny"
    missing = call("--from", "nowhere.json.gz")
    assert (missing.code, missing.err) == (5, "error: there are no results at 'nowhere.json.gz'\n")


@pytest.mark.usefixtures("half")
def test_packing_over_finished_runs_needs_force(call: Callable[..., Any], mabrfl: Callable[..., Any]) -> None:
    assert mabrfl("pack", "runs/tiny", "tiny.json.gz").code == 0
    assert call("--out", "fresh", "--only", "seed=1").code == 0
    refused = mabrfl("pack", "fresh", "tiny.json.gz")
    assert refused.code != 0
    assert "has 2 finished runs that are not finished" in refused.err
    assert mabrfl("pack", "fresh", "tiny.json.gz", "--force").code == 0


def test_the_plan_judges_by_all_rounds_measured_in_the_folder(call: Callable[..., Any], tmp_path: Path) -> None:
    assert call("--only", "seed=0", "--only", "defense=median").code == 0
    (tmp_path / "tiny.toml").write_text(TEXT.replace("rounds = 2", "rounds = 3"))
    changed = call("--plan")
    assert "4 cells: 4 to do; about" in changed.out
    assert "unknown" not in changed.out
    # Something that is no run's folder, or whose run nobody knows any more, is passed over.
    (tmp_path / "runs" / "tiny" / "cells" / "notes.txt").touch()
    (tmp_path / "runs" / "tiny" / "cells" / "empty").mkdir()
    (measured,) = (tmp_path / "runs" / "tiny" / "cells").glob("*/config.toml")
    assert call("--plan").out == changed.out
    measured.write_text("defense = 'nobody knows'\n")
    assert "4 cells: 4 to do; time unknown" in call("--plan").out
