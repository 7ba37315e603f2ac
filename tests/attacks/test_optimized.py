from __future__ import annotations

import numpy as np
import pytest

from helpers import make_cohort, random_rows
from mabrfl.aggregation import Krum, MultiKrum
from mabrfl.attacks import AgrKrum, Knowledge, MinMax, MinSum
from mabrfl.attacks._search import Geometry, halving_search, perturbation
from mabrfl.errors import ConfigError
from mabrfl.testing import make_view
from mabrfl.vectors import row_norms


def literal_direction(benign, direction):
    mean = np.mean(benign, axis=0)
    return {"std": -np.std(benign, axis=0), "unit": -mean / np.linalg.norm(mean), "sign": -np.sign(mean)}[direction]


def literal_search(benign, direction, start, passes):
    """The search as NDSS 2021 describes it, on whole vectors."""
    mean, delta = np.mean(benign, axis=0), literal_direction(benign, direction)
    gamma, step, success = start, start, 0.0
    while abs(success - gamma) > 1e-5:
        if passes(mean + gamma * delta):
            success = gamma
            gamma = gamma + step / 2
        else:
            gamma = gamma - step / 2
        step = step / 2
    return mean + success * delta


def literal_krum_scores(rows, f):
    scores = []
    for i, row in enumerate(rows):
        distances = sorted(np.linalg.norm(row - other) ** 2 for j, other in enumerate(rows) if j != i)
        scores.append(sum(distances[: max(len(rows) - f - 2, 1)]))
    return np.array(scores)


def literal_agr(benign, attackers, f, *, direction="std", multi=False, num_selected=None):
    def passes(point):
        scores = literal_krum_scores(np.array([point] * attackers + list(benign)), f)
        if not multi:
            return scores[:attackers].min() < scores[attackers:].min()
        best = np.argsort(-np.arange(len(scores)), kind="stable")  # benign first, so that ties count against
        best = best[np.argsort(scores[best], kind="stable")]
        return set(range(attackers)) <= set(best[: num_selected or len(scores) - f].tolist())

    return literal_search(benign, direction, 3.0, passes)


def literal_min_max(benign, direction):
    bound = max(np.linalg.norm(a - b) ** 2 for a in benign for b in benign)
    return literal_search(benign, direction, 10.0, lambda p: max(np.linalg.norm(p - a) ** 2 for a in benign) <= bound)


def literal_min_sum(benign, direction, choose):
    bound = choose([sum(np.linalg.norm(a - b) ** 2 for b in benign) for a in benign])
    return literal_search(benign, direction, 10.0, lambda p: sum(np.linalg.norm(p - a) ** 2 for a in benign) <= bound)


CASES = [
    (seed, b, a) for seed, (b, a) in enumerate([(5, 1), (6, 2), (9, 4), (11, 9), (7, 3), (12, 5), (3, 2), (26, 24)])
]
DIRECTIONS = ["std", "unit", "sign"]


class TestSearch:
    def test_it_ends_at_the_last_success_within_the_tolerance(self):
        tried = []

        def passes(factor):
            tried.append(factor)
            return factor <= 4.2

        found = halving_search(passes, start=3.0, tolerance=1e-5)
        assert found in tried
        assert 4.2 - 1e-5 <= found <= 4.2
        assert tried[:4] == [3.0, 4.5, 3.75, 4.125]

    def test_it_never_exceeds_twice_its_start(self):
        assert 6.0 - 1e-4 < halving_search(lambda factor: True, start=3.0, tolerance=1e-5) < 6.0

    def test_without_any_success_it_returns_zero(self):
        assert halving_search(lambda factor: False, start=3.0, tolerance=1e-5) == 0.0

    @pytest.mark.parametrize("direction", DIRECTIONS)
    def test_distances_to_the_moving_point_equal_the_literal_ones(self, direction):
        rows = random_rows(6)
        delta = perturbation(rows, rows.mean(axis=0), direction)
        np.testing.assert_allclose(delta, literal_direction(rows, direction), atol=1e-12)
        geometry = Geometry.of(rows, row_norms(rows), delta)
        for factor in (0.0, 0.3, 2.0):
            everyone = np.concatenate([np.tile(rows.mean(axis=0) + factor * delta, (2, 1)), rows])
            literal = ((everyone[:, None] - everyone[None]) ** 2).sum(axis=2)
            np.testing.assert_allclose(geometry.with_copies(factor, 2), literal, atol=1e-9)

    def test_float32_updates_of_extreme_size_are_measured_without_overflow(self):
        rows = random_rows(5, dtype=np.float32)
        large = rows * np.float32(2.0**80)
        small = Geometry.of(rows, row_norms(rows), perturbation(rows, rows.mean(axis=0), "std"))
        huge = Geometry.of(large, row_norms(large), perturbation(large, large.mean(axis=0), "std"))
        np.testing.assert_allclose(huge.to_point(1.5) / 2.0**160, small.to_point(1.5), rtol=1e-5)


class TestMinMaxAndMinSum:
    # Three numbers: mean 2, sum of squares about it 14; largest gap 5; sums of squared gaps 26, 17 and 41.
    line = np.array([[0.0], [1.0], [5.0]])

    def test_min_max_goes_as_far_from_the_furthest_as_the_largest_gap(self):
        np.testing.assert_allclose(MinMax()(make_view(self.line)), 0.0, atol=1e-4)

    def test_min_sum_stops_where_its_sum_is_the_smallest_benign_one(self):
        # 14 + 3 t^2 = 17 at t = 1 below the mean.
        np.testing.assert_allclose(MinSum()(make_view(self.line)), 1.0, atol=1e-4)

    def test_min_sum_with_the_maximum_goes_further(self):
        # 14 + 3 t^2 = 41 at t = 3 below the mean.
        np.testing.assert_allclose(MinSum(bound="maximum")(make_view(self.line)), -1.0, atol=1e-4)

    @pytest.mark.parametrize("direction", DIRECTIONS)
    @pytest.mark.parametrize(("seed", "b", "a"), CASES)
    def test_search_on_the_gram_matrix_equals_the_literal_one(self, seed, b, a, direction):
        benign = random_rows(b, seed=seed)
        view = make_view(benign, attackers=a)
        pairs = [
            (MinMax(direction=direction), literal_min_max(benign, direction)),
            (MinSum(direction=direction), literal_min_sum(benign, direction, min)),
            (MinSum(direction=direction, bound="maximum"), literal_min_sum(benign, direction, max)),
        ]
        for attack, literal in pairs:
            rows = attack(view)
            assert rows.shape == (a, 40)
            np.testing.assert_allclose(rows, np.tile(literal, (a, 1)), atol=1e-9)

    def test_they_need_partial_knowledge_and_no_training(self):
        for attack in (MinMax(), MinSum()):
            assert (attack.knowledge, attack.trains) == (Knowledge.PARTIAL, False)

    def test_a_short_start_caps_the_factor(self):
        benign = random_rows(6)
        rows = MinMax(gamma_init=0.1)(make_view(benign))
        np.testing.assert_allclose(rows[0], benign.mean(axis=0) - 0.2 * benign.std(axis=0), atol=1e-4)

    def test_deviation_with_one_degree_of_freedom_ends_at_the_same_point(self):
        view = make_view(random_rows(6))
        np.testing.assert_allclose(MinMax(ddof=1)(view), MinMax()(view), atol=1e-4)

    def test_without_benign_updates_they_are_inactive_and_with_one_they_copy_it(self):
        for attack in (MinMax(), MinSum(), AgrKrum()):
            assert attack(make_view(np.empty((0, 3)))) is None
            np.testing.assert_array_equal(attack(make_view([[1.0, 2.0, 3.0]])), [[1.0, 2.0, 3.0]] * 2)


class TestAgrKrum:
    def test_it_goes_to_where_the_next_benign_update_would_be_chosen(self):
        # Benign 0..4, two attackers, f = 2, three neighbours. At p > 0 an attacker scores p^2 + (1-p)^2 and
        # the best benign one, 0, scores 2 p^2 + 1; at p = 0 they tie, below it 0 wins.
        benign = np.arange(5.0)[:, None]
        rows = AgrKrum()(make_view(benign, attackers=2))
        assert 0 < rows[0, 0] < 1e-4

    @pytest.mark.parametrize("direction", DIRECTIONS)
    @pytest.mark.parametrize(("seed", "b", "a"), CASES)
    def test_search_on_the_gram_matrix_equals_the_literal_one(self, seed, b, a, direction):
        benign = random_rows(b, seed=seed)
        view = make_view(benign, attackers=a)
        f = min(a, (a + b - 1) // 2)
        single = literal_agr(benign, a, f, direction=direction)
        np.testing.assert_allclose(AgrKrum(direction=direction)(view)[0], single, atol=1e-9)
        multi = literal_agr(benign, a, f, direction=direction, multi=True)
        np.testing.assert_allclose(AgrKrum(direction=direction, target="multi-krum")(view)[0], multi, atol=1e-9)

    @pytest.mark.parametrize(("b", "a"), [(9, 4), (12, 5), (35, 15)])
    def test_the_real_krum_chooses_it_and_would_not_choose_one_a_little_further(self, b, a):
        benign = random_rows(b, seed=b, dtype=np.float32)
        row = AgrKrum()(make_view(benign, attackers=a))[0]
        mean = benign.mean(axis=0)

        def chosen(point):
            cohort = make_cohort(np.concatenate([benign, np.tile(point, (a, 1))]))
            return int(np.argmax(Krum(num_malicious=a)(cohort).weights))

        assert chosen(row) >= b
        assert chosen((mean + 1.02 * (row - mean)).astype(np.float32)) < b

    def test_the_real_multi_krum_averages_all_malicious_updates(self):
        benign = random_rows(12, seed=3)
        rows = AgrKrum(target="multi-krum", num_selected=6)(make_view(benign, attackers=5))
        cohort = make_cohort(np.concatenate([benign, rows]))
        weights = MultiKrum(num_malicious=5, num_selected=6)(cohort).weights
        assert (weights[12:] > 0).all()
        assert np.count_nonzero(weights) == 6

    def test_multi_krum_that_takes_fewer_than_the_attackers_leaves_the_mean(self):
        benign = random_rows(9)
        rows = AgrKrum(target="multi-krum", num_selected=2)(make_view(benign, attackers=4))
        np.testing.assert_allclose(rows[0], benign.mean(axis=0))

    def test_where_attackers_outnumber_krums_neighbours_the_factor_runs_to_its_cap(self):
        benign = random_rows(4)
        rows = AgrKrum()(make_view(benign, attackers=5, num_clients=20, num_malicious=6))
        np.testing.assert_allclose(rows[0], benign.mean(axis=0) - 6 * benign.std(axis=0), atol=1e-3)

    def test_a_tie_with_a_benign_update_does_not_count_as_chosen(self):
        # f = 2 of 5 leaves one neighbour: three equal benign updates score 0, and so do two equal malicious ones.
        rows = AgrKrum(direction="unit")(make_view(np.ones((3, 2)), attackers=2))
        np.testing.assert_array_equal(rows, np.ones((2, 2)))

    def test_partial_participation_scales_f(self):
        # f = 10 of 50 gives 4 of 16: the four attackers of the round, and so a larger factor than f = 1 of 50.
        benign = random_rows(12)
        many = AgrKrum()(make_view(benign, attackers=4, num_clients=50, num_malicious=10))
        np.testing.assert_allclose(many[0], literal_agr(benign, 4, 4), atol=1e-9)
        few = AgrKrum()(make_view(benign, attackers=4, num_clients=50, num_malicious=1))
        np.testing.assert_allclose(few[0], literal_agr(benign, 4, 1), atol=1e-9)
        assert not np.allclose(many, few)

    @pytest.mark.parametrize(("a", "moved"), [(1, 0), (2, 1), (3, 1), (4, 2), (5, 2)])
    def test_half_copy_moves_half_rounded_down_and_the_others_copy_one_benign_update(self, a, moved):
        benign = random_rows(8)
        view = make_view(benign, attackers=a)
        whole, rows = AgrKrum(half_copy=False)(view), AgrKrum(half_copy=True)(view)
        np.testing.assert_array_equal(rows[:moved], whole[:moved])
        assert (rows[moved:] == rows[-1]).all()
        assert (benign == rows[-1]).all(axis=1).sum() == 1

    @pytest.mark.parametrize(
        ("defense", "copies"), [("mab-rfl", True), ("mab-rfl-plus", True), ("krum", False), ("", False)]
    )
    def test_by_default_only_mab_rfl_is_met_with_copies(self, defense, copies):
        benign = random_rows(8)
        rows = AgrKrum()(make_view(benign, attackers=4, defense=defense))
        assert (rows == rows[0]).all() == (not copies)

    def test_the_copied_update_is_drawn_each_round_and_is_never_a_broken_one(self):
        benign = random_rows(6)
        benign[2] = np.nan
        copied = {
            AgrKrum(half_copy=True)(make_view(benign, attackers=3, round=number))[-1].tobytes()
            for number in range(1, 40)
        }
        assert copied == {benign[row].tobytes() for row in (0, 1, 3, 4, 5)}

    def test_it_needs_full_knowledge_and_no_training(self):
        assert (AgrKrum().knowledge, AgrKrum().trains) == (Knowledge.FULL, False)


@pytest.mark.parametrize(
    ("attack", "options", "message"),
    [
        (AgrKrum, {"direction": "stdev"}, "direction has no variant 'stdev'; did you mean 'std'"),
        (AgrKrum, {"gamma_init": 0}, "gamma_init must be a finite number > 0; got 0"),
        (AgrKrum, {"tolerance": -1}, "tolerance must be a finite number > 0; got -1"),
        (AgrKrum, {"target": "median"}, "target has no variant 'median'"),
        (AgrKrum, {"half_copy": "yes"}, "half_copy must be true, false or 'auto'; got 'yes'"),
        (AgrKrum, {"num_selected": 3}, "num_selected is only for target 'multi-krum'; got 3"),
        (AgrKrum, {"num_selected": 0, "target": "multi-krum"}, "num_selected must be a whole number >= 1; got 0"),
        (MinMax, {"ddof": 3}, "ddof has no variant 3"),
        (MinSum, {"bound": "mean"}, "bound has no variant 'mean'"),
    ],
)
def test_bad_options_are_refused_by_name(attack, options, message):
    with pytest.raises(ConfigError, match=message):
        attack(**options)
