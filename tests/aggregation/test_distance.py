from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import reference_rules as slow
from helpers import make_cohort, random_cohorts, rejected_rows, step_of
from mabrfl.aggregation import FABA, Krum, MultiKrum, krum_scores
from mabrfl.aggregation.distance import faba_removals
from mabrfl.aggregation.mixing import MixedCohort
from mabrfl.errors import ConfigError, QuorumError
from mabrfl.updates import Cohort, Decision

# Squared distances: AB 1, AC 18, AD 20, AE 17, AF 8, BC 25, BD 29, BE 20, BF 5, CD 2, CE 5, CF 26, DE 13, DF 36, EF 13.
SIX = np.array([[4.0, 0.0], [3.0, 0.0], [7.0, 3.0], [8.0, 2.0], [5.0, 4.0], [2.0, 2.0]])
A, B, C, D, E, F = range(6)


def chosen(decision: Decision) -> list[int]:
    assert decision.weights is not None
    return [int(row) for row in np.flatnonzero(decision.weights)]


def close_steps(cohort: Cohort, decision: Decision, expected: Any) -> None:
    size = cohort.norms.max()
    np.testing.assert_allclose(step_of(cohort, decision), expected, rtol=1e-5, atol=1e-5 * size)


# Krum


def test_krum_score_is_the_sum_of_the_squares_to_the_n_f_2_nearest_others() -> None:
    cohort = make_cohort(SIX)
    scores = krum_scores(cohort.squared_distances, 1)
    # e.g. C: 2 (D) + 5 (E) + 18 (A)
    np.testing.assert_allclose(scores, [26, 26, 25, 35, 31, 26])
    assert chosen(Krum(num_malicious=1)(cohort)) == [C]


@pytest.mark.parametrize(
    ("variant", "winner"),
    [
        ({"neighbours": "n-f-1"}, A),  # 1 + 8 + 17 + 18 = 44; C: 2 + 5 + 18 + 25 = 50
        ({"neighbours": "n-f-3"}, B),  # 1 + 5 = 6; C: 2 + 5 = 7
        ({"neighbours": "all"}, A),  # 64; C: 76
        ({"power": 1}, B),  # 1 + 2.236 + 4.472 = 7.708; C: 1.414 + 2.236 + 4.243 = 7.893
        ({"power": 4}, F),  # 25 + 64 + 169 = 258; C: 4 + 25 + 324 = 353
    ],
)
def test_every_variant_of_krum_chooses_somebody_else(variant: dict[str, Any], winner: int) -> None:
    assert chosen(Krum(num_malicious=1, **variant)(make_cohort(SIX))) == [winner]


def test_krum_reports_the_f_highest_scores_as_outliers() -> None:
    cohort = make_cohort([[0.0], [0.1], [0.2], [0.3], [90.0], [70.0], [0.4]])
    decision = Krum(num_malicious=2)(cohort)
    assert rejected_rows(cohort, decision) == {4, 5}
    assert decision.events == ()
    assert (decision.evidence or [])[4]["score"] > 1000


def test_krum_takes_the_lower_index_of_equal_scores() -> None:
    cohort = make_cohort([[1.0], [1.0], [1.0], [1.0], [1.0]])
    decision = Krum(num_malicious=1)(cohort)
    assert chosen(decision) == [0]
    assert rejected_rows(cohort, decision) == {4}


def test_krum_beyond_its_theorem_goes_on_and_says_so() -> None:
    cohort = make_cohort(np.random.default_rng(0).normal(size=(50, 20)))
    decision = Krum(num_malicious=24)(cohort)
    assert decision.events == ("krum-precondition: n >= 2f+3; n=50, f=24",)
    assert len(rejected_rows(cohort, decision)) == 24
    with pytest.raises(QuorumError, match=r"krum needs n >= 2f\+3; got n=50, f=24"):
        Krum(num_malicious=24, strict=True)(cohort)


def test_krum_strict_is_content_at_the_edge_of_its_theorem() -> None:
    cohort = make_cohort(np.random.default_rng(0).normal(size=(11, 3)))
    assert Krum(num_malicious=4, strict=True)(cohort).events == ()


def test_krum_uses_the_cohorts_share_of_the_malicious() -> None:
    # 4 of 24 clients are malicious, so 1 of these 6: n-f-2 = 3 neighbours.
    assert chosen(Krum(num_malicious=4)(make_cohort(SIX, population=24))) == [C]
    # 12 of 24 would be 3 of 6, kept below half at 2: two neighbours, where B wins.
    assert chosen(Krum(num_malicious=12)(make_cohort(SIX, population=24))) == [B]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_krum_equals_its_slow_twin(dtype: type[np.floating]) -> None:
    for number, (cohort, f) in enumerate(random_cohorts(240, dtype=dtype, least=3)):
        rows = slow.as_vectors(cohort.matrix)
        neighbours = ("n-f-2", "n-f-1", "n-f-3", "all")[number % 4]
        power = (2, 1, 4)[number % 3]
        count = slow.num_neighbours(len(rows), f, neighbours)
        expected = [slow.krum_score(rows, i, count, power) for i in range(len(rows))]
        decision = Krum(num_malicious=f, neighbours=neighbours, power=power)(cohort)  # type: ignore[arg-type]
        scores = [each["score"] for each in decision.evidence or []]
        np.testing.assert_allclose(scores, expected, rtol=1e-4 if dtype is np.float32 else 1e-9)
        # With a single neighbour the nearest pair is tied: any of the lowest will do.
        assert expected[chosen(decision)[0]] <= min(expected) * (1 + 1e-4)


# Multi-Krum


def test_multi_krum_averages_the_n_f_lowest_scores_of_one_pass() -> None:
    cohort = make_cohort(SIX)
    decision = MultiKrum(num_malicious=1)(cohort)
    assert chosen(decision) == [A, B, C, E, F]  # D has the highest score, 35
    np.testing.assert_allclose(step_of(cohort, decision), [21 / 5, 9 / 5])
    assert rejected_rows(cohort, decision) == {D}


def test_multi_krum_of_one_is_krum() -> None:
    cohort = make_cohort(SIX)
    decision = MultiKrum(num_malicious=1, num_selected=1)(cohort)
    np.testing.assert_array_equal(step_of(cohort, decision), SIX[C])
    assert rejected_rows(cohort, decision) == {D}


def test_multi_krum_never_selects_more_than_there_are_nor_rejects_the_selected() -> None:
    cohort = make_cohort(SIX)
    decision = MultiKrum(num_malicious=2, num_selected=100)(cohort)
    assert chosen(decision) == [A, B, C, D, E, F]
    assert rejected_rows(cohort, decision) == set()


def test_repeated_selection_scores_the_others_anew() -> None:
    # n = 7, f = 1. One pass with 4 neighbours gives 105, 76, 57, 61, 69, 93, 204. Repeated takes row 2 (57),
    # of the others with 3 neighbours 101, 75, -, 45, 33, 29, 83 row 5, with 2 then 37, 26, -, 29, 29, -, 74
    # row 1, and stops, for 2f + 2 = 4 are left.
    cohort = make_cohort([[0.0], [1.0], [2.0], [6.0], [8.0], [10.0], [13.0]])
    assert chosen(MultiKrum(num_malicious=1, num_selected=3)(cohort)) == [2, 3, 4]
    assert chosen(MultiKrum(num_malicious=1, selection="repeated")(cohort)) == [1, 2, 5]
    assert chosen(MultiKrum(num_malicious=1, selection="repeated", num_selected=2)(cohort)) == [2, 5]


def test_repeated_selection_has_one_winner_where_2f_2_clients_or_fewer_are() -> None:
    cohort = make_cohort(SIX)
    decision = MultiKrum(num_malicious=2, selection="repeated")(cohort)
    assert chosen(decision) == chosen(Krum(num_malicious=2)(cohort))
    assert decision.events == ("multi-krum-precondition: n >= 2f+3; n=6, f=2",)


def test_multi_krum_equals_its_slow_twins() -> None:
    for number, (cohort, f) in enumerate(random_cohorts(240, least=3)):
        rows, n = slow.as_vectors(cohort.matrix), len(cohort)
        wanted = 1 + number % (n - f)
        close_steps(cohort, MultiKrum(num_malicious=f)(cohort), slow.multi_krum(rows, f, n - f))
        decision = MultiKrum(num_malicious=f, num_selected=wanted)(cohort)
        # One neighbour ties the nearest pair; an odd number of winners may then cut the pair either way.
        if n - f - 2 > 1:
            close_steps(cohort, decision, slow.multi_krum(rows, f, wanted))
        neighbours = ("n-f-2", "n-f-1")[number % 2]
        repeated = MultiKrum(num_malicious=f, selection="repeated", neighbours=neighbours)  # type: ignore[arg-type]
        if n > 2 * f + 2 and f > 0:
            close_steps(cohort, repeated(cohort), slow.multi_krum_repeated(rows, f, neighbours))


# FABA

# The mean is 2.8; distances 3.8, 2.8, 1.8, 7.2, 1.2. Without 10 it is 1: distances 2, 1, 0, -, 3.
LINE = np.array([[-1.0], [0.0], [1.0], [10.0], [4.0]])


def test_faba_recomputes_the_mean_after_each_removal() -> None:
    cohort = make_cohort(LINE)
    decision = FABA(num_malicious=2)(cohort)
    assert rejected_rows(cohort, decision) == {3, 4}
    np.testing.assert_allclose(step_of(cohort, decision), [0.0], atol=1e-12)
    np.testing.assert_allclose([each["distance"] for each in decision.evidence or []], [1, 0, 1, 10, 4], atol=1e-7)


def test_one_shot_removal_takes_the_farthest_from_the_first_mean() -> None:
    cohort = make_cohort(LINE)
    decision = FABA(num_malicious=2, removal="one-shot")(cohort)
    assert rejected_rows(cohort, decision) == {0, 3}
    np.testing.assert_allclose(step_of(cohort, decision), [5 / 3])


def test_pairwise_removal_takes_the_largest_sums_of_distances() -> None:
    # Sums of distances: 10 + 10 + 11 + 21 + 4 ... on the line 0, 0, 1, 7, 11: 19, 19, 17, 23, 35. The mean
    # is 3.8 and the distances to it 3.8, 3.8, 2.8, 3.2, 7.2: one-shot removes row 0 and pairwise row 3.
    cohort = make_cohort([[0.0], [0.0], [1.0], [7.0], [11.0]])
    assert rejected_rows(cohort, FABA(num_malicious=2, removal="pairwise")(cohort)) == {3, 4}
    assert rejected_rows(cohort, FABA(num_malicious=2, removal="one-shot")(cohort)) == {0, 4}


def test_faba_removes_the_lower_index_of_equally_far_updates() -> None:
    cohort = make_cohort([[-1.0], [1.0], [0.0], [0.0], [0.0]])
    for removal in ("iterative", "one-shot", "pairwise"):
        assert rejected_rows(cohort, FABA(num_malicious=1, removal=removal)(cohort)) == {0}  # type: ignore[arg-type]


def test_faba_says_when_half_or_more_are_malicious() -> None:
    cohort = make_cohort(LINE)
    decision = FABA(num_malicious=3)(cohort)
    assert decision.events == ("faba-precondition: n > 2f; n=5, f=3",)
    assert rejected_rows(cohort, decision) == {3, 4}
    with pytest.raises(QuorumError, match=r"faba needs n > 2f; got n=5, f=3"):
        FABA(num_malicious=3, strict=True)(cohort)


@pytest.mark.parametrize("removal", ["iterative", "one-shot", "pairwise"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_faba_equals_its_slow_twin(removal: Any, dtype: type[np.floating]) -> None:
    for cohort, f in random_cohorts(200, dtype=dtype):
        rows = slow.as_vectors(cohort.matrix)
        left = slow.faba(rows, f, removal)
        decision = FABA(num_malicious=f, removal=removal)(cohort)
        assert rejected_rows(cohort, decision) == set(range(len(rows))) - set(left)
        close_steps(cohort, decision, slow.mean([rows[i] for i in left]))


def test_faba_is_not_misled_by_what_giants_leave_behind() -> None:
    honest = np.array([[0.0, 1.0], [0.5, 1.0], [0.0, 1.5], [0.0, 0.5], [5.0, 1.0]])
    giants = np.array([[1e30, 3e29], [-7e20, 1e20], [1e12, 1e12]])
    cohort = make_cohort(np.vstack([honest, giants]))
    # Row 4 is the outlier among the honest, and must be found after the three giants are gone.
    removed = faba_removals(cohort.gram, 4)
    assert removed[:3] == [5, 6, 7]
    assert removed[3] == 4


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Krum(num_malicious=-1), r"Krum num_malicious must be a whole number >= 0; got -1"),
        (lambda: Krum(num_malicious=1, neighbours="n-f"), r"Krum neighbours has no variant 'n-f'; did you mean"),  # type: ignore[arg-type]
        (lambda: Krum(num_malicious=1, power=3), r"Krum power has no variant 3; known: 1, 2, 4"),  # type: ignore[arg-type]
        (lambda: MultiKrum(num_malicious=1, num_selected=0), r"num_selected must be a whole number >= 1; got 0"),
        (lambda: MultiKrum(num_malicious=1, selection="repeat"), r"selection has no variant 'repeat'; did you"),  # type: ignore[arg-type]
        (lambda: FABA(num_malicious=1, removal="all"), r"FABA removal has no variant 'all'"),  # type: ignore[arg-type]
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(build: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build()


def test_scores_of_small_cohorts_exist() -> None:
    for n, f, neighbours in itertools.product((1, 2, 3), (0, 1), ("n-f-2", "n-f-1", "n-f-3", "all")):
        scores = krum_scores(np.ones((n, n)) - np.eye(n), f, neighbours=neighbours)  # type: ignore[arg-type]
        assert scores.shape == (n,)
        assert np.all(scores >= (1 if n > 1 else 0))


def nearly_alike(spread, seed, n=12, width=20_000):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=width) + spread * rng.normal(size=(n, width))).astype(np.float32)


def exact_squared_distances(rows):
    rows = rows.astype(np.float64)
    return np.array([np.sum((rows - row) ** 2, axis=1) for row in rows])


@pytest.mark.parametrize("spread", [1e-5, 1e-3, 0.05])
@pytest.mark.parametrize("seed", range(4))
def test_krum_chooses_the_published_winner_where_updates_nearly_agree(spread, seed):
    rows = nearly_alike(spread, seed)
    exact = exact_squared_distances(rows)
    decision = Krum(num_malicious=3)(make_cohort(rows))
    assert int(np.argmax(decision.weights)) == int(np.argmin(krum_scores(exact, 3)))
    np.testing.assert_allclose(make_cohort(rows).squared_distances, exact, rtol=1e-3)


def test_some_that_nearly_agree_are_told_apart_beside_others_that_do_not():
    rows = np.concatenate([nearly_alike(1e-3, 0, n=8), nearly_alike(1.0, 1, n=5)])
    distances = make_cohort(rows).squared_distances
    np.testing.assert_allclose(distances, exact_squared_distances(rows), rtol=1e-3)
    farthest = FABA(num_malicious=5)(make_cohort(rows))
    assert list(farthest.reasons) == ["accepted"] * 8 + ["outlier"] * 5


def test_distances_of_ordinary_updates_come_from_their_gram_matrix_itself():
    rows = np.random.default_rng(0).normal(size=(9, 500)).astype(np.float32)
    rows[:4] = rows[0]  # copies, but fewer than half
    cohort = make_cohort(rows)
    assert cohort.distance_gram is cohort.gram


def test_means_of_updates_that_nearly_agree_have_exact_distances_as_well():
    rows = nearly_alike(1e-3, 0)
    mixing = np.kron(np.eye(6), np.full(2, 0.5))
    mixed = MixedCohort(make_cohort(rows), mixing)
    np.testing.assert_allclose(mixed.squared_distances, exact_squared_distances(mixing @ rows), rtol=1e-3)
    scaled = MixedCohort(make_cohort(rows), 2 * mixing)
    assert scaled.distance_gram is scaled.gram


@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_differences_of_extreme_size_are_multiplied_right(scale):
    rows = (nearly_alike(1e-3, 0).astype(np.float64) * scale).astype(np.float32)
    np.testing.assert_allclose(make_cohort(rows).squared_distances, exact_squared_distances(rows), rtol=1e-3)
