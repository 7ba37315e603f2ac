"""``mabrfl run --resume``: go on with a run, or say why not."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mabrfl.recording import read_rounds, read_summary

pytestmark = pytest.mark.usefixtures("fake", "without_pictures")


@pytest.fixture
def interrupted(mabrfl: Callable[..., Any], fake: Callable[..., Any]) -> Callable[..., Any]:
    """Run and be interrupted in the fourth round."""

    def run(*arguments: str) -> Any:
        def interrupt(number: int) -> None:
            if number == 4:
                raise KeyboardInterrupt

        fake(interrupt)
        done = mabrfl("run", "--rounds", "6", "--out", "o", *arguments)
        fake()
        return done

    return run


def test_an_interrupted_run_goes_on_by_the_command_it_names(
    mabrfl: Callable[..., Any], interrupted: Callable[..., Any], tmp_path: Path
) -> None:
    first = interrupted()
    assert first.code == 130
    command = first.err.strip().partition("go on with: mabrfl ")[2].split()
    assert read_summary(tmp_path / "o")["interrupted"] is True
    done = mabrfl(*command)
    assert (done.code, done.err) == (0, "")
    lines = [line for line in done.out.splitlines() if line.startswith("round ")]
    assert [line.split()[1] for line in lines] == ["4/6", "5/6", "6/6"]
    summary = read_summary(tmp_path / "o")
    assert (summary["interrupted"], summary["rounds"]) == (False, 6)
    assert [record.round for record in read_rounds(tmp_path / "o").records] == [1, 2, 3, 4, 5, 6]
    assert sorted(os.listdir(tmp_path / "o")) == ["config.toml", "manifest.json", "rounds.jsonl", "summary.json"]


def test_the_result_is_that_of_a_run_in_one_sitting(
    mabrfl: Callable[..., Any], interrupted: Callable[..., Any], tmp_path: Path
) -> None:
    interrupted()
    assert mabrfl("run", "--resume", "--out", "o", "--quiet").out == "o\n"
    assert mabrfl("run", "--rounds", "6", "--out", "whole").code == 0
    hashes = [read_summary(tmp_path / name)["weights_sha256"] for name in ("o", "whole")]
    assert hashes[0] == hashes[1]
    assert read_rounds(tmp_path / "o").records == read_rounds(tmp_path / "whole").records


def test_another_configuration_is_refused_with_what_differs(
    mabrfl: Callable[..., Any], interrupted: Callable[..., Any], tmp_path: Path
) -> None:
    interrupted()
    before = (tmp_path / "o" / "rounds.jsonl").read_bytes()
    done = mabrfl("run", "--resume", "--out", "o", "--seed", "5")
    assert (done.code, done.err) == (5, "error: the run in 'o' is another one: seed: 0 -> 5\n")
    assert (tmp_path / "o" / "rounds.jsonl").read_bytes() == before
    (tmp_path / "same.toml").write_text("rounds = 6\n")
    assert mabrfl("run", "same.toml", "--resume", "--out", "o", "--workers", "1").code == 0


def test_a_run_whose_code_has_changed_is_not_resumed_but_started_again(
    mabrfl: Callable[..., Any], interrupted: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = "def rule(cohort):\n    return cohort\n"
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "resumed_rule.py").write_text(rule)
    assert interrupted("--defense", "resumed_rule:rule").code == 130
    before = (tmp_path / "o" / "rounds.jsonl").read_bytes()
    (tmp_path / "resumed_rule.py").write_text(rule + "FACTOR = 2\n")
    importlib.invalidate_caches()
    done = mabrfl("run", "--resume", "--out", "o")
    assert done.code == 5
    assert done.err == (
        "error: the code of 'resumed_rule:rule' has changed since the run in 'o' began, so that it cannot be resumed; "
        "start again with --force in place of --resume, or choose another folder with --out\n"
    )
    assert (tmp_path / "o" / "rounds.jsonl").read_bytes() == before
    assert mabrfl("run", "--rounds", "6", "--defense", "resumed_rule:rule", "--out", "o", "--force").code == 0
    assert mabrfl("run", "--resume", "--out", "o").err == "note: this run is finished already\n"
    (tmp_path / "resumed_rule.py").write_text(rule + "FACTOR = 3\n")
    assert mabrfl("run", "--resume", "--out", "o").err == (
        "note: this run is finished already\n"
        "note: the code of 'resumed_rule:rule' has changed since; --force runs it again\n"
    )


def test_a_run_whose_code_has_a_new_comment_is_resumed(
    mabrfl: Callable[..., Any], interrupted: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "commented_rule.py").write_text("def rule(cohort):\n    return cohort\n")
    interrupted("--defense", "commented_rule:rule")
    (tmp_path / "commented_rule.py").write_text("# Explained.\ndef rule(cohort):\n    return cohort\n")
    done = mabrfl("run", "--resume", "--out", "o")
    assert (done.code, done.err) == (0, "")
    assert "round 4/6" in done.out
    assert "round 3/6" not in done.out


def test_a_finished_run_is_shown_and_not_run(mabrfl: Callable[..., Any], fake: Callable[..., Any]) -> None:
    assert mabrfl("run", "--rounds", "2", "--out", "o").code == 0
    fake(lambda number: pytest.fail("it is finished"))
    done = mabrfl("run", "--resume", "--out", "o")
    assert (done.code, done.err) == (0, "note: this run is finished already\n")
    assert "20.0 %" in done.out


def test_checkpoints_come_as_often_as_asked_for(
    mabrfl: Callable[..., Any], interrupted: Callable[..., Any], tmp_path: Path
) -> None:
    interrupted("--checkpoint-every", "2")
    assert [path.stem for path in (tmp_path / "o" / "checkpoint").glob("*.json")] == ["round-0000002"]
    assert mabrfl("run", "--resume", "--out", "o").code == 0
    done = interrupted("--force", "--checkpoint-every", "0")
    assert done.err == "interrupted; the finished rounds are in o\n"
    assert not (tmp_path / "o" / "checkpoint").exists()
    again = mabrfl("run", "--resume", "--out", "o")
    assert (again.code, again.err) == (0, "note: no usable checkpoint: starting again with round 1\n")


def test_force_does_away_with_the_checkpoints_of_the_run_before(
    mabrfl: Callable[..., Any], interrupted: Callable[..., Any], tmp_path: Path
) -> None:
    interrupted()
    assert (tmp_path / "o" / "checkpoint").is_dir()
    assert mabrfl("run", "--rounds", "2", "--out", "o", "--force", "--checkpoint-every", "0").code == 0
    assert not (tmp_path / "o" / "checkpoint").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--resume"], 2, "--resume needs the folder of the run to go on with"),
        (["--resume", "--out", "o", "--force"], 2, "does not go with --force"),
        (["--resume", "--out", "nowhere"], 6, "there is no run to resume in 'nowhere'"),
        (["c.toml", "--resume", "--out", "nowhere"], 6, "there is no run to resume in 'nowhere'"),
        (["--resume", "--out", "file"], 6, "there is no run to resume in 'file'"),
        (["--checkpoint-every", "-1"], 2, "--checkpoint-every takes a number of rounds"),
        (["--checkpoint-every", "x"], 2, "is not a whole number"),
    ],
)
def test_a_mistake_is_one_line(
    mabrfl: Callable[..., Any], tmp_path: Path, arguments: list[str], code: int, message: str
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "c.toml").write_text("rounds = 2")
    done = mabrfl("run", *arguments)
    assert done.code == code
    assert message in done.err
    assert done.err.count("\n") == 1
    assert sorted(os.listdir(tmp_path)) == ["c.toml", "file"]
