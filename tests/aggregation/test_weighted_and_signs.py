"""The weighted median, the weighted trimmed mean, and the robust learning rate."""

from __future__ import annotations

import numpy as np
import pytest

from helpers import make_cohort, random_cohorts, step_of
from mabrfl.aggregation import Median, RobustLearningRate, TrimmedMean, WeightedMedian, WeightedTrimmedMean


def test_with_equal_numbers_of_examples_both_are_the_unweighted_rules() -> None:
    for cohort, f in random_cohorts(30):
        pairs = (
            (WeightedMedian(), Median()),
            (WeightedTrimmedMean(num_malicious=f), TrimmedMean(num_malicious=f)),
        )
        for weighted, plain in pairs:
            ours, theirs = (step_of(cohort, rule(cohort)) for rule in (weighted, plain))
            np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-9 * cohort.norms.max())


@pytest.mark.parametrize("seed", range(5))
def test_a_client_with_k_examples_counts_as_k_clients_with_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, counts = rng.normal(size=(7, 9)), rng.integers(1, 6, size=7)
    weighted = make_cohort(rows, num_examples=counts)
    copies = make_cohort(np.repeat(rows, counts, axis=0))
    median = step_of(weighted, WeightedMedian()(weighted))
    np.testing.assert_allclose(median, step_of(copies, Median()(copies)))
    # 2 of 7 clients are 2/7 of the weight: cut that much of the sorted copies off, the last one in part.
    cut, total = 2 / 7 * counts.sum(), counts.sum()
    ordered = np.sort(copies.matrix, axis=0)
    edges = np.arange(total)
    inside = np.clip(np.minimum(edges + 1, total - cut) - np.maximum(edges, cut), 0, None)
    trimmed = step_of(weighted, WeightedTrimmedMean(num_malicious=2)(weighted))
    np.testing.assert_allclose(trimmed, inside @ ordered / inside.sum())


def test_a_boast_does_not_buy_the_median() -> None:
    rows = np.vstack([np.ones((6, 3)), np.full((1, 3), -100.0)])
    cohort = make_cohort(rows, num_examples=[10, 20, 30, 10, 20, 30, 10**9])
    np.testing.assert_allclose(step_of(cohort, WeightedMedian(max_ratio=3.0)(cohort)), 1)
    np.testing.assert_allclose(step_of(cohort, WeightedMedian(max_ratio=1e9)(cohort)), -100)


def test_the_robust_learning_rate_reverses_what_too_few_agree_on() -> None:
    """Ozdayi et al., Eq. 4: with threshold 4 of 5, a coordinate with signs 4 : 1 adds up to 3 and is reversed."""
    rows = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [1.0, 2.0, 0.0], [1.0, -1.0, 8.0]])
    cohort = make_cohort(rows)
    step = step_of(cohort, RobustLearningRate(num_malicious=1, threshold=4)(cohort))
    np.testing.assert_allclose(step, [1.0, -0.8, -1.6])
    # f + 1 = 2 by default: only the coordinate of the single client is reversed.
    step = step_of(cohort, RobustLearningRate(num_malicious=1)(cohort))
    np.testing.assert_allclose(step, [1.0, 0.8, -1.6])


def test_a_backdoor_of_f_clients_on_coordinates_of_their_own_is_always_reversed() -> None:
    """Section 3 of the paper: for f < threshold <= n - f corrupt agents alone cannot move a coordinate their way."""
    rng = np.random.default_rng(0)
    rows = np.zeros((20, 50))
    rows[:, :40] = 1 + 0.1 * rng.normal(size=(20, 40))
    rows[:6, 40:] = 5.0
    cohort = make_cohort(rows)
    step = step_of(cohort, RobustLearningRate(num_malicious=6)(cohort))
    assert np.all(step[:40] > 0)
    assert np.all(step[40:] < 0)
