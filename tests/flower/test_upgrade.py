"""Folders of earlier versions and of other settings: what differs is named, and the reputations are kept."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from flower_grid import MemoryGrid, evaluating, key_name, model
from mabrfl.errors import StateError
from mabrfl.flower import MabRflStrategy
from mabrfl.recording.audit import read_audit, verify
from mabrfl.recording.checkpoint import load_checkpoint

STATES = Path(__file__).parent / "states"
NODES = range(1, 6)


def run(folder, rounds, preset="paper", **arguments):
    made = MabRflStrategy(preset, seed=4, min_available_nodes=5, state_dir=folder, **arguments)
    return made, made.start(MemoryGrid({k: evaluating(k) for k in NODES}), model(), num_rounds=rounds, timeout=600)


def reputations_in(folder):
    """The reputations in the newest state of a folder, read without a strategy."""
    config_hash = json.loads(max((folder / "checkpoint").glob("*.json")).read_text())["config_hash"]
    beliefs = load_checkpoint(folder / "checkpoint", config_hash=config_hash).state["defense"]["beliefs"]
    return {client: tuple(pair) for client, pair in zip(beliefs["ids"], beliefs["counts"].tolist(), strict=True)}


@pytest.mark.parametrize("preset", ["paper", "hardened"])
def test_a_folder_of_the_first_format_goes_on_with_its_reputations(tmp_path, preset):
    folder = shutil.copytree(STATES / f"{preset}-1", tmp_path / "state")
    before = reputations_in(folder)
    assert set(before) == {key_name(k) for k in NODES}
    assert "version" not in json.loads((folder / "config.json").read_text())
    made, _ = run(folder, 3, preset, accept_changes=True)  # its three rounds are done
    assert made.defense.reputation == before
    _, result = run(folder, 4, preset)  # and now it is a folder of this version
    assert list(result.train_metrics_clientapp) == [1, 2, 3, 4]
    assert json.loads((folder / "config.json").read_text())["version"] == 2
    assert verify(folder / "audit.jsonl").problem is None


def test_the_same_settings_in_the_first_format_need_no_flag(tmp_path):
    run(tmp_path, 2)
    document = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(document["config"]))
    _, result = run(tmp_path, 3)
    assert list(result.train_metrics_clientapp) == [1, 2, 3]
    assert json.loads((tmp_path / "config.json").read_text()) == document


def test_other_settings_are_named_and_accepted_with_a_flag_and_the_reputations_kept(tmp_path):
    before, _ = run(tmp_path, 3, "hardened")
    with pytest.raises(StateError) as refused:
        run(tmp_path, 4, "hardened", forgive=0.5, trust_num_examples=True)
    for part in ("options.forgive (0.", "before, 0.5 now)", "trust_num_examples (false before, true now)"):
        assert part in str(refused.value)
    assert "accept_changes=True" in str(refused.value)
    assert before.defense.reputation == reputations_in(tmp_path)
    made, _ = run(tmp_path, 3, "hardened", forgive=0.5, trust_num_examples=True, accept_changes=True)
    assert made.defense.reputation == before.defense.reputation
    row = [row for row in read_audit(tmp_path / "audit.jsonl") if row["kind"] == "start"][-1]
    assert ["trust_num_examples", "false", "true"] in row["accepted_changes"]
    # It was stopped before a state with the new settings was saved; from now on no flag is needed.
    _, result = run(tmp_path, 5, "hardened", forgive=0.5, trust_num_examples=True)
    assert list(result.train_metrics_clientapp) == [1, 2, 3, 4, 5]
    assert list(result.evaluate_metrics_clientapp) == [1, 2, 3, 4, 5]
    with pytest.raises(StateError, match="another configuration"):
        run(tmp_path, 6, "hardened")


def test_options_that_one_side_does_not_know_are_named(tmp_path):
    run(tmp_path, 1, "hardened")
    document = json.loads((tmp_path / "config.json").read_text())
    options = document["config"]["defense"]["rule"]["options"]
    options["of_an_older_version"] = [1, 2]
    del options["forgive"]
    (tmp_path / "config.json").write_text(json.dumps(document))
    with pytest.raises(StateError) as refused:
        run(tmp_path, 2, "hardened")
    assert "options.of_an_older_version ([1, 2] before, none now)" in str(refused.value)
    assert "options.forgive (none before, " in str(refused.value)


def test_another_rule_keeps_the_reputations_and_says_what_it_does_not_keep(tmp_path, caplog):
    before, _ = run(tmp_path, 3, "paper")
    made, _ = run(tmp_path, 3, "hardened", accept_changes=True)
    assert made.defense.reputation == before.defense.reputation
    assert "reputations are kept" in caplog.text
    run(tmp_path, 4, "hardened")


def test_another_model_cannot_be_accepted(tmp_path):
    run(tmp_path, 1)
    other = model()
    del other["b.weight"]
    made = MabRflStrategy("paper", seed=4, min_available_nodes=5, state_dir=tmp_path, accept_changes=True)
    with pytest.raises(StateError, match="a state of another model cannot be used"):
        made.start(MemoryGrid({k: evaluating(k) for k in NODES}), other, num_rounds=2, timeout=600)


def test_a_folder_of_a_newer_version_is_refused_with_both_versions(tmp_path):
    run(tmp_path, 1)
    document = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**document, "version": 3, "package": "9.1"}))
    with pytest.raises(StateError, match=r"in version 3, written by mabrfl '9.1'; this is .* reads versions 1 and 2"):
        run(tmp_path, 2, accept_changes=True)
