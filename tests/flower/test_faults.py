"""Who is to blame: only a node whose own content is bad, never one whose reply got lost or that met a fault of ours."""

from __future__ import annotations

import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from google.protobuf.message import DecodeError

from flower_faults import Failing, refused, run, set_aside, with_bad
from flower_grid import honest, key_name, model
from flower_wire import WireGrid, repacked
from mabrfl.flower.problems import Problem
from mabrfl.flower.reply_checks import ReplyChecker
from mabrfl.flower.schema import ModelSchema

ERRORS = [DecodeError("cut off"), AttributeError("a bug"), KeyError("x"), MemoryError(), refused(500)]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_what_fails_on_the_way_is_tried_again_and_never_blamed_on_the_node(error, tmp_path):
    nodes = {k: honest(k) for k in range(1, 5)}
    strategy, result = run(Failing(nodes, error, times=1), tmp_path / "once")
    assert result.train_metrics_clientapp[1]["replies-accepted"] == 4
    strategy, result = run(Failing(nodes, error), tmp_path / "always")
    assert set_aside(tmp_path / "always") == [(key_name(1), "error", False)]
    assert strategy.defense.reputation[key_name(1)] == (1, 1)
    assert result.train_metrics_clientapp[1]["replies-accepted"] == 3


def test_a_look_that_the_superlink_refuses_is_an_error_of_that_reply_alone(tmp_path):
    grid = WireGrid({k: honest(k) for k in range(1, 5)})
    grid.link.failing = {1: refused(500)}
    run(grid, tmp_path / "state")
    assert set_aside(tmp_path / "state") == [(key_name(1), "error", False)]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_what_fails_for_everybody_ends_the_run(error):
    with pytest.raises(type(error)):
        run(Failing({k: honest(k) for k in range(1, 5)}, error, of=None))


def test_a_run_that_was_stopped_ends_at_once():
    from flwr.supercore.run import RunNotRunningException

    grid = WireGrid({k: honest(k) for k in range(1, 5)})
    grid.link.failing = {3: RunNotRunningException()}
    with pytest.raises(RunNotRunningException):
        run(grid)


def test_a_reply_one_piece_of_which_is_gone_is_an_error_and_not_blamed(tmp_path):
    def forgetful(message):
        made = repacked(honest(1)(message), lambda _, body: body)
        grid.link.lost = next(iter(made.contents))
        return made

    grid = WireGrid(with_bad(forgetful))
    original = grid.link.PullObject

    def pull(request):
        if request.object_id == getattr(grid.link, "lost", None):
            del grid.link.pieces[request.object_id]
        return original(request)

    grid.link.PullObject = pull
    run(grid, tmp_path / "state")
    assert set_aside(tmp_path / "state") == [(key_name(1), "error", False)]


@pytest.mark.parametrize("kind", ["Array", "ArrayRecord", "MetricRecord", "RecordDict", "Message"])
@pytest.mark.parametrize("body", [b"", b"[]", b'{"arraychunk_ids": [7]}', b"\xff\xff\xff", b"[" * 5_000])
def test_pieces_that_make_no_sense_are_blamed(kind, body, tmp_path):
    bad = with_bad(lambda message: repacked(honest(1)(message), lambda name, old: body if name == kind else old))
    _, result = run(WireGrid(bad), tmp_path / "state")
    ((client, reason, blamed),) = set_aside(tmp_path / "state")
    assert (client, blamed) == (key_name(1), reason not in ("unattributed", "no-reply"))
    assert result.train_metrics_clientapp[1]["replies-accepted"] == 4


def test_a_message_whose_content_is_no_record_costs_its_sender_alone(tmp_path):
    def odd(message):
        reply = honest(1)(message)
        reply.__dict__["_content"] = reply.content.array_records["arrays"]
        return reply

    run(WireGrid(with_bad(odd)), tmp_path / "state")
    ((client, _, blamed),) = set_aside(tmp_path / "state")
    assert (client, blamed) == (key_name(1), True)


def test_when_the_server_has_no_memory_left_nobody_is_blamed(monkeypatch):
    def full(*_):
        raise MemoryError

    monkeypatch.setattr(ModelSchema, "read", full)
    asked = RecordDict({"arrays": model(), "config": ConfigRecord({"server-round": 1})})
    content = honest(1)(Message(asked, 1, "train")).content
    result = ReplyChecker(ModelSchema.of(model()), "arrays", "num-examples").check(content)
    assert isinstance(result, Problem)
    assert not result.blamed
