"""The audit: whatever is changed in it is found."""

from __future__ import annotations

import json

import pytest

from mabrfl.cli.main import main
from mabrfl.errors import StateError
from mabrfl.recording.audit import START, AuditLog, read_audit, safe_text, verify

NASTY = "x\n\x1b[31m</script>\u202e" + "y" * 500


@pytest.fixture
def audit(tmp_path):
    log = AuditLog.open(tmp_path / "audit.jsonl")
    for number in range(1, 6):
        log.append(
            {
                "kind": "reply",
                "round": number,
                "client": "key:ab" if number % 2 else "node:7",
                "verdict": "accepted",
                "reason": "accepted",
                "detail": safe_text(NASTY),
                "evidence": {"norm": 0.5},
                "reputation_before": [1.0, 1.0],
                "reputation_after": [2.0, 1.0],
            }
        )
    log.mark()
    log.close()
    return tmp_path / "audit.jsonl"


def test_an_untouched_audit_is_whole(audit):
    report = verify(audit)
    assert (report.rows, report.problem) == (5, None)
    assert [row["seq"] for row in read_audit(audit)] == [1, 2, 3, 4, 5]
    assert next(read_audit(audit))["previous"] == START


def test_a_changed_byte_is_found_wherever_it_is(audit):
    whole = audit.read_bytes()
    missed = []
    for place in range(0, len(whole), max(1, len(whole) // 1000)):
        audit.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        if verify(audit).problem is None:
            missed.append(place)
    assert missed == []


@pytest.mark.parametrize("damage", ["remove", "swap", "insert", "cut"])
def test_lines_that_are_removed_moved_or_inserted_are_found(audit, damage):
    lines = audit.read_bytes().splitlines(keepends=True)
    changed = {
        "remove": lines[:1] + lines[2:],
        "swap": [lines[1], lines[0], *lines[2:]],
        "insert": lines[:2] + lines[1:],
        "cut": [*lines[:4], lines[4][:-9]],
    }[damage]
    audit.write_bytes(b"".join(changed))
    assert verify(audit).problem is not None
    with pytest.raises(StateError, match="line"):
        list(read_audit(audit))


def test_lines_removed_from_the_end_are_found_by_the_hash_noted_before(audit):
    head = verify(audit).head
    lines = audit.read_bytes().splitlines(keepends=True)
    audit.write_bytes(b"".join(lines[:-1]))
    assert verify(audit).problem is None
    assert "no line has the hash" in str(verify(audit, head=head).problem)


def test_strange_text_stays_one_inert_line(audit):
    text = audit.read_bytes()
    assert text.count(b"\n") == 5
    assert b"<" not in text
    assert all(32 <= byte < 127 or byte == 10 for byte in text)
    assert len(next(read_audit(audit))["detail"]) <= 256


def test_what_was_written_after_the_mark_is_written_again(audit):
    log = AuditLog.open(audit, {"rows": 3, "sha256": list(read_audit(audit))[2]["sha256"]})
    log.append({"kind": "round", "round": 4})
    log.close()
    assert [row["kind"] for row in read_audit(audit)] == ["reply"] * 3 + ["round"]


def test_a_mark_of_another_audit_is_refused_and_nothing_is_removed(audit):
    before = audit.read_bytes()
    with pytest.raises(StateError, match="expected 3 lines"):
        AuditLog.open(audit, {"rows": 3, "sha256": "0" * 64})
    assert audit.read_bytes() == before


def test_the_command_verifies_and_shows(audit, capsys):
    assert main(["audit", "verify", str(audit)]) == 0
    head = capsys.readouterr().out.split()[-1]
    assert main(["audit", "verify", str(audit.parent), "--head", head]) == 0
    capsys.readouterr()
    assert main(["audit", "show", str(audit), "--client", "ab", "--round", "3", "--format", "jsonl"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["round"], row["client"]) for row in rows] == [(3, "key:ab")]
    assert main(["audit", "show", str(audit)]) == 0
    assert "accepted" in capsys.readouterr().out


def test_the_command_says_which_line_was_changed(audit, capsys):
    audit.write_bytes(audit.read_bytes().replace(b'"round":3', b'"round":9'))
    assert main(["audit", "verify", str(audit)]) == 5
    assert "line 3: changed since it was written (2 lines before it are good)" in " ".join(
        capsys.readouterr().err.split()
    )
    assert main(["audit", "show", str(audit), "--format", "xml"]) == 3
