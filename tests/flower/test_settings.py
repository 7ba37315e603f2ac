"""What a strategy takes, what it refuses, and what its folder is compared by."""

from __future__ import annotations

import functools
import logging
import random
import threading
from collections import deque
from functools import partial

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord

from flower_grid import MemoryGrid, honest, model
from mabrfl import Decision, Defense
from mabrfl.aggregation import Krum
from mabrfl.errors import ConfigError, StateError
from mabrfl.flower import ClaimedIdentity, MabRflStrategy, RobustStrategy
from mabrfl.flower.describing import described, undescribed
from mabrfl.flower.state_config import hash_of
from mabrfl.reputation import Beliefs, Reaction
from mabrfl.selection import Uniform

NODES = range(1, 9)


def grid():
    return MemoryGrid({k: honest(k) for k in NODES})


def run(folder, rounds, **arguments):
    settings = {"fraction_evaluate": 0.0, "seed": 4, "min_available_nodes": 8, "state_dir": folder, **arguments}
    made = MabRflStrategy("paper", **settings)
    return made, made.start(grid(), model(), num_rounds=rounds, timeout=600)


@pytest.mark.parametrize(
    "changed",
    [{"seed": 5}, {"history": 0.3}, {"min_train_nodes": 3}, {"trust_num_examples": True}, {"selector": "all"}],
)
def test_another_configuration_is_refused_with_both_hashes(tmp_path, changed):
    first, _ = run(tmp_path, 1)
    with pytest.raises(StateError, match=r"its hash is [0-9a-f]{64}, of this one [0-9a-f]{64}; they differ in \w+"):
        run(tmp_path, 2, **changed)
    assert first.state.round == 1


def test_another_model_is_refused(tmp_path):
    run(tmp_path, 1)
    other = model()
    other["a.bias"] = Array(np.zeros(7, np.float32))
    with pytest.raises(StateError, match="they differ in model"):
        MabRflStrategy("paper", seed=4, min_available_nodes=8, state_dir=tmp_path).start(grid(), other, num_rounds=2)


def scaled(cohort, scale=1.0, *, shift=0):
    return Decision(weights=np.full(len(cohort), scale / len(cohort)))


class Wrapped:
    def __init__(self, inner):
        self._inner = inner
        self.calls = 0

    def __call__(self, cohort):
        return self._inner(cohort)


def nested(scale):
    def rule(cohort, scale=scale):
        return scaled(cohort, scale)

    return rule


def closing_over(scale):
    def rule(cohort):
        return scaled(cohort, scale)

    return rule


def krum(**arguments):
    return Defense(Krum(num_malicious=1), **arguments)


DIFFERENT = {
    "argument of a partial": [lambda: Defense(partial(scaled, scale=1.0)), lambda: Defense(partial(scaled, scale=5.0))],
    "partial and none": [lambda: Defense(scaled), lambda: Defense(partial(scaled, scale=1.0))],
    "default argument": [lambda: Defense(nested(1.0)), lambda: Defense(nested(2.0))],
    "rule within a rule": [
        lambda: Defense(Wrapped(Krum(num_malicious=1))),
        lambda: Defense(Wrapped(Krum(num_malicious=4))),
    ],
    "reset_beliefs": [krum, lambda: krum(reset_beliefs=True)],
    "dimension": [krum, lambda: krum(dimension=9)],
    "prior beliefs": [krum, lambda: krum(beliefs=Beliefs(prior_benign=3.0))],
    "reaction": [krum, lambda: krum(beliefs=Beliefs(reaction=Reaction(strike=0.5)))],
    "initial beliefs": [krum, lambda: krum(beliefs=believing())],
    "selector": [krum, lambda: krum(selector=Uniform(num_selected=3))],
    "selector's option": [
        lambda: krum(selector=Uniform(num_selected=3)),
        lambda: krum(selector=Uniform(num_selected=4)),
    ],
}


def believing():
    beliefs = Beliefs()
    beliefs.know(["a"])
    return beliefs


def config_hash(defense="fedavg", **arguments):
    return hash_of(RobustStrategy(defense, **arguments).config())


@pytest.mark.parametrize("pair", DIFFERENT.values(), ids=DIFFERENT)
def test_another_defense_has_another_hash_and_the_same_has_the_same(pair):
    one, two = pair
    assert config_hash(one()) == config_hash(one())
    assert config_hash(two()) == config_hash(two())
    assert config_hash(one()) != config_hash(two())


def test_another_identity_has_another_hash_and_what_it_has_learnt_does_not_count():
    used = ClaimedIdentity("a")
    used._known[1] = "x"
    assert config_hash(identify=ClaimedIdentity("a")) == config_hash(identify=used)
    assert config_hash(identify=ClaimedIdentity("a")) != config_hash(identify=ClaimedIdentity("b"))


def test_another_rule_is_refused_with_the_place_that_differs(tmp_path):
    def go(scale, rounds):
        made = RobustStrategy(
            Defense(partial(scaled, scale=scale), name="x"), fraction_evaluate=0.0, state_dir=tmp_path
        )
        return made.start(grid(), model(), num_rounds=rounds, timeout=600)

    go(1.0, 1)
    with pytest.raises(StateError, match=r"they differ in defense\.rule\.keywords\.scale"):
        go(50.0, 2)
    assert list(go(1.0, 2).train_metrics_clientapp) == [1, 2]


def test_another_train_config_is_refused(tmp_path):
    def go(rounds, **settings):
        made = RobustStrategy("fedavg", fraction_evaluate=0.0, state_dir=tmp_path)
        return made.start(grid(), model(), num_rounds=rounds, timeout=600, train_config=ConfigRecord(settings))

    go(1, lr=0.1, blob=b"x")
    with pytest.raises(StateError, match=r"they differ in train_config\.lr"):
        go(2, lr=9.0, blob=b"x")
    with pytest.raises(StateError, match=r"they differ in train_config\.blob"):
        go(2, lr=0.1, blob=b"y")
    assert list(go(2, lr=0.1, blob=b"x").train_metrics_clientapp) == [1, 2]


class Locked(Wrapped):
    def __init__(self, inner):
        super().__init__(inner)
        self.lock = threading.Lock()


class Telling(Locked):
    def describe(self):
        return {"inner": self._inner}


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"defense": Defense(lambda cohort: scaled(cohort, 2.0), name="x")}, r"defense\.rule .*<lambda>"),
        ({"defense": Defense(closing_over(2.0))}, r"defense\.rule .*closing_over\.<locals>\.rule"),
        ({"defense": Defense(Locked(scaled), name="x")}, r"defense\.rule\.lock .*lock"),
        ({"identify": lambda grid, nodes: {}}, r"identify .*<lambda>"),
    ],
)
def test_what_cannot_be_compared_after_a_restart_is_refused_with_a_folder_and_only_there(tmp_path, arguments, named):
    with pytest.raises(ConfigError, match=named):
        RobustStrategy(**arguments, state_dir=tmp_path)
    assert list(tmp_path.iterdir()) == []
    RobustStrategy(**arguments).summary()


def test_a_class_may_describe_itself(tmp_path):
    hashes = {
        scale: config_hash(Defense(Telling(partial(scaled, scale=scale)), name="x"), state_dir=tmp_path)
        for scale in (1.0, 2.0)
    }
    assert hashes[1.0] != hashes[2.0]


@functools.cache
def remembered(cohort):
    return scaled(cohort)


def test_descriptions_tell_values_apart_that_look_alike():
    values = [1, 1.5, True, "1", None, b"1", {1: 2}, {"1": 2}, [1], {1}, np.ones(1), np.ones(2), np.float32(np.nan)]
    told = [repr(described(value)) for value in values]
    assert len(set(told)) == len(told)
    assert described(remembered) == f"{__name__}:remembered"
    ring = Wrapped(None)
    ring._inner = ring
    assert "again" in str(described(ring))


@pytest.mark.parametrize("given", [{"seed": 3}, {"seed": 0}, {"dataset": "mnist"}, {"num_malicious_nodes": 2}])
def test_settings_of_a_defense_that_is_an_object_are_refused_beside_it(given):
    with pytest.raises(ConfigError, match=f"has its own {next(iter(given))}"):
        RobustStrategy(krum(), **given)
    assert RobustStrategy(krum(seed=7)).seed == 7


@pytest.mark.parametrize("make", [RobustStrategy, MabRflStrategy])
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"min_train_nodes": -3}, "min_train_nodes must be a whole number >= 1; got -3"),
        ({"min_train_nodes": 2.5}, "min_train_nodes must be a whole number"),
        ({"min_available_nodes": 0}, "min_available_nodes must be a whole number >= 1; got 0"),
        ({"min_evaluate_nodes": -1}, "min_evaluate_nodes must be a whole number >= 0; got -1"),
        ({"fraction_train": 0.5}, "the selector decides who trains"),
    ],
)
def test_arguments_without_sense_are_refused(make, given, said):
    with pytest.raises(ConfigError, match=said):
        make(**given)


def test_something_else_than_a_defense_is_refused():
    with pytest.raises(ConfigError, match=r"a name or a Defense; got 0\.5"):
        RobustStrategy(0.5)


@pytest.mark.parametrize("dtype", [np.complex64, np.longdouble, "datetime64[s]", "U4"])
def test_a_model_of_a_type_that_cannot_be_trained_is_refused_at_the_start(dtype):
    arrays = ArrayRecord({"a": Array(np.ones(3, np.float32)), "odd": Array(np.zeros(3, dtype))})
    with pytest.raises(ConfigError, match="the initial model's array 'odd' is"):
        RobustStrategy("fedavg").start(grid(), arrays, num_rounds=1)


def test_descriptions_know_generators_and_loggers_and_distrust_what_c_hides():
    class Chooser:
        def __init__(self, seed):
            self.rng = random.Random(seed)

    assert described(Chooser(1)) == described(Chooser(1))
    assert described(Chooser(1)) != described(Chooser(2))
    assert described(logging.getLogger("a.b")) == {"logger": "a.b"}

    class Queue(deque):
        pass

    assert list(undescribed(described(Queue([1]))))


def test_a_describe_that_is_for_something_else_is_no_error_without_a_folder(tmp_path):
    class Rule:
        def describe(self, what):
            return what

        def __call__(self, cohort):
            raise NotImplementedError

    RobustStrategy(Defense(Rule(), name="own"))
    with pytest.raises(ConfigError):
        RobustStrategy(Defense(Rule(), name="own"), state_dir=tmp_path)
