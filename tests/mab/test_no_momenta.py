"""With history 0 nothing of an update is remembered, and nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest

from mabrfl import MabRfl, Updates


@pytest.mark.parametrize("preset", ["paper", "reference"])
def test_every_round_is_judged_as_if_it_were_the_first_of_its_number(preset):
    running = MabRfl(preset, history=0.0)
    for number in range(1, 6):
        rows = np.random.default_rng(number).normal(size=(9, 30)).astype(np.float32)
        rows[6:] = rows[6] + 0.01 * rows[6:]
        outcome = running.aggregate(Updates(range(9), rows), round=number)
        fresh = MabRfl(preset, history=0.0).aggregate(Updates(range(9), rows), round=number)
        assert np.array_equal(outcome.step, fresh.step)
        assert outcome.verdicts == fresh.verdicts
    assert running.state_dict()["rule"]["momenta"].size == 0


def test_with_a_history_the_past_counts():
    running = MabRfl("paper", history=0.5)
    steps = []
    for number in (1, 2):
        rows = np.random.default_rng(number).normal(size=(9, 30)).astype(np.float32)
        steps.append(running.aggregate(Updates(range(9), rows), round=number).step)
    fresh = MabRfl("paper", history=0.5).aggregate(Updates(range(9), rows), round=2)
    assert not np.array_equal(steps[1], fresh.step)
    assert len(running.state_dict()["rule"]["momenta"]) == 9


def test_a_state_without_momenta_is_restored():
    running = MabRfl("paper", history=0.0)
    rows = np.random.default_rng(0).normal(size=(5, 8)).astype(np.float32)
    running.aggregate(Updates(range(5), rows), round=1)
    later = MabRfl("paper", history=0.0)
    later.load_state_dict(running.state_dict())
    again = np.array_equal(
        later.aggregate(Updates(range(5), rows), round=2).step, running.aggregate(Updates(range(5), rows), round=2).step
    )
    assert again
