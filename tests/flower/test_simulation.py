"""Flower's simulation engine, for real: SuperLink, Ray, ``flwr run``."""

from __future__ import annotations

import json

import numpy as np
import pytest

from flower_processes import ROOT, Flower, free_port, listening, wait_for
from flower_replies import LATE, MALFORMED
from mabrfl.config import RunConfig
from mabrfl.recording.audit import read_audit, verify
from mabrfl.runs import simulate
from mabrfl.simulation.federation import choose_attackers

CLIENTS, SHARE = 20, 0.3


@pytest.fixture(scope="module")
def flower():
    with Flower() as started:
        started.connect()
        started.superlink("--insecure", "--simulation")
        yield started


def run(flower, rounds, name):
    results, state = flower.home / f"{name}.json", flower.home / name
    _, status = flower.run(
        federation=f"num-supernodes={CLIENTS} client-resources-num-cpus=1",
        attack="label-flip",
        attackers=SHARE,
        identity="claimed",
        num_server_rounds=rounds,
        min_train_nodes=1,
        round_timeout=3000.0,
        seconds=3000,
        results=str(results),
        state_dir=str(state),
    )
    assert status == "finished:completed", flower.logs()
    return json.loads(results.read_text()), state


def in_process(rounds):
    """The same federation in mabrfl's own simulator, where claims are not heeded either."""
    config = RunConfig(
        dataset="digits",
        clients=CLIENTS,
        rounds=rounds,
        attack="label-flip",
        attackers=SHARE,
        workers=1,
        defense_options={"claims": 0.0},
        training={"engine": "loop"},
    )
    return simulate(config)


def selected(state):
    """Return who was selected in which round, as a matrix of truth values."""
    rows = [row for row in read_audit(state / "audit.jsonl") if row["kind"] == "reply"]
    matrix = np.zeros((max(row["round"] for row in rows), CLIENTS), dtype=bool)
    for row in rows:
        matrix[row["round"] - 1, row["client"]] = True
    return matrix


def test_a_simulation_under_attack_goes_as_in_the_in_process_simulator(flower):
    told, state = run(flower, 4, "short")
    records = in_process(4)
    for record in records:
        assert 100 * told["accuracy"][str(record.round)] == pytest.approx(record.accuracy, abs=2)
    assert [set(np.flatnonzero(row)) for row in selected(state)] == [set(record.selected) for record in records]
    assert verify(state / "audit.jsonl").problem is None


@pytest.mark.slow
def test_label_flippers_are_selected_less_than_half_as_often_by_the_last_third(flower):
    told, state = run(flower, 30, "long")
    chosen = selected(state)[20:]
    bad = sorted(choose_attackers(CLIENTS, int(SHARE * CLIENTS)))
    good = [k for k in range(CLIENTS) if k not in bad]
    assert chosen[:, bad].mean() < chosen[:, good].mean() / 2
    assert 100 * told["accuracy"]["30"] == pytest.approx(in_process(30)[-1].accuracy, abs=2)


@pytest.mark.slow
def test_the_same_app_runs_on_a_ray_cluster_that_is_already_there():
    with Flower() as flower:
        port = free_port()
        flower.start("ray", "start", "--head", "--block", f"--port={port}", "--num-cpus=2", "--include-dashboard=false")
        wait_for("Ray", lambda: listening(port), 600)
        flower.connect()
        flower.env["RAY_ADDRESS"] = f"127.0.0.1:{port}"
        flower.superlink("--insecure", "--simulation")
        results = flower.home / "cluster.json"
        _, status = flower.run(
            federation="num-supernodes=4 client-resources-num-cpus=1",
            num_partitions=4,
            min_available_nodes=4,
            num_server_rounds=2,
            results=str(results),
        )
        assert status == "finished:completed", flower.logs()
        assert json.loads(results.read_text())["rounds"]["2"]["nodes-available"] == 4
        # A Ray of Flower's own would have left a session of its own.
        assert len(list((flower.home / "ray").glob("session_2*"))) == 1


@pytest.mark.slow
def test_twenty_five_malformed_replies_and_every_run_finishes_with_nine_aggregated(flower):
    results = flower.home / "malformed.json"
    _, status = flower.run(
        app=ROOT / "tests" / "flower_apps" / "malformed",
        federation="num-supernodes=10 client-resources-num-cpus=1",
        seconds=1200,
        results=str(results),
    )
    assert status == "finished:completed", flower.logs()
    told = json.loads(results.read_text())
    assert len({name[:2] for name in told}) == 25
    reasons = {name: reason for name, (_, reason) in {**MALFORMED, **LATE}.items()}
    for name, row in told.items():
        assert row["ours"]["ended"] == "completed", name
        assert row["ours"]["finite"], name
        assert row["accepted"] == 9, name
        assert len(row["quarantined"]) == 1, name
        reason, blamed = row["quarantined"][0]
        assert reason in reasons[name].split("|"), name
        assert blamed is (reason not in {"error", "stale", "unattributed"}), name
        assert how_it_ended(row["fedavg"]) in FEDAVG.get(name.split()[0], "finite").split("|"), name


FEDAVG = {
    **dict.fromkeys(["01", "02", "03", "04", "05"], "InconsistentMessageReplies"),
    **dict.fromkeys(["07", "08", "18"], "ValueError"),
    "11": "UFuncTypeError",
    **dict.fromkeys(["12", "13", "21f"], "not finite"),
    "16b": "finite|ValueError",  # whether the short array can be added to depends on the order of replies
    "17": "TypeError",
    "19": "MemoryError",
    **dict.fromkeys(["20a", "20b", "20c", "21a", "21b"], "InconsistentMessageReplies"),
}
"""How Flower's own FedAvg ends on the same replies, as docs/flower.md says; a finite model where nothing is said."""


def how_it_ended(told):
    if told["ended"] != "completed":
        return told["ended"].split(":")[0]
    return "finite" if told["finite"] else "not finite"
