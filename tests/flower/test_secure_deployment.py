"""SuperLink with TLS and node authentication, one key per node: who dies is not blamed, who restarts is known."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from flower_processes import ROOT, wait_for
from flower_secure import NODES, Secure
from mabrfl.recording.checkpoint import newest_document

pytestmark = pytest.mark.slow

STEADY = ROOT / "tests" / "flower_apps" / "steady"


@pytest.fixture(scope="module")
def secure():
    with Secure() as started:
        yield started


def state_of(secure, name):
    """Return the newest state: its plain values, and the bytes of its arrays."""
    folder = secure.home / name / "checkpoint"
    document = newest_document(folder)
    assert document is not None
    arrays = Path(folder / document["data"]["file"]).read_bytes()
    return {key: document["state"][key] for key in ("model", "history", "defense")}, arrays, document["round"]


def test_a_killed_server_app_is_resumed_and_ends_as_if_it_had_not_been(secure):
    arguments = {"app": STEADY, "defense": "mab-rfl", "rounds": 4, "nodes": NODES}
    _, status = secure.run(**arguments, state_dir=str(secure.home / "whole"))
    assert status == "finished:completed", secure.logs()
    secure.submit(**arguments, hold=3, state_dir=str(secure.home / "parts"))
    secure.after_round("parts", 2)
    killed = secure.commands("flwr-serverapp")
    assert killed
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    (secure.home / "parts.go").touch()
    done = state_of(secure, "parts")[2]
    _, status = secure.run(**arguments, state_dir=str(secure.home / "parts"))
    assert status == "finished:completed", secure.logs()
    assert [row["round"] for row in secure.rows("parts", "round")] == [1, 2, 3, 4]
    assert [row["round"] for row in secure.rows("parts", "start")] == [0, done]
    assert state_of(secure, "parts") == state_of(secure, "whole")


def test_nobody_is_blamed_for_dying_and_reputations_stay_with_the_keys(secure):
    state = secure.home / "dying"
    number = secure.submit(
        app=STEADY, rounds=5, nodes=3, hold=3, stuck="0 in round 2", round_timeout=150.0, state_dir=str(state)
    )
    wait_for("the first node's work in round 2", state.with_suffix(".stuck").exists, 600)
    secure.kill(secure.nodes[0])
    secure.after_round("dying", 2)
    os.killpg(secure.nodes[1].pid, signal.SIGTERM)
    secure.nodes[1].wait(600)
    secure.nodes[1] = secure.node(1)
    state.with_suffix(".go").touch()
    assert secure.finished(number, 1200) == "finished:completed", secure.logs()
    rows = secure.rows("dying")
    assert {row["client"] for row in rows} == set(secure.identities)
    assert not any(row["blamed"] for row in rows)
    dead = [row for row in rows if row["client"] == secure.identities[0] and row["round"] == 2]
    assert [row["reason"] for row in dead] == ["error"]
    document = newest_document(secure.home / "dying" / "checkpoint")
    assert set(document["state"]["defense"]["beliefs"]["ids"]) == set(secure.identities)
    back = [row["round"] for row in rows if row["client"] == secure.identities[1] and row["verdict"] == "accepted"]
    assert max(back) == 5
    last = {row["client"]: row["reputation_after"] for row in rows}
    assert json.dumps(last[secure.identities[2]]) == "[6.0, 1.0]"
    assert last[secure.identities[0]] == [2.0, 1.0]
