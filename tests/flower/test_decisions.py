"""An operator's decisions: they are in the audit, survive restarts, and hold from the next round on."""

from __future__ import annotations

import json

import numpy as np
import pytest

from flower_grid import MemoryGrid, arrays_in, evaluating, honest, key_name, model, reply_to, round_in
from mabrfl import Defense
from mabrfl.aggregation import FedAvg
from mabrfl.cli.main import main
from mabrfl.errors import ConfigError, StateError
from mabrfl.flower import MabRflStrategy, RobustStrategy
from mabrfl.recording.audit import read_audit, valid_rows, verify
from mabrfl.recording.requests import REQUESTS, OperatorRequest, read_requests, write_request
from mabrfl.recording.status import read_status

NODES = range(1, 7)


def run(folder, rounds, nodes=None, **arguments):
    settings = {"fraction_evaluate": 1.0, "seed": 4, "min_available_nodes": 3, "state_dir": folder, **arguments}
    made = MabRflStrategy("paper", **settings)
    grid = MemoryGrid(nodes or {k: evaluating(k) for k in NODES})
    return made, made.start(grid, model(), num_rounds=rounds, timeout=600), grid


def asked(grid, node, kind="train"):
    """The rounds that a node was invited to."""
    sent = [each for each in grid.sent if each.metadata.dst_node_id == node and each.metadata.message_type == kind]
    return [round_in(message) for message in sent]


def command(folder, *words):
    return main(["federation", str(folder), *words])


def test_a_ban_holds_from_the_next_round_without_a_restart_and_after_one(tmp_path, capsys):
    done = []

    def bans_in_round_two(message):
        if round_in(message) == 2 and not done:
            done.append(command(tmp_path, "ban", key_name(3), "--reason", "sends garbage", "--by", "Ada"))
        return evaluating(1)(message)

    nodes = {**{k: evaluating(k) for k in NODES}, 1: bans_in_round_two}
    run(tmp_path, 1, nodes)
    for node in NODES:  # so that only the ban keeps anyone out
        command(tmp_path, "pin", key_name(node), "--reason", "all take part", "--by", "Ada")
    _, _, grid = run(tmp_path, 4, nodes)
    assert (asked(grid, 2), asked(grid, 3)) == ([2, 3, 4], [2])
    assert asked(grid, 3, "evaluate") == [2]
    _, _, later = run(tmp_path, 6, nodes)
    assert (asked(later, 2), asked(later, 3)) == ([5, 6], [])
    (row,) = [row for row in read_audit(tmp_path / "audit.jsonl") if row.get("action") == "ban"]
    expected = {"action": "ban", "client": key_name(3), "reason": "sends garbage", "by": "Ada", "round": 3}
    assert expected.items() <= row.items()
    assert verify(tmp_path / "audit.jsonl").problem is None
    assert read_requests(tmp_path) == ([], [])
    capsys.readouterr()
    command(tmp_path, "list")
    assert [line for line in capsys.readouterr().out.splitlines() if "banned" in line and key_name(3) in line]
    main(["audit", "show", str(tmp_path)])
    assert any("ban" in line and "decided by Ada" in line for line in capsys.readouterr().out.splitlines())


def test_forgiveness_ends_a_ban_and_starts_the_reputation_again(tmp_path):
    made, _, _ = run(tmp_path, 2)
    before = made.defense.reputation[key_name(2)]
    assert before != (1.0, 1.0)
    for action in ("ban", "forgive"):
        write_request(tmp_path, OperatorRequest(action, key_name(2), "a mistake", "Ada"))
    made, _, _ = run(tmp_path, 2)
    made.state.prepare(model())
    made.state.open(tmp_path, made.config())
    made.state.take_requests()
    made.state.close()
    assert made.state.operator.banned == set()
    assert made.defense.reputation[key_name(2)] == (1.0, 1.0)


def test_a_renamed_client_keeps_reputation_and_ban_under_its_new_key(tmp_path):
    made, _, _ = run(tmp_path, 2)
    before = made.defense.reputation[key_name(2)]
    write_request(tmp_path, OperatorRequest("pin", key_name(2), "ours", "Ada"))
    write_request(tmp_path, OperatorRequest("rename", key_name(2), "a new key", "Ada", key_name(9)))
    nodes = {k: evaluating(k) for k in (1, 3, 4, 5, 6, 9)}
    made, _, grid = run(tmp_path, 3, nodes)
    assert key_name(2) not in made.defense.reputation
    assert asked(grid, 9) == [3]
    rows = list(read_audit(tmp_path / "audit.jsonl"))
    (row,) = [row for row in rows if row.get("action") == "rename"]
    assert tuple(row["reputation_before"]) == tuple(row["reputation_after"]) == before
    first = next(row for row in rows if row["kind"] == "reply" and row["client"] == key_name(9))
    assert tuple(first["reputation_before"]) == before


def test_a_decision_of_a_round_that_was_killed_is_made_again_once(tmp_path):
    def dies(message):
        if message.metadata.message_type == "train" and round_in(message) == 2:
            raise KeyboardInterrupt
        return evaluating(1)(message)

    run(tmp_path, 1)
    write_request(tmp_path, OperatorRequest("ban", key_name(3), "x", "Ada"))
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, 2, dict.fromkeys(NODES, dies))
    made, _, _ = run(tmp_path, 3)
    rows = list(read_audit(tmp_path / "audit.jsonl"))
    assert sum(row["kind"] == "decision" for row in rows) == 2
    assert sum(row["kind"] == "decision" for row in valid_rows(rows)) == 1
    assert made.state.operator.banned == {key_name(3)}


def test_a_request_whose_state_was_saved_but_whose_file_was_not_removed_counts_once(tmp_path, monkeypatch):
    from mabrfl.flower import server_state

    run(tmp_path, 1)
    write_request(tmp_path, OperatorRequest("forgive", key_name(3), "x", "Ada"))
    with monkeypatch.context() as patched:
        patched.setattr(server_state, "remove_requests", lambda folder, names: None)
        run(tmp_path, 2)
    assert len(read_requests(tmp_path)[0]) == 1
    run(tmp_path, 3)
    assert read_requests(tmp_path) == ([], [])
    assert sum(row["kind"] == "decision" for row in read_audit(tmp_path / "audit.jsonl")) == 1


def test_banned_nodes_do_not_count_as_available_and_a_pardon_ends_the_wait(tmp_path, monkeypatch):
    from mabrfl.flower import node_identity

    run(tmp_path, 1, min_available_nodes=6)
    command(tmp_path, "ban", key_name(3), "--reason", "x", "--by", "Ada")
    looks = []

    def sleep(seconds):
        looks.append(seconds)
        command(tmp_path, "forgive", key_name(3), "--reason", "needed", "--by", "Ada")

    monkeypatch.setattr(node_identity.time, "sleep", sleep)
    made, _, _ = run(tmp_path, 2, min_available_nodes=6)
    assert len(looks) == 1
    assert made.state.operator.banned == set()


def not_finite(message):
    return reply_to(message, {k: v * np.nan if v.dtype.kind == "f" else v for k, v in arrays_in(message).items()})


@pytest.mark.parametrize(
    ("limits", "bad", "skipped"),
    [
        ({"max_rejected": 0.5}, 3, ""),
        ({"max_rejected": 0.4}, 3, "most-rejected"),
        ({"min_accepted": 4}, 3, "too-few-accepted"),
        ({"min_accepted": 3}, 3, ""),
        ({}, 4, ""),
    ],
)
def test_a_round_beyond_the_limits_is_skipped_and_nobody_is_blamed(tmp_path, limits, bad, skipped):
    nodes = {k: not_finite if k <= bad else honest(k) for k in NODES}
    made = RobustStrategy(Defense(FedAvg()), fraction_evaluate=0.0, min_available_nodes=6, state_dir=tmp_path, **limits)
    result = made.start(MemoryGrid(nodes), model(), num_rounds=1, timeout=600)
    assert result.train_metrics_clientapp[1]["model-moved"] == (not skipped)
    *_, row = read_audit(tmp_path / "audit.jsonl")
    assert any(event.startswith(f"{skipped}: ") for event in row["events"]) == bool(skipped)
    assert (set(made.defense.reputation.values()) == {(1.0, 1.0)}) == bool(skipped)


@pytest.mark.parametrize("limits", [{"max_rejected": 1.5}, {"max_rejected": -0.1}, {"min_accepted": -1}])
def test_limits_without_sense_are_refused(limits):
    with pytest.raises(ConfigError, match=next(iter(limits))):
        MabRflStrategy(**limits)


def test_limits_are_part_of_the_configuration_only_where_they_are_set():
    plain = MabRflStrategy().config()
    assert "max_rejected" not in plain
    assert MabRflStrategy(max_rejected=0.0).config()["max_rejected"] == 0.0


def test_the_command_names_what_it_does_not_find(tmp_path, capsys):
    run(tmp_path, 1)
    assert command(tmp_path, "ban", "zz", "--reason", "x") == ConfigError.exit_code
    assert "no client 'zz' is known" in capsys.readouterr().err
    assert command(tmp_path, "ban", "key:", "--reason", "x") == ConfigError.exit_code
    assert "fits 6 clients" in capsys.readouterr().err
    assert command(tmp_path / "no", "list") == StateError.exit_code
    assert command(tmp_path, "ban", key_name(1), "--reason", "y" * 500) == StateError.exit_code
    assert command(tmp_path, "ban", key_name(1)[4:12], "--reason", "x", "--by", "\x1b[31mAda") == 0
    capsys.readouterr()
    assert command(tmp_path, "list", "--format", "json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert [each["action"] for each in shown["waiting"]] == ["ban"]
    assert len(shown["status"]["clients"]) == 6


def test_the_status_has_the_round_the_reputations_and_totals_over_restarts(tmp_path):
    run(tmp_path, 2)
    made, _, _ = run(tmp_path, 3)
    status = read_status(tmp_path)
    assert status.round == 3
    assert {each.id: (each.benign, each.malicious) for each in status.clients} == made.defense.reputation
    replies = [row for row in read_audit(tmp_path / "audit.jsonl") if row["kind"] == "reply"]
    assert sum(status.totals.values()) == len(replies)
    assert set(status.seconds) == {"wait-for-nodes", "select", "train", "judge", "save"}
    assert status.metrics["round"] == 3.0, "it has not the evaluation of the last round"
    (tmp_path / "status.json").write_text("[]")
    run(tmp_path, 4)
    assert read_status(tmp_path).round == 4


def test_a_file_that_is_no_request_is_reported_once_and_changes_nothing(tmp_path, caplog):
    run(tmp_path, 1)
    (tmp_path / REQUESTS).mkdir()
    (tmp_path / REQUESTS / "1.json").write_text('{"action":"explode"}')
    run(tmp_path, 3)
    assert caplog.text.count("is not a request") == 1
