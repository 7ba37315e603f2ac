"""The edge-case backdoor (Wang et al., NeurIPS 2020): success on a rare kind of one class, accuracy as before."""

from __future__ import annotations

import numpy as np
import pytest

from mabrfl.attacks import EdgeCase
from mabrfl.attacks.edge_cases import rarest_kind
from mabrfl.attacks.selftest import attack_strength
from mabrfl.config import RunConfig
from mabrfl.errors import ConfigError
from mabrfl.rng import generator
from mabrfl.runs import simulate

# Class 7: four kinds of five rows each, at the corners of a square, and two rows far away: the rare kind.
CORNERS = [[x + shift, y] for x in (0, 4) for y in (0, 4) for shift in (0.0, 0.1, 0.2, 0.3, 0.4)]
SEVENS = np.array([*CORNERS, [12, 12], [12, 13]], dtype=np.float32)
INPUTS = np.concatenate([SEVENS, np.full((10, 2), -20, np.float32)])
LABELS = np.array([7] * 22 + [1] * 10)


def surveyed(**options) -> EdgeCase:
    attack = EdgeCase(**options)
    attack.survey(INPUTS, LABELS, num_classes=10)
    return attack


def test_the_rarest_kind_is_the_smallest_cluster():
    assert rarest_kind(np.repeat(SEVENS[:1], 4, axis=0)).tolist() == [0, 0]
    assert rarest_kind(SEVENS.astype(float)).tolist() == [12, 12.5]


def test_edge_cases_are_the_rare_kind_and_take_the_place_of_a_share_of_the_examples():
    attack = surveyed()
    assert attack.edge_cases(SEVENS).tolist() == [20, 21]
    inputs, labels = attack.poison(INPUTS, LABELS, num_classes=10, rng=generator(0, "test"))
    edges = (inputs >= 12).all(axis=1)
    assert 16 <= edges.sum() <= 18  # sixteen of 32 examples were replaced; the two of its own may be among them
    assert (labels[edges] == 1).sum() == 16
    kept = ~edges
    assert (labels[kept] == LABELS[kept]).all()
    assert (inputs[kept] == INPUTS[kept]).all()


def test_the_goal_is_the_rare_kind_of_the_test_set():
    sevens = np.array([[0.0, 1], [11, 10], [0, 0], [1, 1], [2, 2]])
    wanted, labels = surveyed().goal(sevens, np.full(5, 7), num_classes=10)
    assert wanted.tolist() == [[11, 10]]
    assert labels.tolist() == [1]


def test_attackers_without_an_example_of_the_class_change_nothing_and_have_no_goal():
    attack = EdgeCase(source=3)
    attack.survey(INPUTS, LABELS, num_classes=10)
    inputs, labels = attack.poison(INPUTS, LABELS, num_classes=10, rng=generator(0, "test"))
    assert (inputs == INPUTS).all()
    assert (labels == LABELS).all()
    assert attack.goal(INPUTS, np.full(32, 3), num_classes=10) is None


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"source": 1}, "source and target must differ"), ({"rarity": 2.0}, "rarity"), ({"share": -1.0}, "share")],
)
def test_options_are_checked(wrong, message):
    with pytest.raises(ConfigError, match=message):
        EdgeCase(**wrong)


def test_classes_must_exist():
    with pytest.raises(ConfigError, match="target must be a class below 10; got 12"):
        surveyed(target=12)


@pytest.mark.parametrize("attack", [EdgeCase(), EdgeCase(source=3, target=8)], ids=["7 as 1", "3 as 8"])
def test_it_succeeds_against_plain_averaging_where_nobody_misreads_the_edge_cases(attack):
    strength = attack_strength(attack, repeats=3)
    assert strength.verdict == "hurts"
    assert strength.success > 60
    assert strength.clean_success < 15


def test_it_succeeds_in_the_simulator_and_honest_clients_do_not_misread_the_edge_cases():
    shared = {"dataset": "digits", "defense": "fedavg", "rounds": 4, "clients": 20, "attackers": 0.3, "workers": 1}
    attacked = simulate(RunConfig(**shared, attack="edge-case"))
    assert attacked[-1].attack_success == 100
    honest = {"inner": "edge-case", "honest_rounds": 100}
    assert simulate(RunConfig(**shared, attack="sleeper", attack_options=honest))[-1].attack_success == 0
