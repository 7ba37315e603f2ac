"""Cells on a Ray cluster: here with a stand-in for Ray; tests/slow/test_ray.py has a real cluster."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from killing import outcome
from mabrfl.errors import ConfigError, DatasetError, KilledError, OutputError, SweepError
from mabrfl.sweeps import ray_cluster, remote_cell
from mabrfl.sweeps.launchers import Assignment, CellAdvanced, CellEnded, CellHalted, CellNote, CellStarted
from mabrfl.sweeps.plan import folder_of
from mabrfl.sweeps.ray_cluster import RayCluster
from mabrfl.sweeps.remote_cell import CellReport, read_files, run_remotely, write_files
from mabrfl.sweeps.scheduler import run_sweep
from mabrfl.sweeps.sweep_file import Sweep, parse_sweep
from mabrfl.sweeps.sweep_progress import Monitor

TEXT = b"""
[base]
dataset = "digits"
clients = 6
rounds = 3
training.epochs = 1
partition.sizes = [8, 16]
[axes]
seed = [0, 1]
"""


class RayError(Exception): ...


class RayTaskError(RayError):
    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class Stream:
    """What a task sends."""

    def __init__(self, reports: Iterator[Any]) -> None:
        self.reports = reports

    def __next__(self) -> Any:
        return next(self.reports)


class StandIn:
    """Ray, with every task in this process."""

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def __init__(self) -> None:
        self.machines: list[dict[str, float]] = [{"CPU": 2.0}, {"CPU": 1.0}, {"CPU": 0.0}]
        self.lost: list[RayError] = []
        self.cancelled: list[bool] = []
        self.asked: list[dict[str, Any]] = []
        self.files: list[int] = []
        self.shut_down = 0

    def init(self, **arguments: Any) -> None:
        if arguments["address"] == "nowhere:1":
            raise ConnectionError("nobody answers\nand so on")

    def shutdown(self) -> None:
        self.shut_down += 1

    def nodes(self) -> list[dict[str, Any]]:
        known = enumerate(self.machines)
        return [{"Alive": True, "Resources": has, "NodeManagerHostname": f"m{k}", "NodeID": k} for k, has in known]

    def remote(self, **options: Any) -> Callable[[Callable[..., Any]], Any]:
        def task(function: Callable[..., Any]) -> Any:
            def submit(*arguments: Any) -> Any:
                self.asked.append(options)
                if function is not run_remotely:
                    return Stream(iter([function, arguments]))
                self.files.append(len(arguments[1]))
                return Stream(iter([self.lost.pop()] if self.lost else list(function(*arguments))))

            made = SimpleNamespace(remote=submit)
            made.options = lambda **_: made
            return made

        return task

    def wait(self, streams: list[Stream], **_: Any) -> tuple[list[Stream], list[Stream]]:
        return streams, []

    def get(self, value: Any) -> Any:
        if isinstance(value, Stream):
            function, arguments = value.reports
            try:
                return function(*arguments)
            except Exception as error:
                raise RayTaskError(error) from error
        if isinstance(value, RayError):
            raise value
        return value

    def cancel(self, stream: Stream, force: bool) -> None:
        self.cancelled.append(force)
        stream.reports = iter(())


class Journal(Monitor):
    def __init__(self) -> None:
        self.ends: list[str] = []
        self.notes: list[str] = []

    def noted(self, running: Any, note: str) -> None:
        self.notes.append(note)

    def ended(self, known: Any, outcome: str, seconds: float) -> None:
        self.ends.append(outcome)


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    ray = StandIn()
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setattr(ray_cluster, "_on", lambda node: node)
    monkeypatch.setattr(ray_cluster, "check_data", lambda pairs: None)
    return ray


@pytest.fixture
def _forking(ready_to_fork: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_cell, "default_start_method", lambda devices: "fork")


@pytest.fixture
def wanted() -> Sweep:
    return parse_sweep(TEXT)


def assignment(sweep: Sweep) -> Assignment:
    cell = sweep.cells[0]
    return Assignment("elsewhere", cell.key, cell.label, {**cell.config.model_dump(mode="json"), "workers": 1})


@pytest.mark.usefixtures("_forking")
def test_cells_of_a_cluster_are_collected_and_equal_those_of_one_machine(
    ray: StandIn, wanted: Sweep, tmp_path: Path
) -> None:
    ray.lost, journal = [RayError("the machine died")], Journal()
    with RayCluster(cpus=1) as cluster:
        sharing = cluster.sharing()
        progress = run_sweep(wanted, tmp_path / "r", launcher=cluster, sharing=sharing, monitor=journal)
    assert (sharing.jobs, sharing.workers, sharing.workers_for(1)) == (3, 1, 1)
    assert (progress.count("done"), progress.left, sorted(journal.ends)) == (2, 0, ["done", "done", "killed"])
    assert journal.notes == ["its machine or its process there died (RayError)"]
    assert ray.asked[-1] == {"max_retries": 0, "num_returns": "streaming", "num_cpus": 1, "num_gpus": 0.0}
    run_sweep(wanted, tmp_path / "local", start_method="fork", jobs=2, workers=1)
    for cell in wanted.cells:
        assert outcome(folder_of(tmp_path / "r", cell.key)) == outcome(folder_of(tmp_path / "local", cell.key))


@pytest.mark.usefixtures("_forking")
def test_a_cell_goes_on_from_the_files_that_came_last(
    wanted: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_cell, "REPORT_SECONDS", 0.0)
    monkeypatch.setattr(remote_cell, "SEND_SECONDS", 0.0)
    cell = assignment(parse_sweep(TEXT.replace(b"rounds = 3", b"rounds = 300")))
    running = run_remotely(cell, {})
    files = next(report.files for report in running if report.files)
    running.close()
    assert {"rounds.jsonl", "config.toml", "manifest.json"} < set(files)
    assert any(name.startswith("checkpoint/") for name in files)
    assert "summary.json" not in files
    write_files(tmp_path, cell.key, files)
    again = run_remotely(cell, read_files(tmp_path, cell.key))
    started = next(event for report in again for event in report.events if isinstance(event, CellStarted))
    again.close()
    assert 0 < started.after_round < 300


def test_a_cell_that_cannot_be_run_has_failed_and_says_why(ray: StandIn, wanted: Sweep, tmp_path: Path) -> None:
    ray.lost = [RayTaskError(ImportError("no such module")) for _ in wanted.cells]
    with RayCluster() as cluster:
        progress = run_sweep(wanted, tmp_path / "r", launcher=cluster, sharing=cluster.sharing(jobs=1))
    assert [known.error for known in progress.failed] == ["its task failed: no such module"] * 2
    assert ray.cancelled == [True, True]


def test_files_are_written_as_a_cell_would_and_the_summary_comes_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, order = "k" * 64, []
    monkeypatch.setattr(remote_cell, "replace_file", lambda path, chunks: order.append(path.name))
    names = ["summary.json", "checkpoint/round-0000002.json", "rounds.jsonl", "checkpoint/round-0000002.safetensors"]
    write_files(tmp_path, key, dict.fromkeys(names, b""))
    assert order[0].endswith(".safetensors")
    assert order[-1] == "summary.json"


def test_checkpoints_of_earlier_rounds_are_removed_and_the_output_is_kept(tmp_path: Path) -> None:
    key = "k" * 64
    write_files(tmp_path, key, {"checkpoint/round-0000001.json": b"1", "log": b"said"})
    write_files(tmp_path, key, {"checkpoint/round-0000002.json": b"2", "rounds.jsonl": b"", "log": b"more"})
    assert read_files(tmp_path, key) == {"checkpoint/round-0000002.json": b"2", "rounds.jsonl": b"", "log": b"more"}


@pytest.mark.parametrize("name", ["../x", "/etc/x", "checkpoint/../../x", "checkpoint/x.json", "cells.json", ""])
def test_a_machine_cannot_write_anything_but_the_files_of_its_cell(tmp_path: Path, name: str) -> None:
    with pytest.raises(OutputError, match="a cell has no file of the name"):
        write_files(tmp_path, "k" * 64, {"rounds.jsonl": b"", name: b"x"})
    assert not list(tmp_path.rglob("*"))


def test_a_full_disk_of_one_machine_stops_the_cell_and_not_the_sweep(
    wanted: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        def __init__(self, method: str) -> None: ...

        def start(self, given: Assignment) -> None: ...

        def poll(self, timeout: float) -> list[Any]:
            return [CellHalted("k", "disk", "no room"), CellEnded("k", killed=True)]

        def stop(self) -> None: ...

    monkeypatch.setattr(remote_cell, "LocalProcesses", Full)
    [report] = run_remotely(replace(assignment(wanted), key="k"), {})
    assert report == CellReport([CellHalted("k", "killed", "no room"), CellEnded("k", killed=True)], {})


@pytest.mark.usefixtures("_forking")
def test_a_cell_ends_with_the_node_that_has_started_it(
    ray: StandIn, wanted: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parents = iter([2, 2, 1])
    monkeypatch.setattr(remote_cell, "os", SimpleNamespace(getppid=lambda: next(parents)))
    cell = assignment(wanted)
    with pytest.raises(KilledError, match="has ended") as raised:
        list(run_remotely(cell, {}))
    with RayCluster() as cluster:
        cluster._tasks[cell.key] = ray_cluster._Task(tmp_path, Stream(iter([RayTaskError(raised.value)])))
        [end] = cluster.poll(0.0)
    assert isinstance(end, CellEnded)
    assert end.killed


def test_stopping_cancels_and_then_kills_what_does_not_end(
    ray: StandIn, wanted: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray, "wait", lambda streams, **_: (streams, []) if True in ray.cancelled else ([], streams))
    with RayCluster() as cluster:
        cluster.start(assignment(wanted))
        assert cluster.poll(0.0) == []
        cluster.stop()
    assert ray.cancelled == [False, True]
    assert ray.shut_down == 1


def test_reports_of_rounds_come_in_order(ray: StandIn, wanted: Sweep, tmp_path: Path) -> None:
    cell = assignment(wanted)
    told = [
        CellReport([CellStarted(cell.key, 0)]),
        CellReport([CellAdvanced(cell.key, 1, 50.0, 0.1)]),
        RayError("gone"),
    ]
    with RayCluster() as cluster:
        cluster._tasks[cell.key] = ray_cluster._Task(tmp_path, Stream(iter(told)))
        events = [*cluster.poll(0.0), *cluster.poll(0.0), *cluster.poll(0.0)]
    assert [type(event) for event in events] == [CellStarted, CellAdvanced, CellNote, CellEnded]
    assert events[-1] == CellEnded(cell.key, killed=True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"address": "ray://head:10001"}, "is for Ray's client, which cannot return files"),
        ({"address": "nowhere:1"}, "there is no Ray cluster at 'nowhere:1': nobody answers; `ray start --head`"),
        ({"cpus": 0}, "CPUs must be above 0"),
        ({"gpus": -1}, "GPUs must be from 0 to 4096; got -1"),
        ({"cpus": 4}, "no machine of the cluster has the 4 CPUs and 0 GPUs of a cell; the largest has 2 CPUs"),
        ({"gpus": 1}, "no machine of the cluster has the 1 CPUs and 1 GPUs"),
    ],
)
def test_mistakes_are_named(ray: StandIn, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        RayCluster(**arguments)


@pytest.mark.parametrize(("error", "kind"), [(DatasetError("no mnist"), DatasetError), (ImportError("x"), SweepError)])
def test_a_machine_without_the_data_or_the_package_is_named(
    ray: StandIn, monkeypatch: pytest.MonkeyPatch, error: Exception, kind: type[Exception]
) -> None:
    def fail(pairs: Any) -> None:
        raise error

    monkeypatch.setattr(ray_cluster, "check_data", fail)
    with RayCluster() as cluster, pytest.raises(kind, match=f"machine m0 of the cluster.*{error}"):
        cluster.inspect([("mnist", "mnist-cnn")])
