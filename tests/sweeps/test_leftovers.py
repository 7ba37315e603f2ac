"""What a process killed in the middle of writing a file leaves behind keeps no cell from running."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from killing import ended, forked, outcome
from mabrfl.errors import OutputError
from mabrfl.recording import RunFolder
from mabrfl.sweeps.packing import pack
from mabrfl.sweeps.plan import Rerun, folder_of
from mabrfl.sweeps.scheduler import run_sweep
from mabrfl.sweeps.sweep_file import Sweep, parse_sweep
from mabrfl.sweeps.sweep_progress import SweepProgress

pytestmark = pytest.mark.usefixtures("ready_to_fork")


TEXT = """
[base]
dataset = "digits"
clients = 6
workers = 1
rounds = 2
training.epochs = 1
partition.sizes = [8, 16]
"""


@pytest.fixture
def wanted() -> Sweep:
    return parse_sweep(TEXT.encode())


def run(wanted: Sweep, results: Path, **settings: Any) -> SweepProgress:
    return run_sweep(wanted, results, **{"start_method": "fork", "jobs": 1, "workers": 1, **settings})


def killed_at_replacement(number: int, wanted: Sweep, results: Path, **settings: Any) -> bool:
    """Run a sweep that is killed before the n-th file of a cell gets its name; return whether it came to that."""
    left = [number]
    replace = os.replace

    def kill_or_replace(source: Any, target: Any) -> None:
        left[0] -= "cells" in Path(target).parts
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        replace(source, target)

    def work() -> None:
        os.replace = kill_or_replace
        run(wanted, results, **settings)

    return ended(forked(work)) == -signal.SIGKILL


@pytest.mark.parametrize("rerun", [[], ["failed"]])
def test_half_files_in_a_cells_folder_are_removed_and_the_cell_is_run(
    wanted: Sweep, tmp_path: Path, rerun: list[Rerun]
) -> None:
    folder = folder_of(tmp_path, wanted.cells[0].key)
    run(wanted, tmp_path, only=[])
    folder.mkdir(parents=True)
    for name in ("config.toml", "manifest.json", "summary.json", "accuracy.png", "failed.json", "series.json"):
        (folder / f".{name}-abc123").write_text("half of")
    progress = run(wanted, tmp_path, rerun=rerun)
    assert (progress.count("done"), progress.failed) == (1, [])
    assert sorted(os.listdir(folder)) == ["config.toml", "manifest.json", "rounds.jsonl", "summary.json"]


@pytest.mark.parametrize("again_from_packed", [False, True])
def test_an_adoption_killed_before_any_of_its_files_is_gone_on_with(
    wanted: Sweep, tmp_path: Path, again_from_packed: bool
) -> None:
    run(wanted, tmp_path / "whole")
    packed = tmp_path / "packed.json.gz"
    pack(tmp_path / "whole", packed)
    for number in (1, 2, 3, 4):
        results = tmp_path / f"killed-{number}"
        assert killed_at_replacement(number, wanted, results, adopt_from=[packed])
        progress = run(wanted, results, adopt_from=[packed] if again_from_packed else [])
        assert (progress.count("done"), progress.failed) == (1, [])
        folder = folder_of(results, wanted.cells[0].key)
        if again_from_packed:
            assert sorted(os.listdir(folder)) == ["config.toml", "manifest.json", "series.json", "summary.json"]
        else:
            assert outcome(folder) == outcome(folder_of(tmp_path / "whole", wanted.cells[0].key))
    assert not killed_at_replacement(5, wanted, tmp_path / "not killed", adopt_from=[packed])


def test_half_a_plan_is_removed(wanted: Sweep, tmp_path: Path) -> None:
    run(wanted, tmp_path, only=[])
    for name in ("cells.json", "sweep.toml"):
        (tmp_path / f".{name}-abc123").touch()
    run(wanted, tmp_path, only=[])
    assert sorted(os.listdir(tmp_path)) == [".lock", "cells.json", "sweep.toml"]


@pytest.mark.parametrize("name", ["notes.txt", ".thesis.tex-abc123", "config.toml-abc123"])
def test_somebody_elses_file_in_a_cells_folder_is_still_refused(wanted: Sweep, tmp_path: Path, name: str) -> None:
    folder = folder_of(tmp_path, wanted.cells[0].key)
    run(wanted, tmp_path, only=[])
    folder.mkdir(parents=True)
    (folder / name).touch()
    (folder / ".config.toml-abc123").touch()
    (failed,) = run(wanted, tmp_path).failed
    assert "is not empty" in failed.error
    assert (folder / name).exists()
    with pytest.raises(OutputError, match="is not empty"):
        RunFolder.create(folder)
