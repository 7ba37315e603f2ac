from __future__ import annotations

import numpy as np
import pytest

from helpers import random_rows
from mabrfl.attacks import LIE, Braggart, Knowledge, LabelFlip, Mimic, OnOff, SignFlip, Sleeper, Whitewash
from mabrfl.errors import ConfigError, StateError
from mabrfl.testing import make_view

BENIGN = random_rows(6)
OWN = random_rows(2, seed=5)


def rows_at(attack, number):
    own = OWN if attack.trains_at(number) else None
    return attack(make_view(BENIGN, own=own, knowledge=attack.knowledge, round=number))


class TestBraggart:
    def test_it_sends_what_the_inner_attack_does_and_claims_more(self):
        attack = Braggart(inner=SignFlip(), times=1000)
        np.testing.assert_array_equal(rows_at(attack, 1), -OWN)
        assert attack.claims([10, 20]) == [10_000, 20_000]

    def test_others_claim_what_is_true_and_wrappers_what_the_inner_attack_claims(self):
        assert SignFlip().claims([10, 20]) == [10, 20]
        assert Sleeper(inner=Braggart(times=3)).claims([10]) == [30]
        assert Braggart(inner=Braggart(times=3), times=2).claims([10]) == [60]

    def test_a_function_may_claim_too(self):
        def attack(view):
            return -view.own_updates

        attack.claims = lambda examples: [7 for _ in examples]
        assert Sleeper(inner=attack).claims([1, 2]) == [7, 7]

    def test_to_claim_nothing_or_less_is_refused(self):
        with pytest.raises(ConfigError, match="times"):
            Braggart(times=0)


class TestSleeper:
    def test_it_is_honest_and_then_the_inner_attack(self):
        attack = Sleeper(inner=SignFlip(), honest_rounds=3)
        for number in (1, 2, 3):
            np.testing.assert_array_equal(rows_at(attack, number), OWN)
        for number in (4, 5, 99):
            np.testing.assert_array_equal(rows_at(attack, number), -OWN)

    def test_it_trains_while_honest_and_then_only_if_the_inner_attack_does(self):
        attack = Sleeper(inner=LIE(z=1.0), honest_rounds=3)
        assert [attack.trains_at(number) for number in (1, 3, 4)] == [True, True, False]
        np.testing.assert_array_equal(rows_at(attack, 4), LIE(z=1.0)(make_view(BENIGN)))
        assert Sleeper(inner=SignFlip(), honest_rounds=3).trains_at(4)

    def test_data_are_poisoned_only_once_awake(self):
        attack = Sleeper(inner=LabelFlip(), honest_rounds=3)
        assert attack.poisons
        assert [attack.poisoned_at(number) for number in (1, 3, 4)] == [False, False, True]
        labels = attack.poison(np.zeros((2, 1)), np.array([0, 9]), num_classes=10, rng=np.random.default_rng(0))[1]
        assert labels.tolist() == [9, 0]
        assert not Sleeper(inner=LIE(), honest_rounds=0).poisoned_at(1)

    def test_it_knows_and_observes_what_the_inner_attack_does(self):
        attack = Sleeper(inner=LIE(observes="all"))
        assert (attack.knowledge, attack.observes) == (Knowledge.PARTIAL, "all")
        assert Sleeper(inner=SignFlip()).knowledge is Knowledge.AGNOSTIC

    def test_a_plain_function_will_do_as_the_inner_attack(self):
        attack = Sleeper(inner=lambda view: 3 * view.own_updates, honest_rounds=1)
        np.testing.assert_array_equal(rows_at(attack, 2), 3 * OWN)

    def test_the_inner_attacks_memory_goes_out_and_comes_back(self):
        attack = Sleeper(inner=Mimic(victim="largest-variance", warmup_rounds=1), honest_rounds=0)
        chosen = rows_at(attack, 1)[0]
        restored = Sleeper(inner=Mimic(victim="largest-variance", warmup_rounds=1), honest_rounds=0)
        restored.load_state_dict(attack.state_dict())
        victim = int(np.flatnonzero((chosen == BENIGN).all(axis=1))[0])
        later = random_rows(6, seed=8)
        np.testing.assert_array_equal(restored(make_view(later, round=2))[0], later[victim])
        with pytest.raises(StateError, match="state of Sleeper must have the inner attack's"):
            restored.load_state_dict({})

    def test_bad_options_are_refused_by_name(self):
        with pytest.raises(ConfigError, match="honest_rounds must be a whole number >= 0; got -1"):
            Sleeper(honest_rounds=-1)
        with pytest.raises(ConfigError, match="an attack must be callable"):
            Sleeper(inner="lie")


class TestOnOff:
    def test_phases_follow_each_other_and_the_first_is_on(self):
        attack = OnOff(inner=SignFlip(), on_rounds=2, off_rounds=3)
        signs = [np.sign(rows_at(attack, number)[0, 0] / OWN[0, 0]) for number in range(1, 12)]
        assert signs == [-1, -1, 1, 1, 1, -1, -1, 1, 1, 1, -1]

    def test_by_default_five_on_and_five_off(self):
        active = [OnOff().active_at(number) for number in range(1, 21)]
        assert active == ([True] * 5 + [False] * 5) * 2

    def test_data_are_poisoned_only_while_on(self):
        attack = OnOff(inner=LabelFlip(), on_rounds=1, off_rounds=1)
        assert [attack.poisoned_at(number) for number in (1, 2, 3)] == [True, False, True]

    @pytest.mark.parametrize("name", ["on_rounds", "off_rounds"])
    def test_a_phase_takes_at_least_a_round(self, name):
        with pytest.raises(ConfigError, match=f"{name} must be a whole number >= 1; got 0"):
            OnOff(**{name: 0})


class TestWhitewash:
    def test_it_sends_what_the_inner_attack_sends(self):
        np.testing.assert_array_equal(rows_at(Whitewash(), 1), -OWN)
        np.testing.assert_array_equal(rows_at(Whitewash(inner=LIE(z=1.0)), 1), LIE(z=1.0)(make_view(BENIGN)))

    def test_whoever_is_rejected_often_enough_leaves(self):
        assert Whitewash().new_identities([3, 7], 1) == [3, 7]
        attack = Whitewash(patience=2)
        assert attack.new_identities([3, 7], 1) == []
        assert attack.new_identities([7], 2) == [7]
        assert attack.new_identities([3, 7], 3) == [3]  # 7 has begun anew
        assert attack.new_identities([7], 4) == [7]

    def test_a_new_run_forgets_the_old_rejections(self):
        attack = Whitewash(patience=2)
        assert attack.new_identities([3], 2) == []
        assert attack.new_identities([3], 1) == []

    def test_rejections_go_out_and_come_back(self):
        attack = Whitewash(patience=2)
        attack.new_identities([3], 1)
        restored = Whitewash(patience=2)
        restored.load_state_dict(attack.state_dict())
        assert restored.new_identities([3, 4], 2) == [3]
        for bad in ({}, {"inner": {}, "clients": [1], "rejections": [], "last_round": 1}):
            with pytest.raises(StateError, match="state of Whitewash must have clients, rejections and last_round"):
                restored.load_state_dict(bad)

    def test_a_sleeper_may_whitewash_as_well(self):
        attack = Sleeper(inner=Whitewash(), honest_rounds=2)
        assert attack.new_identities([5], 1) == [5]
        assert SignFlip().new_identities([5], 1) == ()

    def test_patience_is_at_least_one_rejection(self):
        with pytest.raises(ConfigError, match="patience must be a whole number >= 1; got 0"):
            Whitewash(patience=0)
