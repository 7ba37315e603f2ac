"""What an operator meets: damaged states, restarts, too few nodes, a SuperLink that dies."""

from __future__ import annotations

import json
import logging
import os

import numpy as np
import pytest

from flower_grid import MemoryGrid, evaluating, honest, model
from fuzzing import seal_checkpoint, seal_evaluation
from mabrfl import Defense
from mabrfl.aggregation import FedAvg
from mabrfl.errors import OutputError, StateError
from mabrfl.flower import MabRflStrategy, RobustStrategy
from mabrfl.recording.audit import read_audit

NODES = range(1, 6)


def run(folder, rounds, grid=None, **arguments):
    settings = {"fraction_evaluate": 0.0, "seed": 4, "min_available_nodes": 5, "state_dir": folder, **arguments}
    made = MabRflStrategy("paper", **settings)
    grid = grid or MemoryGrid({k: evaluating(k) for k in NODES})
    return made, made.start(grid, model(), num_rounds=rounds, timeout=600)


@pytest.mark.parametrize(
    "place",
    [
        ("audit",),
        ("audit", "rows"),
        ("model", "weights"),
        ("history", "train_metrics_clientapp"),
        ("defense", "beliefs"),
    ],
)
@pytest.mark.parametrize("value", [None, [1], "x", -1, {"$tuple": [1]}])
def test_a_malformed_state_with_right_checksums_costs_a_round_and_not_the_run(tmp_path, place, value, caplog):
    _, final = run(tmp_path, 3)
    name = "checkpoint/round-0000003.json"
    document = json.loads((tmp_path / name).read_text())
    parent = document["state"]
    for key in place[:-1]:
        parent = parent[key]
    parent[place[-1]] = value
    seal_checkpoint(tmp_path, name, document, None)
    _, again = run(tmp_path, 3)
    assert "checkpoint of round 3 refused" in caplog.text
    assert "going on from round 2" in caplog.text
    assert all(np.array_equal(again.arrays[key].numpy(), final.arrays[key].numpy()) for key in final.arrays)


@pytest.mark.parametrize("value", [3, [3], [3, 5], [3, [["a"]]], {}, "xy", [3, [["a", {}]]]])
def test_a_malformed_evaluation_with_a_right_checksum_is_made_again(tmp_path, value):
    _, before = run(tmp_path, 3, fraction_evaluate=1.0)
    document = json.loads((tmp_path / "evaluation.json").read_text())
    document["state"]["evaluate_metrics_clientapp"] = value
    seal_evaluation(tmp_path, "evaluation.json", document, None)
    _, again = run(tmp_path, 3, fraction_evaluate=1.0)
    assert again.evaluate_metrics_clientapp == before.evaluate_metrics_clientapp


@pytest.mark.parametrize("name", ["audit.jsonl", "config.json", "evaluation.json", "lock"])
def test_a_pipe_in_place_of_a_file_does_not_hang_the_start(tmp_path, name):
    run(tmp_path, 2)
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    if name == "evaluation.json":
        run(tmp_path, 2)
    else:
        with pytest.raises((StateError, OutputError), match=r"expected a regular file, got a pipe or device"):
            run(tmp_path, 3)


def test_a_damaged_configuration_is_named_with_its_path(tmp_path):
    run(tmp_path, 1)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(StateError, match=rf"{tmp_path}/config\.json' is not valid JSON"):
        run(tmp_path, 2)


def test_a_resumed_run_counts_all_rounds_in_flowers_own_lines(tmp_path, caplog):
    caplog.set_level(logging.INFO, "flwr")
    run(tmp_path, 2)
    caplog.clear()
    run(tmp_path, 4)
    lines = [record.getMessage() for record in caplog.records if "[ROUND" in record.getMessage()]
    assert lines == ["[ROUND 3/4]", "[ROUND 4/4]"]
    assert not logging.getLogger("flwr").filters


def test_at_least_min_train_nodes_are_invited_and_judged(tmp_path):
    def nobody(candidates):
        return candidates.ids[:1]

    made = RobustStrategy(
        Defense(FedAvg(), selector=nobody), min_train_nodes=3, min_available_nodes=5, fraction_evaluate=0.0
    )
    grid = MemoryGrid({k: honest(k) for k in NODES})
    result = made.start(grid, model(), num_rounds=2, timeout=600)
    assert [metrics["nodes-selected"] for metrics in result.train_metrics_clientapp.values()] == [3, 3]
    assert [metrics["replies-accepted"] for metrics in result.train_metrics_clientapp.values()] == [3, 3]


def test_those_that_are_added_have_the_best_reputation():
    defense = Defense(FedAvg(), selector=lambda candidates: ["d"])
    defense._beliefs.load_state_dict({"ids": list("abcd"), "counts": [[1, 3], [5, 1], [2, 1], [1, 9]]})
    assert defense.select(list("abcd"), round=1) == ["d"]
    assert defense.select(list("abcd"), round=1, at_least=2) == ["b", "d"]
    assert defense.select(list("abcd"), round=1, at_least=9) == list("abcd")


def test_the_cause_of_the_end_and_the_way_on_are_in_the_log(tmp_path, caplog):
    class Dying(MemoryGrid):
        def push_messages(self, messages):
            if len(self.sent) >= 8:
                raise ConnectionError("SuperLink\nis gone")
            return super().push_messages(messages)

    with pytest.raises(ConnectionError):
        run(tmp_path, 9, Dying({k: honest(k) for k in NODES}))
    done = max(row["round"] for row in read_audit(tmp_path / "audit.jsonl"))
    assert f"the run ends after round {done}: ConnectionError: SuperLink\\nis gone" in caplog.text
    assert f"start the app again with state_dir {tmp_path}" in caplog.text
