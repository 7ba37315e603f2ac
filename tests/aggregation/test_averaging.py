from __future__ import annotations

import numpy as np
import pytest

import reference_rules as slow
from helpers import make_cohort, random_cohorts, rejected_rows, step_of
from mabrfl.aggregation import FedAvg
from mabrfl.errors import ConfigError

ROWS = [[1.0, 0.0], [0.0, 1.0], [-2.0, 4.0]]


def test_examples_decide_the_weights() -> None:
    cohort = make_cohort(ROWS, num_examples=[10, 30, 60])
    decision = FedAvg()(cohort)
    # 0.1 * (1, 0) + 0.3 * (0, 1) + 0.6 * (-2, 4)
    np.testing.assert_allclose(step_of(cohort, decision), [-1.1, 2.7])
    assert [round(each["weight"], 12) for each in decision.evidence or []] == [0.1, 0.3, 0.6]
    assert rejected_rows(cohort, decision) == set()


def test_uniform_weighting_ignores_the_examples() -> None:
    cohort = make_cohort(ROWS, num_examples=[10, 30, 60])
    np.testing.assert_allclose(step_of(cohort, FedAvg(weighting="uniform")(cohort)), [-1 / 3, 5 / 3])


@pytest.mark.parametrize("counts", [[0, 0, 0], [-1, np.nan, np.inf]])
def test_without_one_example_everybody_weighs_the_same_and_it_is_recorded(counts: list[float]) -> None:
    cohort = make_cohort(ROWS, num_examples=counts)
    decision = FedAvg()(cohort)
    np.testing.assert_allclose(decision.weights, [1 / 3] * 3)
    if counts == [0, 0, 0]:
        assert decision.events == ("no-examples: every client weighs the same",)


def test_absurd_counts_do_not_overflow() -> None:
    decision = FedAvg()(make_cohort(ROWS, num_examples=[1e308, 1e308, 1e308]))
    np.testing.assert_allclose(decision.weights, [1 / 3] * 3)


def test_equals_the_slow_twin() -> None:
    for drawn, _ in random_cohorts(200):
        counts = np.random.default_rng(len(drawn)).integers(1, 500, len(drawn))
        cohort = make_cohort(drawn.matrix, num_examples=counts)
        expected = slow.fedavg(slow.as_vectors(cohort.matrix), [float(count) for count in counts])
        close = {"rtol": 1e-9, "atol": 1e-12 * cohort.norms.max()}
        np.testing.assert_allclose(step_of(cohort, FedAvg()(cohort)), expected, **close)


def test_an_unknown_weighting_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"FedAvg weighting has no variant 'example'; did you mean 'examples'\?"):
        FedAvg(weighting="example")  # type: ignore[arg-type]
