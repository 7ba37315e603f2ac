"""Every attack is shown to hurt plain averaging, and what is no attack is shown not to.

The seeds here had no part in the choice of the self-test's default federation.
"""

from __future__ import annotations

import numpy as np
import pytest

from mabrfl.attacks import (
    DBA,
    IPM,
    LIE,
    MPAF,
    AgrKrum,
    AgrMabRfl,
    Backdoor,
    Bridge,
    Decoy,
    Evade,
    FangKrum,
    FangTrim,
    Frame,
    FreeRider,
    Gaussian,
    Growing,
    Hub,
    JitteredSybils,
    LabelFlip,
    LayerChoosing,
    Magnitude,
    Mimic,
    MinMax,
    MinSum,
    NanSender,
    Neurotoxin,
    OnOff,
    OptimalIPM,
    OptimalLIE,
    OrthogonalDrift,
    PoisonedFL,
    SignFlip,
    Sleeper,
    SplitSybils,
    StatisticalMimicry,
    Trapsetter,
    Whitewash,
)
from mabrfl.attacks.selftest import Strength, attack_strength
from mabrfl.errors import ConfigError

SEEDS = (100, 101)


@pytest.mark.parametrize(
    ("attack", "at_least"),
    [
        (LabelFlip(), 20),
        (SignFlip(), 45),
        (Gaussian(), 8),
        (LIE(), 6),
        (IPM(), 60),
        (Mimic(), 6),
        (Mimic(victim="largest-variance"), 5),
        (AgrKrum(), 60),
        (AgrKrum(half_copy=True), 45),
        (MinMax(), 15),
        (MinSum(), 4),
        (Frame(), 6),
        (SplitSybils(), 50),
        (JitteredSybils(), 45),
        (JitteredSybils(direction="random"), 8),
        (OrthogonalDrift(), 8),
        (Decoy(), 50),
        (Magnitude(), 60),
        (Sleeper(inner=LabelFlip(), honest_rounds=5), 8),
        (OnOff(inner=SignFlip()), 20),
        (Whitewash(), 45),
        (AgrMabRfl(), 60),
        (Growing(growth=0.3), 20),
        (Evade(), 20),
        (LayerChoosing(), 60),
        (OptimalLIE(), 60),
        (OptimalIPM(largest=10.0), 60),
        (FangKrum(), 30),
        (FangTrim(), 30),
        (StatisticalMimicry(drift=5.0, limit=5.0), 5),
        (PoisonedFL(), 30),
        (MPAF(), 60),
        (Trapsetter(), 60),
        (NanSender(), 60),
    ],
    ids=lambda value: type(value).__name__,
)
def test_attack_costs_plain_averaging_that_many_points_of_accuracy(attack, at_least):
    strength = attack_strength(attack, repeats=2, seed=SEEDS[0])
    assert strength.verdict == "hurts"
    assert strength.drop >= at_least
    assert strength.clean_accuracy > 80
    assert strength.inactive_rounds == 0


@pytest.mark.parametrize("attack", [Backdoor(), DBA(), Neurotoxin()], ids=lambda value: type(value).__name__)
def test_a_backdoor_hurts_by_what_it_achieves_and_not_by_the_accuracy(attack):
    strength = attack_strength(attack, repeats=2, seed=SEEDS[0])
    assert strength.verdict == "hurts"
    assert strength.drop < 0
    assert strength.success > 95
    assert strength.clean_success < 5
    assert "attack success" in str(strength)


@pytest.mark.parametrize(
    "attack", [Bridge(), Hub(), FreeRider(update="last-step")], ids=lambda value: type(value).__name__
)
def test_what_is_aimed_at_the_standing_of_others_costs_plain_averaging_nothing(attack):
    strength = attack_strength(attack, repeats=2, seed=SEEDS[0])
    assert strength.verdict == "inactive"
    assert strength.inactive_rounds == 0


def test_lie_at_10_percent_is_inactive_with_20_clients_because_z_is_not_positive():
    strength = attack_strength(LIE(), num_clients=20, num_malicious=2, repeats=1)
    assert strength.verdict == "inactive"
    assert strength.inactive_rounds == 1
    assert strength.drop == 0


def test_lie_at_10_percent_is_inactive_with_50_clients_because_it_is_harmless():
    strength = attack_strength(LIE(), num_clients=50, num_malicious=5, repeats=2)
    assert strength.verdict == "inactive"
    assert strength.inactive_rounds == 0
    assert abs(strength.drop) < 1


def test_lie_and_min_sum_cost_little_where_clients_are_more_alike():
    for attack in (LIE(), MinSum()):
        assert attack_strength(attack, dominant_share=0.5, repeats=2, seed=SEEDS[0]).verdict == "inactive"


def honest(view):
    return view.own_updates


def copy_of_the_mean(view):
    return np.tile(view.benign.mean(axis=0), (len(view.attackers), 1))


copy_of_the_mean.knowledge = "partial"
copy_of_the_mean.trains = False


@pytest.mark.parametrize("placebo", [honest, copy_of_the_mean])
@pytest.mark.parametrize("seed", SEEDS)
def test_what_does_no_harm_is_not_said_to_hurt(placebo, seed):
    strength = attack_strength(placebo, repeats=2, seed=seed)
    assert strength.verdict == "inactive"
    assert strength.drop <= 0.5


def test_it_is_the_same_every_time():
    assert attack_strength(Gaussian(), rounds=3) == attack_strength(Gaussian(), rounds=3)


def test_a_full_knowledge_attack_can_rehearse_against_averaging():
    steps = []

    def curious(view):
        rows = np.zeros((len(view.attackers), len(view.global_weights)), dtype=np.float32)
        outcome = view.rehearse(rows)
        steps.append((outcome.step, view.benign.sum(axis=0) / view.num_clients, view.defense_name))
        return rows

    curious.knowledge = "full"
    attack_strength(curious, rounds=2, repeats=1)
    assert len(steps) == 2
    for step, expected, name in steps:
        np.testing.assert_allclose(step, expected, atol=1e-6)
        assert name == "fedavg-uniform"


def test_an_attack_that_blows_the_model_up_hurts():
    assert attack_strength(Gaussian(scale=1e30, unit="absolute"), rounds=3, repeats=1).verdict == "hurts"


def test_the_report_can_be_read():
    text = str(Strength(90.0, 85.0, 40.0, 3.0, 0.5))
    assert text.startswith("hurts: accuracy 90.0 % if all are honest, 85.0 % without the attackers, 40.0 % with them")
    assert text.endswith("inactive in 50% of the rounds")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_clients": 0}, "num_clients must be a whole number >= 1; got 0"),
        ({"num_malicious": 20}, "num_malicious must be below num_clients = 20; got 20"),
        ({"rounds": 0}, "rounds must be a whole number >= 1; got 0"),
        ({"repeats": 0}, "repeats must be a whole number >= 1; got 0"),
        ({"margin": 0}, "margin must be a finite number > 0; got 0"),
        ({"dominant_share": 1.0}, "dominant_share must lie between 0 and 1; got 1.0"),
    ],
)
def test_bad_options_are_refused_by_name(options, message):
    with pytest.raises(ConfigError, match=message):
        attack_strength(SignFlip(), **options)
