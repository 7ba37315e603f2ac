from __future__ import annotations

import numpy as np
import pytest

from helpers import random_rows
from mabrfl.attacks import MPAF, FreeRider, Knowledge, NanSender, PoisonedFL
from mabrfl.attacks.fake_clients import aligned_by_chance
from mabrfl.config import RunConfig
from mabrfl.errors import ConfigError, StateError
from mabrfl.runs import simulate
from mabrfl.testing import check_attack, make_view

WIDTH = 6


def view_at(number, *, step=None, weights=None, own=None, seed=0):
    view = make_view(
        random_rows(3, WIDTH), own=own, round=number, last_step=step, knowledge=Knowledge.AGNOSTIC, seed=seed
    )
    if weights is not None:
        object.__setattr__(view, "global_weights", np.asarray(weights, dtype=float))
    return view


class TestFreeRider:
    STEP = np.arange(1.0, 7.0)

    def test_it_sends_zeros_or_the_last_step_without_training(self):
        assert not FreeRider().trains
        np.testing.assert_array_equal(FreeRider()(view_at(3, step=self.STEP)), np.zeros((2, WIDTH)))
        np.testing.assert_array_equal(FreeRider(update="last-step")(view_at(1)), np.zeros((2, WIDTH)))
        rows = FreeRider(update="last-step")(view_at(3, step=self.STEP))
        np.testing.assert_array_equal(rows, [self.STEP, self.STEP])

    def test_plain_free_riders_slow_averaging_down_and_do_not_turn_it(self):
        # Fraboni et al.: clients that return the model as it is leave the course of the others, at a lower rate.
        honest = random_rows(3, WIDTH)
        rows = np.concatenate([honest, FreeRider()(view_at(3, step=self.STEP))])
        np.testing.assert_allclose(rows.mean(axis=0), 3 / 5 * honest.mean(axis=0))

    def test_noise_is_each_clients_own_and_has_the_length_that_was_asked_for(self):
        noise = FreeRider(update="last-step", noise=0.5)(view_at(3, step=self.STEP)) - self.STEP
        np.testing.assert_allclose(np.linalg.norm(noise, axis=1), 0.5 * np.linalg.norm(self.STEP))
        assert not np.allclose(noise[0], noise[1])
        with pytest.raises(ConfigError, match=r"noise is only for update 'last-step'; got 0\.5"):
            FreeRider(noise=0.5)


class TestNanSender:
    @pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
    def test_it_sends_what_is_not_finite_and_keeps_the_contract_otherwise(self, value):
        attack = NanSender(value=value)
        np.testing.assert_array_equal(attack(view_at(1)), np.full((2, WIDTH), float(value)))
        check_attack(attack, finite=False)

    def test_the_server_rejects_them_and_goes_on(self):
        settings = {"dataset": "digits", "clients": 8, "attackers": 0.3, "rounds": 2, "workers": 1, "defense": "fedavg"}
        for record in simulate(RunConfig(attack="nan-sender", **settings)):
            rejected = {client for client, verdict in record.verdicts.items() if not verdict.accepted}
            assert rejected == set(record.attackers)
            assert np.isfinite(record.loss)


class TestMPAF:
    def test_it_pulls_towards_one_random_model_for_the_whole_run(self):
        attack = MPAF(scale=10.0)
        weights = random_rows(1, WIDTH)[0]
        base = weights + attack(view_at(1, weights=weights))[0] / 10
        for number, place in ((2, weights), (9, np.zeros(WIDTH))):
            np.testing.assert_allclose(attack(view_at(number, weights=place)), [10 * (base - place)] * 2)
        assert not np.allclose(base, 0)

    def test_averaging_with_the_right_factor_arrives_there_at_once(self):
        # The paper's equation: the mean of n clients moves by the share of fake ones times lambda of the way.
        attack = MPAF(scale=5.0)
        view = view_at(1, weights=np.ones(WIDTH))
        step = np.concatenate([np.zeros((8, WIDTH)), attack(view)]).mean(axis=0)
        np.testing.assert_allclose(1 + step, attack.base(view))


class TestPoisonedFL:
    @pytest.mark.parametrize(
        ("width", "aligned"), [(1204682, 603618), (139960, 70415), (717924, 359948), (145212, 73049)]
    )
    def test_the_test_has_the_authors_critical_values(self, width, aligned):
        # Their code lists the 99 % quantiles of the binomial distribution for the sizes of four models.
        assert aligned_by_chance(aligned, width) == pytest.approx(0.01, rel=0.02)
        assert aligned_by_chance(0, width) == 1.0

    def test_rows_by_hand(self):
        attack, own = PoisonedFL(factor=2.0), random_rows(2, WIDTH)
        np.testing.assert_array_equal(attack(view_at(1, own=own)), own)
        signs = view_at(1).lasting_rng("poisoned-fl").choice([-1.0, 1.0], size=WIDTH)
        first = attack(view_at(2, step=[3.0, 0.0, 0.0, -4.0, 0.0, 0.0]))
        np.testing.assert_allclose(first, [np.array([6, 0, 0, 8, 0, 0]) * signs] * 2)
        # The last push has length 10. Of a step of length 5 it would have caused half: 3 and 4, with its signs.
        step = np.array([0.0, 3.0, 0.0, 4.0 * signs[3], 0.0, 0.0])
        left = np.array([3.0, 3.0, 0.0, 0.0, 0.0, 0.0])
        second = attack(view_at(3, step=step))
        np.testing.assert_allclose(second, [2 * 5 * left / np.sqrt(18) * signs] * 2)

    def test_signs_are_the_same_in_all_rounds_and_the_length_follows_the_last_step(self):
        # Multi-round consistency, the idea of the paper.
        attack, rng = PoisonedFL(), np.random.default_rng(0)
        rows = []
        for number in range(2, 9):
            step = rng.normal(size=WIDTH)
            rows.append(attack(view_at(number, step=step))[0])
            assert np.linalg.norm(rows[-1]) == pytest.approx(8 * np.linalg.norm(step))
        assert (np.sign(rows) == np.sign(rows[0])).all()
        assert set(np.sign(rows[0])) == {-1, 1}

    def test_the_factor_falls_only_if_the_model_does_not_follow(self):
        signs = np.sign(PoisonedFL()(view_at(2, step=np.ones(WIDTH)))[0])
        for course, factors in ((signs, [8.0, 8.0, 8.0]), (-signs, [8.0, 5.6, 3.92])):
            attack, found = PoisonedFL(window=2, significance=0.02), []
            for number in range(2, 8):
                attack(view_at(number, step=course, weights=number * course))
                found.append(attack.state_dict()["present"])
            np.testing.assert_allclose(found[::2], factors)
        attack = PoisonedFL(window=1, factor=0.6)
        for number in range(2, 5):
            attack(view_at(number, step=signs, weights=-number * signs))
        assert attack.state_dict()["present"] == 0.6  # 0.42 would be below the smallest

    def test_a_new_run_begins_anew_and_a_bad_state_is_refused(self):
        attack = PoisonedFL(window=1)
        for number in (2, 3, 4):
            attack(view_at(number, step=np.ones(WIDTH)))
        attack(view_at(1))
        assert attack.state_dict()["present"] == 8.0
        with pytest.raises(StateError, match="state of PoisonedFL must have its factor"):
            attack.load_state_dict({})

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"window": 0}, "window must be a whole number >= 1; got 0"),
            ({"factor": 0}, "factor must be a finite number > 0; got 0"),
            ({"lower": 1.0}, r"lower must be below 1; got 1\.0"),
        ],
    )
    def test_bad_options_are_refused_by_name(self, options, message):
        with pytest.raises(ConfigError, match=message):
            PoisonedFL(**options)
