from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mabrfl.recording.audit import AuditLog
from mabrfl.sweeps.packing import pack
from result_folders import write_sweep


def test_a_run_a_sweeps_cell_and_a_packed_file_are_explained(mabrfl: Callable[..., Any], tmp_path: Path) -> None:
    attack = {"attack": "lie", "attackers": 3}
    sweep = write_sweep(tmp_path / "s", [({"defense": "krum", **attack}, 90.0), ({"defense": "median"}, 80.0)])
    unclear = mabrfl("explain", "s")
    assert unclear.code == 3
    assert unclear.err.startswith("error: which run? --cell ")
    key = next(path.parent.name for path in sweep.glob("cells/*/config.toml") if "krum" in path.read_text())
    chosen = mabrfl("explain", "s", "--cell", key[:8])
    alone = mabrfl("explain", f"s/cells/{key}")
    assert (chosen.code, chosen.out) == (0, alone.out)
    assert "Client 9, in truth an attacker, was invited in 2 of 4 rounds, accepted in 1 and rejected in 1" in alone.out
    told = mabrfl("explain", f"s/cells/{key}", "--client", "9").out
    assert "round 2: Rejected as a sybil" in told
    assert "rounds 3 to 4: in round 4: Not invited: its reputation was 25 % (B 1.00 for it, " in told
    one = mabrfl("explain", f"s/cells/{key}", "--client", "9", "--round", "2").out
    assert one.startswith("client 9, round 2: Rejected as a sybil")
    every = mabrfl("explain", f"s/cells/{key}", "--round", "2").out
    assert every.startswith("Round 2: 10 clients were invited. Events: none.\nclient 0: Accepted")
    pack(sweep, tmp_path / "p.json.gz")
    packed = mabrfl("explain", "p.json.gz", "--cell", key[:8], "--client", "9").out
    assert "Client 9, in truth an attacker, was invited in 2 of 4 rounds and rejected in 1" in packed
    assert "last invited in round 2 and last accepted in round 1" in packed


def test_what_cannot_be_explained_is_one_line(mabrfl: Callable[..., Any], tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path / "s", [({"defense": "krum"}, 90.0)])
    pack(sweep, tmp_path / "p.json.gz")
    for arguments, message in {
        ("s", "--client", "77"): "unknown client '77'",
        ("s", "--round", "9"): "there is no round 9; the run has rounds 1 to 4",
        ("s", "--cell", "zz"): "no key begins with 'zz'",
        ("p.json.gz", "--round", "1"): "--round needs the folder of the run",
        ("p.json.gz", "--client", "77"): "unknown client '77'",
        ("nowhere",): "there are no results at 'nowhere'",
    }.items():
        done = mabrfl("explain", *arguments)
        assert done.code in (3, 5)
        assert message in done.err
        assert (done.err.count("\n"), done.out) == (1, "")


def test_the_state_folder_of_a_flower_strategy_is_explained(mabrfl: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    audit = AuditLog.open(tmp_path / "state" / "audit.jsonl")
    common = {"kind": "reply", "round": 1, "blamed": False}
    audit.append(
        {**common, "client": "key:ab12", "verdict": "accepted", "reason": "accepted", "evidence": {"share": 1}}
    )
    audit.append({**common, "client": "key:cd34", "verdict": "quarantined", "reason": "shape", "detail": "\x1b[31mred"})
    audit.append({"kind": "round", "round": 1, "facts": {}, "events": []})
    audit.close()
    assert "Client key:ab12 was invited in 1 of 1 rounds, accepted in 1" in mabrfl("explain", "state").out
    told = mabrfl("explain", "state", "--client", "cd", "--round", "1").out
    assert "shape: " in told
    assert "\x1b" not in told
    shown = mabrfl("audit", "show", "state").out
    assert "100.0 %" in " ".join(shown.split())


def test_at_80_columns_a_client_of_the_audit_takes_a_few_lines(
    mabrfl: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    shown = mabrfl("audit", "show", str(Path(__file__).parents[1] / "flower" / "states" / "hardened-1")).out
    lines = re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()
    clients = [line for line in lines if line.startswith("round ")]
    assert max(map(len, lines)) <= 80
    assert (len(clients), len(lines) <= 5 * len(clients)) == (11, True)
    assert clients[1].startswith("round 1  4dd75c0fd0d2ad0a  quarantined  B, M: 2, 1 -> 1.4, 2")
