"""A run folder that is gone on with."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mabrfl.errors import OutputError, StateError
from mabrfl.recording import RoundRecord, RunFolder, read_rounds
from mabrfl.recording.checkpoint import save_checkpoint
from mabrfl.recording.ownership import reserved


def record(number: int) -> RoundRecord:
    return RoundRecord(number, 50.0, 1.0, (0,), {})


def rounds_in(path: Path) -> list[int]:
    return [found.round for found in read_rounds(path).records]


def test_a_mark_is_a_place_to_go_back_to(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "run") as folder:
        folder.append(record(1))
        mark = folder.mark()
        folder.append(record(2))
    with RunFolder.resume(tmp_path / "run") as folder:
        assert rounds_in(folder.path) == [1, 2]
        folder.rewind(mark)
        assert rounds_in(folder.path) == [1]
        assert folder.mark() == mark
        folder.append(record(7))
        assert rounds_in(folder.path) == [1, 7]
        folder.rewind()
        assert rounds_in(folder.path) == []


@pytest.mark.parametrize("damage", ["shorter", "changed"])
def test_a_mark_that_no_longer_fits_is_refused_and_nothing_is_removed(tmp_path: Path, damage: str) -> None:
    with RunFolder.create(tmp_path / "run") as folder:
        folder.append(record(1))
        mark = folder.mark()
        folder.finish({"rounds": 1}, complete=False)
    path = tmp_path / "run" / "rounds.jsonl"
    text = path.read_bytes()
    path.write_bytes(text[:-1] if damage == "shorter" else text.replace(b"50.0", b"51.0"))
    with RunFolder.resume(tmp_path / "run") as folder, pytest.raises(StateError, match=r"rounds\.jsonl: expected"):
        folder.rewind(mark)
    assert len(path.read_bytes()) >= len(text) - 1
    assert (tmp_path / "run" / "summary.json").exists()


def test_going_on_removes_the_end_of_the_last_sitting_and_what_a_kill_left(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "run") as folder:
        folder.start(config="", manifest={})
        folder.finish({"rounds": 0}, complete=False)
    for name in (".summary.json-x1", ".config.toml-_a", "clients.png", "notes.txt"):
        (tmp_path / "run" / name).touch()
    with RunFolder.resume(tmp_path / "run") as folder:
        assert (folder.path / "summary.json").exists()
        folder.rewind()
    assert sorted(os.listdir(tmp_path / "run")) == ["config.toml", "manifest.json", "notes.txt", "rounds.jsonl"]


def test_only_a_complete_run_gives_up_its_checkpoints(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "run") as folder:
        folder.append(record(1))
        folder.checkpoint({"x": 1}, round=1, config_hash="c")
        folder.finish({}, complete=False)
        assert folder.checkpoints.is_dir()
        folder.finish({}, complete=True)
        assert not folder.checkpoints.exists()


def test_a_new_run_in_the_place_of_an_old_one_has_none_of_its_checkpoints(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "run") as folder:
        save_checkpoint(folder.checkpoints, {}, round=1, config_hash="c")
    with RunFolder.create(tmp_path / "run", force=True) as folder:
        assert os.listdir(folder.path) == ["rounds.jsonl"]


def test_a_folder_that_is_not_there_cannot_be_gone_on_with(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="No such file"):
        RunFolder.resume(tmp_path / "no")
    with RunFolder.create(tmp_path / "run"), pytest.raises(OutputError, match="still going"):
        RunFolder.resume(tmp_path / "run", patience=0.1)


@pytest.mark.parametrize("name", ["config.toml", "manifest.json", "rounds.jsonl", "summary.json", "accuracy.png"])
def test_force_does_not_replace_a_file_that_no_run_wrote(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text('{"mine": true}')
    with pytest.raises(OutputError, match=rf"has files that no run wrote, and a run would replace: {name}"):
        RunFolder.create(tmp_path, force=True)
    assert (tmp_path / name).read_text() == '{"mine": true}'
    assert os.listdir(tmp_path) == [name]


def test_force_replaces_a_run_however_early_it_was_killed(tmp_path: Path) -> None:
    for steps in range(4):
        with RunFolder.create(tmp_path / f"{steps}") as folder:
            if steps > 0:
                (folder.path / "config.toml").touch()
            if steps == 2:
                folder.append(record(1))
            if steps == 3:
                folder.start(config="", manifest={"config_hash": "c"})
        with RunFolder.create(tmp_path / f"{steps}", force=True):
            assert os.listdir(tmp_path / f"{steps}") == ["rounds.jsonl"]


def test_force_leaves_other_files_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with RunFolder.create(tmp_path, force=True):
        assert sorted(os.listdir(tmp_path)) == ["notes.txt", "rounds.jsonl"]


def test_a_reserved_folder_is_had_by_one_and_goes_if_it_stays_empty(tmp_path: Path) -> None:
    wanted = tmp_path / "runs" / "a"
    with reserved(wanted) as first, reserved(wanted) as second, reserved(wanted) as third:
        assert [path.name for path in (first, second, third)] == ["a", "a-2", "a-3"]
        RunFolder.create(second).close()
    assert os.listdir(tmp_path / "runs") == ["a-2"]
    with reserved(tmp_path / "new" / "a"):
        pass
    assert os.listdir(tmp_path) == ["runs"]


def test_a_folder_that_cannot_be_reserved_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "runs").touch()
    with pytest.raises(OutputError, match="runs/a' cannot be made: Not a directory"), reserved(tmp_path / "runs" / "a"):
        pass
