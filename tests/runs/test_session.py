"""A run that was interrupted, anywhere and however often, ends as if it had not been."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import killing
from killing import (
    MANY_KILLS,
    STRATEGY_KILLS,
    SWEEP_KILLS,
    SYSTEM_CALLS,
    TINY,
    InterruptAfter,
    Sitting,
    StubSimulation,
    Trial,
    ended,
    forked,
    kill_at_random,
    outcome,
    recorded,
)
from mabrfl.config import RunConfig, config_hash
from mabrfl.errors import OutputError, StateError
from mabrfl.recording import RoundRecord, RunFolder
from mabrfl.runs import RunStart, run
from waiting import HANGS, wait_until

STUB = RunConfig(defense="fedavg", rounds=4, workers=1)
RUNS: dict[str, RunConfig] = {
    "momenta and reputation": RunConfig(**TINY, rounds=8, attack="label-flip", attackers=2),
    "kept optimizers and new identities": RunConfig(
        **TINY,
        rounds=8,
        preset="reference",
        attack="whitewash",
        attack_options={"patience": 2},
        attackers=2,
    ),
    "a rule and an attack that remember": RunConfig(
        **TINY,
        rounds=8,
        seed=2,  # one of those with which it matters what the attack remembers
        defense="centered-clip",
        selector="thompson-top",
        attack="mimic",
        attack_options={"victim": "largest-variance"},
        attackers=2,
    ),
    "two processes": RunConfig(**{**TINY, "workers": 2}, rounds=8, attack="label-flip", attackers=2),
}
KILLS = 7
"""Of each of these runs."""


def stub(path: Path, build: Callable[..., Any] = StubSimulation, **settings: Any) -> Any:
    return run(STUB, path, build=build, **settings)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is with the system survives a kill; that it is on the disk as well matters to other tests."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture
def whole(tmp_path: Path) -> dict[str, Any]:
    stub(tmp_path / "whole")
    return outcome(tmp_path / "whole")


def interrupted_after(path: Path, number: int, **settings: Any) -> None:
    """Run until a round is done, and no further."""
    with pytest.raises(KeyboardInterrupt):
        stub(path, observers=[InterruptAfter(number)], **settings)


class Rounds:
    """An observer that counts."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def round_done(self, record: RoundRecord) -> None:
        self.numbers.append(record.round)


class Run(Trial):
    """A run of its own, without and with interruptions."""

    def __init__(self, config: RunConfig, whole: Path, **settings: Any) -> None:
        self.config, self.settings = config, settings
        run(config, whole, **settings)
        self.expected = outcome(whole)

    def work(self, path: Path, journal: Path) -> None:
        before = recorded(path)

        class Start:
            def started(self, start: RunStart) -> None:
                journal.write_text(json.dumps([before, start.after_round]))

        run(self.config, path, observers=[Start()], **self.settings)

    def rounds(self, path: Path) -> tuple[int, bool]:
        return recorded(path), not (path / "summary.json").exists()

    def check(self, path: Path, journal: Path, sitting: Sitting) -> None:
        if journal.exists() and (told := journal.read_text()):
            before, after = json.loads(told)
            # The checkpoint of a round comes a moment after its record.
            assert max(before - 1, 0) <= after <= before, "it did not go on after its last finished round"

    def compare(self, path: Path) -> None:
        assert outcome(path) == self.expected, "it ended as another run"


def test_there_are_as_many_kills_as_we_say() -> None:
    assert len(RUNS) * KILLS >= 25
    assert len(RUNS) * MANY_KILLS + SWEEP_KILLS + STRATEGY_KILLS >= 1000


@pytest.mark.parametrize("name", RUNS)
def test_kills_at_random_moments_change_nothing(tmp_path: Path, name: str) -> None:
    killed = kill_at_random(Run(RUNS[name], tmp_path / "run"), tmp_path / "killed", KILLS, name)
    assert len(killed) == KILLS
    assert len({sitting.rounds for sitting in killed}) > 1, "all came after the same round"


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_many_more_kills_at_random_moments_change_nothing(tmp_path: Path, name: str) -> None:
    killed = kill_at_random(Run(RUNS[name], tmp_path / "run"), tmp_path / "killed", MANY_KILLS, f"more {name}")
    assert len(killed) == MANY_KILLS
    assert len({sitting.rounds for sitting in killed}) > RUNS[name].rounds // 2, "all came after the same few rounds"


class Forgetful(StubSimulation):
    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.round = state["round"]


SLIPS: dict[str, Any] = {
    "killing.StubSimulation": Forgetful,
    "mabrfl.runs.recorder.load_checkpoint": lambda *path, **which: None,
    "mabrfl.recording.folder.RunFolder.rewind": lambda folder, mark=None: folder._rounds.seek(0, os.SEEK_END),
}


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("slip", SLIPS)
def test_a_slip_in_going_on_does_come_to_light(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slip: str) -> None:
    monkeypatch.setattr(slip, SLIPS[slip])
    trial = Run(STUB.model_copy(update={"rounds": 8}), tmp_path / "run", build=killing.StubSimulation)
    with pytest.raises(AssertionError, match=r"ended as another run|did not go on after") as caught:
        kill_at_random(trial, tmp_path / "killed", 50, slip)
    assert "MABRFL_KILL_SEED=" in caught.value.__notes__[0]


def test_several_workers_go_on_where_one_was_and_the_other_way_round(tmp_path: Path) -> None:
    config = RUNS["kept optimizers and new identities"]
    run(config, tmp_path / "whole")
    for workers in (2, 1, 2):
        other = config.model_copy(update={"workers": workers})
        try:
            run(other, tmp_path / "mixed", observers=[InterruptAfter(3), InterruptAfter(5)])
        except KeyboardInterrupt:
            continue
    mixed, expected = outcome(tmp_path / "mixed"), outcome(tmp_path / "whole")
    assert mixed["summary"] == expected["summary"]
    assert mixed["records"] == expected["records"]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", SYSTEM_CALLS)
def test_a_kill_at_any_single_call_of_the_system_changes_nothing(
    tmp_path: Path, whole: dict[str, Any], name: str
) -> None:
    real = getattr(os, name)

    def run_and_die(path: Path, number: int) -> None:
        calls = 0

        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)

        setattr(os, name, call)
        stub(path)

    number, code = 0, -signal.SIGKILL
    while code:
        number += 1
        path = tmp_path / str(number)
        code = ended(forked(lambda: run_and_die(path, number)))  # noqa: B023 (called at once)
        assert code in (0, -signal.SIGKILL)
        stub(path)
        assert outcome(path) == whole, f"killed at {name} number {number}"
    assert number > 1 or name in ("ftruncate", "rmdir", "mkdir", "unlink")


@pytest.mark.usefixtures("quick")
def test_rounds_torn_anywhere_in_the_last_record_cost_that_round_only(tmp_path: Path, whole: dict[str, Any]) -> None:
    interrupted_after(tmp_path / "run", 3)
    lines = (tmp_path / "run" / "rounds.jsonl").read_bytes().splitlines(keepends=True)
    assert len(lines) == 3
    kept = b"".join(lines[:2])
    for size in [*range(0, len(lines[2]), 5), len(lines[2]) - 1]:
        path = tmp_path / f"torn-{size}"
        shutil.copytree(tmp_path / "run", path)
        (path / "rounds.jsonl").write_bytes(kept + lines[2][:size])
        finished = stub(path)
        assert outcome(path) == whole
        assert any("rounds.jsonl: expected" in note for note in finished.notes)
        assert finished.records[1].round == 2


def test_records_after_the_last_checkpoint_are_made_again(tmp_path: Path, whole: dict[str, Any]) -> None:
    interrupted_after(tmp_path / "run", 3, checkpoint_every=2)
    assert len((tmp_path / "run" / "rounds.jsonl").read_text().splitlines()) == 3
    assert [path.stem for path in (tmp_path / "run" / "checkpoint").glob("*.json")] == ["round-0000002"]
    seen = Rounds()
    stub(tmp_path / "run", observers=[seen])
    assert seen.numbers == [3, 4]
    assert outcome(tmp_path / "run") == whole


def test_without_checkpoints_a_run_starts_again_and_says_so(tmp_path: Path, whole: dict[str, Any]) -> None:
    interrupted_after(tmp_path / "run", 3, checkpoint_every=0)
    assert not (tmp_path / "run" / "checkpoint").exists()
    finished = stub(tmp_path / "run")
    assert finished.notes == ["no usable checkpoint: starting again with round 1"]
    assert outcome(tmp_path / "run") == whole


@pytest.mark.parametrize("rounds", [[3], [2, 3]])
def test_damaged_checkpoints_are_passed_over(tmp_path: Path, whole: dict[str, Any], rounds: list[int]) -> None:
    interrupted_after(tmp_path / "run", 3)
    for number in rounds:
        with open(tmp_path / "run" / "checkpoint" / f"round-{number:07d}.safetensors", "r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"!")
    seen = Rounds()
    finished = stub(tmp_path / "run", observers=[seen])
    assert seen.numbers == ([3, 4] if rounds == [3] else [1, 2, 3, 4])
    assert "expected SHA-256" in finished.notes[0]
    assert outcome(tmp_path / "run") == whole


def test_a_changed_record_is_not_built_upon(tmp_path: Path, whole: dict[str, Any]) -> None:
    interrupted_after(tmp_path / "run", 3)
    path = tmp_path / "run" / "rounds.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"loss":1.0', b'"loss":2.0', 1))
    assert any("rounds.jsonl" in note for note in stub(tmp_path / "run").notes)
    assert outcome(tmp_path / "run") == whole


def test_a_state_that_does_not_fit_is_passed_over(tmp_path: Path, whole: dict[str, Any]) -> None:
    class Picky(StubSimulation):
        def load_state_dict(self, state: dict[str, Any]) -> None:
            if state["round"] == 3:
                raise StateError("this one I do not like")
            super().load_state_dict(state)

    interrupted_after(tmp_path / "run", 3)
    finished = run(STUB, tmp_path / "run", build=Picky)  # type: ignore[arg-type]
    assert finished.notes[0] == "checkpoint of round 3 refused: this one I do not like"
    assert outcome(tmp_path / "run") == whole


def test_other_data_under_the_same_name_starts_the_run_again(tmp_path: Path) -> None:
    class Other(StubSimulation):
        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.dataset.fingerprint = lambda: "e" * 64

    interrupted_after(tmp_path / "run", 3)
    finished = run(STUB, tmp_path / "run", build=Other)  # type: ignore[arg-type]
    assert "the data is another" in finished.notes[0]
    assert [record.round for record in finished.records] == [1, 2, 3, 4]
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["data_fingerprint"] == "e" * 64


def test_a_finished_run_is_left_alone(tmp_path: Path) -> None:
    first = stub(tmp_path / "run")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").iterdir()}
    again = run(STUB, tmp_path / "run", build=lambda config: pytest.fail("it is finished"))
    assert again.summary == first.summary
    assert again.records == first.records
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "run").iterdir()} == before


def test_a_run_of_another_configuration_is_refused_with_what_differs(tmp_path: Path) -> None:
    interrupted_after(tmp_path / "run", 2)
    other = STUB.model_copy(update={"seed": 1})
    with pytest.raises(StateError, match=r"is another one: seed: 0 -> 1$"):
        run(other, tmp_path / "run", build=StubSimulation)  # type: ignore[arg-type]
    (tmp_path / "run" / "config.toml").write_text("damaged")
    with pytest.raises(StateError) as caught:
        run(other, tmp_path / "run", build=StubSimulation)  # type: ignore[arg-type]
    assert config_hash(STUB) in str(caught.value)
    assert config_hash(other) in str(caught.value)
    assert len((tmp_path / "run" / "rounds.jsonl").read_text().splitlines()) == 2


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(OutputError, match="not empty"):
        stub(tmp_path)
    assert os.listdir(tmp_path) == ["notes.txt"]


def test_two_processes_do_not_run_one_folder_and_a_dead_one_holds_nothing(
    tmp_path: Path, whole: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted_after(tmp_path / "run", 2)
    monkeypatch.setattr("mabrfl.runs.finished.PATIENCE", 0.2)
    with RunFolder.resume(tmp_path / "run"), pytest.raises(OutputError, match="still going"):
        stub(tmp_path / "run")

    def hold() -> None:
        with RunFolder.resume(tmp_path / "run"):
            (tmp_path / "held").touch()
            signal.pause()

    monkeypatch.setattr("mabrfl.runs.finished.PATIENCE", HANGS)
    for _ in range(5):
        child = forked(hold)
        wait_until((tmp_path / "held").exists, "the other process does not begin")
        os.kill(child, signal.SIGKILL)
        RunFolder.resume(tmp_path / "run", patience=HANGS).close()
        assert ended(child) == -signal.SIGKILL
        (tmp_path / "held").unlink()
    stub(tmp_path / "run")
    assert outcome(tmp_path / "run") == whole


def test_whoever_waited_for_a_run_that_then_finished_does_not_run_it_again(tmp_path: Path) -> None:
    path = tmp_path / "run"
    interrupted_after(path, 2)

    def build_while_another_finishes(config: Any) -> Any:
        stub(path)
        return StubSimulation(config)

    finished = run(STUB, path, build=build_while_another_finishes, observers=[InterruptAfter(3)])
    assert finished.summary["rounds"] == 4
    assert outcome(path)["files"] == ["config.toml", "manifest.json", "rounds.jsonl", "summary.json"]


def test_the_manifest_tells_of_every_sitting_and_the_seconds_add_up(tmp_path: Path) -> None:
    class Slow(StubSimulation):
        def run(self) -> Any:
            for record in super().run():
                time.sleep(0.02)
                yield record

    for number in (1, 3):
        interrupted_after(tmp_path / "run", number, build=Slow)
    finished = stub(tmp_path / "run", build=Slow)
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert [sitting["after_round"] for sitting in manifest["resumed"]] == [1, 3]
    assert manifest["ended"] is not None
    assert finished.summary["seconds"] > 4 * 0.02


def test_a_full_disk_stops_the_run_and_keeps_what_is_done(tmp_path: Path, whole: dict[str, Any]) -> None:
    interrupted_after(tmp_path / "run", 2)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OutputError, match="No space left on device"):
            stub(tmp_path / "run")
    stub(tmp_path / "run")
    assert outcome(tmp_path / "run") == whole


def test_a_state_that_cannot_be_saved_names_the_way_out(tmp_path: Path) -> None:
    class Odd(StubSimulation):
        def state_dict(self) -> dict[str, Any]:
            return {"round": self.round, "defense": {"rule": {"seen": {1, 2}}}}

    odd: Callable[..., Any] = Odd
    with pytest.raises(StateError, match=r"a set at /simulation/defense/rule/seen \(--checkpoint-every 0"):
        run(STUB, tmp_path / "run", build=odd)
    assert run(STUB, tmp_path / "other", build=odd, checkpoint_every=0).summary["rounds"] == 4
