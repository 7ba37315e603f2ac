from __future__ import annotations

import numpy as np
import pytest

from helpers import random_rows
from mabrfl.attacks import Backdoor, Evade, Knowledge, SignFlip
from mabrfl.attacks.evading import Belief, Seen, believed, best_plan
from mabrfl.errors import ConfigError, StateError
from mabrfl.testing import make_view

OWN = random_rows(2, seed=5)


def certain(rate, good=1.0, bad=1.0):
    """Return the belief that one of the five rates is true, with one client of this reputation."""
    return Belief(np.eye(5)[rate], np.full((5, 1), good), np.full((5, 1), bad))


class TestBelief:
    def test_a_server_that_keeps_selecting_attackers_notices_nothing(self):
        # Selected three times while attacking: 1/2 * B/(B+M) * B/(B+M) with B + M = 3 and 4 and B = 1 + rounds (1 - d).
        history = [Seen(number, (True,), True) for number in (1, 2, 3)]
        likelihood = [1 / 2 * (2 - d) / 3 * (3 - 2 * d) / 4 for d in (0, 0.25, 0.5, 0.75, 1)]
        np.testing.assert_allclose(believed(history, 1).odds, np.array(likelihood) / sum(likelihood))

    def test_rounds_without_any_of_them_count_too(self):
        missing = believed([Seen(1, (True,), True), Seen(4, (True,), True)], 1).odds
        likelihood = [(1 + d) ** 2 * (2 - d) for d in (0, 0.25, 0.5, 0.75, 1)]
        np.testing.assert_allclose(missing, np.array(likelihood) / sum(likelihood))

    def test_honest_rounds_say_nothing_about_the_rate(self):
        history = [Seen(1, (True, False), False), Seen(2, (True, True), False)]
        np.testing.assert_allclose(believed(history, 2).odds, 0.2)


class TestPlan:
    def test_if_nothing_is_noticed_it_always_attacks(self):
        assert best_plan(certain(0), 6) == (True,) * 6

    def test_if_everything_is_noticed_no_attack_is_of_use(self):
        assert best_plan(certain(4), 6) == (False,) * 6

    def test_with_little_trust_it_behaves_first_and_with_much_it_attacks(self):
        assert not best_plan(certain(3), 8)[0]
        assert best_plan(certain(3, good=100.0), 8)[0]

    def test_the_plan_is_the_best_of_all_by_hand(self):
        # One round ahead, B = M = 1, d = 3/4: attack now for 1/2 * 1/4, and then 2 * (9/8)/(5/2) * 1/4, or behave for
        # 2 * (3/2)/(5/2) * 1/4. The first is 0.35, the second 0.3.
        assert best_plan(certain(3), 1) == (True,)


class Server:
    """Selects by Beta reputation, and notices a share of the attacks."""

    def __init__(self, rate, seed, clients=10):
        self.rate, self.rng = rate, np.random.default_rng(seed)
        self.good, self.bad = np.ones(clients), np.ones(clients)

    def accepted_attacks(self, decide, rounds=40):
        history, accepted = [], 0
        for number in range(1, rounds + 1):
            selected = self.rng.random(len(self.good)) < self.rng.beta(self.good, self.bad)
            attack = decide(history)
            caught = selected & attack & (self.rng.random(len(self.good)) < self.rate)
            self.good += selected & ~caught
            self.bad += caught
            accepted += int(attack) * int((selected & ~caught).sum())
            history.append(Seen(number, tuple(selected.tolist()), attack))
        return accepted


def searched(history):
    return best_plan(believed(history, 10), 8)[0]


@pytest.mark.parametrize(("rate", "times"), [(0.0, 0.95), (0.9, 1.3)])
def test_more_attacks_are_accepted_than_if_it_always_attacked(rate, times):
    # The paper's claim, on a server as the adversary supposes it: static attackers lose what the adaptive one gains.
    always, adaptive = (
        sum(Server(rate, seed).accepted_attacks(decide) for seed in range(8)) for decide in (lambda _: True, searched)
    )
    assert adaptive >= times * always


class TestEvade:
    def view(self, number, selected=(6, 7)):
        view = make_view(random_rows(6), own=OWN[: len(selected)], round=number, knowledge=Knowledge.AGNOSTIC)
        return view

    def test_it_sends_the_inner_rows_or_honest_ones(self):
        attack = Evade()
        for number in range(1, 12):
            active = attack.active_at(number)
            np.testing.assert_array_equal(attack(self.view(number)), -OWN if active else OWN)
        assert active  # selected in all rounds: it believes that nothing is noticed

    def test_it_decides_before_the_round_and_the_same_if_asked_again(self):
        attack = Evade(inner=Backdoor())
        for number in (1, 2, 3):
            before = attack.poisoned_at(number)
            attack(self.view(number))
            assert attack.active_at(number) == before

    def test_what_it_saw_goes_out_and_comes_back_and_a_new_run_forgets_it(self):
        attack = Evade()
        for number in (1, 2, 3):
            attack(self.view(number))
        restored = Evade()
        restored.load_state_dict(attack.state_dict())
        assert restored.state_dict() == attack.state_dict()
        assert [seen[0] for seen in restored.state_dict()["seen"]] == [1, 2, 3]
        restored(self.view(1))
        assert [seen[0] for seen in restored.state_dict()["seen"]] == [1]
        for bad in ({}, {"inner": {}, "seen": [[]]}, {"inner": {}, "seen": 3}):
            with pytest.raises(StateError, match="state of Evade must have the rounds"):
                restored.load_state_dict(bad)

    def test_bad_options_are_refused_by_name(self):
        with pytest.raises(ConfigError, match="horizon must be a whole number >= 1; got 0"):
            Evade(horizon=0)
        with pytest.raises(ConfigError, match="horizon must be at most 12; got 13"):
            Evade(inner=SignFlip(), horizon=13)
