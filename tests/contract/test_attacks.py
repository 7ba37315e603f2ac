"""What holds for every attack, whatever it does."""

from __future__ import annotations

import numpy as np
import pytest

from helpers import random_rows
from mabrfl import attacks
from mabrfl.attacks import (
    DBA,
    IPM,
    LIE,
    MPAF,
    AgrKrum,
    AgrMabRfl,
    Attack,
    Backdoor,
    Braggart,
    Bridge,
    ConstrainAndScale,
    Decoy,
    EdgeCase,
    Evade,
    FangKrum,
    FangTrim,
    Frame,
    FreeRider,
    Gaussian,
    Growing,
    Hub,
    JitteredSybils,
    Knowledge,
    LabelFlip,
    LayerChoosing,
    Magnitude,
    Mimic,
    MinMax,
    MinSum,
    ModelReplacement,
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
    Wrapper,
    craft,
)
from mabrfl.testing import check_attack, make_view

ATTACKS: dict[str, Attack] = {
    "label-flip": LabelFlip(),
    "label-flip-pair": LabelFlip(mapping="pair"),
    "sign-flip": SignFlip(),
    "gaussian": Gaussian(),
    "gaussian-absolute": Gaussian(unit="absolute", scale=200.0),
    "gaussian-around-own": Gaussian(centre="own"),
    "lie": LIE(),
    "lie-baruch": LIE(z_rule="baruch"),
    "lie-wrong-cdf": LIE(z_rule="wrong-cdf"),
    "lie-round": LIE(counts="round"),
    "lie-fixed": LIE(z=1.5, sign=1, ddof=1),
    "lie-own": LIE(z=1.5, statistics="own", ddof=1),
    "ipm": IPM(),
    "mimic": Mimic(),
    "mimic-variance": Mimic(victim="largest-variance"),
    "agr-krum": AgrKrum(),
    "agr-krum-unit": AgrKrum(direction="unit"),
    "agr-krum-half": AgrKrum(half_copy=True),
    "agr-multi-krum": AgrKrum(target="multi-krum", direction="sign"),
    "min-max": MinMax(),
    "min-sum": MinSum(),
    "min-sum-maximum": MinSum(bound="maximum", direction="unit"),
    "bridge": Bridge(),
    "bridge-jitter": Bridge(jitter=0.1),
    "bridge-two": Bridge(senders=2),
    "hub": Hub(),
    "frame": Frame(),
    "split-sybils": SplitSybils(),
    "split-sybils-fixed": SplitSybils(groups=2, cosine=0.0, noise="fixed"),
    "jittered-sybils": JitteredSybils(),
    "jittered-sybils-random": JitteredSybils(direction="random", noise="fixed"),
    "orthogonal-drift": OrthogonalDrift(),
    "decoy": Decoy(),
    "magnitude": Magnitude(),
    "sleeper": Sleeper(),
    "sleeper-awake": Sleeper(honest_rounds=0),
    "on-off": OnOff(),
    "on-off-label-flip": OnOff(inner=LabelFlip()),
    "backdoor": Backdoor(size=1, share=1.0, target=3),
    "backdoor-boost": Backdoor(size=1, share=1.0, boost=25.0),
    "dba": DBA(size=1, share=1.0, target=3),
    "edge-case": EdgeCase(source=2, target=3, rarity=0.3),
    "model-replacement": ModelReplacement(size=1, share=1.0),
    "constrain-and-scale": ConstrainAndScale(size=1, share=1.0),
    "neurotoxin": Neurotoxin(size=1, share=1.0),
    "growing": Growing(),
    "growing-orthogonal": Growing(direction="orthogonal"),
    "evade": Evade(),
    "evade-label-flip": Evade(inner=LabelFlip(), horizon=2),
    "layer-choosing": LayerChoosing(),
    "fang-krum": FangKrum(),
    "fang-trim": FangTrim(),
    "fang-trim-updates": FangTrim(values="updates"),
    "optimal-lie": OptimalLIE(),
    "optimal-ipm": OptimalIPM(),
    "statistical-mimicry": StatisticalMimicry(),
    "poisoned-fl": PoisonedFL(),
    "mpaf": MPAF(),
    "trapsetter": Trapsetter(),
    "trapsetter-benign": Trapsetter(estimate="benign", scale=1.0),
    "free-rider": FreeRider(),
    "free-rider-disguised": FreeRider(update="last-step", noise=0.3),
    "agr-mab-rfl": AgrMabRfl(),
    "agr-mab-rfl-random": AgrMabRfl(side="random", cosines=[0.2], noise="fixed"),
    "whitewash": Whitewash(),
    "whitewash-lie": Whitewash(inner=LIE(), patience=2),
    "braggart": Braggart(),
    "braggart-lie": Braggart(inner=LIE(), times=0.5),
}
WIDTH = 37
each = pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS.keys())


def view_for(attack, *, benign=6, attackers=5, dtype=np.float32, scale=1.0, **options):
    rows = random_rows(benign, WIDTH, seed=1, dtype=dtype) * dtype(scale)
    own = random_rows(attackers, WIDTH, seed=2, dtype=dtype) * dtype(scale) if attack.trains_at(1) else None
    return make_view(rows, attackers=attackers, own=own, knowledge=attack.knowledge, **options)


def test_every_attack_of_the_package_is_under_contract():
    exported = {value for value in vars(attacks).values() if isinstance(value, type) and issubclass(value, Attack)}
    # NaN sender sends what is not finite; its own test checks the rest of the contract.
    assert exported - {Attack, Wrapper, NanSender} == {type(attack) for attack in ATTACKS.values()}


@each
def test_every_attack_keeps_the_contract(attack):
    check_attack(attack)


@each
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_have_the_shape_and_type_of_the_updates_and_are_finite(attack, dtype):
    view = view_for(attack, dtype=dtype)
    rows = attack(view)
    assert rows.shape == (5, WIDTH)
    assert rows.dtype == dtype
    assert np.isfinite(rows).all()
    np.testing.assert_array_equal(craft(attack, view), rows)


@each
def test_one_attacker_is_enough_to_act_or_the_attack_is_inactive(attack):
    rows = attack(view_for(attack, attackers=1, num_clients=7, num_malicious=3))
    if isinstance(attack, LIE) and attack.counts == "round":
        assert rows is None  # one of seven has no positive z
    else:
        assert rows.shape == (1, WIDTH)
        assert np.isfinite(rows).all()


@each
def test_one_benign_update_is_enough(attack):
    rows = attack(view_for(attack, benign=1, attackers=2, num_clients=11, num_malicious=5))
    if isinstance(attack, LIE) and attack.counts == "round":
        assert rows is None  # two of three are a majority already
    else:
        assert rows.shape == (2, WIDTH)
        assert np.isfinite(rows).all()


@each
def test_without_any_benign_update_those_that_look_at_them_are_inactive_or_honest(attack):
    view = view_for(attack, benign=0, attackers=3, num_clients=11, num_malicious=5)
    rows = attack(view)
    if attack.knowledge is Knowledge.AGNOSTIC:
        assert rows.shape == (3, WIDTH)
    elif isinstance(attack, Frame) or (isinstance(attack, Wrapper) and not attack.active_at(1)):
        np.testing.assert_array_equal(rows, view.own_updates)
    else:
        assert rows is None


@each
@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_updates_of_extreme_size_give_finite_rows(attack, scale):
    assert np.isfinite(attack(view_for(attack, scale=scale))).all()


@each
def test_the_first_line_of_the_docstring_describes_it_in_one_line(attack):
    line = (type(attack).__doc__ or "").splitlines()[0]
    assert 20 < len(line) <= 115
    assert line.endswith(".")


@each
def test_poison_is_only_for_attacks_on_data(attack):
    inputs, labels = np.full((4, 4), 0.5), np.array([0, 1, 2, 3])
    attack.survey(inputs, labels, num_classes=4)
    new_inputs, new_labels = attack.poison(inputs, labels, num_classes=4, rng=np.random.default_rng(0))
    assert (new_labels.tolist() != labels.tolist()) == attack.poisons
    assert (inputs == 0.5).all()
    if not isinstance(attack, Backdoor):
        np.testing.assert_array_equal(new_inputs, inputs)
    assert attack.poisoned_at(1) == (attack.poisons and (not isinstance(attack, Wrapper) or attack.active_at(1)))
