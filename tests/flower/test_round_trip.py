"""The strategy moves messages; the mathematics is the library's, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict

from flower_faults import skip_waiting
from flower_grid import MemoryGrid, honest, key_name, model, reply_to
from mabrfl import Decision, Defense, MabRfl, Updates
from mabrfl.flower import ClaimedIdentity, MabRflStrategy, RobustStrategy
from mabrfl.flower.schema import ModelSchema
from mabrfl.layout import Layout

QUIET = {"fraction_evaluate": 0.0}


def run(strategy, nodes, rounds=3, initial=None, **arguments):
    grid = nodes if isinstance(nodes, MemoryGrid) else MemoryGrid(nodes)
    return strategy.start(grid, initial or model(), num_rounds=rounds, **{"timeout": 600.0, **arguments})


def flat(arrays: ArrayRecord) -> np.ndarray:
    return np.concatenate([array.numpy().ravel() for key, array in arrays.items() if "weight" in key or "bias" in key])


@pytest.mark.parametrize("preset", ["hardened", "paper", "reference"])
def test_the_same_updates_give_the_same_outcome_bit_for_bit_in_the_library(preset):
    nodes = {k: honest(k) for k in range(1, 11)}
    strategy = MabRflStrategy(preset, seed=3, min_available_nodes=10, **QUIET)
    result = run(strategy, nodes, rounds=5)
    defense, weights = MabRfl(preset, seed=3), flat(model())
    names = {key_name(node): node for node in nodes}
    for number in range(1, 6):
        chosen = defense.select(list(names), round=number)
        rows = [_local(names[name], number, weights) - weights for name in chosen]
        outcome = defense.aggregate(Updates(chosen, np.stack(rows)), round=number)
        weights = weights + outcome.step
    assert np.array_equal(flat(result.arrays), weights)
    assert strategy.defense.reputation == defense.reputation


def _local(node, number, weights):
    """What node k of the grid sends in a round, as a vector."""
    schema = ModelSchema.of(model())
    record = schema.record(weights, np.zeros(6, np.float32), model())
    message = Message(_content(record, number), 1, "train")
    return flat(honest(node)(message).content.array_records["arrays"])


def _content(record, number):
    return RecordDict({"arrays": record, "config": ConfigRecord({"server-round": number})})


def test_rules_see_the_layers_of_the_servers_model_without_its_buffers():
    seen = []

    def by_layer(cohort):
        seen.append((cohort.layout, list(cohort.blocks)))
        return Decision(weights=np.full(len(cohort), 1 / len(cohort)))

    run(RobustStrategy(Defense(by_layer), min_train_nodes=1, **QUIET), {k: honest(k) for k in range(1, 4)}, rounds=1)
    weights = {key: array.numpy() for key, array in model().items() if "weight" in key or "bias" in key}
    assert len(weights) < len(model())
    assert seen == [(Layout.of(weights), list(Layout.of(weights).layers))]


def test_messages_are_a_list_each_with_a_fresh_token_and_a_time_to_live():
    grid = MemoryGrid({k: honest(k) for k in range(1, 5)})
    run(RobustStrategy("fedavg", **QUIET), grid, rounds=2, timeout=77)
    tokens = [message.metadata.group_id for message in grid.sent]
    assert len(set(tokens)) == len(tokens) == 8
    assert all(len(token) == 32 for token in tokens)
    assert {message.metadata.ttl for message in grid.sent} == {77}
    strategy = RobustStrategy("fedavg", message_ttl=5, **QUIET)
    assert isinstance(strategy.configure_train(1, model(), ConfigRecord(), grid), list)


def test_nodes_learn_the_rounds_number_and_the_users_settings_stay_as_they_were():
    seen = []

    def watching(message):
        seen.append(dict(message.content.config_records["config"]))
        return honest(1)(message)

    config = ConfigRecord({"lr": 0.1})
    strategy = RobustStrategy("fedavg", min_available_nodes=1, min_train_nodes=1, **QUIET)
    run(strategy, {1: watching}, 2, train_config=config)
    assert seen == [{"lr": 0.1, "server-round": 1}, {"lr": 0.1, "server-round": 2}]
    assert dict(config) == {"lr": 0.1}


def test_error_late_and_missing_replies_are_never_blamed_and_the_others_are_used(monkeypatch):
    skip_waiting(monkeypatch)

    def failing(message):
        return Message(Error(2, "boom"), reply_to=message)

    strategy = RobustStrategy("fedavg", **QUIET)
    result = run(strategy, {1: honest(1), 2: honest(2), 3: failing, 4: lambda message: None}, rounds=2)
    reputation = strategy.defense.reputation
    assert reputation[key_name(1)] == (3, 1)
    assert reputation[key_name(3)] == reputation[key_name(4)] == (1, 1)
    metrics = result.train_metrics_clientapp[2]
    assert (metrics["replies-accepted"], metrics["replies-error"], metrics["replies-missing"]) == (2, 1, 1)


def test_a_claimed_number_of_examples_buys_nothing_unless_asked_for():
    def boasting(message):
        reply = honest(1)(message)
        return reply_to(message, reply.content.array_records["arrays"], examples=2**50)

    plain = run(RobustStrategy("fedavg", **QUIET), {k: honest(k) for k in (1, 2)}, 1)
    boasted = run(RobustStrategy("fedavg", **QUIET), {1: boasting, 2: honest(2)}, 1)
    believed = run(RobustStrategy("fedavg", trust_num_examples=True, **QUIET), {1: boasting, 2: honest(2)}, 1)
    alone = run(RobustStrategy("fedavg", min_train_nodes=1, min_available_nodes=1, **QUIET), {1: honest(1)}, 1)
    assert np.array_equal(flat(plain.arrays), flat(boasted.arrays))
    assert np.allclose(flat(believed.arrays), flat(alone.arrays), atol=1e-6)
    assert not np.allclose(flat(plain.arrays), flat(alone.arrays), atol=1e-3)


def test_with_too_few_replies_nothing_moves_and_nobody_is_judged_but_the_blamed():
    def broken(message):
        return reply_to(message, {"a.weight": np.zeros(2, np.float32)})

    strategy = RobustStrategy("fedavg", min_train_nodes=2, **QUIET)
    result = run(strategy, {1: honest(1), 2: broken}, rounds=1)
    assert np.array_equal(flat(result.arrays), flat(model()))
    assert strategy.defense.reputation == {key_name(1): (1, 1), key_name(2): (1, 2)}
    assert result.train_metrics_clientapp[1]["model-moved"] == 0


def test_buffers_are_the_median_of_the_accepted_and_counts_stay_the_servers():
    result = run(RobustStrategy("fedavg", **QUIET), {k: honest(k) for k in (1, 2, 3)}, 1)
    sent = [honest(k)(Message(_content(model(), 1), 1, "train")) for k in (1, 2, 3)]
    means = [reply.content.array_records["arrays"]["n.running_mean"].numpy() for reply in sent]
    assert np.array_equal(result.arrays["n.running_mean"].numpy(), np.median(means, axis=0))
    assert result.arrays["n.num_batches_tracked"].numpy() == 0
    assert list(result.arrays) == list(model())


def test_metrics_are_the_unweighted_mean_over_the_accepted_and_no_client_overwrites_a_figure():
    nodes = {1: honest(1), 2: honest(2), 3: honest(3)}
    metrics = run(RobustStrategy("fedavg", **QUIET), nodes, 1).train_metrics_clientapp[1]
    assert metrics["loss"] == pytest.approx(2.0)
    nodes = dict.fromkeys((1, 2, 3), lambda message: _with_metrics(message, {"replies-accepted": 99, "loss": 1.0}))
    metrics = run(RobustStrategy("fedavg", **QUIET), nodes, 1).train_metrics_clientapp[1]
    assert metrics["replies-accepted"] == 3


def _with_metrics(message, values):
    arrays = honest(message.metadata.dst_node_id)(message).content.array_records["arrays"]
    return reply_to(message, arrays, **values)


def test_a_users_metric_function_that_fails_does_not_end_the_run():
    def failing(contents, key):
        raise KeyError(key)

    result = run(RobustStrategy("fedavg", train_metrics_aggr_fn=failing, **QUIET), {1: honest(1), 2: honest(2)}, 1)
    assert "loss" not in result.train_metrics_clientapp[1]
    assert result.train_metrics_clientapp[1]["replies-accepted"] == 2


@pytest.mark.parametrize(
    ("defense", "selector"), [("krum", None), ("median", "uniform"), ("dnc", "acs"), ("centered-clip", "thompson-top")]
)
def test_any_defense_of_the_catalogue_goes_with_any_selector(defense, selector):
    options = {"selector_options": {"num_selected": 5}} if selector in ("uniform", "thompson-top") else {}
    strategy = RobustStrategy(defense, selector, num_malicious_nodes=1, min_train_nodes=1, **options, **QUIET)
    result = run(strategy, {k: honest(k) for k in range(1, 8)}, 2)
    assert not np.array_equal(flat(result.arrays), flat(model()))


def test_clients_evaluate_as_in_fedavg_and_a_bad_answer_is_left_out():
    def evaluating(value):
        def answer(message):
            if message.metadata.message_type == "train":
                return honest(1)(message)
            metrics = MetricRecord({"num-examples": 5, "accuracy": value}) if value is not None else MetricRecord()
            return Message(RecordDict({"metrics": metrics}), reply_to=message)

        return answer

    result = run(RobustStrategy("fedavg"), {1: evaluating(0.5), 2: evaluating(0.7), 3: evaluating(None)}, 1)
    assert result.evaluate_metrics_clientapp[1]["accuracy"] == pytest.approx(0.6)


def test_two_nodes_of_one_identity_are_both_left_out():
    grid = MemoryGrid({1: honest(1), 2: honest(2), 3: honest(3)}, keys={1: b"x", 2: b"x", 3: b"y"})
    strategy = RobustStrategy("fedavg", min_train_nodes=1, **QUIET)
    run(strategy, grid, 1)
    assert {message.metadata.dst_node_id for message in grid.sent} == {3}


def test_a_node_without_a_key_is_known_by_its_id():
    strategy = RobustStrategy("fedavg", **QUIET)
    run(strategy, MemoryGrid({1: honest(1), 2: honest(2)}, keys={}), 1)
    assert list(strategy.defense.reputation) == ["node:1", "node:2"]


def test_claimed_identities_are_asked_for_once():
    queries = []

    def claiming(number):
        def answer(message):
            if message.metadata.message_type != "query":
                return honest(number)(message)
            queries.append(number)
            return Message(RecordDict({"me": ConfigRecord({"partition-id": number})}), reply_to=message)

        return answer

    strategy = RobustStrategy("fedavg", identify=ClaimedIdentity(), **QUIET)
    run(strategy, {11: claiming(0), 12: claiming(1)}, 2)
    assert list(strategy.defense.reputation) == [0, 1]
    assert sorted(queries) == [0, 1]


def test_queries_carry_tokens_like_every_other_message():
    grid = MemoryGrid({11: lambda message: None, 12: lambda message: None})
    assert ClaimedIdentity(timeout=0.1)(grid, list(grid.get_nodes())) == {}
    tokens = {message.metadata.group_id for message in grid.sent}
    assert {message.metadata.message_type for message in grid.sent} == {"query"}
    assert len(tokens) == 2
    assert all(len(token) == 32 for token in tokens)


def test_without_momenta_nothing_is_remembered_of_an_update_and_a_round_alone_is_the_same():
    nodes = {k: honest(k) for k in range(1, 9)}
    keeping = MabRflStrategy("paper", seed=1, min_available_nodes=8, **QUIET)
    forgetting = MabRflStrategy("paper", seed=1, momenta=False, min_available_nodes=8, **QUIET)
    first, second = run(keeping, nodes, 1), run(forgetting, nodes, 1)
    assert np.array_equal(flat(first.arrays), flat(second.arrays))
    assert len(keeping.defense.state_dict()["rule"]["momenta"]) > 0
    assert forgetting.defense.state_dict()["rule"]["momenta"].size == 0
    assert run(forgetting, nodes, 2).train_metrics_clientapp[3]["nodes-selected"] > 0
