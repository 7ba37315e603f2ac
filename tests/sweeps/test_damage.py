"""Files of a sweep that somebody has damaged: what cannot be read counts as not done, and is run again."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from killing import InterruptAfter, outcome
from mabrfl import runs
from mabrfl.cli.main import main
from mabrfl.errors import OutputError
from mabrfl.sweeps.plan import folder_of, plan_entries, standing
from mabrfl.sweeps.scheduler import run_sweep
from mabrfl.sweeps.sweep_file import Sweep, parse_sweep
from mabrfl.sweeps.sweep_progress import Monitor, SweepProgress

pytestmark = pytest.mark.usefixtures("ready_to_fork")


TEXT = """
name = "tiny"
[base]
dataset = "digits"
clients = 6
rounds = 3
training.epochs = 1
partition.sizes = [8, 16]
"""


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Call ``mabrfl sweep``, with processes that are forked from this one."""
    (tmp_path / "tiny.toml").write_text(TEXT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr("mabrfl.cli.sweep.run_sweep", partial(run_sweep, start_method="fork"))
    return lambda *more: main(["sweep", "tiny.toml", "--jobs", "1", "--workers", "1", "--out", "r", *more])


@pytest.fixture
def wanted() -> Sweep:
    return parse_sweep(TEXT.encode())


def run(wanted: Sweep, results: Path, **settings: Any) -> SweepProgress:
    return run_sweep(wanted, results, **{"start_method": "fork", "jobs": 1, "workers": 1, **settings})


class Journal(Monitor):
    """Writes down what there is to note."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def noted(self, job: Any, note: str) -> None:
        self.notes.append(note)


@pytest.fixture(scope="module")
def sweeps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run the sweep twice: ``whole``, and ``begun``, which has two rounds of its only cell."""
    wanted, place = parse_sweep(TEXT.encode()), tmp_path_factory.mktemp("sweeps")
    run(wanted, place / "whole")
    folder = folder_of(place / "begun", wanted.cells[0].key)
    with pytest.raises(KeyboardInterrupt):
        runs.run(wanted.cells[0].config, folder, observers=[InterruptAfter(2)])
    (place / "begun" / "cells.json").write_text(json.dumps(plan_entries(wanted.cells, wanted.name)))
    (place / "begun" / ".lock").touch()
    return place


@pytest.fixture
def folder(sweeps: Path, wanted: Sweep, tmp_path: Path) -> Path:
    """The folder of the cell in a copy of the sweep that was begun."""
    shutil.copytree(sweeps / "begun", tmp_path / "r")
    return folder_of(tmp_path / "r", wanted.cells[0].key)


@pytest.fixture
def whole(sweeps: Path, wanted: Sweep) -> dict[str, Any]:
    return outcome(folder_of(sweeps / "whole", wanted.cells[0].key))


@pytest.mark.parametrize(
    ("seconds", "line"),
    [(None, 0), (3, 1), ("long", 0), ({"training": "long"}, 1), ({"training": None}, 0), ([1.0], 1)],
)
def test_seconds_of_an_unfinished_cell_that_are_none_keep_neither_plan_nor_sweep_from_going_on(  # noqa: PLR0917
    wanted: Sweep,
    tmp_path: Path,
    folder: Path,
    whole: dict[str, Any],
    call: Callable[..., int],
    seconds: Any,
    line: int,
) -> None:
    lines = (folder / "rounds.jsonl").read_text().splitlines()
    lines[line] = json.dumps({**json.loads(lines[line]), "seconds": seconds})
    (folder / "rounds.jsonl").write_text("\n".join(lines) + "\n")
    assert standing(tmp_path / "r", wanted.cells[0]).status == "running"
    assert (call("--plan"), call()) == (0, 0)
    assert outcome(folder) == whole


@pytest.mark.parametrize("name", ["rounds", "seconds", "final_accuracy"])
def test_a_summary_without_numbers_is_none_and_its_cell_is_run_again(
    wanted: Sweep, tmp_path: Path, folder: Path, call: Callable[..., int], name: str
) -> None:
    summary = {"interrupted": False, "config_hash": wanted.cells[0].key, "rounds": 3, "seconds": 1.0}
    for value in ("many", [3], {}, True, 10**400):
        (folder / "summary.json").write_text(json.dumps({**summary, name: value}))
        assert standing(tmp_path / "r", wanted.cells[0]).status == "running"
        assert call("--plan") == 0
    assert (call(), call("--plan")) == (0, 0)
    assert json.loads((folder / "summary.json").read_text())["rounds"] == 3


def test_a_finished_cell_that_is_damaged_runs_again_on_request_alone(
    sweeps: Path, wanted: Sweep, tmp_path: Path, whole: dict[str, Any]
) -> None:
    shutil.copytree(sweeps / "whole", tmp_path / "r")
    folder = folder_of(tmp_path / "r", wanted.cells[0].key)
    rounds = (folder / "rounds.jsonl").read_bytes()
    (folder / "rounds.jsonl").write_bytes(rounds[:500])
    (failed,) = run(wanted, tmp_path / "r").failed
    assert "rounds.jsonl is cut off" in failed.error
    assert (folder / "rounds.jsonl").read_bytes() == rounds[:500]
    progress = run(wanted, tmp_path / "r", rerun=["failed"])
    assert (progress.count("done"), progress.failed) == (1, [])
    assert outcome(folder) == whole


@pytest.mark.parametrize("kept", [0, 40])
def test_a_cell_with_half_a_manifest_is_known_by_its_configuration_and_starts_again(
    wanted: Sweep, tmp_path: Path, folder: Path, whole: dict[str, Any], kept: int
) -> None:
    (folder / "manifest.json").write_bytes((folder / "manifest.json").read_bytes()[:kept])
    journal = Journal()
    progress = run(wanted, tmp_path / "r", monitor=journal)
    assert (progress.count("done"), progress.failed) == (1, [])
    assert "checkpoint of round 2 refused: manifest.json is damaged" in journal.notes[0]
    assert journal.notes[-1] == "no usable checkpoint: starting again with round 1"
    assert outcome(folder) == whole


def test_a_cell_that_nothing_tells_whose_it_is_says_how_to_run_it_anew(
    wanted: Sweep, tmp_path: Path, folder: Path
) -> None:
    (folder / "manifest.json").write_text('{"seed": 0, ')
    (folder / "config.toml").write_text("rounds = ")
    (failed,) = run(wanted, tmp_path / "r").failed
    assert failed.error.endswith("move its folder away to run it anew")
    folder.rename(tmp_path / "away")
    assert run(wanted, tmp_path / "r").count("done") == 1


@pytest.mark.parametrize("text", ['[{"key": "ab', "{}", '["key"]', '[{"key": 1}]', '[{"key": "a", "axes": 3}]'])
def test_half_a_plan_of_last_time_is_told_and_keeps_neither_plan_nor_sweep_from_going_on(
    tmp_path: Path, sweeps: Path, call: Callable[..., int], capsys: pytest.CaptureFixture[str], text: str
) -> None:
    shutil.copytree(sweeps / "whole", tmp_path / "r")
    whole = (tmp_path / "r" / "cells.json").read_text()
    (tmp_path / "r" / "cells.json").write_text(text)
    capsys.readouterr()
    for more, end in ((("--plan",), "1 cells: 1 done\n"), ((), "1 of 1 cells are done; results in r\n")):
        assert call(*more) == 0
        out = capsys.readouterr().out
        assert out.startswith("note: 'r/cells.json' is not ")
        assert "what has changed since last time is unknown, and the sweep writes a new one\n" in out
        assert out.endswith(end)
    assert (tmp_path / "r" / "cells.json").read_text() == whole
    assert call("--plan") == 0
    assert "note" not in capsys.readouterr().out


def test_a_folder_with_half_a_plan_is_that_of_the_sweep_whose_file_it_has(wanted: Sweep, tmp_path: Path) -> None:
    run(wanted, tmp_path, only=[])
    (tmp_path / "cells.json").write_text("[")
    other = parse_sweep(TEXT.replace("tiny", "other").encode())
    with pytest.raises(OutputError, match="is the folder of another sweep, tiny"):
        run(other, tmp_path, only=[])
