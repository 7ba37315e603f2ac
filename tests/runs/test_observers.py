"""Observers see a run, and can neither stop it nor change it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from killing import TINY, InterruptAfter, StubSimulation, outcome
from mabrfl.cli.main import main
from mabrfl.config import RunConfig, config_hash
from mabrfl.errors import ConfigError
from mabrfl.recording import RoundRecord, read_summary
from mabrfl.runs import Observer, RunResult, RunStart, run, simulate
from mabrfl.runs.observers import HOOKS

STUB = RunConfig(defense="fedavg", rounds=4, workers=1)

OWN = '''
"""Observers of a user."""
from pathlib import Path


class Diary:
    def started(self, run):
        self.path = Path(run.path.name + ".txt")
        self.path.write_text(f"{run.config.rounds} rounds\\n")

    def round_done(self, record):
        with open(self.path, "a") as file:
            file.write(f"round {record.round}\\n")

    def finished(self, result):
        with open(self.path, "a") as file:
            file.write(f"{result.summary['rounds']} done\\n")


def diary():
    return Diary()


diary_itself = Diary()


class Fragile:
    def __init__(self):
        raise OSError("no network")

    def started(self, run): ...


class Mute:
    pass


def mute():
    return Mute()
'''
WRITTEN = "4 rounds\nround 1\nround 2\nround 3\nround 4\n4 done\n"


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's module in the current folder."""
    (tmp_path / "watching.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "watching", raising=False)


def stub(path: Path, *observers: Any, **settings: Any) -> RunResult:
    build: Callable[..., Any] = StubSimulation
    return run(STUB, path, build=build, observers=observers, **settings)


class Log(Observer):
    """Remembers every call."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def started(self, run: RunStart) -> None:
        self.calls.append(("started", run))

    def round_done(self, record: RoundRecord) -> None:
        self.calls.append(("round_done", record))

    def finished(self, result: RunResult) -> None:
        self.calls.append(("finished", result))

    def failed(self, error: BaseException) -> None:
        self.calls.append(("failed", error))

    @property
    def hooks(self) -> list[str]:
        return [hook for hook, _ in self.calls]


def raising(hook: str, error: BaseException) -> Any:
    def method(self: Any, event: Any) -> None:
        raise error

    return type("Raising", (), {hook: method})()


def test_an_observer_sees_the_start_every_round_and_the_result(tmp_path: Path) -> None:
    log = Log()
    result = stub(tmp_path / "run", log)
    (_, start), *rounds, (_, finished) = log.calls
    assert log.hooks == ["started", *["round_done"] * 4, "finished"]
    assert (start.path, start.after_round, start.notes) == (tmp_path / "run", 0, ())
    assert config_hash(start.config) == config_hash(STUB)
    assert [record for _, record in rounds] == result.records
    assert finished.summary == read_summary(tmp_path / "run")


def test_an_observer_of_a_resumed_run_hears_after_which_round_and_why(tmp_path: Path) -> None:
    log = Log()
    with pytest.raises(KeyboardInterrupt):
        stub(tmp_path / "run", log, InterruptAfter(2))
    assert log.hooks == ["started", "round_done", "round_done", "failed"]
    assert isinstance(log.calls[-1][1], KeyboardInterrupt)
    assert read_summary(tmp_path / "run")["interrupted"] is True
    (tmp_path / "run" / "checkpoint" / "round-0000002.json").write_text("{}")
    again = Log()
    stub(tmp_path / "run", again)
    start = again.calls[0][1]
    assert start.after_round == 1
    assert "round-0000002" in start.notes[0]
    assert again.hooks == ["started", *["round_done"] * 3, "finished"]
    stub(tmp_path / "run", unused := Log())
    assert unused.hooks == [], "the run was finished"


def test_an_observer_hears_of_an_error_in_the_run(tmp_path: Path) -> None:
    class Broken(StubSimulation):
        def run(self) -> Any:
            yield next(super().run())
            raise RuntimeError("a bug in a rule")

    log, broken = Log(), Broken
    with pytest.raises(RuntimeError, match="a bug in a rule"):
        run(STUB, tmp_path / "run", build=broken, observers=[log])  # type: ignore[arg-type]
    assert log.hooks == ["started", "round_done", "failed"]
    assert str(log.calls[-1][1]) == "a bug in a rule"


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("error", [ValueError("no\nluck"), SystemExit(3), BrokenPipeError(32, "gone")])
def test_an_observer_that_raises_is_reported_once_and_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], hook: str, error: BaseException
) -> None:
    stub(tmp_path / "alone")
    stop = [InterruptAfter(3)] if hook == "failed" else []
    log = Log()
    try:
        result = stub(tmp_path / "run", raising(hook, error), log, *stop)
    except KeyboardInterrupt:
        assert hook == "failed"
        result = stub(tmp_path / "run", log)
    else:
        assert [note.split(" (")[0] for note in result.notes] == [f"observer {__name__}:Raising failed in {hook}"]
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.startswith(f"note: observer {__name__}:Raising failed in {hook} (test_observers.py, line ")
    assert f": {type(error).__name__}: {' '.join(str(error).split())}; the run goes on" in said
    assert outcome(tmp_path / "run") == outcome(tmp_path / "alone")
    for name in ("rounds.jsonl", "config.toml"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()
    assert log.hooks.count("round_done") == 4, "the next observer is called"


def test_ctrl_c_while_an_observer_is_called_stops_the_run(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        stub(tmp_path / "run", raising("round_done", KeyboardInterrupt()))


def test_the_error_of_an_essential_observer_stops_the_run_and_all_others_hear_of_it(tmp_path: Path) -> None:
    class Full(Observer):
        def round_done(self, record: RoundRecord) -> None:
            raise OSError("the terminal is gone")

        def failed(self, error: BaseException) -> None:
            raise OSError("still gone")

    last, log = Log(), Log()
    with pytest.raises(OSError, match="still gone"):
        stub(tmp_path / "run", log, essential=[Full(), last])
    assert last.hooks == ["started", "failed"]
    assert log.hooks == ["started", "failed"]
    assert read_summary(tmp_path / "run")["rounds"] == 1


class Vandal:
    """Changes whatever it can reach."""

    def started(self, run: RunStart) -> None:
        run.config.training.__dict__["epochs"] = 7
        run.config.defense_options["x"] = 1  # type: ignore[index]

    def round_done(self, record: RoundRecord) -> None:
        for mapping in (record.verdicts, record.reputation, record.facts, record.seconds):
            mapping.clear()  # type: ignore[attr-defined]
        object.__setattr__(record, "accuracy", 100.0)
        np.random.seed(record.round)  # noqa: NPY002
        torch.manual_seed(record.round)
        torch.rand(100)

    def finished(self, result: RunResult) -> None:
        result.records.clear()
        result.summary.clear()


def test_an_observer_changes_neither_records_nor_random_streams(tmp_path: Path) -> None:
    config = RunConfig(**TINY, rounds=3, attack="label-flip", attackers=2)
    alone = run(config, tmp_path / "alone")
    watched = run(config, tmp_path / "watched", observers=[Vandal()])
    assert outcome(tmp_path / "watched") == outcome(tmp_path / "alone")
    assert watched.summary["weights_sha256"] == alone.summary["weights_sha256"]
    assert [len(record.verdicts) for record in watched.records] == [len(record.verdicts) for record in alone.records]
    assert watched.notes == []


def test_a_simulation_in_python_has_observers_too() -> None:
    log = Log()
    records = simulate(RunConfig(**TINY, rounds=2), observers=[log])
    assert [event for hook, event in log.calls if hook == "round_done"] == records
    assert log.calls[0][1].path is None
    assert log.calls[-1][1].summary["rounds"] == 2


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("name", ["watching:Diary", "watching:diary", "watching:diary_itself"])
def test_a_name_stands_for_a_class_a_function_or_an_object(tmp_path: Path, name: str) -> None:
    stub(tmp_path / "run", name)
    assert (tmp_path / "run.txt").read_text() == WRITTEN


@pytest.mark.usefixtures("own")
def test_a_class_or_a_function_will_do_in_python(tmp_path: Path) -> None:
    from watching import Diary, diary  # type: ignore[import-not-found]

    for number, observer in enumerate((Diary, diary)):
        stub(tmp_path / str(number), observer)
        assert (tmp_path / f"{number}.txt").read_text() == WRITTEN


@pytest.mark.usefixtures("own")
def test_an_observer_that_cannot_be_made_is_reported_and_the_run_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = stub(tmp_path / "run", "watching:Fragile")
    (note,) = result.notes
    assert note.startswith("observer 'watching:Fragile' cannot be made (watching.py, line ")
    assert note.endswith("): OSError: no network; the run goes on without it")
    assert capsys.readouterr().err == f"note: {note}\n"
    assert result.summary["rounds"] == 4


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nobody", "unknown observer 'nobody'"),
        ("watching:Nobody", "module 'watching' has no 'Nobody'"),
        ("nowhere:Diary", "observer 'nowhere:Diary': cannot import 'nowhere'"),
        (
            "watching:Mute",
            "must have at least one of the methods started, round_done, finished, failed; got class Mute",
        ),
        ("watching:mute", "'watching:mute' must have .*; got Mute"),
    ],
)
def test_a_name_that_is_no_observer_is_a_mistake_before_anything_is_run(
    tmp_path: Path, name: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        stub(tmp_path / "run", name)
    assert not (tmp_path / "run").exists()


def install(folder: Path) -> None:
    """Put a package with an entry point into a folder."""
    about = folder / "watching-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: watching\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[mabrfl.observers]\ndiary = watching:Diary\n")


@pytest.mark.usefixtures("own")
def test_the_command_line_takes_observers_by_entry_point_and_by_module(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(tmp_path)
    command = ["run", "--rounds", "4", "--workers", "1", "--no-plots", "--quiet"]
    assert main([*command, "--out", "a", "--observe", "diary"]) == 0
    assert main([*command, "--out", "b", "--observe", "watching:Diary", "--observe", "watching:Fragile"]) == 0
    assert (tmp_path / "a.txt").read_text() == (tmp_path / "b.txt").read_text() == WRITTEN
    assert capsys.readouterr().err.count("note: observer 'watching:Fragile' cannot be made") == 1
    assert read_summary(tmp_path / "a")["weights_sha256"] == read_summary(tmp_path / "b")["weights_sha256"]
    assert main([*command, "--out", "c", "--observe", "diry"]) == 3
    assert capsys.readouterr().err == "error: unknown observer 'diry'; did you mean 'diary'?\n"
    assert not (tmp_path / "c").exists()
    assert main(["list", "observers"]) == 0
    assert "diary" in capsys.readouterr().out
