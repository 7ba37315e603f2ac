from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import reference_rules as slow
from helpers import make_cohort, random_cohorts, rejected_rows, step_of
from mabrfl.aggregation import CenteredClip, GeometricMedian
from mabrfl.aggregation.clipping import central_half
from mabrfl.errors import ConfigError, StateError
from mabrfl.protocols import Stateful
from mabrfl.updates import Cohort

# Centered clipping


def test_far_updates_are_shortened_to_the_radius_and_near_ones_are_not() -> None:
    cohort = make_cohort([[3.0, 4.0], [30.0, 40.0], [0.0, -1.0]])
    decision = CenteredClip(radius=10.0, radius_unit="absolute")(cohort)
    # From zero: (3, 4) and (0, -1) whole, (30, 40) of length 50 cut to (6, 8).
    np.testing.assert_allclose(step_of(cohort, decision), [3.0, 11 / 3])
    np.testing.assert_allclose([each["clip"] for each in decision.evidence or []], [1, 0.2, 1])
    assert decision.facts == {"radius": 10.0, "num_clipped": 1}
    assert rejected_rows(cohort, decision) == set()


def test_the_default_radius_is_the_median_norm() -> None:
    cohort = make_cohort([[3.0, 4.0], [30.0, 40.0], [0.0, -1.0]])
    decision = CenteredClip()(cohort)
    assert decision.facts["radius"] == pytest.approx(5.0)
    np.testing.assert_allclose(step_of(cohort, decision), [6 / 3, 7 / 3])
    assert CenteredClip(radius=0.5)(cohort).facts["radius"] == pytest.approx(2.5)


def test_the_next_round_starts_from_the_last_result() -> None:
    rule = CenteredClip(radius=1.0, radius_unit="absolute")
    cohort = make_cohort([[10.0], [10.0]])
    steps = [float(step_of(cohort, rule(cohort))[0]) for _ in range(12)]
    # Towards 10, one unit a round, and there it stays.
    np.testing.assert_allclose(steps, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10, 10], atol=1e-6)


# From zero all three pull with 1; from the mean, 3, two pull with -1 and one with 1.
@pytest.mark.parametrize(("start", "expected"), [("zero", 1.0), ("mean", 3 - 1 / 3)])
def test_the_other_starts_remember_nothing(start: Any, expected: float) -> None:
    rule = CenteredClip(radius=1.0, radius_unit="absolute", start=start)
    cohort = make_cohort([[2.0], [2.0], [5.0]])
    for _ in range(2):
        np.testing.assert_allclose(step_of(cohort, rule(cohort)), [expected])
    assert rule.state_dict() == {}


def test_iterations_go_on_within_a_round() -> None:
    cohort = make_cohort([[10.0], [10.0]])
    rule = CenteredClip(radius=1.0, radius_unit="absolute", num_iterations=4)
    np.testing.assert_allclose(step_of(cohort, rule(cohort)), [4.0])
    np.testing.assert_allclose(step_of(cohort, rule(cohort)), [8.0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_centered_clip_equals_its_slow_twin_over_rounds(dtype: type[np.floating]) -> None:
    for number, (drawn, _) in enumerate(random_cohorts(200, dtype=dtype)):
        cohort, rng = drawn, np.random.default_rng(number)
        radius, iterations = float(rng.choice([0.1, 1.0, 3.0])), 1 + number % 4
        rule = CenteredClip(radius=radius, num_iterations=iterations)
        centre = np.zeros(cohort.matrix.shape[1])
        for _ in range(3):
            rows = slow.as_vectors(cohort.matrix)
            tau = radius * float(np.median([np.linalg.norm(row) for row in rows]))
            centre = slow.centered_clip(rows, centre, tau, iterations)
            step = step_of(cohort, rule(cohort))
            np.testing.assert_allclose(step, centre, rtol=1e-4, atol=2e-5 * np.median(cohort.norms))
            cohort = make_cohort((cohort.matrix * rng.uniform(0.5, 2, size=cohort.matrix.shape)).astype(dtype))


def test_the_centre_survives_a_round_trip_bit_for_bit() -> None:
    cohorts = [make_cohort(np.random.default_rng(t).normal(size=(6, 50)).astype(np.float32)) for t in range(4)]
    straight = CenteredClip()
    for cohort in cohorts[:2]:
        straight(cohort)
    state = straight.state_dict()
    resumed = CenteredClip()
    resumed.load_state_dict(state)
    for cohort in cohorts[2:]:
        assert step_of(cohort, resumed(cohort)).tobytes() == step_of(cohort, straight(cohort)).tobytes()
    fresh = CenteredClip()
    assert step_of(cohorts[2], fresh(cohorts[2])).tobytes() != state["centre"].tobytes()
    resumed.load_state_dict({})
    assert (
        step_of(cohorts[0], resumed(cohorts[0])).tobytes() == step_of(cohorts[0], CenteredClip()(cohorts[0])).tobytes()
    )


def test_nobody_outside_can_reach_the_centre() -> None:
    cohort = make_cohort([[1.0], [2.0]])
    rule = CenteredClip()
    assert isinstance(rule, Stateful)
    step_of(cohort, rule(cohort))[:] = 99.0
    rule.state_dict()["centre"][:] = 99.0
    np.testing.assert_allclose(rule.state_dict()["centre"], [1.25])  # 1 whole, 2 cut to the median norm, 1.5
    given = {"centre": np.array([1.25])}
    rule.load_state_dict(given)
    given["centre"][:] = 99.0
    np.testing.assert_array_equal(rule.state_dict()["centre"], [1.25])


def test_a_copy_does_not_move_the_original() -> None:
    cohort = make_cohort([[1.0], [2.0]])
    rule = CenteredClip()
    rule(cohort)
    before = rule.state_dict()["centre"].copy()
    copy.deepcopy(rule)(make_cohort([[-50.0], [-70.0]]))
    np.testing.assert_array_equal(rule.state_dict()["centre"], before)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"center": np.zeros(3)}, r"may hold 'centre' only; got \['center'\]"),
        ({"centre": np.zeros((2, 3))}, r"one row of finite floats; got float64 of shape \(2, 3\)"),
        ({"centre": np.array([1, 2])}, r"one row of finite floats; got int64 of shape \(2,\)"),
        ({"centre": np.array([np.nan])}, r"one row of finite floats"),
        ({"centre": "zeros"}, r"one row of finite floats"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(state: dict[str, Any], message: str) -> None:
    rule = CenteredClip()
    rule.load_state_dict({"centre": np.array([4.0])})
    with pytest.raises(StateError, match=message):
        rule.load_state_dict(state)
    np.testing.assert_array_equal(rule.state_dict()["centre"], [4.0])


def test_a_centre_of_another_length_is_refused() -> None:
    rule = CenteredClip()
    rule.load_state_dict({"centre": np.zeros(3)})
    with pytest.raises(StateError, match=r"the last round has 3 coordinates, the updates have 2"):
        rule(make_cohort(np.eye(2)))


def test_a_rule_without_memory_refuses_a_centre() -> None:
    with pytest.raises(StateError, match=r"start='zero' keeps no centre, but the state has one"):
        CenteredClip(start="zero").load_state_dict({"centre": np.zeros(3)})


@pytest.mark.parametrize("scale", [1e-25, 1e-15, 1.0, 1e15, 1e30])
def test_the_centre_follows_updates_of_any_size(scale: float) -> None:
    rows = np.random.default_rng(0).normal(size=(5, 30))
    rule, twin = CenteredClip(), slow.as_vectors(rows)
    cohort = make_cohort((rows * scale).astype(np.float32))
    centre = np.zeros(30)
    for _ in range(3):
        step = step_of(cohort, rule(cohort))
        centre = slow.centered_clip(twin, centre, float(np.median(np.linalg.norm(rows, axis=1))), 1)
        np.testing.assert_allclose(step / scale, centre, atol=1e-5)


@pytest.mark.parametrize("rule", [CenteredClip(), GeometricMedian()])
@pytest.mark.parametrize("size", [1e3, 1e10, 1e30, 1e37])
def test_a_minority_of_giants_moves_the_result_by_no_more_than_a_typical_update(rule: Any, size: float) -> None:
    rng = np.random.default_rng(0)
    honest = 1 + 0.1 * rng.normal(size=(11, 20))
    giants = np.full((9, 20), -size)
    cohort = make_cohort(np.vstack([honest, giants]).astype(np.float32))
    for _ in range(5):
        step = step_of(cohort, rule(cohort))
        assert np.linalg.norm(step - honest.mean(axis=0)) <= 1.2 * np.median(cohort.norms)


# Geometric median


def total(cohort: Cohort, point: Any) -> float:
    return slow.sum_of_distances(slow.as_vectors(cohort.matrix), np.asarray(point, dtype=np.float64))


def test_the_geometric_median_of_a_line_is_the_middle_row() -> None:
    cohort = make_cohort([[0.0], [1.0], [2.0], [50.0], [1000.0]])
    np.testing.assert_allclose(step_of(cohort, GeometricMedian()(cohort)), [2.0], atol=1e-3)


def test_the_geometric_median_of_a_triangle_is_fermats_point() -> None:
    # Isosceles with corners (-1, 0), (1, 0), (0, 3): all angles at (0, 1 / sqrt(3)) are 120 degrees.
    cohort = make_cohort([[-1.0, 0.0], [1.0, 0.0], [0.0, 3.0]])
    np.testing.assert_allclose(step_of(cohort, GeometricMedian()(cohort)), [0, 3**-0.5], atol=1e-5)


def test_iterations_equal_the_slow_twins() -> None:
    for number, (cohort, _) in enumerate(random_cohorts(200)):
        rows, n = slow.as_vectors(cohort.matrix), len(cohort)
        smoothing = 1e-3
        unit = float(np.median([np.linalg.norm(row) for row in rows]))
        rule = GeometricMedian(num_iterations=1 + number % 8, tolerance=0, smoothing=smoothing, start="mean")
        expected = slow.geometric_median(rows, slow.mean(rows), smoothing * unit, 1 + number % 8)
        decision = rule(cohort)
        np.testing.assert_allclose(step_of(cohort, decision), expected, rtol=1e-6, atol=1e-6 * unit)
        assert decision.weights is not None
        assert decision.weights.sum() == pytest.approx(1)
        assert decision.weights.shape == (n,)


def test_no_nearby_point_has_a_smaller_sum_of_distances() -> None:
    for cohort, _ in random_cohorts(60):
        point = step_of(cohort, GeometricMedian()(cohort))
        least = total(cohort, point)
        rng = np.random.default_rng(0)
        size = np.median(cohort.norms)
        for _ in range(10):
            step = rng.normal(size=point.shape) * size * 10 ** rng.uniform(-3, 0)
            assert total(cohort, point + step) >= least * (1 - 1e-5)


def test_both_starts_lead_to_one_median() -> None:
    for cohort, _ in random_cohorts(60, least=4):
        one = step_of(cohort, GeometricMedian()(cohort))
        other = step_of(cohort, GeometricMedian(start="mean", num_iterations=1000)(cohort))
        assert total(cohort, one) == pytest.approx(total(cohort, other), rel=1e-4)


def test_the_central_half_leaves_out_the_far_minority() -> None:
    cohort = make_cohort([[0.0], [1.0], [2.0], [900.0], [901.0]])
    np.testing.assert_allclose(central_half(cohort.squared_distances), [1 / 3, 1 / 3, 1 / 3, 0, 0])


def test_it_stops_when_nothing_moves() -> None:
    cohort = make_cohort([[1.0, 0.0], [-1.0, 0.0]])
    assert GeometricMedian(start="mean")(cohort).facts == {"iterations": 1}


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: CenteredClip(radius=0), r"CenteredClip radius must be a finite number > 0; got 0"),
        (lambda: CenteredClip(radius=float("inf")), r"CenteredClip radius must be a finite number > 0; got inf"),
        (lambda: CenteredClip(num_iterations=0), r"CenteredClip num_iterations must be a whole number >= 1; got 0"),
        (lambda: CenteredClip(start="last"), r"CenteredClip start has no variant 'last'"),  # type: ignore[arg-type]
        (lambda: CenteredClip(radius_unit="norm"), r"CenteredClip radius_unit has no variant 'norm'"),  # type: ignore[arg-type]
        (lambda: GeometricMedian(tolerance=-1e-9), r"GeometricMedian tolerance must be a finite number >= 0"),
        (lambda: GeometricMedian(smoothing=0), r"GeometricMedian smoothing must be a finite number > 0; got 0"),
        (lambda: GeometricMedian(start="median"), r"GeometricMedian start has no variant 'median'"),  # type: ignore[arg-type]
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(build: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build()
