"""A user's rewritten code: finished cells that it has made stale are reported, and run again on request alone."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from killing import InterruptAfter, ended, forked
from mabrfl import runs
from mabrfl.catalog import code_of
from mabrfl.cli.main import main
from mabrfl.recording import read_rounds, read_summary
from mabrfl.reports.page import report
from mabrfl.sweeps.packing import pack
from mabrfl.sweeps.plan import folder_of, standing
from mabrfl.sweeps.results import load_results
from mabrfl.sweeps.scheduler import run_sweep
from mabrfl.sweeps.sweep_file import Sweep, load_sweep
from mabrfl.sweeps.sweep_progress import SweepProgress

pytestmark = pytest.mark.usefixtures("ready_to_fork")

TEXT = """
name = "tiny"
[base]
dataset = "digits"
clients = 6
workers = 1
rounds = 2
training.epochs = 1
partition.sizes = [8, 16]
[axes]
defense = ["fedavg", "stale_rule:Rule", "other_rule:Rule"]
"""
RULE = """
import numpy as np
from mabrfl.updates import Decision
from stale_helper import scale

class Rule:
    def __call__(self, cohort):
        return Decision(weights=scale(np.full(len(cohort), 1 / len(cohort))))
"""
HELPER = "def scale(weights):\n    return weights\n"
HALF = "def scale(weights):\n    return weights / 2\n"
CHANGED = "1 finished cell of 'stale_rule:Rule' was made with other code; mabrfl sweep --rerun stale runs it again"


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Write a module, which is imported anew by processes that are forked from here."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write(name: str, text: str) -> None:
        (tmp_path / f"{name}.py").write_text(text)
        for module in ("stale_rule", "stale_helper", "other_rule"):
            monkeypatch.delitem(sys.modules, module, raising=False)
        importlib.invalidate_caches()

    return write


FILES = {
    "tiny.toml": TEXT,
    "stale_helper.py": HELPER,
    "stale_rule.py": RULE,
    "other_rule.py": RULE.replace("from stale_helper import scale", "scale = np.asarray"),
    "unrelated.py": "x = 1\n",
}
"""A sweep file and rules of a user's own."""


@pytest.fixture
def place(tmp_path: Path, write: Callable[[str, str], None]) -> Path:
    """A folder with these files."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of the sweep, by a process that has imported these rules and ends."""
    place = tmp_path_factory.mktemp("finished")
    for name, text in FILES.items():
        (place / name).write_text(text)

    def work() -> None:
        os.chdir(place)
        sys.path.insert(0, str(place))
        assert run(place).count("done") == 3

    assert ended(forked(work)) == 0
    return place / "runs"


@pytest.fixture
def finished(place: Path, results: Path) -> Path:
    """The folder after the sweep."""
    shutil.copytree(results, place / "runs")
    return place


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[str, str]]:
    """Call the command line, and return what it prints."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr("mabrfl.cli.sweep.run_sweep", partial(run_sweep, start_method="fork"))

    def call(*arguments: str) -> tuple[str, str]:
        capsys.readouterr()
        assert main(arguments) == 0
        captured = capsys.readouterr()
        return captured.out, captured.err

    return call


def sweep(place: Path) -> Sweep:
    return load_sweep(place / "tiny.toml")


def run(place: Path, results: str = "runs/tiny", **settings: Any) -> SweepProgress:
    return run_sweep(sweep(place), place / results, start_method="fork", jobs=1, workers=1, **settings)


def folder(place: Path, number: int, results: str = "runs/tiny") -> Path:
    return folder_of(place / results, sweep(place).cells[number].key)


def files(place: Path, number: int) -> dict[str, tuple[int, bytes]]:
    """Return when each file of a cell was written, and what it holds."""
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in sorted(folder(place, number).iterdir())}


def weights(place: Path, number: int) -> str:
    return str(read_summary(folder(place, number))["weights_sha256"])


def stale(place: Path) -> list[bool]:
    return [standing(place / "runs/tiny", cell).stale for cell in sweep(place).cells]


def test_a_run_records_the_code_that_made_it_and_packing_keeps_it(finished: Path) -> None:
    manifests = [json.loads((folder(finished, number) / "manifest.json").read_text()) for number in range(3)]
    codes = [code_of(cell.plain_config) for cell in sweep(finished).cells]
    assert [list(code) for code in codes] == [[], ["stale_rule:Rule"], ["other_rule:Rule"]]
    assert "code" not in manifests[0]
    assert [manifest["code"] for manifest in manifests[1:]] == codes[1:]
    pack(finished / "runs/tiny", finished / "tiny.json.gz")
    packed = load_results(finished / "tiny.json.gz").cells
    assert [cell.manifest.get("code") for cell in packed] == [None, *codes[1:]]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("stale_rule", "# Averages.\n" + RULE.replace("class Rule:", 'class Rule:\n    """Averages."""\n')),
        ("stale_helper", HELPER + "\n\n# The end.\n"),
        ("unrelated", "x = 2\n"),
    ],
)
def test_a_comment_or_an_unrelated_file_makes_no_cell_stale(
    finished: Path, write: Callable[[str, str], None], call: Callable[..., tuple[str, str]], name: str, text: str
) -> None:
    write(name, text)
    assert stale(finished) == [False, False, False]
    assert "other code" not in call("sweep", "tiny.toml", "--plan")[0]
    assert call("table", "runs/tiny")[1] == ""


@pytest.mark.parametrize(("name", "text"), [("stale_rule", RULE.replace("1 / len", "2 / len")), ("stale_helper", HALF)])
def test_plan_sweep_table_and_report_name_the_cells_that_other_code_made(
    finished: Path, write: Callable[[str, str], None], call: Callable[..., tuple[str, str]], name: str, text: str
) -> None:
    before = [files(finished, number) for number in range(3)]
    write(name, text)
    assert stale(finished) == [False, True, False]
    plan = call("sweep", "tiny.toml", "--plan")[0]
    assert f"note: {CHANGED}\n" in plan
    rows = [line for line in plan.splitlines() if "made with other code of stale_rule:Rule" in line]
    assert ["done" in row for row in rows] == [True]
    assert "3 cells: 3 done\n" in plan
    again = call("sweep", "tiny.toml")[0]
    assert again.splitlines() == [
        "tiny: 3 cells, 3 done, 0 to run",
        "3 of 3 cells are done; results in runs/tiny",
        f"note: {CHANGED}",
    ]
    assert call("table", "runs/tiny", "--format", "csv")[1] == f"note: {CHANGED}\n"
    assert CHANGED.replace("'", "&#39;") in report([load_results("runs/tiny")])
    assert [files(finished, number) for number in range(3)] == before


def test_rerun_stale_runs_these_cells_alone(
    finished: Path, write: Callable[[str, str], None], call: Callable[..., tuple[str, str]]
) -> None:
    kept, old = [files(finished, number) for number in (0, 2)], weights(finished, 1)
    write("stale_helper", HALF)
    plan = call("sweep", "tiny.toml", "--plan", "--rerun", "stale")[0]
    assert "3 cells: 2 done, 1 to do; about" in plan
    lines = call("sweep", "tiny.toml", "--rerun", "stale", "--jobs", "1", "--workers", "1")[0].splitlines()
    assert lines[0] == "tiny: 3 cells, 2 done, 1 to run; 1 at once with 1 process(es) each"
    assert [line for line in lines if "started" in line] == ["[2/3] started: defense=stale_rule:Rule"]
    assert lines[-1] == "3 of 3 cells are done; results in runs/tiny"
    assert [files(finished, number) for number in (0, 2)] == kept
    assert weights(finished, 1) != old
    assert stale(finished) == [False, False, False]
    write("stale_helper", HELPER)
    assert stale(finished) == [False, True, False]
    assert run(finished, rerun=["stale"]).count("done") == 3
    assert weights(finished, 1) == old


def test_stale_cells_keep_their_results_until_they_start(
    finished: Path, write: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    write("other_rule", RULE)
    write("stale_helper", HALF)
    assert stale(finished) == [False, True, True]
    before = files(finished, 2)

    def killed(launcher: object, assignment: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def work() -> None:
        monkeypatch.setattr("mabrfl.sweeps.local_processes.LocalProcesses.start", killed)
        run(finished, rerun=["stale"])

    assert ended(forked(work)) == -signal.SIGKILL
    assert files(finished, 2) == before
    assert [standing(finished / "runs/tiny", cell).status for cell in sweep(finished).cells] == [
        "done",
        "missing",
        "done",
    ]
    assert run(finished, rerun=["stale"]).count("done") == 3
    assert stale(finished) == [False, False, False]


def test_a_cell_that_was_begun_with_other_code_starts_again_with_a_note(
    place: Path, write: Callable[[str, str], None], call: Callable[..., tuple[str, str]]
) -> None:
    assert run(place, only=[]).standings == {}
    with pytest.raises(KeyboardInterrupt):
        runs.run(sweep(place).cells[1].config, folder(place, 1), observers=[InterruptAfter()])
    write("stale_helper", HALF)
    assert standing(place / "runs/tiny", sweep(place).cells[1]).rounds == 0
    lines = call("sweep", "tiny.toml", "--only", "defense=stale_rule:Rule", "--workers", "1")[0].splitlines()
    assert lines[1:3] == [
        "[0/1] started: defense=stale_rule:Rule",
        "note: defense=stale_rule:Rule: the code of 'stale_rule:Rule' has changed since: starting again with round 1",
    ]
    assert [record.round for record in read_rounds(folder(place, 1)).records] == [1, 2]
    mixed = weights(place, 1)
    run(place, "anew", only=[sweep(place).cells[1]])
    assert read_summary(folder(place, 1, "anew"))["weights_sha256"] == mixed


def test_a_cell_is_not_adopted_silently_if_other_code_made_it(
    finished: Path, write: Callable[[str, str], None], call: Callable[..., tuple[str, str]]
) -> None:
    pack(finished / "runs/tiny", finished / "tiny.json.gz")
    write("stale_helper", HALF)
    adopting = ("sweep", "tiny.toml", "--from", "tiny.json.gz", "--out", "adopted", "--workers", "1")
    assert f"note: {CHANGED}\n" in call(*adopting, "--plan")[0]
    assert call(*adopting)[0].splitlines()[-1] == f"note: {CHANGED}"
    assert sorted(os.listdir(folder(finished, 1, "adopted"))) == [
        "config.toml",
        "manifest.json",
        "series.json",
        "summary.json",
    ]
    lines = call(*adopting, "--rerun", "stale")[0].splitlines()
    assert lines[0].startswith("tiny: 3 cells, 2 done, 1 to run")
    assert lines[-1] == "3 of 3 cells are done; results in adopted"
    assert sorted(os.listdir(folder(finished, 1, "adopted"))) == [
        "config.toml",
        "manifest.json",
        "rounds.jsonl",
        "summary.json",
    ]


def test_whether_code_has_changed_that_is_gone_or_was_not_recorded_is_unknown(
    finished: Path, call: Callable[..., tuple[str, str]]
) -> None:
    (finished / "stale_rule.py").rename(finished / "moved.py")
    importlib.invalidate_caches()
    manifest = folder(finished, 2)
    (manifest / "manifest.json").write_text(
        json.dumps({**json.loads((manifest / "manifest.json").read_text()), "code": {}})
    )
    assert call("table", "runs/tiny")[1].splitlines() == [
        "note: 1 finished cell of 'stale_rule:Rule': its source is not found here; whether it has changed is unknown",
        "note: 1 finished cell of 'other_rule:Rule': its code was not recorded; whether it has changed is unknown",
    ]
