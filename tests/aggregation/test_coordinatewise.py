from __future__ import annotations

import numpy as np
import pytest

import reference_rules as slow
from helpers import make_cohort, random_cohorts, rejected_rows, step_of
from mabrfl import vectors
from mabrfl.aggregation import Median, TrimmedMean
from mabrfl.errors import ConfigError, QuorumError

COLUMN = [[7.0], [-100.0], [2.0], [3.0], [50.0]]


def test_median_of_an_odd_number_is_the_middle_value() -> None:
    cohort = make_cohort(COLUMN)
    assert step_of(cohort, Median()(cohort)) == [3.0]


def test_median_of_an_even_number_is_the_mean_of_the_middle_two() -> None:
    cohort = make_cohort(COLUMN[:4])
    assert step_of(cohort, Median()(cohort)) == [2.5]


def test_median_goes_coordinate_by_coordinate() -> None:
    cohort = make_cohort([[1.0, 5.0], [2.0, 9.0], [3.0, 1.0]])
    # No client sent (2, 5).
    np.testing.assert_array_equal(step_of(cohort, Median()(cohort)), [2.0, 5.0])


def test_median_next_to_the_largest_float_stays_finite() -> None:
    cohort = make_cohort(np.full((2, 1), 3.4e38, dtype=np.float32))
    assert step_of(cohort, Median()(cohort))[0] == np.float32(3.4e38)


def test_trimmed_mean_drops_f_values_on_each_side() -> None:
    cohort = make_cohort(COLUMN)
    assert step_of(cohort, TrimmedMean(num_malicious=1)(cohort)) == [4.0]  # 2, 3, 7
    assert step_of(cohort, TrimmedMean(num_malicious=2)(cohort)) == [3.0]
    assert step_of(cohort, TrimmedMean(num_malicious=0)(cohort)) == [-7.6]


def test_trimmed_mean_takes_the_cohorts_share_of_the_malicious() -> None:
    cohort = make_cohort(COLUMN, population=50)
    decision = TrimmedMean(num_malicious=10)(cohort)
    assert decision.facts == {"num_trimmed": 1}
    assert decision.events == ()


def test_trimming_more_than_there_is_leaves_the_middle_and_is_recorded() -> None:
    cohort = make_cohort(COLUMN)
    decision = TrimmedMean(num_malicious=4)(cohort)
    assert step_of(cohort, decision) == [3.0]
    assert decision.events == ("trimmed-mean-precondition: n > 2f; n=5, f=4",)
    with pytest.raises(QuorumError, match=r"trimmed-mean needs n > 2f; got n=5, f=4"):
        TrimmedMean(num_malicious=4, strict=True)(cohort)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_both_equal_their_slow_twins(dtype: type[np.floating]) -> None:
    for cohort, f in random_cohorts(200, dtype=dtype):
        rows = slow.as_vectors(cohort.matrix)
        close = {"rtol": 1e-6, "atol": 1e-6 * cohort.norms.max()}
        np.testing.assert_allclose(step_of(cohort, Median()(cohort)), slow.median(rows), **close)
        trimmed = TrimmedMean(num_malicious=f)(cohort)
        np.testing.assert_allclose(step_of(cohort, trimmed), slow.trimmed_mean(rows, f), **close)
        assert rejected_rows(cohort, trimmed) == set()


def test_slices_are_put_together_in_order() -> None:
    width = 2 * vectors.SLICE + 3
    cohort = make_cohort(np.random.default_rng(0).normal(size=(4, width)))
    np.testing.assert_allclose(step_of(cohort, Median()(cohort)), np.median(cohort.matrix, axis=0))


@pytest.mark.parametrize("value", [-1, 1.5, "3", None, True])
def test_a_bound_that_is_no_count_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match=r"TrimmedMean num_malicious must be a whole number >= 0; got"):
        TrimmedMean(num_malicious=value)  # type: ignore[arg-type]
