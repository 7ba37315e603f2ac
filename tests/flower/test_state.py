"""What a strategy writes survives: the same choices after a restart, and only for the same configuration."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from flwr.app import MetricRecord

from flower_faults import skip_waiting
from flower_grid import MemoryGrid, evaluating, honest, key_name, model, round_in
from mabrfl.errors import ConfigError, OutputError, StateError
from mabrfl.flower import MabRflStrategy, RobustStrategy
from mabrfl.flower.state_folder import StateFolder
from mabrfl.recording.audit import read_audit, valid_rows, verify
from mabrfl.recording.checkpoint import newest_document

NODES = range(1, 9)
SETTINGS = {"fraction_evaluate": 0.0, "seed": 4, "min_available_nodes": 8}


def strategy(folder, **arguments):
    return MabRflStrategy("paper", **{**SETTINGS, "state_dir": folder, **arguments})


def run(folder, rounds, nodes=None, **arguments):
    made = strategy(folder, **arguments)
    return made, made.start(MemoryGrid(nodes or {k: honest(k) for k in NODES}), model(), num_rounds=rounds, timeout=600)


def same(one, two):
    """Compare nested states of plain values and arrays."""
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(same(one[key], two[key]) for key in one)
    return np.array_equal(one, two)


def test_a_restarted_server_goes_on_as_if_it_had_never_stopped(tmp_path):
    whole, final = run(tmp_path / "whole", 6)
    run(tmp_path / "parts", 2)
    run(tmp_path / "parts", 3)
    resumed, result = run(tmp_path / "parts", 6)
    assert all(np.array_equal(result.arrays[key].numpy(), final.arrays[key].numpy()) for key in final.arrays)
    assert same(resumed.defense.state_dict(), whole.defense.state_dict())
    assert list(result.train_metrics_clientapp) == [1, 2, 3, 4, 5, 6]
    assert result.train_metrics_clientapp == final.train_metrics_clientapp


@pytest.mark.parametrize("preset", ["hardened", "paper"])
def test_momenta_on_disk_are_those_in_memory_to_the_bit_also_after_a_restart_or_a_move(tmp_path, preset):
    def part(name, rounds, **arguments):
        made = MabRflStrategy(preset, **{**SETTINGS, "state_dir": tmp_path / name, **arguments})
        result = made.start(MemoryGrid({k: honest(k) for k in NODES}), model(), num_rounds=rounds, timeout=600)
        return made.defense.state_dict(), result

    expected, final = part("memory", 6)
    part("disk", 2, momenta="disk")
    part("disk", 3, momenta="disk")
    (tmp_path / "disk").rename(tmp_path / "moved")
    part("moved", 4, momenta="memory")  # where they are is no setting: nothing has to be accepted
    state, result = part("moved", 6, momenta="disk")
    assert isinstance(state["rule"]["momenta"], np.memmap)
    assert same(state, expected)
    assert all(np.array_equal(result.arrays[key].numpy(), final.arrays[key].numpy()) for key in final.arrays)
    assert decisions(tmp_path / "moved" / "audit.jsonl") == decisions(tmp_path / "memory" / "audit.jsonl")
    names = [{path.name for path in (tmp_path / name).iterdir()} for name in ("moved", "memory")]
    assert names[0] == names[1]


def test_half_momenta_survive_a_restart_and_are_another_setting(tmp_path):
    whole, final = run(tmp_path / "whole", 4, momenta="half")
    run(tmp_path / "parts", 2, momenta="half")
    with pytest.raises(StateError, match="belongs to another configuration"):
        run(tmp_path / "parts", 4)
    resumed, result = run(tmp_path / "parts", 4, momenta="half")
    assert resumed.defense.state_dict()["rule"]["momenta"].dtype == np.float16
    assert same(resumed.defense.state_dict(), whole.defense.state_dict())
    assert all(np.array_equal(result.arrays[key].numpy(), final.arrays[key].numpy()) for key in final.arrays)


def test_momenta_on_disk_need_a_folder_and_momenta_a_place_that_exists():
    with pytest.raises(ConfigError, match="give a state_dir as well"):
        MabRflStrategy(momenta="disk")
    with pytest.raises(ConfigError, match="momenta has no variant 'disc'; did you mean 'disk'"):
        MabRflStrategy(momenta="disc")
    with pytest.raises(ConfigError, match="momenta 'none' means memory=0; got memory="):
        MabRflStrategy(momenta="none", memory=0.5)


def test_a_run_that_is_complete_is_not_run_again(tmp_path):
    _, first = run(tmp_path, 3)
    _, again = run(tmp_path, 3, dict.fromkeys(NODES, never))
    assert all(np.array_equal(again.arrays[key].numpy(), first.arrays[key].numpy()) for key in first.arrays)


class Evaluation:
    """The server's own: counts how often it is asked, and can die at it."""

    def __init__(self, dies_at=None):
        self.asked, self.dies_at = [], dies_at

    def __call__(self, number, arrays):
        self.asked.append(number)
        if number == self.dies_at:
            raise KeyboardInterrupt
        return MetricRecord({"$odd\nname": float(number), "sum": float(arrays["a.weight"].numpy().sum())})


def evaluated(folder, rounds, evaluate=None, nodes=None):
    nodes = nodes or {k: evaluating(k) for k in NODES}
    grid, evaluate = MemoryGrid(nodes), evaluate or Evaluation()
    result = strategy(folder, fraction_evaluate=0.5).start(
        grid, model(), num_rounds=rounds, timeout=600, evaluate_fn=evaluate
    )
    return result, grid


def histories(result):
    return (result.train_metrics_clientapp, result.evaluate_metrics_clientapp, result.evaluate_metrics_serverapp)


def never(message):
    raise AssertionError("nobody is to be asked")


def test_evaluations_are_those_of_a_run_that_was_never_stopped(tmp_path):
    whole, _ = evaluated(tmp_path / "whole", 4)
    counting = Evaluation()
    for rounds in (1, 2, 4):
        parts, _ = evaluated(tmp_path / "parts", rounds, counting)
    assert [list(history) for history in histories(parts)] == [[1, 2, 3, 4], [1, 2, 3, 4], [0, 1, 2, 3, 4]]
    assert histories(parts) == histories(whole)
    assert counting.asked == [0, 1, 2, 3, 4]


def test_another_first_model_is_evaluated_anew_where_no_round_was_finished(tmp_path):
    values = []

    def first(number, arrays):
        values.append(float(arrays["a.weight"].numpy().sum()))
        return MetricRecord({"sum": values[-1]})

    def dying(message):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        strategy(tmp_path).start(
            MemoryGrid(dict.fromkeys(NODES, dying)), model(), num_rounds=1, timeout=600, evaluate_fn=first
        )
    result = strategy(tmp_path).start(
        MemoryGrid({k: honest(k) for k in NODES}), model(1), num_rounds=1, timeout=600, evaluate_fn=first
    )
    assert len(values) == 3
    assert values[0] != values[1] == result.evaluate_metrics_serverapp[0]["sum"]


def test_a_complete_run_returns_all_its_evaluations_and_asks_nobody(tmp_path):
    whole, _ = evaluated(tmp_path, 3)
    asked = Evaluation()
    again, _ = evaluated(tmp_path, 3, asked, dict.fromkeys(NODES, never))
    assert histories(again) == histories(whole)
    assert asked.asked == []


@pytest.mark.parametrize("rounds", [2, 3])
def test_a_round_stopped_in_its_evaluation_is_evaluated_when_the_run_goes_on(tmp_path, rounds):
    whole, _ = evaluated(tmp_path / "whole", rounds)
    with pytest.raises(KeyboardInterrupt):
        evaluated(tmp_path / "stopped", rounds, Evaluation(dies_at=2))
    result, grid = evaluated(tmp_path / "stopped", rounds, last := Evaluation())
    assert histories(result) == histories(whole)
    assert last.asked == list(range(2, rounds + 1))
    kinds = [(round_in(message), message.metadata.message_type) for message in grid.sent]
    assert (2, "evaluate") not in kinds, "the clients had answered before the server's own evaluation died"

    def dies(message):
        if message.metadata.message_type == "evaluate" and round_in(message) == 2:
            raise KeyboardInterrupt
        return honest(1)(message)

    with pytest.raises(KeyboardInterrupt):
        evaluated(tmp_path / "clients", rounds, nodes=dict.fromkeys(NODES, dies))
    result, grid = evaluated(tmp_path / "clients", rounds)
    assert 2 in result.evaluate_metrics_clientapp
    assert grid.sent[0].metadata.message_type == "evaluate"


def test_a_damaged_evaluation_is_made_again(tmp_path):
    whole, _ = evaluated(tmp_path, 2)
    file = tmp_path / "evaluation.json"
    file.write_text(file.read_text().replace('"sum"', '"SUM"'))
    again, grid = evaluated(tmp_path, 2)
    assert histories(again) == histories(whole)
    assert {round_in(message) for message in grid.sent} == {2}


def test_evaluations_without_a_result_are_not_asked_for_again(tmp_path, monkeypatch):
    skip_waiting(monkeypatch)

    def mute(message):
        return honest(1)(message) if message.metadata.message_type == "train" else None

    evaluated(tmp_path, 1, lambda number, arrays: None, dict.fromkeys(NODES, mute))
    result, _ = evaluated(tmp_path, 1, nodes=dict.fromkeys(NODES, never))
    assert result.evaluate_metrics_clientapp == {}


def test_a_damaged_state_costs_a_round_and_not_the_run(tmp_path):
    _, final = run(tmp_path / "whole", 4)
    run(tmp_path / "hurt", 3)
    newest = tmp_path / "hurt" / "checkpoint" / "round-0000003.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1] + b"?")
    _, result = run(tmp_path / "hurt", 4)
    assert all(np.array_equal(result.arrays[key].numpy(), final.arrays[key].numpy()) for key in final.arrays)


def test_a_folder_in_use_is_refused(tmp_path):
    run(tmp_path, 1)
    other = strategy(tmp_path)
    other.state.prepare(model())
    held = StateFolder.claim(tmp_path, other.config(), lambda state, changed: None)
    try:
        with pytest.raises(OutputError, match="in use by another run"):
            StateFolder.claim(tmp_path, other.config(), lambda state, changed: None, patience=0.1)
    finally:
        held.close()
    StateFolder.claim(tmp_path, other.config(), lambda state, changed: None, patience=0.1).close()


def test_a_changed_audit_is_refused_on_resume(tmp_path):
    run(tmp_path, 2)
    audit = tmp_path / "audit.jsonl"
    audit.write_text(audit.read_text().replace('"accepted"', '"rejected"', 1))
    with pytest.raises(StateError, match="changed since it was written"):
        run(tmp_path, 3)


def test_lost_checkpoints_are_refused_and_the_audit_stays(tmp_path):
    run(tmp_path, 3)
    before = (tmp_path / "audit.jsonl").read_bytes()
    shutil.rmtree(tmp_path / "checkpoint")
    for _ in range(2):
        with pytest.raises(StateError, match=r"has 3 rounds, but .* has no state of them.* Restore that folder"):
            run(tmp_path, 3)
    (tmp_path / "checkpoint").mkdir()
    with pytest.raises(StateError, match="has 3 rounds"):
        run(tmp_path, 3)
    assert (tmp_path / "audit.jsonl").read_bytes() == before


def test_a_lost_checkpoint_of_the_only_round_is_refused(tmp_path):
    run(tmp_path, 1)
    shutil.rmtree(tmp_path / "checkpoint")
    with pytest.raises(StateError, match="has 1 rounds"):
        run(tmp_path, 1)


def test_what_a_crash_leaves_in_the_audit_stays_and_is_told_as_undone(tmp_path):
    run(tmp_path / "whole", 3)
    run(tmp_path / "hurt", 1)
    audit = tmp_path / "hurt" / "audit.jsonl"

    def dies(message):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "hurt", 2, dict.fromkeys(NODES, dies))
    after_crash = verify(audit).head
    run(tmp_path / "hurt", 2)
    heads = [after_crash, verify(audit).head]
    newest = tmp_path / "hurt" / "checkpoint" / "round-0000002.safetensors"
    newest.unlink()
    with audit.open("ab") as file:
        file.write(b'{"kind":"rep')
    run(tmp_path / "hurt", 3)
    assert [verify(audit, head=head).problem for head in heads] == [None, None]
    rows = list(read_audit(audit))
    assert [row["round"] for row in rows if row["kind"] == "start"] == [0, 1, 1, 1]
    (back,) = [row for row in rows if row["kind"] == "back"]
    undone = [row for row in rows[: back["seq"]] if row["kind"] in ("reply", "round") and row["round"] == 2]
    assert (back["round"], back["undone"], back["torn_bytes"]) == (1, len(undone), 12)
    assert rows[back["after"] - 1]["kind"] == "round"
    assert rows[back["after"] - 1]["round"] == 1
    assert decisions(audit) == decisions(tmp_path / "whole" / "audit.jsonl")


def decisions(path):
    kept = ("round", "client", "verdict", "reason", "evidence", "reputation_before", "reputation_after", "figures")
    rows = [row for row in valid_rows(read_audit(path)) if row["kind"] in ("reply", "round")]
    return [{key: row.get(key) for key in kept} for row in rows]


def test_reputation_is_kept_under_the_key_when_the_node_id_changes(tmp_path):
    keys = {k: b"key of %d" % k for k in NODES}
    made = strategy(tmp_path, selector="all")
    made.start(MemoryGrid({k: honest(k) for k in NODES}, keys=keys), model(), num_rounds=1, timeout=600)
    moved = {100 + k: honest(k) for k in NODES}
    again = strategy(tmp_path, selector="all")
    grid = MemoryGrid(moved, keys={100 + k: key for k, key in keys.items()})
    again.start(grid, model(), num_rounds=2, timeout=600)
    assert list(again.defense.reputation) == sorted(key_name(k) for k in NODES)


def test_the_state_holds_no_pickle_and_names_its_configuration(tmp_path):
    run(tmp_path, 1)
    names = ["audit.jsonl", "checkpoint", "config.json", "lock", "status.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    document = newest_document(tmp_path / "checkpoint")
    assert document is not None
    assert document["round"] == 1
    assert json.loads((tmp_path / "config.json").read_text())["config"]["defense"]["name"] == "mab-rfl"


def test_without_a_folder_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = RobustStrategy("fedavg", fraction_evaluate=0.0)
    made.start(MemoryGrid({k: honest(k) for k in NODES}), model(), num_rounds=1, timeout=600)
    assert list(tmp_path.iterdir()) == []
