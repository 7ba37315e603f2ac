"""What a strategy writes survives: the same choices after a restart, and only for the same configuration."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from flower_grid import MemoryGrid, honest, key_name, model
from mabrfl.errors import OutputError, StateError
from mabrfl.flower import MabRflStrategy, RobustStrategy
from mabrfl.flower.state import StateFolder
from mabrfl.recording.checkpoint import newest_document

NODES = range(1, 9)


def strategy(folder, **arguments):
    settings = {"fraction_evaluate": 0.0, "seed": 4, "min_available_nodes": 8, "state_dir": folder, **arguments}
    return MabRflStrategy("paper", **settings)


def run(folder, rounds, nodes=None, **arguments):
    made = strategy(folder, **arguments)
    return made, made.start(MemoryGrid(nodes or {k: honest(k) for k in NODES}), model(), num_rounds=rounds, timeout=0.1)


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


def test_a_run_that_is_complete_is_not_run_again(tmp_path):
    _, first = run(tmp_path, 3)

    def never(message):
        raise AssertionError("nobody is to be asked")

    _, again = run(tmp_path, 3, dict.fromkeys(NODES, never))
    assert all(np.array_equal(again.arrays[key].numpy(), first.arrays[key].numpy()) for key in first.arrays)


def test_evaluation_at_the_server_is_told_the_round_over_all_runs(tmp_path):
    from flwr.app import MetricRecord

    seen = []

    def evaluate(number, arrays):
        seen.append(number)
        return MetricRecord({"accuracy": float(number)})

    for rounds in (2, 4):
        made = strategy(tmp_path)
        result = made.start(
            MemoryGrid({k: honest(k) for k in NODES}), model(), num_rounds=rounds, timeout=0.1, evaluate_fn=evaluate
        )
    assert seen == [0, 1, 2, 2, 3, 4]
    assert result.evaluate_metrics_serverapp[4]["accuracy"] == 4


@pytest.mark.parametrize(
    "changed",
    [{"seed": 5}, {"history": 0.3}, {"min_train_nodes": 3}, {"trust_num_examples": True}, {"selector": "all"}],
)
def test_another_configuration_is_refused_with_both_hashes(tmp_path, changed):
    first, _ = run(tmp_path, 1)
    with pytest.raises(StateError, match=r"its hash is [0-9a-f]{64}, of this one [0-9a-f]{64}; they differ in \w+"):
        run(tmp_path, 2, **changed)
    assert first.keeper.round == 1


def test_another_model_is_refused(tmp_path):
    from flwr.app import Array

    run(tmp_path, 1)
    other = model()
    other["a.bias"] = Array(np.zeros(7, np.float32))
    with pytest.raises(StateError, match="they differ in model"):
        strategy(tmp_path).start(MemoryGrid({k: honest(k) for k in NODES}), other, num_rounds=2)


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
    other.keeper.prepare(model())
    held = StateFolder.claim(tmp_path, other.config())
    try:
        with pytest.raises(OutputError, match="in use by another run"):
            StateFolder.claim(tmp_path, other.config(), patience=0.1)
    finally:
        held.close()
    StateFolder.claim(tmp_path, other.config(), patience=0.1).close()


def test_a_changed_audit_is_refused_on_resume(tmp_path):
    run(tmp_path, 2)
    audit = tmp_path / "audit.jsonl"
    audit.write_text(audit.read_text().replace('"accepted"', '"rejected"', 1))
    with pytest.raises(StateError, match="changed since it was written"):
        run(tmp_path, 3)


SCRIPT = """
import os, sys
sys.path[:0] = {paths!r}
from flower_grid import MemoryGrid, honest, model, pretend_a_task
from mabrfl.flower import MabRflStrategy

pretend_a_task()

left = int(sys.argv[2])
def counted(call):
    def wrapper(*args, **kwargs):
        global left
        left -= 1
        if left == 0:
            os._exit(9)
        return call(*args, **kwargs)
    return wrapper

os.fsync, os.replace = counted(os.fsync), counted(os.replace)
strategy = MabRflStrategy("paper", fraction_evaluate=0.0, seed=4, min_available_nodes=8, state_dir=sys.argv[1])
strategy.start(MemoryGrid({{k: honest(k) for k in range(1, 9)}}), model(), num_rounds=3, timeout=0.1)
print(left)
"""


@pytest.mark.parametrize("point", [1, 3, 5, 8, 13])
def test_killed_at_any_write_it_goes_on_and_ends_the_same(tmp_path, point):
    paths = [str(Path(__file__).parent.parent), *[place for place in sys.path if place.endswith("src")]]
    script = SCRIPT.format(paths=paths)
    command = [sys.executable, "-c", script, str(tmp_path / "killed"), str(point)]
    died = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ})
    assert died.returncode == 9, died.stderr
    resumed, result = run(tmp_path / "killed", 3)
    whole, final = run(tmp_path / "whole", 3)
    assert all(np.array_equal(result.arrays[key].numpy(), final.arrays[key].numpy()) for key in final.arrays)
    assert same(resumed.defense.state_dict(), whole.defense.state_dict())
    audits = [_decisions(tmp_path / name / "audit.jsonl") for name in ("killed", "whole")]
    assert audits[0] == audits[1]


def _decisions(path):
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    kept = ("round", "client", "verdict", "reason", "evidence", "reputation_before", "reputation_after", "figures")
    return [{key: row.get(key) for key in kept} for row in rows if row["kind"] != "start"]


def test_reputation_is_kept_under_the_key_when_the_node_id_changes(tmp_path):
    keys = {k: b"key of %d" % k for k in NODES}
    made = strategy(tmp_path, selector="all")
    made.start(MemoryGrid({k: honest(k) for k in NODES}, keys=keys), model(), num_rounds=1, timeout=0.1)
    moved = {100 + k: honest(k) for k in NODES}
    again = strategy(tmp_path, selector="all")
    grid = MemoryGrid(moved, keys={100 + k: key for k, key in keys.items()})
    again.start(grid, model(), num_rounds=2, timeout=0.1)
    assert list(again.defense.reputation) == sorted(key_name(k) for k in NODES)


def test_the_state_holds_no_pickle_and_names_its_configuration(tmp_path):
    run(tmp_path, 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["audit.jsonl", "checkpoint", "config.json", "lock"]
    document = newest_document(tmp_path / "checkpoint")
    assert document is not None
    assert document["round"] == 1
    assert json.loads((tmp_path / "config.json").read_text())["defense"]["name"] == "mab-rfl"


def test_without_a_folder_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = RobustStrategy("fedavg", fraction_evaluate=0.0)
    made.start(MemoryGrid({k: honest(k) for k in NODES}), model(), num_rounds=1, timeout=0.1)
    assert list(tmp_path.iterdir()) == []
