"""Fetching: no reply takes more than its share of memory or time, and nobody is blamed for what they did not do."""

from __future__ import annotations

import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from flower_faults import Stalling, Unpacking, flat, run, set_aside, skip_waiting, with_bad
from flower_grid import MemoryGrid, honest, key_name, model, reply_to
from flower_wire import WireGrid, bomb, nested, packed
from mabrfl.flower import RobustStrategy, internals
from mabrfl.flower.messages import write_messages
from mabrfl.flower.problems import MalformedReply, Problem
from mabrfl.flower.reply_checks import CheckedReply, ReplyChecker
from mabrfl.flower.reply_grid import OneByOneGrid
from mabrfl.flower.schema import ModelSchema

MIB = 2**20
ZEROS = bytes(MIB)


def explosive(times, arrays=1):
    """A node whose reply is a mebibyte on the wire, and many when unpacked."""

    def answer(message):
        record = ArrayRecord()
        for k in range(arrays):
            record[f"a{k}"] = Array("float32", (k,), "numpy.ndarray", ZEROS)
        content = RecordDict({"arrays": record, "metrics": MetricRecord({"num-examples": 1})})
        return bomb(Message(content, reply_to=message), times)

    return answer


def run_in_little_memory(nodes, folder):
    tracemalloc.start()
    try:
        _, result = run(nodes, folder)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 32 * MIB
    return result


@pytest.mark.parametrize("grid", [WireGrid, Unpacking])
@pytest.mark.parametrize(("times", "arrays"), [(256, 1), (4, 64)])
def test_a_chunk_named_many_times_over_takes_no_memory_and_its_sender_is_blamed(grid, times, arrays, tmp_path):
    nodes = grid(with_bad(explosive(times, arrays)))
    result = run_in_little_memory(nodes, tmp_path / "state")
    assert set_aside(tmp_path / "state") == [(key_name(1), "size", True)]
    assert result.train_metrics_clientapp[1]["replies-accepted"] == 4


@pytest.mark.parametrize("grid", [WireGrid, Unpacking])
def test_arrays_made_of_arrays_take_no_memory_and_their_sender_is_blamed(grid, tmp_path):
    nodes = grid(with_bad(lambda message: nested(honest(1)(message), levels=7, times=10)))
    result = run_in_little_memory(nodes, tmp_path / "state")
    ((client, reason, blamed),) = set_aside(tmp_path / "state")
    assert (client, blamed) == (key_name(1), True)
    assert reason in ("encoding", "size")
    assert result.train_metrics_clientapp[1]["replies-accepted"] == 4


@pytest.mark.parametrize("grid", [WireGrid, MemoryGrid])
def test_when_all_replies_are_there_nobody_waits_for_the_next_look(grid):
    nodes = grid({node: honest(node) for node in (1, 2, 3)})
    nodes.pull_interval = 1200.0
    began = time.monotonic()
    _, result = run(nodes, timeout=1200)
    assert time.monotonic() - began < 600
    assert result.train_metrics_clientapp[1]["replies-accepted"] == 3


class HandingOut(MemoryGrid):
    """A grid that hands out all replies that are there, whichever it is asked for."""

    def pull_messages(self, message_ids):
        return super().pull_messages([*self.outbox])


def test_replies_that_come_along_with_another_are_examined_and_not_waited_for(tmp_path):
    began = time.monotonic()
    _, result = run(HandingOut({node: honest(node) for node in (1, 2, 3, 4)}), tmp_path / "state", timeout=1200)
    _, plain = run(MemoryGrid({node: honest(node) for node in (1, 2, 3, 4)}))
    assert result.train_metrics_clientapp[1]["replies-accepted"] == 4
    assert set_aside(tmp_path / "state") == []
    assert np.array_equal(flat(result.arrays), flat(plain.arrays))
    assert time.monotonic() - began < 600  # it would wait for the timeout


def test_train_messages_with_an_action_are_train_messages():
    class FineTuning(RobustStrategy):
        def configure_train(self, server_round, arrays, config, grid):
            messages = list(super().configure_train(server_round, arrays, config, grid))
            for message in messages:
                message.metadata.message_type = "train.fine_tune"
            return messages

    strategy = FineTuning("fedavg", fraction_evaluate=0.0)
    result = strategy.start(MemoryGrid({node: honest(node) for node in (1, 2, 3)}), model(), num_rounds=1, timeout=600)
    assert result.train_metrics_clientapp[1]["replies-accepted"] == 3


def test_failed_looks_that_are_far_apart_do_not_add_up(tmp_path):
    grid = WireGrid({node: honest(node) for node in (1, 2, 3, 4)})
    trouble = OSError("the network")
    grid.link.faltering = {1: [trouble, None, trouble, None, trouble, None]}
    _, result = run(grid, tmp_path / "state")
    assert result.train_metrics_clientapp[1]["replies-accepted"] == 4


def test_two_late_nodes_that_fail_once_do_not_end_the_run(tmp_path):
    grid = WireGrid({node: honest(node) for node in range(1, 9)})
    grid.link.faltering = {node: [None, OSError("the network")] for node in (1, 2)}
    _, result = run(grid, tmp_path / "state")
    assert result.train_metrics_clientapp[1]["replies-accepted"] == 8


def test_a_reply_for_which_there_was_no_memory_is_unpacked_again(monkeypatch, tmp_path):
    unpack, calls = internals.unpack, []

    def short_of_memory(reply_id, contents):
        calls.append(reply_id)
        if len(calls) == 1:
            raise MemoryError
        return unpack(reply_id, contents)

    monkeypatch.setattr(internals, "unpack", short_of_memory)
    _, result = run(WireGrid({node: honest(node) for node in (1, 2, 3)}), tmp_path / "state")
    assert result.train_metrics_clientapp[1]["replies-accepted"] == 3


def test_an_array_of_zeros_whose_chunks_are_all_the_same_is_in_order(monkeypatch):
    monkeypatch.setattr("flwr.app.message.array.FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE", 8192)

    def still(message):
        rng = np.random.default_rng(message.metadata.dst_node_id)
        return reply_to(message, {"a": np.zeros(30_000, np.float32), "b": rng.normal(size=9).astype(np.float32)})

    initial = ArrayRecord({"a": Array(np.ones(30_000, np.float32)), "b": Array(np.ones(9, np.float32))})
    _, result = run(WireGrid({1: still, 2: still}), initial=initial)
    assert result.train_metrics_clientapp[1]["replies-accepted"] == 2


@pytest.mark.parametrize("case", ["metrics", "pieces", "bytes"])
def test_what_is_too_large_in_another_way_is_not_even_fetched_to_its_end(case, tmp_path):
    def large(message):
        good = honest(1)(message).content.array_records["arrays"]
        if case == "metrics":
            return reply_to(message, good, many=[1.0] * 200_000)
        number, size = (3_000, 9) if case == "pieces" else (40, MIB)
        record = ArrayRecord()
        for k in range(number):
            record[f"a{k}"] = Array("float32", (k,), "numpy.ndarray", b"%09d" % k * (size // 9))
        return reply_to(message, record)

    grid = WireGrid(with_bad(large))
    run(grid, tmp_path / "state")
    assert set_aside(tmp_path / "state") == [(key_name(1), "size", True)]
    assert grid.link.fetched < 400


def test_a_round_holds_its_rows_and_one_reply_at_a_time():
    size, clients = MIB // 4, 24
    large = ArrayRecord({"w": Array(np.ones(size, np.float32))})

    def answer(message):
        return reply_to(message, {"w": np.full(size, message.metadata.dst_node_id, np.float32)})

    schema = ModelSchema.of(large)
    inner = WireGrid(dict.fromkeys(range(1, clients + 1), answer))
    checker = ReplyChecker(schema, "arrays", "num-examples")
    grid = OneByOneGrid(inner, schema.reply_limits(), lambda content, node: checker.check(content))
    messages = write_messages(RecordDict({"c": ConfigRecord()}), list(range(1, clients + 1)), "train", 600)
    tracemalloc.start()
    try:
        replies = grid.send_and_receive(messages, timeout=600)
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(replies) == len(grid.results) == clients
    assert all(isinstance(result, CheckedReply) for result in grid.results.values())
    assert held < (clients + 2) * MIB
    assert peak < (clients + 12) * MIB  # a reply is in memory several times over while it is packed and unpacked


def test_evaluation_and_queries_keep_no_arrays_either():
    grid = OneByOneGrid(WireGrid({1: lambda message: reply_to(message, model())}))
    grid.limits = ModelSchema.of(model()).reply_limits()
    (reply,) = grid.send_and_receive(
        write_messages(RecordDict({"c": ConfigRecord()}), [1], "evaluate", 600), timeout=600
    )
    assert list(reply.content) == ["metrics"]
    assert grid.results == {}


def test_nodes_that_stall_cost_no_honest_reply_and_no_time_beyond_the_timeout(tmp_path, monkeypatch):
    skip_waiting(monkeypatch, blocked=4)
    grid = Stalling({k: honest(k) for k in range(1, 13)}, {1, 2, 3, 4})
    strategy, result = run(grid, tmp_path / "state")
    assert not grid.released.is_set()  # the round has ended although four fetches have not
    grid.released.set()
    assert result.train_metrics_clientapp[1]["replies-accepted"] == 8
    assert sorted(set_aside(tmp_path / "state")) == sorted((key_name(k), "no-reply", False) for k in (1, 2, 3, 4))
    assert strategy.defense.reputation[key_name(1)] == (1, 1)


def test_a_reply_that_is_announced_and_not_uploaded_is_missing_and_the_others_are_there(tmp_path, monkeypatch):
    skip_waiting(monkeypatch)
    grid = WireGrid({k: honest(k) for k in range(1, 9)})
    grid.link.withheld = {1}
    _, result = run(grid, tmp_path / "state")
    assert result.train_metrics_clientapp[1]["replies-accepted"] == 7
    assert set_aside(tmp_path / "state") == [(key_name(1), "no-reply", False)]


def test_a_reply_that_is_uploaded_slowly_is_used():
    grid = WireGrid({1: honest(1), 2: honest(2)})
    grid.link.withheld = {1}
    original = grid.link.PullObject
    waited = []

    def later(request):
        if request.object_id in grid.link.pieces and grid.link.pieces[request.object_id] is None:
            waited.append(request.object_id)
            if len(waited) == 3:
                grid.link.withheld = set()
                grid.link.pieces[request.object_id] = root[0]
        return original(request)

    root = []

    def remembering(message):
        made = packed(honest(1)(message))
        root.append(list(made.contents.values())[-1])
        return made

    grid.link.nodes[1] = remembering
    grid.link.PullObject = later
    _, result = run(grid)
    assert result.train_metrics_clientapp[1]["replies-accepted"] == 2
    assert len(waited) == 3


def test_a_node_that_stalled_is_asked_last_the_next_time(monkeypatch):
    skip_waiting(monkeypatch)
    grid = WireGrid({k: honest(k) for k in range(1, 5)})
    grid.link.withheld = {1}
    run(grid, rounds=2, selector="all")
    first, second = grid.link.asked[:4], grid.link.asked[4:]
    assert sorted(first) == sorted(second) == [1, 2, 3, 4]
    assert second[-1] == 1


def test_the_order_in_which_replies_come_changes_nothing():
    class Later(MemoryGrid):
        """Node k's reply is there at the k-th look, from the last to the first."""

        def __init__(self, nodes):
            super().__init__(nodes)
            self.looks = {}

        def pull_messages(self, message_ids):
            (mid,) = message_ids
            node = next(message.metadata.dst_node_id for message in self.sent if message.metadata.message_id == mid)
            self.looks[mid] = self.looks.get(mid, 0) + 1
            return super().pull_messages([mid]) if self.looks[mid] > 8 - node else []

    nodes = {k: honest(k) for k in range(1, 9)}
    plain, first = run(MemoryGrid(nodes), rounds=2)
    late, second = run(Later(nodes), rounds=2)
    wire, third = run(WireGrid(nodes), rounds=2)
    assert np.array_equal(flat(first.arrays), flat(second.arrays))
    assert np.array_equal(flat(first.arrays), flat(third.arrays))
    assert plain.defense.reputation == late.defense.reputation == wire.defense.reputation


def test_a_fetch_that_never_ends_does_not_keep_the_process_from_ending():
    here = Path(__file__).parents[1]
    code = f"""
import sys
sys.path.insert(0, {str(here)!r})
import pytest
from flower_faults import Stalling, run, skip_waiting
from flower_grid import honest, pretend_a_task
pretend_a_task()
skip_waiting(pytest.MonkeyPatch(), blocked=1)
_, result = run(Stalling({{k: honest(k) for k in (1, 2, 3)}}, {{1}}))
print(result.train_metrics_clientapp[1]["replies-accepted"], flush=True)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=1200, check=True)
    assert done.stdout.split()[-1] == "2"


@pytest.mark.parametrize("sent", [0.0, 1e-42, 1e-9])
@pytest.mark.parametrize("initial", [0.0, 1.0])
def test_weights_of_zero_or_next_to_it_are_only_odd_where_the_servers_are_not(initial, sent):
    record = ArrayRecord({"w": Array(np.full(4, initial, np.float32))})
    content = RecordDict({"arrays": ArrayRecord({"w": Array(np.full(4, sent, np.float32))})})
    content["metrics"] = MetricRecord({"num-examples": 1})
    strategy = RobustStrategy("fedavg")
    strategy.state.prepare(record)
    result = strategy._checker().check(content)
    assert isinstance(result, Problem if initial else CheckedReply)


class CountedKey(str):
    """A key that counts how often it is compared with another."""

    comparisons = 0

    def __eq__(self, other):
        CountedKey.comparisons += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_comparing_many_keys_takes_a_number_of_steps_in_proportion_to_them():
    many = {f"x{k}": Array(np.zeros(1, np.float32)) for k in range(2_000)}
    schema = ModelSchema.of(ArrayRecord(many))
    others = {CountedKey(f"y{k}"): array for k, array in enumerate(many.values())}
    CountedKey.comparisons = 0
    with pytest.raises(MalformedReply, match="2000 keys missing"):
        schema.check(others)
    assert CountedKey.comparisons < 10 * len(many)
