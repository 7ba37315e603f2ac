from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import reference_rules as slow
from helpers import make_cohort, random_cohorts, rejected_rows, step_of
from mabrfl.aggregation import DnC
from mabrfl.aggregation.spectral import spectral_scores
from mabrfl.errors import ConfigError, QuorumError
from mabrfl.rng import generator


def test_score_is_the_squared_projection_on_the_direction_of_most_spread() -> None:
    # Centred on (0, 0) already; spread 18 along x, 8 along y: the scores are the x parts, 9 : 9 : 0 : 0.
    rows = np.array([[3.0, 0.0], [-3.0, 0.0], [0.0, 2.0], [0.0, -2.0]])
    np.testing.assert_allclose(spectral_scores(rows), [0.5, 0.5, 0, 0], atol=1e-12)
    # Moving everything changes nothing: scores are taken about the mean.
    np.testing.assert_allclose(spectral_scores(rows + np.array([100.0, -7.0])), [0.5, 0.5, 0, 0], atol=1e-12)


def test_dnc_removes_what_sticks_out_along_that_direction_not_what_is_long() -> None:
    rng = np.random.default_rng(0)
    honest = rng.normal(size=(8, 40)) + 10.0
    attackers = np.tile(honest.mean(axis=0), (2, 1)) - 3.0
    cohort = make_cohort(np.vstack([honest, attackers]))
    decision = DnC(num_malicious=2)(cohort)
    assert np.all(cohort.norms[8:] < cohort.norms[:8].min())
    assert rejected_rows(cohort, decision) == {8, 9}
    np.testing.assert_allclose(step_of(cohort, decision), honest.mean(axis=0))


def test_dnc_averages_the_full_vectors() -> None:
    cohort = make_cohort(np.random.default_rng(1).normal(size=(6, 30)))
    decision = DnC(num_malicious=1, num_coordinates=5)(cohort)
    kept = sorted(set(range(6)) - rejected_rows(cohort, decision))
    assert len(kept) == 5
    np.testing.assert_allclose(step_of(cohort, decision), cohort.matrix[kept].mean(axis=0))


def test_coordinates_depend_on_seed_and_round_and_not_on_the_clients() -> None:
    def columns(n: int, **names: int) -> Any:
        # Each column holds its own number, so that a sample shows what was drawn.
        cohort = make_cohort(np.tile(np.arange(100.0), (n, 1)), **names)
        return next(DnC(num_malicious=1, num_coordinates=7)._samples(cohort))[0].tolist()

    assert columns(3) == columns(8) == columns(3)
    assert columns(3) != columns(3, seed=1)
    assert columns(3) != columns(3, round=2)
    assert len(set(columns(3))) == 7


def test_more_iterations_start_with_the_same_draws() -> None:
    cohort = make_cohort(np.random.default_rng(0).normal(size=(4, 50)))
    one, three = (list(DnC(num_malicious=1, num_coordinates=9, num_iterations=k)._samples(cohort)) for k in (1, 3))
    np.testing.assert_array_equal(one[0], three[0])
    assert not np.array_equal(three[0], three[1])


@pytest.mark.parametrize("combine", ["intersection", "union"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dnc_equals_its_slow_twin(combine: Any, dtype: type[np.floating]) -> None:
    compared = 0
    for number, (cohort, f) in enumerate(random_cohorts(240, dtype=dtype)):
        rows, (n, d) = slow.as_vectors(cohort.matrix), cohort.matrix.shape
        passes, b, c = 1 + number % 3, 1 + number % 40, (1.0, 0.5, 1.5)[number % 3]
        removed = min(int(np.ceil(c * f)), n - 1)
        rng = generator(cohort.seed, "dnc", cohort.round)
        drawn = [
            np.sort(rng.choice(d, b, replace=False, shuffle=False)) if b < d else np.arange(d) for _ in range(passes)
        ]
        good = [slow.dnc_good(rows, list(columns), removed) for columns in drawn]
        kept = set.intersection(*good) if combine == "intersection" else set.union(*good)
        rule = DnC(num_malicious=f, num_iterations=passes, num_coordinates=b, filter_fraction=c, combine=combine)
        decision = rule(cohort)
        if n == 2 or not kept:
            continue  # two rows are always equally far from their mean; the fallback has its own test
        compared += 1
        assert set(range(n)) - rejected_rows(cohort, decision) == kept
        expected = slow.mean([rows[i] for i in sorted(kept)])
        np.testing.assert_allclose(step_of(cohort, decision), expected, rtol=1e-5, atol=1e-5 * cohort.norms.max())
    assert compared > 200


def test_an_empty_intersection_falls_back_on_the_summed_scores_and_is_recorded() -> None:
    # One coordinate at a time: who is far in one is near in the others, and nobody is good every time.
    rows = np.diag([8.0, 7.0, 6.0, 5.0, 4.0])
    cohort = make_cohort(rows)
    rule = DnC(num_malicious=2, num_coordinates=1, num_iterations=40, filter_fraction=2.0)
    decision = rule(cohort)
    assert decision.events == ("dnc-empty-intersection: kept the 1 lowest summed scores of 5",)
    scores = [each["score"] for each in decision.evidence or []]
    assert rejected_rows(cohort, decision) == set(range(5)) - {int(np.argmin(scores))}
    assert np.all(np.isfinite(step_of(cohort, decision)))


def test_the_default_removes_exactly_f_at_every_share_of_attackers() -> None:
    cohort = make_cohort(np.random.default_rng(0).normal(size=(50, 200)))
    for f in range(25):
        decision = DnC(num_malicious=f)(cohort)
        assert len(rejected_rows(cohort, decision)) == f
        assert decision.events == ()


def test_normalising_scores_directions_but_averages_the_updates_as_they_are() -> None:
    rows = np.array([[1.0, 0.1], [1.0, -0.1], [1.0, 0.0], [40.0, 0.0], [-0.5, 0.0]])
    cohort = make_cohort(rows)
    assert rejected_rows(cohort, DnC(num_malicious=1)(cohort)) == {3}
    decision = DnC(num_malicious=1, normalise=True)(cohort)
    assert rejected_rows(cohort, decision) == {4}
    np.testing.assert_allclose(step_of(cohort, decision), rows[:4].mean(axis=0))


def test_filter_fraction_is_rounded_up_but_not_by_floating_point() -> None:
    cohort = make_cohort(np.random.default_rng(0).normal(size=(51, 5)))
    for c, removed in ((0.28, 7), (0.5, 13), (0.52, 13), (100.0, 50)):
        decision = DnC(num_malicious=25, filter_fraction=c)(cohort)
        assert len(rejected_rows(cohort, decision)) == removed


def test_identical_updates_have_no_scores() -> None:
    row = np.random.default_rng(0).normal(size=30)
    assert not spectral_scores(np.tile(row, (7, 1))).any()
    assert not spectral_scores(np.tile(row * 1e-30, (50, 1)).astype(np.float32)).any()


def test_half_malicious_is_recorded_or_refused() -> None:
    cohort = make_cohort(np.eye(4))
    assert DnC(num_malicious=2)(cohort).events == ("dnc-precondition: n > 2f; n=4, f=2",)
    with pytest.raises(QuorumError, match=r"dnc needs n > 2f; got n=4, f=2"):
        DnC(num_malicious=2, strict=True)(cohort)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_iterations": 0}, r"DnC num_iterations must be a whole number >= 1; got 0"),
        ({"num_coordinates": 0.5}, r"DnC num_coordinates must be a whole number >= 1; got 0.5"),
        ({"filter_fraction": float("nan")}, r"DnC filter_fraction must be a finite number > 0; got nan"),
        ({"combine": "unions"}, r"DnC combine has no variant 'unions'; did you mean 'union'\?"),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        DnC(num_malicious=1, **settings)
