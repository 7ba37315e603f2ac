"""The audit: whatever is changed in it is found."""

from __future__ import annotations

import json

import pytest

from mabrfl.cli.main import main
from mabrfl.errors import StateError
from mabrfl.recording import checkpoint
from mabrfl.recording.audit import START, AuditLog, read_audit, safe_text, valid_rows, verify
from mabrfl.recording.checkpoint import save_checkpoint
from mabrfl.recording.folder import lock

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


def test_a_row_that_is_too_long_to_be_read_again_is_cut_and_says_so(tmp_path):
    log = AuditLog.open(tmp_path / "audit.jsonl")
    log.append({"kind": "reply", "client": 1, "verdict": "accepted", "evidence": {"all": list(range(300_000))}})
    log.append({"kind": "reply", "client": 2, "verdict": "accepted", "evidence": {}})
    log.close()
    assert verify(tmp_path / "audit.jsonl").problem is None
    first, second = read_audit(tmp_path / "audit.jsonl")
    assert first["client"] == 1
    assert first["cut"] > 2**20
    assert "evidence" not in first
    assert "cut" not in second


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


def mark_of(audit, row):
    return {"rows": row, "sha256": list(read_audit(audit))[row - 1]["sha256"]}


def go_back(audit, row):
    log = AuditLog.open(audit, mark_of(audit, row))
    undone = log.go_back(round=row, time="now")
    log.close()
    return undone


def test_what_was_written_after_the_mark_stays_and_no_longer_stands(audit):
    before = audit.read_bytes()
    assert go_back(audit, 3) == 2
    assert audit.read_bytes().startswith(before)
    rows = list(read_audit(audit))
    assert [row["kind"] for row in rows] == ["reply"] * 5 + ["back"]
    assert (rows[-1]["after"], rows[-1]["round"], rows[-1]["undone"]) == (3, 3, 2)
    assert [row["seq"] for row in valid_rows(rows)] == [1, 2, 3, 6]
    assert verify(audit).problem is None
    assert verify(audit).history.undone == {4, 5}


def test_going_back_twice_undoes_nothing_twice(audit):
    go_back(audit, 3)
    assert go_back(audit, 3) == 0
    assert audit.read_bytes().count(b"\n") == 6
    assert go_back(audit, 2) == 1
    assert [row["seq"] for row in valid_rows(read_audit(audit))] == [1, 2, 6, 7]


def test_a_line_torn_at_any_byte_is_the_only_thing_cut_and_it_is_told(audit):
    whole = audit.read_bytes()
    start = whole.rstrip(b"\n").rindex(b"\n") + 1
    mark = mark_of(audit, 4)
    for place in range(start + 1, len(whole), 97):
        audit.write_bytes(whole[:place])
        log = AuditLog.open(audit, mark)
        assert audit.read_bytes() == whole[:place], "nothing is cut before there is a line to say so"
        log.go_back(round=4, time="now")
        log.close()
        rows = list(read_audit(audit))
        assert [row["seq"] for row in rows] == [1, 2, 3, 4, 5]
        assert (rows[-1]["kind"], rows[-1]["torn_bytes"], rows[-1]["undone"]) == ("back", place - start, 0)
        assert audit.read_bytes().startswith(whole[:start])


def test_a_changed_line_after_the_mark_is_refused_and_nothing_is_removed(audit):
    mark = mark_of(audit, 2)
    audit.write_bytes(audit.read_bytes().replace(b'"round":4', b'"round":9'))
    before = audit.read_bytes()
    with pytest.raises(StateError, match=r"line 4: changed since it was written\. Put the file back"):
        AuditLog.open(audit, mark)
    assert audit.read_bytes() == before


@pytest.mark.parametrize("after", [-1, 6, "3", None])
def test_a_line_that_goes_back_to_nowhere_is_found(audit, after):
    log = AuditLog.open(audit, mark_of(audit, 5))
    log.append({"kind": "back", "round": 1, "after": after})
    log.close()
    assert verify(audit).problem == "line 6: does not go back to an earlier line"


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


def output(capsys, *arguments):
    code = main(["audit", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, " ".join(err.split())


def shown(capsys, *arguments):
    code, out, err = output(capsys, "show", *arguments, "--format", "jsonl")
    assert (code, err) == (0, "")
    return [json.loads(line) for line in out.splitlines()]


def test_what_was_undone_is_hidden_with_a_note_and_shown_if_asked_for(audit, capsys):
    go_back(audit, 3)
    code, out, err = output(capsys, "show", audit, "--format", "jsonl")
    assert code == 0
    assert [json.loads(line)["seq"] for line in out.splitlines()] == [1, 2, 3]
    assert err == "2 rows more were undone when the run went back to a saved state; see --all"
    assert [(row["seq"], row.get("undone")) for row in shown(capsys, audit, "--all", "--round", "4")] == [(4, True)]
    assert "(undone)" in output(capsys, "show", audit, "--all")[1]
    assert "went back to a saved state once, which undid 2 of them; last hash" in output(capsys, "verify", audit)[1]


def test_the_good_rows_are_shown_before_a_torn_line_is_told(audit, capsys):
    with audit.open("ab") as file:
        file.write(b'{"kind":"rep')
    code, out, err = output(capsys, "show", audit, "--format", "jsonl")
    assert (code, len(out.splitlines())) == (5, 5)
    assert "line 6: cut off in the middle of writing" in err
    code, _, err = output(capsys, "verify", audit)
    assert code == 5
    assert "(5 lines before it are good). The run was killed while it wrote; when it goes on, it says so" in err


def test_a_line_that_a_run_is_writing_is_no_damage(audit, capsys):
    head = verify(audit).head
    with audit.open("ab") as file:
        file.write(b'{"kind":"rep')
    with (audit.parent / "lock").open("a") as held:
        assert lock(held)
        code, out, _ = output(capsys, "verify", audit.parent, "--head", head)
        assert (code, out.strip()) == (0, f"5 lines, unbroken; the run is writing the next one; last hash {head}")
        code, _, err = output(capsys, "verify", audit.parent, "--head", "f" * 64)
        assert (code, "no line has the hash" in err) == (5, True)
        code, out, err = output(capsys, "show", audit.parent, "--format", "jsonl")
        assert (code, len(out.splitlines()), err) == (0, 5, "")
    assert output(capsys, "verify", audit.parent)[0] == 5
    assert output(capsys, "show", audit.parent)[0] == 5


def test_verify_reads_the_state_before_the_audit_that_a_run_goes_on_writing(audit, capsys, monkeypatch):
    read = checkpoint.newest_document

    def reads_and_goes_on(folder):
        found = read(folder)
        log = AuditLog.open(audit, mark_of(audit, 5))
        log.append({"kind": "round", "round": 6})
        save_checkpoint(folder, {"audit": log.mark()}, round=6, config_hash="0")
        log.close()
        return found

    monkeypatch.setattr(checkpoint, "newest_document", reads_and_goes_on)
    assert output(capsys, "verify", audit.parent)[1].startswith("6 lines, unbroken; last hash")


@pytest.fixture
def crowd(tmp_path):
    log = AuditLog.open(tmp_path / "audit.jsonl")
    for client in (1, 10, 11, "1x", "node:1", "node:12", "key:1a2b", "key:1aff", "key:77", "name"):
        log.append({"kind": "reply", "round": 1, "client": client, "verdict": "accepted"})
    log.close()
    return tmp_path


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("1", [1, "node:1"]),
        ("10", [10]),
        ("1x", ["1x"]),
        ("na", []),
        ("name", ["name"]),
        ("node:1", ["node:1"]),
        ("1a", ["key:1a2b", "key:1aff"]),
        ("key:1a2", ["key:1a2b"]),
        ("key:77", ["key:77"]),
        ("7", ["key:77"]),
    ],
)
def test_a_client_is_found_by_its_whole_name_or_the_beginning_of_its_hash(crowd, capsys, asked, found):
    assert [row["client"] for row in shown(capsys, crowd, "--client", asked)] == found
