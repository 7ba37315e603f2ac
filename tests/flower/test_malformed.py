"""One malformed reply of ten: the run goes on, nine are aggregated, one is quarantined, the rest is bit-identical."""

from __future__ import annotations

import numpy as np
import pytest

from flower_grid import MemoryGrid, honest, key_name, model
from flower_replies import LATE, MALFORMED, UNPACKABLE
from flower_wire import WireGrid
from mabrfl.flower import MabRflStrategy, RobustStrategy
from mabrfl.recording.audit import read_audit
from mabrfl.updates import Outcome, Verdict
from mabrfl.vectors import SLICE

GRIDS = [MemoryGrid, WireGrid]
NODES = range(1, 11)
BAD = 4
NEVER_BLAMED = {"error", "stale", "unattributed"}


def flat(arrays):
    return np.concatenate([array.numpy().ravel() for array in arrays.values()])


def run(nodes, folder=None, rounds=1, grid=MemoryGrid, **arguments):
    strategy = RobustStrategy("fedavg", fraction_evaluate=0.0, state_dir=folder, min_available_nodes=9, **arguments)
    return strategy, strategy.start(grid(nodes), model(), num_rounds=rounds, timeout=600)


def with_bad(bad):
    def answer(message):
        return bad(message, honest(BAD)(message))

    return {node: answer if node == BAD else honest(node) for node in NODES}


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("name", MALFORMED)
def test_nine_are_aggregated_and_one_is_quarantined(name, grid, tmp_path):
    bad, reason = MALFORMED[name]
    strategy, result = run(with_bad(bad), tmp_path / "state", grid=grid)
    _, alone = run({node: honest(node) for node in NODES if node != BAD})
    rows = [row for row in read_audit(tmp_path / "state" / "audit.jsonl") if row["kind"] == "reply"]
    aside = [row for row in rows if row["verdict"] == "quarantined"]
    assert sum(row["verdict"] == "accepted" for row in rows) == 9
    assert [row["client"] for row in aside] == [key_name(BAD)]
    assert aside[0]["reason"] in reason.split("|")
    assert aside[0]["blamed"] is (reason not in NEVER_BLAMED)
    assert strategy.defense.reputation[key_name(BAD)] == ((1, 1) if reason in NEVER_BLAMED else (1, 2))
    assert np.array_equal(flat(result.arrays), flat(alone.arrays))


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("name", LATE)
def test_replies_that_come_twice_late_or_from_elsewhere_cost_only_themselves(name, grid, tmp_path):
    make, reason = LATE[name]
    strategy, _ = run(with_bad(make()), tmp_path / "state", rounds=2, grid=grid)
    rows = [row for row in read_audit(tmp_path / "state" / "audit.jsonl") if row.get("round") == 2]
    rows = [row for row in rows if row["kind"] == "reply"]
    assert sum(row["verdict"] == "accepted" for row in rows) == 9
    assert [row["reason"] for row in rows if row["verdict"] == "quarantined"] == [reason]
    blamed = strategy.defense.reputation[key_name(BAD)][1] > 1
    assert blamed is (reason not in NEVER_BLAMED)


@pytest.mark.parametrize("grid", GRIDS)
def test_a_reply_that_flower_itself_cannot_unpack_costs_its_sender_alone(grid, tmp_path):
    _, result = run(with_bad(UNPACKABLE), tmp_path / "state", grid=grid)
    rows = [row for row in read_audit(tmp_path / "state" / "audit.jsonl") if row.get("verdict") == "quarantined"]
    assert [(row["client"], row["reason"], row["blamed"]) for row in rows] == [(key_name(BAD), "undecodable", True)]
    assert result.train_metrics_clientapp[1]["replies-accepted"] == 9


def test_a_reply_in_the_name_of_another_node_is_set_aside_and_nobody_is_blamed(tmp_path):
    def spoofed(message, reply):
        reply.metadata.__dict__["_src_node_id"] = 7
        return reply

    strategy, _ = run(with_bad(spoofed), tmp_path / "state")
    rows = [row for row in read_audit(tmp_path / "state" / "audit.jsonl") if row.get("verdict") == "quarantined"]
    assert [(row["reason"], row["blamed"]) for row in rows] == [("sender", False)]
    assert strategy.defense.reputation[key_name(BAD)] == (1, 1)


def test_a_payload_in_fortran_order_is_as_good_as_any():
    def turned(message, reply):
        from flwr.app import Array

        arrays = reply.content.array_records["arrays"]
        arrays["a.weight"] = Array(np.asfortranarray(arrays["a.weight"].numpy()))
        return reply

    _, result = run(with_bad(turned))
    _, plain = run({node: honest(node) for node in NODES})
    assert np.array_equal(flat(result.arrays), flat(plain.arrays))


def test_a_payload_in_the_newer_format_of_numpy_is_as_good_as_any():
    def newer(message, reply):
        import io

        file, array = io.BytesIO(), reply.content.array_records["arrays"]["a.weight"]
        np.lib.format.write_array(file, array.numpy(), version=(2, 0))
        array.data = file.getvalue()
        return reply

    _, result = run(with_bad(newer))
    _, plain = run({node: honest(node) for node in NODES})
    assert np.array_equal(flat(result.arrays), flat(plain.arrays))


def test_a_model_that_begins_with_zeros_is_a_model_and_one_of_zeros_is_none():
    from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict

    from mabrfl.flower.problems import Problem
    from mabrfl.flower.reply_checks import ReplyChecker
    from mabrfl.flower.schema import ModelSchema

    weights = np.zeros(3 * SLICE, np.float32)
    checker = ReplyChecker(ModelSchema.of(ArrayRecord({"w": Array(weights + 1)})), "arrays", "num-examples", 1e-3)

    def checked():
        metrics = MetricRecord({"num-examples": 1})
        return checker.check(RecordDict({"arrays": ArrayRecord({"w": Array(weights)}), "metrics": metrics}))

    zeros = checked()
    assert isinstance(zeros, Problem)
    assert zeros.reason == "zero"
    weights[-1] = 1
    assert not isinstance(checked(), Problem)


def test_a_bomb_takes_no_memory(tmp_path):
    import tracemalloc

    bad, _ = MALFORMED["19 payload header bomb"]
    tracemalloc.start()
    run(with_bad(bad))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 * 2**20


def test_when_everybody_is_malformed_the_model_stays_as_it_is():
    bad, _ = MALFORMED["12 NaN"]
    nodes = {node: (lambda message, node=node: bad(message, honest(node)(message))) for node in NODES}
    strategy, result = run(nodes, rounds=2)
    assert np.array_equal(flat(result.arrays), flat(model()))
    assert all(belief == (1, 3) for belief in strategy.defense.reputation.values())


def test_replies_that_cannot_be_judged_do_not_excuse_the_malformed_ones(tmp_path):
    bad, _ = MALFORMED["12 NaN"]
    nodes = {node: honest(node) for node in NODES}
    nodes |= {node: (lambda message, node=node: bad(message, honest(node)(message))) for node in (1, 2, 3)}
    strategy = RobustStrategy(
        "krum",
        num_malicious_nodes=3,
        defense_options={"strict": True},
        min_available_nodes=10,
        fraction_evaluate=0.0,
        state_dir=tmp_path,
    )
    result = strategy.start(MemoryGrid(nodes), model(), num_rounds=3, timeout=600)
    rows = [row for row in read_audit(tmp_path / "audit.jsonl") if row["kind"] == "reply"]
    assert [figures["model-moved"] for figures in result.train_metrics_clientapp.values()] == [0, 0, 0]
    assert {(row["verdict"], row["reason"], row["blamed"]) for row in rows} == {
        ("unjudged", "quorum", False),
        ("quarantined", "not-finite", True),
    }
    assert strategy.defense.reputation[key_name(1)] == (1, 4)
    assert strategy.defense.reputation[key_name(4)] == (1, 1)


def test_who_returns_the_model_unchanged_is_set_aside_and_not_blamed(tmp_path):
    def unchanged(message, reply):
        from flower_grid import arrays_in, reply_to

        return reply_to(message, arrays_in(message))

    strategy, result = run(with_bad(unchanged), tmp_path)
    rows = [row for row in read_audit(tmp_path / "audit.jsonl") if row.get("verdict") == "quarantined"]
    assert [(row["client"], row["reason"], row["blamed"]) for row in rows] == [(key_name(BAD), "norm", False)]
    assert strategy.defense.reputation[key_name(BAD)] == (1, 1)
    assert result.train_metrics_clientapp[1]["replies-accepted"] == 9


def test_the_audit_blames_whom_the_defense_blames(tmp_path):
    """Of copies one keeps its voice, and pays for the company it keeps."""

    def copy(message):
        return honest(1)(message)

    nodes = {node: copy if node in (1, 2, 3, 4) else honest(node) for node in NODES}
    strategy = MabRflStrategy(min_available_nodes=10, fraction_evaluate=0.0, state_dir=tmp_path)
    strategy.start(MemoryGrid(nodes), model(), num_rounds=4, timeout=600)
    rows = [row for row in read_audit(tmp_path / "audit.jsonl") if row["kind"] == "reply"]
    assert any(row["verdict"] == "accepted" and row["blamed"] for row in rows)
    assert any(row["verdict"] == "rejected" and row["blamed"] for row in rows)
    for row in rows:
        cost = row["reputation_after"][1] > row["reputation_before"][1]
        assert row["blamed"] is cost, row
        assert row["evidence"]["norm"] > 0


class OneStep:
    """A defense of a user's own, without reputation."""

    def select(self, ids, *, round):
        return list(ids)

    def aggregate(self, updates, *, round):
        verdicts = {client: Verdict(True, "accepted") for client in updates.ids}
        return Outcome(np.mean(updates.matrix, axis=0), verdicts, round)


def test_nobody_is_said_to_be_blamed_by_a_defense_that_keeps_no_reputation(tmp_path):
    bad, _ = MALFORMED["12 NaN"]
    strategy = RobustStrategy(f"{__name__}:OneStep", fraction_evaluate=0.0, min_available_nodes=10, state_dir=tmp_path)
    strategy.start(MemoryGrid(with_bad(bad)), model(), num_rounds=1, timeout=600)
    rows = [row for row in read_audit(tmp_path / "audit.jsonl") if row.get("verdict") == "quarantined"]
    assert [(row["reason"], row["blamed"]) for row in rows] == [("not-finite", False)]
