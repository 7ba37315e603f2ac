"""The audit in several files with one chain, and its last hash outside the folder."""

from __future__ import annotations

import shutil
import sys

import pytest

from flower_grid import MemoryGrid, honest, model
from mabrfl.cli.main import main
from mabrfl.errors import ConfigError, StateError
from mabrfl.flower import MabRflStrategy
from mabrfl.recording.audit import read_audit, verify
from mabrfl.recording.audit_files import audit_files

NODES = range(1, 5)


def run(folder, rounds, **arguments):
    made = MabRflStrategy("paper", seed=4, min_available_nodes=4, fraction_evaluate=0.0, state_dir=folder, **arguments)
    return made, made.start(MemoryGrid({k: honest(k) for k in NODES}), model(), num_rounds=rounds, timeout=600)


def stable(rows):
    return [{key: row[key] for key in row if key not in ("time", "sha256", "previous", "run")} for row in rows]


def test_the_chain_runs_through_all_files_and_restarts(tmp_path, capsys):
    run(tmp_path / "one", 2)
    run(tmp_path / "one", 5)
    run(tmp_path / "many", 2, audit_max_bytes=1)
    run(tmp_path / "many", 5, audit_max_bytes=1500)
    audit = tmp_path / "many" / "audit.jsonl"
    files = audit_files(audit)
    assert len(files) > 3
    assert files[-1] == audit
    assert stable(read_audit(audit)) == stable(read_audit(tmp_path / "one" / "audit.jsonl"))
    assert verify(audit).problem is None
    assert main(["audit", "verify", str(tmp_path / "many")]) == 0
    assert f"{len(list(read_audit(audit)))} lines, unbroken" in capsys.readouterr().out


@pytest.mark.parametrize("damage", ["removed", "changed", "torn", "swapped"])
def test_damage_in_a_full_file_is_found_and_the_file_named(tmp_path, damage):
    run(tmp_path, 4, audit_max_bytes=1)
    first, second, *_ = audit_files(tmp_path / "audit.jsonl")
    if damage == "removed":
        first.unlink()
    elif damage == "changed":
        first.write_text(first.read_text().replace("accepted", "rejected", 1))
    elif damage == "torn":
        first.write_bytes(first.read_bytes()[:-5])
    else:
        one, two = first.read_bytes(), second.read_bytes()
        first.write_bytes(two)
        second.write_bytes(one)
    report = verify(tmp_path / "audit.jsonl")
    assert "(in audit-" in report.problem
    assert not report.torn
    with pytest.raises(StateError, match="audit"):
        run(tmp_path, 5, audit_max_bytes=1)


def test_a_crash_between_the_two_steps_of_a_new_file_loses_nothing(tmp_path):
    run(tmp_path, 2, audit_max_bytes=1)
    (tmp_path / "audit.jsonl").unlink()  # it was empty: the next one was not yet made
    run(tmp_path, 3, audit_max_bytes=1)
    assert verify(tmp_path / "audit.jsonl").problem is None


def keeper(tmp_path, kind):
    """A file, or a command that keeps the hash in one."""
    if kind == "file":
        return tmp_path / "head", tmp_path / "head"
    script = tmp_path / "keep.py"
    script.write_text(
        "import pathlib, sys\n"
        f"file = pathlib.Path({str(tmp_path / 'head')!r})\n"
        "if sys.argv[1] == 'record': file.write_text(sys.argv[2])\n"
        "elif file.exists(): print(file.read_text())\n"
    )
    return [sys.executable, str(script)], tmp_path / "head"


@pytest.mark.parametrize("kind", ["file", "command"])
def test_an_older_copy_of_the_folder_is_refused(tmp_path, kind):
    place, file = keeper(tmp_path, kind)
    run(tmp_path / "state", 1, record_head=place)
    shutil.copytree(tmp_path / "state", tmp_path / "copy")
    run(tmp_path / "state", 3, record_head=place)
    assert file.read_text().strip() == list(read_audit(tmp_path / "state" / "audit.jsonl"))[-1]["sha256"]
    shutil.rmtree(tmp_path / "state")
    (tmp_path / "copy").rename(tmp_path / "state")
    with pytest.raises(StateError, match="no line has the hash"):
        run(tmp_path / "state", 3, record_head=place)
    run(tmp_path / "state", 2)  # without the record nobody can tell


def test_a_record_that_cannot_be_written_is_logged_and_one_that_cannot_be_read_is_refused(tmp_path, caplog):
    run(tmp_path / "state", 1, record_head=tmp_path / "head")
    (tmp_path / "head").write_text("nonsense")
    with pytest.raises(StateError, match="must have the hash"):
        run(tmp_path / "state", 2, record_head=tmp_path / "head")
    with pytest.raises(StateError, match="cannot be read"):
        run(tmp_path / "state", 2, record_head=["false"])
    (tmp_path / "no").write_text("a file")
    run(tmp_path / "state", 2, record_head=tmp_path / "no" / "head")
    assert "could not be recorded" in caplog.text


@pytest.mark.parametrize("given", [{"record_head": []}, {"record_head": [1]}, {"audit_max_bytes": 0}])
def test_settings_without_sense_are_refused(given):
    with pytest.raises(ConfigError, match=next(iter(given))):
        MabRflStrategy(**given)
