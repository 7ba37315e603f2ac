from __future__ import annotations

import numpy as np
import pytest

from helpers import make_cohort, random_rows, step_of
from mabrfl.aggregation import FedAvg, Krum, Median, TrimmedMean
from mabrfl.attacks import IPM, LIE, AttackerView, Knowledge, OptimalIPM, OptimalLIE, Secrets
from mabrfl.attacks.optimal import line_maximum
from mabrfl.errors import ConfigError
from mabrfl.testing import make_view
from mabrfl.updates import Outcome

BENIGN = random_rows(12, 30, seed=2) + 0.2


def view_of(rule, trials=None):
    """Return a view of a round in which this rule is rehearsed."""

    def rehearse(rows):
        if trials is not None:
            trials.append(rows)
        return Outcome(step_under(rule, rows), {}, 1)

    return AttackerView(
        round=1,
        attackers=(12, 13, 14, 15),
        num_clients=16,
        num_malicious=4,
        knowledge=Knowledge.FULL,
        global_weights=np.zeros(30),
        secrets=Secrets(BENIGN, tuple(range(12)), "test", rehearse),
    )


def step_under(rule, rows):
    cohort = make_cohort(np.concatenate([BENIGN, rows]))
    return step_of(cohort, rule(cohort))


def harm(rule, rows):
    return np.linalg.norm(step_under(rule, rows) - BENIGN.mean(axis=0))


class TestLineMaximum:
    @pytest.mark.parametrize("peak", [0.3, 1.0, 7.3, 60.0])
    def test_it_finds_the_peak_of_a_hill(self, peak):
        found = line_maximum(lambda factor: -((factor - peak) ** 2), evaluations=40)
        assert found == pytest.approx(peak, rel=1e-3)

    @pytest.mark.parametrize("evaluations", [1, 2, 3, 20])
    def test_it_asks_no_more_often_than_allowed(self, evaluations):
        asked = []
        line_maximum(lambda factor: asked.append(factor) or -factor, evaluations=evaluations)
        assert 1 <= len(asked) <= evaluations

    def test_values_that_are_not_finite_do_not_count(self):
        found = line_maximum(lambda factor: factor if factor < 3 else np.nan)
        assert 2 <= found < 3


@pytest.mark.parametrize(
    "rule", [Krum(num_malicious=4), Median(), TrimmedMean(num_malicious=4)], ids=lambda one: type(one).__name__
)
@pytest.mark.parametrize(
    ("optimal", "fixed"),
    [
        (OptimalLIE(), [LIE(z=z) for z in (0.5, 1.0, 1.5, 3.0)]),
        (OptimalIPM(), [IPM(epsilon=epsilon) for epsilon in (0.1, 0.5, 1.0, 3.0)]),
    ],
    ids=["lie", "ipm"],
)
def test_the_searched_factor_is_at_least_about_as_harmful_as_the_usual_ones(rule, optimal, fixed):
    # The reason for the search in its paper: the best factor depends on the rule.
    view = view_of(rule)
    best = max(harm(rule, attack(view)) for attack in fixed)
    assert harm(rule, optimal(view)) >= 0.9 * best


def test_against_averaging_it_goes_to_the_largest_factor():
    rows = OptimalIPM(largest=7.0)(view_of(FedAvg()))
    np.testing.assert_allclose(rows, np.tile(-7 * BENIGN.mean(axis=0), (4, 1)))
    centre, deviation = BENIGN.mean(axis=0), BENIGN.std(axis=0)
    np.testing.assert_allclose(OptimalLIE(largest=3.0)(view_of(FedAvg()))[0], centre - 3 * deviation)


def test_the_number_of_rehearsals_is_bounded():
    trials = []
    OptimalLIE(evaluations=9)(view_of(Median(), trials))
    assert len(trials) <= 9


def test_without_a_benign_update_it_is_inactive_and_bad_options_are_refused():
    assert OptimalLIE()(make_view(np.zeros((0, 3)))) is None
    with pytest.raises(ConfigError, match="evaluations must be a whole number >= 1; got 0"):
        OptimalLIE(evaluations=0)
    with pytest.raises(ConfigError, match="largest must be a finite number > 0; got 0"):
        OptimalIPM(largest=0)
