"""A ClientApp whose nodes attack by a mod."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from flower_grid import MemoryGrid, pretend_a_task
from mabrfl.attacks import IPM
from mabrfl.errors import ConfigError
from mabrfl.flower import RobustStrategy, attack_mod
from mabrfl.testing import make_view

START = {"one.weight": np.array([[1.0, 2.0]], np.float32), "norm.running_mean": np.array([5.0], np.float32)}
STEPS = np.array([[0.5, -1.0], [1.5, -3.0]])


def node(mod, number=7, **node_config):
    """Return a node that trains by adding the next of the steps, and what it remembers."""
    app, trainings = ClientApp(mods=[mod]), []

    @app.train()
    def train(message, context):
        trainings.append(context.node_id)
        arrays = {key: array.numpy() for key, array in message.content.array_records["arrays"].items()}
        arrays["one.weight"] = arrays["one.weight"] + STEPS[(len(trainings) - 1) % 2].astype(np.float32)
        arrays["norm.running_mean"] = arrays["norm.running_mean"] + 1
        metrics = MetricRecord({"num-examples": 10, "loss": 0.5})
        record = ArrayRecord({key: Array(values) for key, values in arrays.items()})
        return Message(RecordDict({"arrays": record, "metrics": metrics}), reply_to=message)

    @app.evaluate()
    def evaluate(message, context):
        return Message(RecordDict({"metrics": MetricRecord({"num-examples": 10})}), reply_to=message)

    context = Context(1, number, dict(node_config), RecordDict(), {})
    return lambda message: app(message, context), trainings


def request(round_number=1, weights=START, kind="train"):
    pretend_a_task()
    arrays = ArrayRecord({key: Array(values) for key, values in weights.items()})
    config = ConfigRecord({"server-round": round_number})
    return Message(RecordDict({"arrays": arrays, "config": config}), 7, kind)


def sent(reply):
    return reply.content.array_records["arrays"]["one.weight"].numpy()[0] - START["one.weight"][0]


def test_the_node_sends_the_attacks_update_and_its_own_buffers_and_metrics():
    ask, trainings = node(attack_mod("sign-flip", scale=2.0))
    reply = ask(request())
    np.testing.assert_allclose(sent(reply), -2 * STEPS[0])
    assert reply.content.array_records["arrays"]["norm.running_mean"].numpy() == [6.0]
    assert dict(reply.content.metric_records["metrics"]) == {"num-examples": 10, "loss": 0.5}
    assert len(trainings) == 1


def test_an_attack_that_needs_others_updates_gets_those_of_several_trainings():
    ask, trainings = node(attack_mod("ipm", epsilon=3.0, samples=2))
    np.testing.assert_allclose(sent(ask(request())), -3 * STEPS.mean(axis=0))
    assert len(trainings) == 2
    np.testing.assert_allclose(IPM(epsilon=3.0)(make_view(STEPS, attackers=1))[0], -3 * STEPS.mean(axis=0))
    ask, _ = node(attack_mod("lie", z=1.5, samples=2))
    np.testing.assert_allclose(sent(ask(request())), STEPS.mean(axis=0) - 1.5 * STEPS.std(axis=0))


def test_only_the_chosen_nodes_attack_and_only_when_they_train():
    mod = attack_mod("sign-flip", where=lambda context: context.node_config["partition-id"] < 3)
    for partition, sign in ((2, -1), (3, 1)):
        ask, _ = node(mod, **{"partition-id": partition})
        np.testing.assert_allclose(sent(ask(request())), sign * STEPS[0])
        assert not ask(request(kind="evaluate")).content.array_records


def test_rounds_are_the_servers_and_an_inactive_attack_is_honest():
    ask, _ = node(attack_mod("sleeper", inner="sign-flip", honest_rounds=2))
    np.testing.assert_allclose(sent(ask(request(2))), STEPS[0])
    np.testing.assert_allclose(sent(ask(request(3))), -STEPS[1])
    ask, _ = node(attack_mod("lie", num_clients=10, num_malicious=1))  # z is not positive
    np.testing.assert_allclose(sent(ask(request())), STEPS[0])


def test_the_last_step_is_known_to_a_node_that_saw_the_round_before():
    ask, _ = node(attack_mod("free-rider", update="last-step"))
    moved = START | {"one.weight": START["one.weight"] - 1}
    ask(request(1, moved))
    np.testing.assert_allclose(sent(ask(request(2))), [1, 1])
    np.testing.assert_allclose(sent(ask(request(4))), [0, 0])  # it was not asked in round 3


def test_a_claim_is_made_and_an_error_is_passed_on():
    ask, _ = node(attack_mod("braggart", inner="sign-flip", times=3.0))
    reply = ask(request())
    assert reply.content.metric_records["metrics"]["num-examples"] == 30

    def broken(message, context):
        return Message(Error(1, "broken"), reply_to=message)

    context = Context(1, 7, {}, RecordDict(), {})
    assert attack_mod("ipm")(request(), context, broken).error.reason == "broken"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("none", "it attacks nobody"),
        ("label-flip", "it poisons data; train on poisoned data in your app instead"),
        ("agr-mab-rfl", "it tries its updates on a copy of the defense, which no node has"),
        ("whitewash", "it remembers earlier rounds"),
        ("poisoned-fl", "it remembers earlier rounds"),
    ],
)
def test_what_cannot_run_at_a_node_is_refused(name, reason):
    with pytest.raises(ConfigError, match=f"attack '{name}' cannot run at a single node: {reason}"):
        attack_mod(name)


def test_messages_that_do_not_fit_are_errors_that_say_so():
    mod, context = attack_mod("sign-flip"), Context(1, 7, {}, RecordDict(), {})
    with pytest.raises(ConfigError, match="attack_mod needs one ArrayRecord in each message; got 0"):
        mod(request(), context, lambda message, _: Message(RecordDict(), reply_to=message))
    other = ArrayRecord({"two": Array(np.zeros(2))})
    with pytest.raises(ConfigError, match="attack_mod needs replies with the arrays of the model"):
        mod(request(), context, lambda message, _: Message(RecordDict({"arrays": other}), reply_to=message))
    with pytest.raises(ConfigError, match="attack 'sign-flip' has no such option"):
        attack_mod("sign-flip", scal=2.0)


def test_in_a_federation_the_attackers_reverse_the_median():
    nodes = {number: node(attack_mod("sign-flip"), number)[0] for number in (1, 2, 3)}
    nodes |= {number: node(attack_mod("sign-flip", where=lambda _: False), number)[0] for number in (4, 5)}
    strategy = RobustStrategy("median", fraction_evaluate=0.0, min_available_nodes=5, min_train_nodes=5)
    initial = ArrayRecord({key: Array(values) for key, values in START.items()})
    result = strategy.start(MemoryGrid(nodes), initial, num_rounds=1, timeout=600.0)
    moved = result.arrays["one.weight"].numpy()[0] - START["one.weight"][0]
    np.testing.assert_allclose(moved, -STEPS[0])
