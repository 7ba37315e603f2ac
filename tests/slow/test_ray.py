"""Sweeps on a real Ray cluster of several nodes on this machine: a node is killed, and the driver is killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from killing import outcome
from mabrfl.sweeps.plan import folder_of
from mabrfl.sweeps.ray_cluster import RayCluster
from mabrfl.sweeps.scheduler import run_sweep
from mabrfl.sweeps.sweep_file import parse_sweep
from mabrfl.sweeps.sweep_progress import Monitor, RunningCell
from waiting import wait_until

pytestmark = pytest.mark.slow

TEXT = """
name = "tiny"
[base]
dataset = "digits"
clients = 6
rounds = 6
training.epochs = 1
partition.sizes = [8, 16]
[axes]
defense = ["fedavg", "mab-rfl"]
seed = [0, 1, 2]
"""

GATE = '''
"""Watches a cell, and holds it after its second round until a file is there; cells of seed 0 pass."""
import time
from pathlib import Path


class Gate:
    def started(self, run):
        self.passes = run.config.seed == 0 and run.config.defense == "fedavg"

    def round_done(self, record):
        while record.round == 2 and not self.passes and not Path(__file__).with_name("open").exists():
            time.sleep(0.05)
'''


def family(pid: int) -> list[int]:
    """A process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(status.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(status.parent.name))
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found


class Journal(Monitor):
    """Kills a node as soon as two cells wait at the gate, and opens it when one of them is lost."""

    def __init__(self, node: Any, gate: Path) -> None:
        self.node, self.gate = node, gate
        self.rounds: dict[str, int] = {}
        self.ends: list[str] = []
        self.notes: list[str] = []

    def advanced(self, running: RunningCell) -> None:
        self.rounds[running.cell.key] = running.round
        if list(self.rounds.values()) == [2, 2]:
            # As if its machine had lost its power: nothing of it is left.
            for process in family(self.node.all_processes["raylet"][0].process.pid):
                os.kill(process, signal.SIGKILL)

    def noted(self, running: RunningCell, note: str) -> None:
        self.notes.append(note)

    def ended(self, known: Any, outcome: str, seconds: float) -> None:
        self.ends.append(outcome)
        self.gate.touch()


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A head without room for cells, and two nodes with room for one each; they can import the gate."""
    utils = pytest.importorskip("ray.cluster_utils")
    (tmp_path / "gate.py").write_text(GATE)
    paths = [str(tmp_path), *(path for path in sys.path if path)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    monkeypatch.syspath_prepend(tmp_path)
    cluster = utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    nodes = [cluster.add_node(num_cpus=1, include_dashboard=False) for _ in range(2)]
    cluster.wait_for_nodes()
    cluster.two = nodes
    yield cluster
    cluster.shutdown()


def alone(folder: Path) -> Path:
    """Run the same sweep on one machine."""
    run_sweep(parse_sweep(TEXT.encode()), folder, jobs=1, workers=1)
    return folder


def assert_same(results: Path, local: Path) -> None:
    """Every cell is there once, with the same weights and records."""
    sweep = parse_sweep(TEXT.encode())
    assert {path.name for path in (results / "cells").iterdir()} == {cell.key[:16] for cell in sweep.cells}
    for cell in sweep.cells:
        ours, theirs = (folder_of(folder, cell.key) for folder in (results, local))
        assert json.loads((ours / "summary.json").read_text())["weights_sha256"]
        assert outcome(ours) == outcome(theirs)


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_killed_node_costs_its_cell_a_retry_and_nothing_else(cluster: Any, tmp_path: Path) -> None:
    journal, gate = Journal(cluster.two[0], tmp_path / "open"), ["gate:Gate"]
    sweep = parse_sweep(TEXT.replace("seed = [0, 1, 2]", "seed = [1, 2, 0]").encode())
    with RayCluster(cluster.address) as launcher:
        assert launcher.places == 2
        progress = run_sweep(
            sweep, tmp_path / "r", launcher=launcher, sharing=launcher.sharing(), monitor=journal, observers=gate
        )
    assert (progress.count("done"), progress.left, progress.killed) == (6, 0, [])
    assert sorted(journal.ends) == ["done"] * 6 + ["killed"]
    assert len(journal.notes) == 1
    assert_same(tmp_path / "r", alone(tmp_path / "alone"))


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_killed_driver_costs_nothing_that_was_finished(cluster: Any, tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(TEXT)
    command = [sys.executable, "-m", "mabrfl", "sweep", "tiny.toml", "--out", "r", "--observe", "gate:Gate"]
    command += ["--launcher", "ray", "--address", cluster.address]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL) as driver:
        [summary] = wait_until(lambda: list((tmp_path / "r").glob("cells/*/summary.json")), "no cell was collected")
        driver.kill()
    kept = summary.read_bytes(), summary.stat().st_mtime_ns
    assert not list((tmp_path / "r").rglob("failed.json"))
    (tmp_path / "open").touch()
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "1 done, 5 to run; 2 at once with 1 process(es) each" in ended.stdout
    assert (summary.read_bytes(), summary.stat().st_mtime_ns) == kept
    assert_same(tmp_path / "r", alone(tmp_path / "alone"))
