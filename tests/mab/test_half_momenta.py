"""Momenta in half precision: half of the memory, nearly the same momenta, and no overflow."""

from __future__ import annotations

import numpy as np
import pytest

from mabrfl import Layout, MabRfl, Updates

LAYOUT = Layout({"a.weight": (30, 300), "a.bias": (30,), "b.weight": (5, 30), "b.bias": (5,)})
PRESETS = ["hardened", "paper", "reference"]


def rows_of(number, n=12, size=1.0):
    rng = np.random.default_rng(number)
    rows = np.random.default_rng(0).normal(size=LAYOUT.size) + rng.normal(size=(n, LAYOUT.size))
    rows[9:] *= -1
    return (size * rows).astype(np.float32)


def judge(shield, rounds, size=1.0):
    outcomes = []
    for number in rounds:
        chosen = shield.select(range(12 + number), round=number)  # clients join, so that the memory grows
        matrix = rows_of(number, 12 + number, size)[chosen]
        outcomes.append(shield.aggregate(Updates(chosen, matrix, layout=LAYOUT), round=number))
    return outcomes


def momenta_of(shield):
    state = shield.state_dict()["rule"]
    return state["momenta"].astype(np.float64) * state["scales"][:, None]


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("size", [1.0, 1e25, 1e-25])
def test_half_momenta_are_the_momenta_up_to_half_precision(preset, size):
    whole, half = MabRfl(preset), MabRfl(preset, momenta="half")
    for one, other in zip(judge(whole, range(1, 5), size), judge(half, range(1, 5), size), strict=True):
        assert {k: v.reason for k, v in one.verdicts.items()} == {k: v.reason for k, v in other.verdicts.items()}
        assert other.step.dtype == np.float32
        exact, rounded = one.step.astype(np.float64), other.step.astype(np.float64)
        assert np.linalg.norm(exact - rounded) <= 1e-3 * np.linalg.norm(exact)
    kept = half.state_dict()["rule"]["momenta"]
    assert kept.dtype == np.float16
    exact, rounded = momenta_of(whole), momenta_of(half)
    apart = np.linalg.norm(exact - rounded, axis=1) / np.linalg.norm(exact, axis=1)
    assert np.all(apart < 1e-3)
    assert np.any(apart > 0)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_restart_changes_nothing_and_each_kind_of_memory_reads_the_states_of_the_other(preset):
    half = MabRfl(preset, momenta="half")
    judge(half, range(1, 4))
    state = half.state_dict()
    before = momenta_of(half)
    later = MabRfl(preset, momenta="half")
    later.load_state_dict(state)
    expected = [outcome.step.tobytes() for outcome in judge(half, range(4, 7))]
    assert [outcome.step.tobytes() for outcome in judge(later, range(4, 7))] == expected
    whole = MabRfl(preset)
    whole.load_state_dict(state)
    assert whole.state_dict()["rule"]["momenta"].dtype == np.float32
    np.testing.assert_array_equal(momenta_of(whole), before)
    again = MabRfl(preset, momenta="half")
    again.load_state_dict(whole.state_dict())
    np.testing.assert_array_equal(momenta_of(again), before)


def test_a_large_past_that_is_remembered_does_not_overflow():
    shield = MabRfl("hardened", momenta="half", memory=0.999)
    row = np.zeros((8, LAYOUT.size), dtype=np.float32)
    row[:, 0] = 1.0  # a norm that is one number
    for number in range(1, 60):
        shield.aggregate(Updates(range(8), row + 1e-3 * rows_of(number, 8), layout=LAYOUT), round=number)
    assert np.all(np.isfinite(shield.state_dict()["rule"]["momenta"]))
