from __future__ import annotations

import numpy as np
import pytest

from helpers import make_cohort, random_rows, step_of
from mabrfl.aggregation import Krum, Median, TrimmedMean
from mabrfl.attacks import FangKrum, FangTrim
from mabrfl.errors import ConfigError
from mabrfl.testing import make_view


class TestFangKrum:
    def test_the_bound_is_the_papers_by_hand(self):
        # Four benign updates on a line at 1, 2, 3, 5 and one attacker: m = 5, c = 1, d = 1. Each benign update has
        # m - c - 2 = 2 nearest others: sums of squares 5, 2, 5, 13. So the bound is sqrt(2 / 2) + 5 = 6, and it halves
        # to 3, 1.5 ... until Krum chooses -lambda. With 5 - 1 - 2 = 2 neighbours 2 has the score 2, and -lambda has
        # (1 + lambda)^2 + (2 + lambda)^2 >= 5: Krum never chooses it, and the search runs to its end.
        rows = FangKrum()(make_view(np.array([[1.0], [2.0], [3.0], [5.0]]), attackers=1))
        np.testing.assert_allclose(rows, [[-6 / 2**17]])

    def test_copies_are_chosen_at_half_the_bound_by_hand(self):
        # Four attackers, f = 4, n = 8: two neighbours, copies of the attack have the score 0 at any length.
        rows = FangKrum()(make_view(np.array([[1.0], [2.0], [3.0], [5.0]]), attackers=4))
        np.testing.assert_allclose(rows, np.full((4, 1), -(np.sqrt(2) + 5)))  # m - 2c - 1 < 1 counts as 1

    def test_the_real_krum_chooses_it_and_the_model_goes_back_in_every_coordinate(self):
        # The paper's aim, a directed deviation: each coordinate moves against its benign direction.
        for seed in range(5):
            benign = random_rows(12, 30, seed=seed) + 0.3
            rows = FangKrum()(make_view(benign, attackers=5))
            cohort = make_cohort(np.concatenate([benign, rows]))
            step = step_of(cohort, Krum(num_malicious=5)(cohort))
            np.testing.assert_array_equal(step, rows[0])
            assert (np.sign(step) == -np.sign(benign.mean(axis=0))).all()

    def test_the_next_longer_one_is_not_chosen(self):
        benign = random_rows(12, 30, seed=1) + 0.3
        rows = 2 * FangKrum()(make_view(benign, attackers=3))
        cohort = make_cohort(np.concatenate([benign, rows]))
        assert not np.array_equal(step_of(cohort, Krum(num_malicious=3)(cohort)), rows[0])


class TestFangTrim:
    BENIGN = np.array([[-1.0, 2.0, 3.0, -4.0], [-3.0, 4.0, -1.0, 1.0]])  # means: -2, 3, 1, -1.5

    def test_draws_lie_beyond_the_extremes_by_hand(self):
        # Falls, largest -1: from -1 to -1/2. Rises, smallest 2: from 1 to 2; smallest -1: from -2 to -1.
        # Falls, largest 1: from 1 to 2.
        rows = FangTrim(values="updates")(make_view(self.BENIGN, attackers=500))
        np.testing.assert_allclose(rows.min(axis=0), [-1, 1, -2, 1], atol=0.02)
        np.testing.assert_allclose(rows.max(axis=0), [-0.5, 2, -1, 2], atol=0.02)
        assert (rows.min(axis=0) >= [-1, 1, -2, 1]).all()
        assert (rows.max(axis=0) <= [-0.5, 2, -1, 2]).all()
        assert not np.array_equal(rows[0], rows[1])

    def test_the_paper_speaks_of_models(self):
        view = make_view(self.BENIGN, attackers=50)
        object.__setattr__(view, "global_weights", np.array([10.0, 0.0, 0.0, 0.0]))
        rows = FangTrim()(view)
        # The largest model is 10 - 1 = 9: from 9 to 18, which are updates from -1 to 8.
        assert -1 <= rows[:, 0].min() < 0
        assert 7 < rows[:, 0].max() <= 8
        np.testing.assert_array_equal(rows[:, 1:], FangTrim(values="updates")(view)[:, 1:])

    @pytest.mark.parametrize(("rule", "clean"), [(TrimmedMean(num_malicious=4), np.mean), (Median(), np.median)])
    def test_trimmed_mean_and_median_deviate_against_every_coordinates_direction(self, rule, clean):
        # The paper's aim: no coordinate of the aggregate is further along the benign direction than without attack.
        for seed in range(5):
            benign = random_rows(9, 40, seed=seed)
            cohort = make_cohort(np.concatenate([benign, FangTrim()(make_view(benign, attackers=4))]))
            moved = (step_of(cohort, rule(cohort)) - clean(benign, axis=0)) * np.sign(benign.mean(axis=0))
            assert moved.max() <= 0
            assert moved.mean() < -0.1

    @pytest.mark.parametrize("spread", [1.0, np.inf, True])
    def test_the_spread_is_above_one(self, spread):
        with pytest.raises(ConfigError, match="spread must be a finite number > 1"):
            FangTrim(spread=spread)
