"""FLDetector: the L-BFGS product, honest clients that can be predicted, attackers that cannot."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mabrfl import Defense, Updates
from mabrfl.aggregation import FLDetector
from mabrfl.aggregation.fldetector import hessian_product
from mabrfl.errors import StateError

D, N = 30, 12


def test_the_product_is_that_of_the_bfgs_updates_one_after_another() -> None:
    rng = np.random.default_rng(0)
    root = rng.normal(size=(D, D))
    hessian = root @ root.T + np.eye(D)
    steps = rng.normal(size=(5, D))
    changes = steps @ hessian
    start = float(changes[-1] @ steps[-1] / (steps[-1] @ steps[-1]))
    literal = start * np.eye(D)
    for s, y in zip(steps, changes, strict=True):
        literal += np.outer(y, y) / (y @ s) - literal @ np.outer(s, s) @ literal / (s @ literal @ s)
    for vector in (*steps, rng.normal(size=D)):
        np.testing.assert_allclose(hessian_product(steps, changes, vector), literal @ vector, rtol=1e-6, atol=1e-6)
    assert not hessian_product(np.zeros((1, D)), np.ones((1, D)), np.ones(D)).any()


class Quadratic:
    """Clients with losses 1/2 (w - b_i) A (w - b_i): gradients follow the Hessian exactly."""

    def __init__(self, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.curvature = np.diag(np.linspace(0.5, 2.0, D))
        self.minima = rng.normal(size=(N, D))
        self.weights = 5 * rng.normal(size=D)

    def updates(self) -> np.ndarray[Any, Any]:
        return -0.2 * (self.weights - self.minima) @ self.curvature


def play(defense: Defense, rounds: int, liars: int, *, seed: int = 0) -> list[set[Any]]:
    world, rng, found = Quadratic(seed), np.random.default_rng(seed + 1), []
    for number in range(1, rounds + 1):
        rows = world.updates()
        rows[:liars] = rows[liars:].mean(axis=0) * rng.normal(size=(liars, 1)) * 2 + 0.3 * rng.normal(size=(liars, D))
        outcome = defense.aggregate(Updates(range(N), rows), round=number)
        world.weights = world.weights + outcome.step
        found.append(set(outcome.rejected("outlier")))
    return found


def test_attackers_that_do_not_follow_the_loss_are_found_and_nobody_else() -> None:
    found = play(Defense(FLDetector(window=4)), 16, liars=3)
    assert found[:5] == [set()] * 5
    assert found[-1] == {0, 1, 2}


def test_without_attackers_nobody_is_rejected_in_most_rounds() -> None:
    found = play(Defense(FLDetector(window=4)), 16, liars=0)
    assert sum(bool(each) for each in found) <= 4


def test_a_restart_changes_nothing() -> None:
    one, two = (Defense(FLDetector(window=3)) for _ in range(2))
    play(one, 9, liars=3)
    two.load_state_dict(one.state_dict())
    rows = Quadratic(5).updates()
    outcomes = [defense.aggregate(Updates(range(N), rows), round=10) for defense in (one, two)]
    assert outcomes[0].verdicts == outcomes[1].verdicts
    assert np.array_equal(outcomes[0].step, outcomes[1].step)


def test_a_malformed_state_is_refused() -> None:
    rule = FLDetector(window=2)
    play(Defense(rule), 4, liars=0)
    state = rule.state_dict()
    for change, message in (
        ({"centre": 1}, "the state must have"),
        ({"clients": [1]}, "other numbers of clients and updates"),
        ({"steps": np.full((2, D), np.nan)}, "must be 30 finite numbers"),
    ):
        with pytest.raises(StateError, match=message):
            FLDetector().load_state_dict({**state, **change})
    with pytest.raises(StateError, match="the last step has 30 numbers, not 5"):
        Defense(rule).aggregate(Updates(range(3), np.eye(3, 5)), round=9)
