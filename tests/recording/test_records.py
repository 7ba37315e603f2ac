from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mabrfl.errors import OutputError, StateError
from mabrfl.recording import RoundRecord, RunFolder, manifest, read_rounds, read_summary
from mabrfl.recording.manifest import source_commit
from mabrfl.updates import Verdict

RECORD = RoundRecord(
    round=3,
    accuracy=91.25,
    loss=0.3,
    selected=(0, 1, 2, 7, "1"),
    verdicts={
        0: Verdict(True, "accepted", {"cosine": 0.25}),
        1: Verdict(False, "sybil", {"component": 2}),
        2: Verdict(False, "outlier"),
        7: Verdict(False, "malformed", {"cause": "nan"}),
        "1": Verdict(True, "accepted"),
    },
    reputation={0: (2.0, 1.0), "1": (1.0, 4.0)},
    attackers=frozenset({1, 2, "1"}),
    events=("warm-up",),
    facts={"threshold": 0.7},
    seconds={"train": 0.5},
    per_class=(90.0, 92.5),
    confusion=((9, 1), (3, 37)),
)


def test_counts_follow_from_the_verdicts() -> None:
    assert (RECORD.sybils, RECORD.outliers, RECORD.malformed) == (1, 1, 1)
    assert (RECORD.caught, RECORD.missed, RECORD.honest_rejected) == (2, 1, 1)


def test_a_record_survives_json_and_keeps_client_1_apart_from_client_text_1() -> None:
    line = RECORD.to_json()
    assert "\n" not in line
    assert RoundRecord.from_json(line) == RECORD


def test_numpy_values_nan_and_infinities_become_plain_json() -> None:
    evidence: dict[str, Any] = {"a": np.float32(0.5), "b": np.arange(2), "c": np.nan, "d": -np.inf, "e": np.bool_(True)}
    record = RoundRecord(1, math.nan, math.inf, (np.int64(4),), {4: Verdict(True, "accepted", evidence)})  # type: ignore[arg-type]
    data = json.loads(record.to_json(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert (data["accuracy"], data["loss"], data["selected"]) == (None, None, [4])
    assert data["verdicts"][0]["evidence"] == {"a": 0.5, "b": [0, 1], "c": None, "d": None, "e": True}
    assert math.isnan(RoundRecord.from_json(record.to_json()).accuracy)


@given(st.text(), st.dictionaries(st.text(), st.floats() | st.integers() | st.text() | st.none()))
def test_any_id_and_evidence_makes_one_strict_line(client: str, evidence: dict[str, Any]) -> None:
    line = RoundRecord(1, 1.0, 1.0, (client,), {client: Verdict(True, "accepted", evidence)}).to_json()
    assert len(line.splitlines()) == 1
    line.encode("ascii")
    assert RoundRecord.from_json(line).selected == (client,)


def run_into(path: Path, rounds: int = 3) -> None:
    with RunFolder.create(path) as folder:
        folder.start(config="seed = 0\n", manifest={"seed": 0, "ended": None})
        for number in range(1, rounds + 1):
            folder.append(RoundRecord(number, 50.0, 1.0, (0,), {0: Verdict(True, "accepted")}))
        folder.finish({"final_accuracy": np.float64(50.0), "loss": math.nan})


def test_a_run_folder_holds_config_manifest_rounds_and_summary(tmp_path: Path) -> None:
    run_into(tmp_path / "a" / "run")
    folder = tmp_path / "a" / "run"
    assert sorted(os.listdir(folder)) == ["config.toml", "manifest.json", "rounds.jsonl", "summary.json"]
    assert [record.round for record in read_rounds(folder).records] == [1, 2, 3]
    assert read_summary(folder) == {"final_accuracy": 50.0, "loss": None}
    assert json.loads((folder / "manifest.json").read_text())["ended"] is not None


def test_rounds_are_readable_while_the_run_goes_on(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "run") as folder:
        folder.append(RECORD)
        assert read_rounds(folder.path).records == (RECORD,)


@pytest.mark.parametrize("kept", [1, 20, -2])
def test_a_torn_last_line_is_left_out_and_reported(tmp_path: Path, kept: int) -> None:
    run_into(tmp_path / "run")
    path = tmp_path / "run" / "rounds.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:2], lines[2][:kept]]))
    found = read_rounds(tmp_path / "run")
    assert ([record.round for record in found.records], found.torn_line) == ([1, 2], 3)


def test_a_whole_file_has_no_torn_line_and_an_empty_one_no_rounds(tmp_path: Path) -> None:
    run_into(tmp_path / "run")
    assert read_rounds(tmp_path / "run").torn_line is None
    (tmp_path / "run" / "rounds.jsonl").write_text("")
    assert read_rounds(tmp_path / "run").records == ()


@pytest.mark.parametrize("damage", ["{}", "no json", "[1, 2]", "null", "[" * 100_000])
def test_damage_before_the_last_line_is_an_error(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "rounds.jsonl"
    path.write_text(f"{RECORD.to_json()}\n{damage}\n{RECORD.to_json()}\n")
    with pytest.raises(StateError, match="line 2 is not a round record"):
        read_rounds(tmp_path)


def test_a_missing_or_broken_summary_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="did the run finish"):
        read_summary(tmp_path)
    (tmp_path / "summary.json").write_text("[1]")
    with pytest.raises(StateError, match="holds a list"):
        read_summary(tmp_path)


def test_a_folder_with_anything_in_it_is_refused_and_untouched(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(OutputError, match="is not empty"):
        RunFolder.create(tmp_path)
    assert os.listdir(tmp_path) == ["notes.txt"]


def test_force_replaces_the_files_of_a_run_and_no_others(tmp_path: Path) -> None:
    run_into(tmp_path / "run")
    (tmp_path / "run" / "notes.txt").write_text("mine")
    (tmp_path / "run" / "clients.png").write_text("old")
    with RunFolder.create(tmp_path / "run", force=True) as folder:
        assert sorted(os.listdir(folder.path)) == ["notes.txt", "rounds.jsonl"]
        assert read_rounds(folder.path).records == ()


def test_force_does_not_take_the_folder_of_a_run_that_is_going(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    with RunFolder.create(tmp_path / "run") as folder:
        folder.append(RECORD)
        with pytest.raises(OutputError, match="still going"):
            RunFolder.create(tmp_path / "run", force=True)
        assert len(read_rounds(folder.path).records) == 1
    RunFolder.create(tmp_path / "run", force=True).close()


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").touch()
    with pytest.raises(OutputError, match="is a file"):
        RunFolder.create(tmp_path / "run")
    with pytest.raises(OutputError, match="cannot"):
        RunFolder.create(tmp_path / "run" / "below")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_place_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(OutputError, match="not writable"):
        RunFolder.create(tmp_path / "run")


def test_a_name_that_no_file_system_takes_is_refused_in_one_line(tmp_path: Path) -> None:
    for name in ("x" * 5000, "nul\0byte"):
        with pytest.raises(OutputError, match="output folder") as caught:
            RunFolder.create(tmp_path / name)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["with space", "ünïcode", "line\nbreak"])
def test_odd_names_are_fine(tmp_path: Path, name: str) -> None:
    run_into(tmp_path / name)
    assert len(read_rounds(tmp_path / name).records) == 3
    with pytest.raises(OutputError) as caught:
        RunFolder.create(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_a_full_disk_is_one_line_and_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_into(tmp_path / "run")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with RunFolder.create(tmp_path / "other") as folder:
        folder.finish({"final_accuracy": 1})
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OutputError, match="No space left on device"):
            folder.finish({"final_accuracy": 2})
    assert read_summary(tmp_path / "other") == {"final_accuracy": 1}
    assert not [name for name in os.listdir(tmp_path / "other") if name.startswith(".")]


def test_the_manifest_says_where_a_run_comes_from_without_paths_of_the_machine(tmp_path: Path) -> None:
    arguments = ["run", str(tmp_path / "config.toml"), f"--out={tmp_path / 'x'}", "--rounds", "3"]
    made = manifest(seed=5, config_hash="abc", data_fingerprint="def", arguments=arguments)
    assert made["arguments"] == ["run", "config.toml", "--out=x", "--rounds", "3"]
    assert (made["seed"], made["config_hash"], made["data_fingerprint"]) == (5, "abc", "def")
    assert {"python", "mabrfl", "numpy", "torch", "scipy"} <= set(made["versions"])
    text = json.dumps(made)
    assert str(tmp_path) not in text
    assert str(Path(sys.prefix)) not in text


def git(folder: Path, *command: str) -> None:
    settings = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", "-C", str(folder), *settings, *command], check=True, capture_output=True)


def test_the_commit_is_that_of_the_checkout_that_holds_the_package(tmp_path: Path) -> None:
    package = tmp_path / "src" / "mabrfl"
    package.mkdir(parents=True)
    (package / "a.py").write_text("1")
    git(tmp_path, "init")
    assert source_commit(package) is None
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "one")
    clean = source_commit(package)
    assert clean is not None
    assert (len(clean["commit"]), clean["dirty"]) == (40, False)
    (package / "a.py").write_text("2")
    assert source_commit(package) == {**clean, "dirty": True}


def test_a_repository_around_an_installed_package_is_not_its_source(tmp_path: Path) -> None:
    package = tmp_path / ".venv" / "lib" / "site-packages" / "mabrfl"
    package.mkdir(parents=True)
    git(tmp_path, "init")
    assert source_commit(package) is None
