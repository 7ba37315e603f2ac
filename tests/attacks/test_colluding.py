from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtri

from helpers import random_rows
from mabrfl.attacks import IPM, LIE, Knowledge, Mimic, lie_factor
from mabrfl.attacks.mimic import spread_along_main_axis
from mabrfl.errors import ConfigError, StateError
from mabrfl.testing import make_view

# Columns with means 2 and 1, deviations (1/b) sqrt(14/3) and sqrt(2/3).
BENIGN = np.array([[0.0, 0.0], [1.0, 1.0], [5.0, 2.0]])
MEAN = np.array([2.0, 1.0])
SIGMA = np.sqrt([14 / 3, 2 / 3])


class TestLieFactor:
    @pytest.mark.parametrize(("f", "z"), [(5, 0.084), (10, 0.253), (15, 0.484), (20, 0.842), (22, 1.068), (24, 1.426)])
    def test_paper_rule_gives_the_audited_table(self, f, z):
        assert lie_factor(50, f) == pytest.approx(z, abs=5e-4)

    @pytest.mark.parametrize(("f", "z"), [(5, 0.202), (10, 0.468), (15, 0.772), (24, 1.751)])
    def test_baruch_rule_gives_the_original_papers_numbers(self, f, z):
        assert lie_factor(50, f, "baruch") == pytest.approx(z, abs=5e-4)

    @pytest.mark.parametrize(("f", "z"), [(5, 0.703), (10, 0.726), (15, 0.754), (24, 0.822)])
    def test_wrong_cdf_gives_what_the_libraries_with_the_slip_use(self, f, z):
        assert lie_factor(50, f, "wrong-cdf") == pytest.approx(z, abs=5e-4)

    @pytest.mark.parametrize("f", range(1, 50))
    def test_first_release_was_never_defined(self, f):
        assert lie_factor(50, f, "release-2022") is None

    @pytest.mark.parametrize("n", [7, 20, 49, 50])
    def test_paper_rule_equals_the_form_with_supporters(self, n):
        for f in range(1, (n + 1) // 2):
            supporters = n // 2 + 1 - f
            literal = ndtri((n - f - supporters) / (n - f))
            assert (lie_factor(n, f) or 0.0) == pytest.approx(max(literal, 0.0))

    @pytest.mark.parametrize("rule", ["paper", "baruch", "wrong-cdf", "release-2022"])
    def test_no_attackers_or_nobody_else_is_undefined(self, rule):
        assert lie_factor(50, 0, rule) is None
        assert lie_factor(5, 5, rule) is None

    def test_not_positive_or_beyond_a_majority_is_undefined(self):
        assert lie_factor(50, 1) is None  # z would be negative
        assert lie_factor(50, 2) is None  # z would be 0
        assert lie_factor(50, 3) > 0
        assert lie_factor(50, 26) is None  # the attackers need no supporters
        assert lie_factor(20, 2) is None  # 10 % of 20


class TestLIE:
    def test_all_attackers_send_the_mean_minus_z_deviations(self):
        rows = LIE(z=0.5)(make_view(BENIGN, attackers=3))
        expected = MEAN - 0.5 * SIGMA
        np.testing.assert_allclose(rows, np.tile(expected, (3, 1)), rtol=1e-12)

    def test_named_variants_of_sign_and_deviation(self):
        view = make_view(BENIGN)
        np.testing.assert_allclose(LIE(z=1.0, sign=1)(view)[0], MEAN + SIGMA)
        np.testing.assert_allclose(LIE(z=1.0, ddof=1)(view)[0], MEAN - SIGMA * np.sqrt(3 / 2), atol=1e-12)

    def test_z_follows_from_all_clients_or_from_those_of_the_round(self):
        view = make_view(BENIGN, attackers=2, num_clients=50, num_malicious=24)
        assert LIE().factor(view) == pytest.approx(1.426, abs=5e-4)
        assert LIE(z_rule="baruch").factor(view) == pytest.approx(1.751, abs=5e-4)
        # Of the round: n = 5, f = 2, so Phi^-1((5 - 3) / 3).
        assert LIE(counts="round").factor(view) == pytest.approx(ndtri(2 / 3))

    def test_it_is_inactive_without_attackers_worth_the_name_or_without_benign_updates(self):
        assert LIE()(make_view(BENIGN, attackers=1, num_clients=50, num_malicious=1)) is None
        assert LIE(z_rule="release-2022")(make_view(BENIGN, num_clients=50, num_malicious=15)) is None
        assert LIE(z=1.0)(make_view(np.empty((0, 2)))) is None

    def test_it_ignores_benign_rows_that_are_not_finite(self):
        spoilt = np.vstack([BENIGN, [[np.nan, 1.0]], [[np.inf, 0.0]]])
        np.testing.assert_array_equal(LIE(z=1.0)(make_view(spoilt)), LIE(z=1.0)(make_view(BENIGN)))

    def test_statistics_of_the_own_updates_need_no_knowledge_but_training(self):
        attack = LIE(z=0.5, statistics="own")
        assert (attack.knowledge, attack.trains) == (Knowledge.AGNOSTIC, True)
        view = make_view(random_rows(4, 2), attackers=3, own=BENIGN, knowledge=Knowledge.AGNOSTIC)
        np.testing.assert_allclose(attack(view)[0], MEAN - 0.5 * SIGMA)

    def test_by_default_it_needs_partial_knowledge_and_no_training(self):
        assert (LIE().knowledge, LIE().trains) == (Knowledge.PARTIAL, False)

    def test_deviation_of_float32_rows_does_not_overflow(self):
        rows = LIE(z=1.0)(make_view(np.array([[1e30], [3e30], [3e38]], dtype=np.float32)))
        assert rows.dtype == np.float32
        assert np.isfinite(rows).all()

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"z": -1.0}, "z must be a finite number > 0; got -1.0"),
            ({"z_rule": "papr"}, "z_rule has no variant 'papr'; did you mean 'paper'"),
            ({"counts": "all"}, "counts has no variant 'all'"),
            ({"sign": 0}, "sign has no variant 0"),
            ({"ddof": 2}, "ddof has no variant 2"),
            ({"statistics": "mine"}, "statistics has no variant 'mine'"),
            ({"statistics": "own", "counts": "round"}, "counts 'round' needs statistics 'benign'"),
        ],
    )
    def test_bad_options_are_refused_by_name(self, options, message):
        with pytest.raises(ConfigError, match=message):
            LIE(**options)


class TestIPM:
    def test_all_attackers_send_the_mean_backwards(self):
        np.testing.assert_allclose(IPM(epsilon=0.5)(make_view(BENIGN)), [[-1.0, -0.5]] * 2)

    def test_default_turns_plain_averaging_round_from_30_percent_on(self):
        benign = random_rows(7, 3)
        rows = IPM()(make_view(benign, attackers=3))
        step = np.concatenate([benign, rows]).mean(axis=0)
        assert step @ benign.mean(axis=0) < 0

    def test_it_is_inactive_without_benign_updates(self):
        assert IPM()(make_view(np.empty((0, 2)))) is None

    def test_epsilon_must_be_positive(self):
        with pytest.raises(ConfigError, match="epsilon must be a finite number > 0; got 0"):
            IPM(epsilon=0)


class TestMimic:
    def victim(self, attack, benign, **options):
        rows = attack(make_view(benign, **options))
        assert (rows == rows[0]).all()
        return int(np.flatnonzero((np.asarray(benign) == rows[0]).all(axis=1))[0])

    def test_seeded_victim_is_the_same_in_every_round_and_differs_between_seeds(self):
        benign = random_rows(8)
        assert len({self.victim(Mimic(), benign, round=number) for number in range(1, 20)}) == 1
        assert len({self.victim(Mimic(), benign, seed=seed) for seed in range(20)}) > 3

    def test_where_the_victim_was_not_selected_the_next_in_a_fixed_order_is_copied(self):
        benign = random_rows(8)
        view = make_view(benign)
        order = np.argsort(view.preference("mimic-victim"))
        spoilt = benign.copy()
        spoilt[order[0]] = np.nan  # as good as absent
        assert self.victim(Mimic(), benign) == order[0]
        assert self.victim(Mimic(), spoilt) == order[1]

    def test_a_named_victim_is_copied_or_the_attack_is_inactive(self):
        assert self.victim(Mimic(victim=2), BENIGN) == 2
        assert Mimic(victim=7)(make_view(BENIGN)) is None
        assert Mimic()(make_view(np.empty((0, 2)))) is None

    def test_spread_along_the_main_axis_equals_the_svd(self):
        rows = random_rows(6, 9)
        centred = rows - rows.mean(axis=0)
        axis = np.linalg.svd(centred)[2][0]
        np.testing.assert_allclose(spread_along_main_axis(rows @ rows.T), (centred @ axis) ** 2, atol=1e-9)

    def test_largest_variance_copies_the_client_furthest_out_where_clients_differ_most(self):
        benign = np.array([[0.0, 1.0], [0.0, -2.0], [5.0, 0.0], [-4.0, 0.0]])
        assert self.victim(Mimic(victim="largest-variance"), benign) == 2

    def test_largest_variance_adds_up_over_the_warm_up_and_then_keeps_its_victim(self):
        attack = Mimic(victim="largest-variance", warmup_rounds=2)
        out = np.zeros((4, 1))
        out[1] = 5.0
        other = np.zeros((4, 1))
        other[2] = 6.0
        distinct = np.arange(4.0)[:, None] * 1e-6  # so that copies can be told apart
        assert self.victim(attack, out + distinct, round=1) == 1
        assert self.victim(attack, other + distinct, round=2) == 2  # 36 beats 25 in the sums
        assert self.victim(attack, out + distinct, round=3) == 2  # the warm-up is over

    def test_a_new_run_forgets_the_old_victim(self):
        attack = Mimic(victim="largest-variance", warmup_rounds=2)
        out = np.array([[0.0], [1e-6], [9.0]])
        assert self.victim(attack, out, round=1) == 2
        assert self.victim(attack, np.array([[0.0], [2.0], [1e-6]]), round=1) == 1

    def test_state_goes_out_and_comes_back(self):
        attack = Mimic(victim="largest-variance", warmup_rounds=1)
        benign = random_rows(5)
        chosen = self.victim(attack, benign)
        restored = Mimic(victim="largest-variance", warmup_rounds=1)
        restored.load_state_dict(attack.state_dict())
        later = random_rows(5, seed=9)
        assert self.victim(restored, later, round=2) == chosen
        with pytest.raises(StateError, match="state of Mimic must have ids, spread"):
            restored.load_state_dict({"ids": [1], "spread": [], "last_round": 1})

    @pytest.mark.parametrize("value", [True, 1.5, None])
    def test_bad_victims_are_refused(self, value):
        with pytest.raises(ConfigError, match="victim must be seeded, largest-variance or a client id; got"):
            Mimic(victim=value)

    def test_warm_up_takes_at_least_a_round(self):
        with pytest.raises(ConfigError, match="warmup_rounds must be a whole number >= 1; got 0"):
            Mimic(warmup_rounds=0)
