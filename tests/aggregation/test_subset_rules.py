"""Bulyan, Meamed, MDA, SMEA, CAF, MoNNA, CGE and the median of means, beside their definitions written out."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from helpers import make_cohort, random_cohorts, rejected_rows, step_of
from mabrfl.aggregation import CAF, CGE, MDA, SMEA, Aksel, Bulyan, Krum, Meamed, MedianOfMeans, MoNNA
from mabrfl.aggregation.minimum_diameter import minimum_diameter
from mabrfl.errors import ConfigError, QuorumError

Rows = np.ndarray[Any, Any]
THREE = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]])


def close(cohort: Any, decision: Any, expected: Any, tolerance: float = 1e-7) -> None:
    np.testing.assert_allclose(step_of(cohort, decision), expected, rtol=tolerance, atol=tolerance * cohort.norms.max())


# Bulyan and Meamed


def slow_krum(rows: Rows, f: int) -> int:
    scores = []
    for i in range(len(rows)):
        far = sorted(float(np.sum((rows[i] - rows[j]) ** 2)) for j in range(len(rows)) if j != i)
        scores.append((sum(far[: max(len(rows) - f - 2, 1)]), sum(far)))
    return scores.index(min(scores))


def slow_meamed(rows: Rows, count: int) -> Rows:
    step = []
    for column in rows.T:
        middle = np.median(column)
        step.append(np.mean(sorted(column, key=lambda value: (abs(value - middle), value))[:count]))
    return np.array(step)


def slow_bulyan(rows: Rows, f: int) -> Rows:
    """Algorithm 2 of El Mhamdi et al., line by line."""
    left, chosen = list(rows), []
    while len(chosen) < len(rows) - 2 * f:
        chosen.append(left.pop(slow_krum(np.array(left), f)))
    return slow_meamed(np.array(chosen), max(len(chosen) - 2 * f, 1))


def test_bulyan_is_its_algorithm() -> None:
    for cohort, f in random_cohorts(40, least=3):
        close(cohort, Bulyan(num_malicious=f)(cohort), slow_bulyan(cohort.matrix, f), 1e-6)


def test_removal_matters_in_bulyan() -> None:
    differ = 0
    for cohort, f in random_cohorts(40, least=9, seed=3):
        once = Bulyan(num_malicious=f, selection="single-pass")(cohort)
        differ += not np.allclose(step_of(cohort, once), step_of(cohort, Bulyan(num_malicious=f)(cohort)))
    assert differ > 5


def test_bulyan_bounds_the_one_coordinate_that_krum_lets_through() -> None:
    """The attack of El Mhamdi et al., section 3: Krum leaves one coordinate a leeway of order sqrt(d)."""
    f, d = 2, 2000
    rng = np.random.default_rng(0)
    honest = rng.normal(size=(4 * f + 3 - f, d))
    attack = honest.mean(axis=0)
    attack[7] += 30.0
    cohort = make_cohort(np.vstack([honest, np.tile(attack, (f, 1)) + 1e-3 * rng.normal(size=(f, d))]))
    fooled = step_of(cohort, Krum(num_malicious=f)(cohort))
    assert fooled[7] > 20
    step = step_of(cohort, Bulyan(num_malicious=f)(cohort))
    assert honest[:, 7].min() <= step[7] <= honest[:, 7].max()
    assert Bulyan(num_malicious=f)(cohort).events == ()


def test_bulyan_needs_4f_plus_3() -> None:
    cohort = make_cohort(np.random.default_rng(0).normal(size=(10, 3)))
    assert Bulyan(num_malicious=2)(cohort).events == ("bulyan-precondition: n >= 4f+3; n=10, f=2",)
    with pytest.raises(QuorumError, match=r"bulyan needs n >= 4f\+3; got n=10, f=2"):
        Bulyan(num_malicious=2, strict=True)(cohort)


def test_meamed_is_the_mean_of_the_n_f_nearest_to_the_median() -> None:
    for cohort, f in random_cohorts(40):
        close(cohort, Meamed(num_malicious=f)(cohort), slow_meamed(cohort.matrix, len(cohort) - f))
    # The example in ByzFL's documentation of Meamed.
    close(make_cohort(THREE), Meamed(num_malicious=1)(make_cohort(THREE)), [2.5, 3.5, 4.5])


# MDA


def diameter(rows: Rows) -> float:
    return max((float(np.sum((a - b) ** 2)) for a, b in itertools.combinations(rows, 2)), default=0.0)


def test_mda_is_the_subset_of_least_diameter_of_all_there_are() -> None:
    for cohort, f in random_cohorts(40, seed=1):
        if len(cohort) > 12:
            continue
        subsets = [list(each) for each in itertools.combinations(range(len(cohort)), len(cohort) - f)]
        least = min(diameter(cohort.matrix[each]) for each in subsets)
        kept = sorted(set(range(len(cohort))) - rejected_rows(cohort, MDA(num_malicious=f)(cohort)))
        assert len(kept) == len(cohort) - f
        assert diameter(cohort.matrix[kept]) == pytest.approx(least)
        alike = [each for each in subsets if diameter(cohort.matrix[each]) <= least * (1 + 1e-9)]
        if len(alike) == 1:
            close(cohort, MDA(num_malicious=f)(cohort), cohort.matrix[alike[0]].mean(axis=0))


@pytest.mark.parametrize("f", [5, 15, 24])
def test_mda_is_exact_where_there_are_a_million_million_subsets(f: int) -> None:
    rng = np.random.default_rng(f)
    rows = rng.normal(size=(50, 100))
    rows[:f] += 0.8
    distances = make_cohort(rows).squared_distances
    kept = minimum_diameter(distances, f)
    assert kept.sum() == 50 - f
    # No exchange of one row, and no exchange of two, makes the diameter smaller.
    width = distances[np.ix_(kept, kept)].max()
    ends = [row for row in np.flatnonzero(kept) if distances[row][kept].max() == width]
    for row, other in itertools.product(ends, np.flatnonzero(~kept)):
        changed = kept.copy()
        changed[row], changed[other] = False, True
        assert distances[np.ix_(changed, changed)].max() >= width


def test_mda_says_how_many_subsets_there_are_if_it_gives_up() -> None:
    cohort = make_cohort(np.random.default_rng(0).normal(size=(50, 10)))
    with pytest.raises(
        QuorumError, match=r"the best of 2,250,829,575,120 subsets \(n=50, f=15\) was not found in 3 steps"
    ):
        MDA(num_malicious=15, max_steps=3)(cohort)


def test_of_equal_diameters_mda_takes_the_tighter_set_whatever_the_order() -> None:
    rows = np.array([[0.0], [10.0], [5.0], [5.1], [0.1]])  # {0, 10, ...}: without one of the ends, 10 or 0
    for order in itertools.permutations(range(5)):
        cohort = make_cohort(rows[list(order)])
        close(cohort, MDA(num_malicious=1)(cohort), [2.55])


# SMEA and CAF


def largest_eigenvalue(rows: Rows, weights: Rows | None = None) -> tuple[float, Rows]:
    weights = np.ones(len(rows)) if weights is None else weights
    mean = weights @ rows / weights.sum()
    spread = (rows - mean).T @ (weights[:, None] * (rows - mean)) / weights.sum()
    values, columns = np.linalg.eigh(spread)
    return float(values[-1]), ((rows - mean) @ columns[:, -1]) ** 2


def test_smea_is_the_subset_with_the_least_largest_eigenvalue() -> None:
    checked = 0
    for cohort, f in random_cohorts(40, seed=2):
        if len(cohort) > 11:
            continue
        subsets = [list(each) for each in itertools.combinations(range(len(cohort)), len(cohort) - f)]
        values = [largest_eigenvalue(cohort.matrix[each])[0] for each in subsets]
        decision = SMEA(num_malicious=f)(cohort)
        kept = sorted(set(range(len(cohort))) - rejected_rows(cohort, decision))
        assert values[subsets.index(kept)] == pytest.approx(min(values), rel=1e-6, abs=1e-9 * cohort.norms.max() ** 2)
        assert decision.facts["largest_eigenvalue"] == pytest.approx(
            min(values), rel=1e-6, abs=1e-9 * cohort.norms.max() ** 2
        )
        checked += 1
    assert checked > 10


def test_smea_refuses_more_subsets_than_it_can_try_and_names_their_number() -> None:
    cohort = make_cohort(np.random.default_rng(0).normal(size=(50, 10)))
    with pytest.raises(QuorumError, match=r"n=50, f=15 has 2,250,829,575,120; search='greedy'"):
        SMEA(num_malicious=15)(cohort)
    assert len(rejected_rows(cohort, SMEA(num_malicious=15, search="greedy")(cohort))) == 15


def slow_caf(rows: Rows, f: int) -> Rows:
    """Algorithm 1 of Allouah et al. 2025 with the covariance matrix itself."""
    weights, least, best = np.ones(len(rows)), np.inf, rows.mean(axis=0)
    while weights.sum() > len(rows) - 2 * f:
        value, squares = largest_eigenvalue(rows, weights)
        if value < least:
            least, best = value, weights @ rows / weights.sum()
        weights = weights * (1 - squares / squares[weights > 0].max()).clip(0, 1)
    return best


def test_caf_is_its_algorithm_with_the_exact_eigenvector() -> None:
    rng = np.random.default_rng(0)
    for n, f in ((8, 2), (12, 3), (15, 7), (9, 0)):
        rows = rng.normal(size=(n, 20))
        rows[:f] += 4
        cohort = make_cohort(rows)
        close(cohort, CAF(num_malicious=f)(cohort), slow_caf(rows, f), 1e-6)


def test_caf_filters_colluders_that_move_the_mean_and_is_the_same_every_time() -> None:
    rng = np.random.default_rng(1)
    honest = rng.normal(size=(35, 300))
    cohort = make_cohort(np.vstack([honest, 3 + 0.1 * rng.normal(size=(15, 300))]))
    steps = [step_of(cohort, CAF(num_malicious=15)(cohort)) for _ in range(2)]
    assert np.array_equal(*steps)
    far = [np.linalg.norm(step - honest.mean(axis=0)) for step in (steps[0], cohort.matrix.mean(axis=0))]
    assert far[0] < 0.15 * far[1]


# MoNNA, CGE, median of means


def test_monna_is_the_mean_of_the_n_f_nearest_to_the_pivot() -> None:
    close(make_cohort(THREE), MoNNA(num_malicious=1, pivot=0)(make_cohort(THREE)), [2.5, 3.5, 4.5])  # ByzFL's example
    for cohort, f in random_cohorts(30):
        far = [np.linalg.norm(cohort.matrix - row, axis=1) for row in cohort.matrix]
        for pivot, used in ((None, int(np.argmin([one.sum() for one in far]))), (3, 3 % len(cohort))):
            nearest = np.argsort(far[used], kind="stable")[: len(cohort) - f]
            close(cohort, MoNNA(num_malicious=f, pivot=pivot)(cohort), cohort.matrix[nearest].mean(axis=0))


def test_a_malicious_pivot_decides_and_the_medoid_is_none() -> None:
    cohort = make_cohort(np.vstack([np.full((2, 3), 50.0), np.random.default_rng(0).normal(size=(5, 3))]))
    assert step_of(cohort, MoNNA(num_malicious=2, pivot=0)(cohort)).max() > 10
    assert rejected_rows(cohort, MoNNA(num_malicious=2)(cohort)) == {0, 1}


def test_cge_is_the_mean_of_the_n_f_shortest() -> None:
    cohort = make_cohort([[3.0, 4.0], [0.0, 1.0], [2.0, 0.0], [-30.0, 40.0], [0.0, -3.0]])
    decision = CGE(num_malicious=2)(cohort)
    close(cohort, decision, [2 / 3, -2 / 3])
    assert rejected_rows(cohort, decision) == {0, 3}


def test_aksel_is_the_mean_of_the_n_f_nearest_to_the_median() -> None:
    """Boussetta et al.: the pivot is the coordinate-wise median, whose breakdown point the rule inherits."""
    for cohort, f in random_cohorts(30):
        far = np.linalg.norm(cohort.matrix - np.median(cohort.matrix, axis=0), axis=1)
        nearest = np.argsort(far, kind="stable")[: len(cohort) - f]
        close(cohort, Aksel(num_malicious=f)(cohort), cohort.matrix[nearest].mean(axis=0))


def test_median_of_means_stays_within_the_bound_of_the_paper() -> None:
    """Chen, Su and Xu, Lemma 1: if a share 1 - a of the means lies within r of 0, so does the median within C r.

    C = 2 (1 - a) / (1 - 2a). With f = 2 of n = 20 in k = 7 groups, at most two of the means are spoiled: a = 2 / 7.
    """
    share = 2 / 7
    for seed in range(1, 30):
        rows = np.random.default_rng(seed).normal(size=(20, 5))
        rows[:2] = 1e4
        cohort = make_cohort(rows, round=seed)
        rule = MedianOfMeans(num_malicious=2, num_groups=7)
        radius = max(np.linalg.norm(rows[2:], axis=1))  # an honest mean lies within the largest norm
        assert np.linalg.norm(step_of(cohort, rule(cohort))) <= 2 * (1 - share) / (1 - 2 * share) * radius


def test_groups_of_the_median_of_means() -> None:
    cohort = make_cohort(np.arange(10.0)[:, None])
    assert MedianOfMeans(num_malicious=2)(cohort).facts["num_groups"] == 5
    assert MedianOfMeans(num_malicious=0)(cohort).facts["num_groups"] == 1
    close(cohort, MedianOfMeans(num_malicious=2, num_groups=10, centre="coordinate")(cohort), [4.5])
    few = MedianOfMeans(num_malicious=3, num_groups=6)(cohort)
    assert few.events == ("median-of-means-precondition: k > 2f; k=6, f=3",)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Bulyan(num_malicious=1, selection="twice"), "Bulyan selection has no variant 'twice'"),  # type: ignore[arg-type]
        (lambda: SMEA(num_malicious=1, search="gready"), "did you mean 'greedy'"),  # type: ignore[arg-type]
        (lambda: MoNNA(num_malicious=1, pivot=-1), "MoNNA pivot must be a whole number >= 0; got -1"),
        (lambda: MedianOfMeans(num_malicious=1, num_groups=0), "num_groups must be a whole number >= 1; got 0"),
        (lambda: CGE(num_malicious=-1), "CGE num_malicious must be a whole number >= 0; got -1"),
    ],
)
def test_a_wrong_option_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()
