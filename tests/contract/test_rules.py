"""What holds for every aggregation rule, whatever it computes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from helpers import make_cohort, step_of
from mabrfl import vectors
from mabrfl.aggregation import FABA, CenteredClip, DnC, GeometricMedian, Krum, MultiKrum
from mabrfl.catalog import build_rule
from mabrfl.catalog.names import BUILT_IN
from mabrfl.protocols import Rule, Stateful
from mabrfl.updates import Cohort, Decision

Factory = Callable[[int], Rule]

CATALOGUED: dict[str, Factory] = {
    name: lambda f, name=name: build_rule(name, num_malicious=f)  # type: ignore[misc]
    for name in BUILT_IN["defenses"]
    if name != "mab-rfl"  # its step is made of momenta; tests/test_defense.py has its own contract
}
RULES: dict[str, Factory] = CATALOGUED | {
    "krum-n-f-1": lambda f: Krum(num_malicious=f, neighbours="n-f-1"),
    "krum-n-f-3": lambda f: Krum(num_malicious=f, neighbours="n-f-3"),
    "krum-medoid": lambda f: Krum(num_malicious=f, neighbours="all", power=1),
    "krum-4th-power": lambda f: Krum(num_malicious=f, power=4),
    "multi-krum-two": lambda f: MultiKrum(num_malicious=f, num_selected=2),
    "multi-krum-repeated": lambda f: MultiKrum(num_malicious=f, selection="repeated", neighbours="n-f-3"),
    "faba-one-shot": lambda f: FABA(num_malicious=f, removal="one-shot"),
    "faba-pairwise": lambda f: FABA(num_malicious=f, removal="pairwise"),
    "dnc-five-passes": lambda f: DnC(num_malicious=f, num_iterations=5, num_coordinates=11, filter_fraction=0.5),
    "dnc-normalised-union": lambda f: DnC(num_malicious=f, num_iterations=3, normalise=True, combine="union"),
    "centered-clip-absolute": lambda f: CenteredClip(radius=10.0, radius_unit="absolute", num_iterations=5),
    "centered-clip-from-mean": lambda f: CenteredClip(start="mean", num_iterations=3),
    "geometric-median-from-mean": lambda f: GeometricMedian(start="mean", num_iterations=3),
}

every_rule = pytest.mark.parametrize("make", RULES.values(), ids=RULES.keys())
every_dtype = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def updates(n: int, d: int = 40, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng([seed, n, d]).normal(size=(n, d))


def check(cohort: Cohort, decision: Decision) -> None:
    """Check everything a decision must be."""
    n = len(cohort)
    step = step_of(cohort, decision)
    assert step.shape == cohort.matrix.shape[1:]
    assert step.dtype == cohort.matrix.dtype
    assert np.all(np.isfinite(step))
    assert not np.shares_memory(step, cohort.matrix)
    if decision.weights is not None:
        assert decision.weights.dtype == np.float64
        assert decision.weights.shape == (n,)
        assert decision.weights.sum() == pytest.approx(1)
        assert np.all(decision.weights >= 0)
    assert decision.reasons is None or len(decision.reasons) == n
    assert set(decision.reasons or ()) <= {"accepted", "outlier"}
    assert decision.reasons is None or "accepted" in decision.reasons
    assert decision.evidence is None or len(decision.evidence) == n
    # Plain numbers and strings: JSON can write them, and finds no NaN.
    json.dumps([decision.evidence, decision.facts, decision.events], allow_nan=False)


@every_rule
@every_dtype
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8, 20])
def test_every_size_and_share_of_attackers_gives_a_decision(make: Factory, dtype: Any, n: int) -> None:
    for f in {0, 1, n // 4, (n - 1) // 2, n // 2, n - 1, n, 10 * n}:
        cohort = make_cohort(updates(n).astype(dtype))
        rule = make(f)
        check(cohort, rule(cohort))
        check(cohort, rule(cohort))  # once more, with whatever it remembers


@every_rule
@every_dtype
def test_a_single_client_is_returned_unchanged_where_no_clipping_is_at_work(make: Factory, dtype: Any) -> None:
    cohort = make_cohort(updates(1).astype(dtype))
    np.testing.assert_allclose(step_of(cohort, make(0)(cohort)), cohort.matrix[0], rtol=1e-5, atol=1e-6)


@every_rule
@every_dtype
def test_equal_updates_give_that_update(make: Factory, dtype: Any) -> None:
    cohort = make_cohort(np.tile(updates(1), (7, 1)).astype(dtype))
    np.testing.assert_allclose(step_of(cohort, make(2)(cohort)), cohort.matrix[0], rtol=1e-5, atol=1e-6)


@every_rule
def test_inputs_stay_as_they_were(make: Factory) -> None:
    cohort = make_cohort(updates(9).astype(np.float32), num_examples=np.arange(1, 10))
    gram, cosines = cohort.gram.copy(), cohort.cosines.copy()
    distances, norms = cohort.squared_distances.copy(), cohort.norms.copy()
    before = cohort.matrix.tobytes()
    assert not cohort.matrix.flags.writeable
    rule = make(3)
    for _ in range(2):
        decision = rule(cohort)
        if decision.weights is not None:
            decision.weights[:] = -1.0  # what a caller does to the answer must not reach back either
    assert cohort.matrix.tobytes() == before
    np.testing.assert_array_equal(cohort.gram, gram)
    np.testing.assert_array_equal(cohort.cosines, cosines)
    np.testing.assert_array_equal(cohort.squared_distances, distances)
    np.testing.assert_array_equal(cohort.norms, norms)
    np.testing.assert_array_equal(cohort.num_examples, np.arange(1, 10))


@every_rule
@every_dtype
def test_the_same_seed_gives_the_same_bytes(make: Factory, dtype: Any) -> None:
    def run() -> tuple[bytes, ...]:
        rule = make(3)
        cohorts = [make_cohort(updates(11, seed=t).astype(dtype), round=t, seed=5) for t in (1, 2, 3)]
        return tuple(step_of(cohort, rule(cohort)).tobytes() for cohort in cohorts)

    assert run() == run()


@every_rule
def test_the_order_in_which_clients_arrive_is_irrelevant(make: Factory) -> None:
    rows, ids = updates(8), [3, 11, "b", 0, "a", 7, 100, 4]
    counts = np.arange(1.0, 9.0)
    shuffled = np.random.default_rng(0).permutation(8)
    one = make_cohort(rows, ids=ids, num_examples=counts)
    other = make_cohort(rows[shuffled], ids=[ids[i] for i in shuffled], num_examples=counts[shuffled])
    assert one.ids == other.ids == (0, 3, 4, 7, 11, 100, "a", "b")
    first, second = make(2)(one), make(2)(other)
    assert step_of(one, first).tobytes() == step_of(other, second).tobytes()
    assert first.reasons == second.reasons
    assert first.evidence == second.evidence


@every_rule
@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e-3, 1e3, 1e18, 1e30])
def test_updates_of_any_size_give_a_finite_step_of_that_size(make: Factory, scale: float) -> None:
    cohort = make_cohort((updates(8) * scale).astype(np.float32))
    rule = make(3)
    for _ in range(3):
        decision = rule(cohort)
        check(cohort, decision)
        assert np.linalg.norm(step_of(cohort, decision) / scale) < 20


@every_rule
@pytest.mark.parametrize("giant", [1e6, 1e15, 1e30, 3e38])
def test_one_giant_among_ordinary_updates_breaks_no_rule(make: Factory, giant: float) -> None:
    rows = updates(8).astype(np.float32)
    rows[5] = np.float32(giant)
    cohort = make_cohort(rows)
    rule = make(3)
    for _ in range(3):
        check(cohort, rule(cohort))


@every_rule
def test_rows_wider_than_a_slice_are_taken_whole(make: Factory) -> None:
    width = vectors.SLICE + 17
    cohort = make_cohort(np.tile(np.arange(1.0, width + 1), (4, 1)) / width)
    np.testing.assert_allclose(step_of(cohort, make(1)(cohort)), cohort.matrix[0], rtol=0.25)


@every_rule
def test_a_rule_that_remembers_can_be_saved_and_resumed(make: Factory) -> None:
    rule, resumed = make(2), make(2)
    if not isinstance(rule, Stateful):
        cohort = make_cohort(updates(6))
        first = step_of(cohort, rule(cohort)).tobytes()
        rule(make_cohort(updates(6, seed=1)))
        assert step_of(cohort, rule(cohort)).tobytes() == first, "it remembers, but has no state_dict"
        return
    rule(make_cohort(updates(6, seed=1)))
    assert isinstance(resumed, Stateful)
    resumed.load_state_dict(rule.state_dict())
    cohort = make_cohort(updates(6, seed=2))
    assert step_of(cohort, resumed(cohort)).tobytes() == step_of(cohort, rule(cohort)).tobytes()


NOT_ROBUST = {"fedavg", "fedavg-uniform", "centered-clip-from-mean", "geometric-median-from-mean"}
"""Averages, and iterations that start from one and stop before they are anywhere else."""


@pytest.mark.parametrize("name", [name for name in RULES if name not in NOT_ROBUST])
def test_every_defense_withstands_a_quarter_of_loud_attackers(name: str) -> None:
    honest = 1 + 0.3 * updates(15)
    # They are not quite the same: whom of equal ones DnC removes, three in each pass, would hang on the last bits.
    cohort = make_cohort(np.vstack([honest, -100 + 10 * updates(5)]))
    step = step_of(cohort, RULES[name](5)(cohort))
    centre = honest.mean(axis=0)
    cosine = float(step @ centre) / math.sqrt(float(step @ step) * float(centre @ centre))
    assert cosine > 0.9
    assert np.linalg.norm(step) < 2 * np.linalg.norm(centre)


@pytest.mark.parametrize("name", sorted(NOT_ROBUST))
def test_loud_attackers_do_turn_an_average_around(name: str) -> None:
    honest = 1 + 0.3 * updates(15)
    cohort = make_cohort(np.vstack([honest, np.full((5, 40), -100.0)]))
    assert step_of(cohort, RULES[name](5)(cohort)) @ honest.mean(axis=0) < 0
