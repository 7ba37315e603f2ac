"""Files that are not what their name says: pipes, links, wrong types; and the rights of what is written."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from mabrfl.cli.main import main
from mabrfl.errors import StateError
from mabrfl.recording import RoundRecord, RunFolder, read_rounds, read_summary
from mabrfl.recording.atomic import write_atomically
from mabrfl.recording.audit import AUDIT, AuditLog, verify
from mabrfl.recording.checkpoint import save_checkpoint
from mabrfl.recording.files import read_bytes
from mabrfl.recording.ownership import holds_run
from mabrfl.recording.regular import open_lock, open_regular
from mabrfl.runs.finished import read_manifest
from mabrfl.updates import Verdict


def audit_of(folder: Path, rows: int = 5, saved: int = 3) -> Path:
    """Write an audit, and a state that knows of its first lines."""
    log = AuditLog.open(folder / AUDIT)
    for number in range(1, rows + 1):
        log.append({"kind": "reply", "round": number, "client": number, "verdict": "accepted", "evidence": {}})
        if number == saved:
            save_checkpoint(folder / "checkpoint", {"audit": log.mark()}, round=1, config_hash="0")
    log.close()
    return folder / AUDIT


@pytest.mark.parametrize("umask", [0o077, 0o022, 0o027])
def test_a_replaced_file_has_the_rights_that_the_umask_leaves(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        write_atomically(tmp_path / "file", "text")
        save_checkpoint(tmp_path / "states", {"number": 1}, round=1, config_hash="0")
        audit_of(tmp_path)
    finally:
        os.umask(before)
    files = [tmp_path / "file", tmp_path / AUDIT, *(tmp_path / "states").iterdir()]
    assert {file.stat().st_mode & 0o777 for file in files} == {0o644 & ~umask}


@pytest.mark.parametrize("device", ["pipe", "/dev/zero", "/dev/tty", "folder"])
def test_nothing_waits_for_a_pipe_or_reads_a_device(tmp_path: Path, device: str) -> None:
    for name in (AUDIT, "rounds.jsonl", "summary.json", "manifest.json", "lock"):
        if device == "pipe":
            os.mkfifo(tmp_path / name)
        elif device == "folder":
            (tmp_path / name).mkdir()
        else:
            (tmp_path / name).symlink_to(device)
    for read in (open_regular, lambda path: open_lock(Path(path))):
        with pytest.raises(OSError, match=r"regular file|No such device|folder|directory"):
            read(tmp_path / "lock")
    for refuse in (
        lambda: verify(tmp_path / AUDIT),
        lambda: AuditLog.open(tmp_path / AUDIT),
        lambda: read_rounds(tmp_path / "rounds.jsonl"),
        lambda: read_summary(tmp_path),
        lambda: read_bytes(tmp_path / "manifest.json"),
    ):
        with pytest.raises(StateError, match=r"cannot read '.*(audit|rounds|summary|manifest)"):
            refuse()
    assert not holds_run(tmp_path)
    with pytest.raises(Exception, match=r"manifest\.json"):
        read_manifest(tmp_path)


def test_verify_and_resume_agree_about_a_torn_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = audit_of(tmp_path, rows=5, saved=3)
    whole = file.read_bytes()
    mark = json.loads((tmp_path / "checkpoint" / "round-0000001.json").read_text())["state"]["audit"]
    for kept in (1, 2, 3, 4, 5):
        lines = whole.splitlines(keepends=True)[:kept]
        file.write_bytes(b"".join([*lines[:-1], lines[-1][:-20]]))
        assert main(["audit", "verify", str(tmp_path)]) == StateError.exit_code
        said = " ".join(capsys.readouterr().err.split())
        if kept <= 3:  # the state needs this line
            assert "expected 3 lines" in said
            assert "goes on" not in said
            with pytest.raises(StateError, match="expected 3 lines"):
                AuditLog.open(file, mark)
        else:
            assert "when it goes on, it says so" in said
            log = AuditLog.open(file, mark)
            log.go_back(1, "now")
            log.close()
            assert verify(file).problem is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("round", 1e400),
        ("round", "1"),
        ("selected", [[1]]),
        ("verdicts", [{"id": []}]),
        ("facts", 3),
        ("events", "x"),
        ("attackers", {"a": 1}),
        ("seconds", [1]),
        ("accuracy", "9"),
        ("per_class", 3),
        ("confusion", [[1]]),
        ("confusion", [[1, 2], [3]]),
        ("confusion", [[1, 2.5], [3, 4]]),
        ("attack_success", {}),
    ],
)
def test_a_round_with_a_value_of_another_type_is_refused_and_the_line_named(
    tmp_path: Path, field: str, value: object
) -> None:
    with RunFolder.create(tmp_path / "run") as folder:
        record = RoundRecord(1, 90.0, 0.3, (0,), {0: Verdict(True, "accepted")})
        folder.append(record)
        folder.append(record)
    file = tmp_path / "run" / "rounds.jsonl"
    first, second = file.read_text().splitlines()
    damaged = json.dumps({**json.loads(first), field: value}).replace("Infinity", "1e400")
    file.write_text(f"{damaged}\n{second}\n")
    with pytest.raises(StateError, match=r"rounds\.jsonl' line 1 is not a round record"):
        read_rounds(file)


def test_rows_of_an_audit_with_odd_values_are_shown_and_odd_numbers_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = AuditLog.open(tmp_path / AUDIT)
    log.append({"kind": "reply", "round": [1], "client": {}, "evidence": [3], "reputation_after": 7, "verdict": []})
    log.append({"kind": "reply", "round": 1, "client": "key:ab", "evidence": {"norm": 0.5}, "verdict": "accepted"})
    log.close()
    assert main(["audit", "show", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum("ab" in line and "accepted" in line for line in lines) == 1, "piped, a row is one line"
