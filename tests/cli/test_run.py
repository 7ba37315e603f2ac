from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mabrfl.cli import run
from mabrfl.config import ResolvedConfig, config_hash, load_config, resolve
from mabrfl.errors import DatasetError
from mabrfl.recording import read_rounds, read_summary

pytestmark = pytest.mark.usefixtures("fake")
ATTACK = ("--attack", "lie", "--attackers", "0.3")


def test_a_run_leaves_a_complete_folder(mabrfl: Callable[..., Any], tmp_path: Path) -> None:
    done = mabrfl("run", "--rounds", "4", *ATTACK, "--out", "here")
    assert (done.code, done.err) == (0, "")
    files = ["config.toml", "manifest.json", "rounds.jsonl", "summary.json"]
    pictures = ["accuracy.png", "accuracy.svg", "clients.png", "clients.svg"]
    assert sorted(os.listdir(tmp_path / "here")) == sorted(files + pictures)
    summary = read_summary(tmp_path / "here")
    assert (summary["final_accuracy"], summary["mean_last10"], summary["interrupted"]) == (40.0, 25.0, False)
    assert (summary["detection_precision"], summary["detection_recall"]) == (1.0, 0.75)
    manifest = json.loads((tmp_path / "here" / "manifest.json").read_text())
    assert manifest["config_hash"] == summary["config_hash"]
    assert manifest["data_fingerprint"] == "f" * 64


@pytest.mark.usefixtures("without_pictures")
def test_the_written_configuration_runs_again_and_is_the_same_run(mabrfl: Callable[..., Any], tmp_path: Path) -> None:
    mabrfl("run", "--rounds", "2", *ATTACK, "--set", "training.epochs=1", "--out", "one")
    again = mabrfl("run", "one/config.toml", "--out", "two")
    assert again.code == 0
    one, two = (read_summary(tmp_path / name)["config_hash"] for name in ("one", "two"))
    assert one == two
    assert load_config(tmp_path / "two" / "config.toml").training.epochs == 1


@pytest.mark.usefixtures("without_pictures")
def test_without_a_terminal_each_round_is_one_line(mabrfl: Callable[..., Any]) -> None:
    lines = mabrfl("run", "--rounds", "3", *ATTACK).out.splitlines()
    assert lines[0] == "digits, mlp, mab-rfl (hardened), lie by 6 of 20 clients, seed 0"
    assert lines[1].startswith("round 1/3  accuracy 10.00 %  selected 20  sybil 0  outlier 0  caught 0  missed 6")
    assert lines[2].startswith("round 2/3  accuracy 20.00 %  selected 20  sybil 6  outlier 0  caught 6  missed 0")
    assert "ETA" in lines[3]
    assert any("final accuracy" in line and "30.0 %" in line for line in lines)


@pytest.mark.usefixtures("without_pictures")
def test_the_default_folder_is_named_after_the_run_and_numbered(mabrfl: Callable[..., Any]) -> None:
    first = mabrfl("run", "--rounds", "2", "--quiet", *ATTACK)
    second = mabrfl("run", "--rounds", "2", "--quiet", *ATTACK)
    name = config_hash(load_config(None, {"rounds": 2, "attack": "lie", "attackers": 0.3}))[:8]
    assert first.out == f"runs/digits-mab-rfl-lie-{name}\n"
    assert second.out == f"runs/digits-mab-rfl-lie-{name}-2\n"


@pytest.mark.usefixtures("without_pictures")
def test_options_win_over_the_file_and_set_reaches_everything(mabrfl: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text("rounds = 9\nseed = 4\n[training]\nepochs = 2\n")
    settings = ["training.epochs=1", "defense_options.memory=0.2", "partition.sizes=[5, 9]", "partition.kind=iid"]
    done = mabrfl(
        "run", "my.toml", "--rounds", "1", *(part for text in settings for part in ("--set", text)), "--out", "o"
    )
    assert done.code == 0
    run = resolve(load_config(tmp_path / "o" / "config.toml"))
    assert (run.rounds, run.seed, run.training.epochs, run.defense_options["memory"]) == (1, 4, 1, 0.2)
    assert (run.partition.sizes, run.partition.kind) == ((5, 9), "iid")


@pytest.mark.usefixtures("without_pictures")
@pytest.mark.parametrize(("text", "count"), [("0.3", 6), ("30%", 6), ("7", 7), (".25", 5), ("0", 0)])
def test_attackers_are_a_share_or_a_count(mabrfl: Callable[..., Any], tmp_path: Path, text: str, count: int) -> None:
    assert mabrfl("run", "--rounds", "1", "--attack", "lie", "--attackers", text, "--out", "o").code == 0
    assert len(read_rounds(tmp_path / "o").records[0].attackers) == count


@pytest.mark.usefixtures("without_pictures")
def test_attackers_without_an_attack_are_remarked_upon(mabrfl: Callable[..., Any]) -> None:
    assert "attackers = 0.3 has no effect" in mabrfl("run", "--rounds", "1", "--attackers", "0.3").out


@pytest.mark.usefixtures("without_pictures")
def test_force_replaces_a_run(mabrfl: Callable[..., Any], tmp_path: Path) -> None:
    mabrfl("run", "--rounds", "3", "--out", "o")
    refused = mabrfl("run", "--rounds", "1", "--out", "o")
    assert (refused.code, refused.err) == (6, "error: output folder 'o' is not empty; choose another, or use --force\n")
    assert len(read_rounds(tmp_path / "o").records) == 3
    assert mabrfl("run", "--rounds", "1", "--out", "o", "--force").code == 0
    assert len(read_rounds(tmp_path / "o").records) == 1


def test_an_interrupted_run_keeps_its_rounds_and_says_where(
    mabrfl: Callable[..., Any], fake: Callable[..., Any], tmp_path: Path
) -> None:
    def interrupt(number: int) -> None:
        if number == 3:
            raise KeyboardInterrupt

    fake(interrupt)
    done = mabrfl("run", "--rounds", "9", "--out", "o")
    assert done.code == 130
    assert done.err == "interrupted; the finished rounds are in o; go on with: mabrfl run --resume --out o\n"
    assert len(read_rounds(tmp_path / "o").records) == 2
    summary = read_summary(tmp_path / "o")
    assert (summary["interrupted"], summary["rounds"], summary["final_accuracy"]) == (True, 2, 20.0)
    assert (tmp_path / "o" / "clients.png").exists()


def test_an_interruption_before_the_first_round_leaves_a_readable_summary(
    mabrfl: Callable[..., Any], fake: Callable[..., Any], tmp_path: Path
) -> None:
    def interrupt(number: int) -> None:
        raise KeyboardInterrupt

    fake(interrupt)
    assert mabrfl("run", "--out", "o").code == 130
    assert read_summary(tmp_path / "o")["final_accuracy"] is None
    assert not (tmp_path / "o" / "clients.png").exists()


@pytest.mark.usefixtures("without_pictures")
def test_missing_data_is_one_line_and_leaves_no_folder(
    mabrfl: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def missing(config: object) -> None:
        raise DatasetError("data set 'mnist' was not found\nand could not be fetched")

    monkeypatch.setattr("mabrfl.cli.run.build_simulation", missing)
    done = mabrfl("run", "--dataset", "mnist")
    assert (done.code, done.err) == (4, "error: data set 'mnist' was not found and could not be fetched\n")
    assert os.listdir(tmp_path) == []


@pytest.mark.usefixtures("without_pictures")
def test_a_mistake_in_a_round_finishes_the_records_and_is_not_hidden(
    mabrfl: Callable[..., Any], fake: Callable[..., Any], tmp_path: Path
) -> None:
    def fail(number: int) -> None:
        if number == 2:
            raise RuntimeError("a bug in the user's rule")

    fake(fail)
    with pytest.raises(RuntimeError, match="a bug"):
        mabrfl("run", "--out", "o")
    assert read_summary(tmp_path / "o")["interrupted"] is True


@pytest.mark.usefixtures("without_pictures")
@pytest.mark.parametrize("columns", ["1", "20", "300"])
def test_any_width_of_the_terminal_will_do(
    mabrfl: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert mabrfl("run", "--rounds", "2", *ATTACK).code == 0
    assert mabrfl("list").code == 0


@pytest.mark.usefixtures("without_pictures")
def test_a_terminal_gets_a_live_table(mabrfl: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTY_INTERACTIVE", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("LINES", "24")
    out = mabrfl("run", "--rounds", "20", *ATTACK).out
    for word in ("accuracy", "selected", "sybil", "outlier", "caught", "missed", "ETA", "round 20 of 20"):
        assert word in out


@pytest.mark.usefixtures("without_pictures")
def test_the_success_of_an_attack_with_a_goal_is_shown_and_of_another_is_not(
    mabrfl: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "attack success" not in mabrfl("run", "--rounds", "2", *ATTACK).out
    build = run.build_simulation

    def successful(config: Any) -> Any:
        simulation: Any = build(config)
        rounds = simulation.run
        simulation.run = lambda: (replace(record, attack_success=30.0 * record.round) for record in rounds())
        return simulation

    monkeypatch.setattr(run, "build_simulation", successful)
    lines = mabrfl("run", "--rounds", "2", "--attack", "backdoor", "--attackers", "0.3").out.splitlines()
    assert lines[1].startswith("round 1/2  accuracy 10.00 %  attack success 30.0 %  selected 20")
    assert any("attack success rate" in line and "60.0 %" in line for line in lines)


@pytest.mark.usefixtures("without_pictures")
def test_of_two_equal_runs_at_the_same_moment_each_has_its_folder(
    mabrfl: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    build = importlib.import_module("mabrfl.cli.run").build_simulation

    def build_after_another(config: ResolvedConfig) -> Any:
        # The other one begins after this one has looked for a folder, and ends before this one writes into it.
        monkeypatch.setattr("mabrfl.cli.run.build_simulation", build)
        assert mabrfl("run", "--rounds", "2", "--quiet").code == 0
        return build(config)

    monkeypatch.setattr("mabrfl.cli.run.build_simulation", build_after_another)
    assert mabrfl("run", "--rounds", "2", "--quiet").code == 0
    assert [len(read_rounds(folder).records) for folder in sorted((tmp_path / "runs").iterdir())] == [2, 2]


def test_force_spares_a_configuration_that_lies_in_the_folder(mabrfl: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("rounds = 1\n")
    refused = mabrfl("run", "config.toml", "--out", ".", "--force")
    assert refused.code == 6
    assert "has files that no run wrote, and a run would replace: config.toml" in refused.err
    assert (tmp_path / "config.toml").read_text() == "rounds = 1\n"
