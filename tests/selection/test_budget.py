import numpy as np
import pytest

from mabrfl.errors import ConfigError
from mabrfl.selection import Budgeted
from mabrfl.updates import Candidates


def candidates(benign, malicious, t=1, seed=0):
    ids = tuple(range(len(benign)))
    return Candidates(ids, np.array(benign, float), np.array(malicious, float), t, seed)


def test_exactly_the_budget_is_selected_or_everybody():
    assert len(Budgeted(num_selected=4)(candidates([5] * 10, [1] * 10)).ids) == 4
    assert Budgeted(num_selected=40)(candidates([5] * 3, [1] * 3)).ids == [0, 1, 2]


def test_newcomers_are_explored_although_others_are_better():
    benign, malicious = [100.0] * 9 + [0.5], [0.01] * 9 + [1.0]
    seen = sum(9 in Budgeted(num_selected=5, explore=0.2)(candidates(benign, malicious, t)).ids for t in range(1, 51))
    never = sum(9 in Budgeted(num_selected=5, explore=0.0)(candidates(benign, malicious, t)).ids for t in range(1, 51))
    assert seen >= 25
    assert never == 0


def test_the_blamed_are_not_explored_for_being_little_known_but_by_lot_now_and_then():
    benign, malicious = [100.0] * 9 + [0.1], [0.01] * 9 + [1.0]
    chosen = [9 in Budgeted(num_selected=5, explore=0.2)(candidates(benign, malicious, t)).ids for t in range(1, 201)]
    assert not any(chosen[0::2])
    assert 4 <= sum(chosen[1::2]) <= 20


def test_liars_are_selected_less_than_others():
    benign, malicious = [9.0] * 7 + [1.0] * 3, [1.0] * 7 + [9.0] * 3
    counts = np.zeros(10)
    for t in range(1, 101):
        counts[Budgeted(num_selected=5, explore=0.1)(candidates(benign, malicious, t)).ids] += 1
    assert counts[7:].max() < 0.3 * counts[:7].min()


def test_a_budget_of_one_explores_in_a_tenth_of_the_rounds():
    benign, malicious = [100.0] * 9 + [0.5], [0.01] * 9 + [1.0]
    explored = [9 in Budgeted(num_selected=1, explore=0.1)(candidates(benign, malicious, t)).ids for t in range(1, 401)]
    assert 8 <= sum(explored) <= 40


@pytest.mark.parametrize("bad", [-0.1, 1.1, True])
def test_an_impossible_share_is_refused(bad):
    with pytest.raises(ConfigError, match="explore"):
        Budgeted(explore=bad)
