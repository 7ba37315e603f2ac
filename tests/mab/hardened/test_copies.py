import numpy as np
import pytest

from mabrfl.mab.hardened.copies import (
    copy_blame,
    disjoint,
    majority_is_coherent,
    representative,
    residual_cosines,
    similar_groups,
)


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def honest(n, common=0.0, width=400, seed=0):
    rng = np.random.default_rng(seed)
    return unit(common * unit(rng.normal(size=(1, width))) + unit(rng.normal(size=(n, width))))


@pytest.mark.parametrize("common", [0.0, 1.0, 3.0])
def test_honest_residuals_are_unlike_however_alike_the_updates_are(common):
    rows = honest(20, common)
    raw = rows @ rows.T
    residual = residual_cosines(raw, np.ones(20)) - 2 * np.eye(20)
    assert residual.max() < 0.25
    if common == 3:
        assert raw.min() > 0.8


def test_copies_stand_out_even_among_updates_that_are_all_alike():
    rows = honest(20, common=3.0)
    rows[:4] = rows[0]
    [found] = similar_groups(residual_cosines(rows @ rows.T, np.ones(20)), 0.9)
    assert [group.tolist() for group in found] == [[0, 1, 2, 3]]


def test_residuals_are_taken_from_the_trusted_mean():
    rows = honest(10, common=1.0)
    trust = np.ones(10)
    trust[:5] = 1e-6
    mean = rows[5:].mean(axis=0)
    expected = unit(rows - mean)
    np.testing.assert_allclose(residual_cosines(rows @ rows.T, trust), expected @ expected.T, atol=1e-3)


def test_copies_of_the_mean_are_copies_and_rounding_is_not():
    rows = honest(12, common=2.0)
    rows[:3] = unit(rows.mean(axis=0, keepdims=True))
    assert residual_cosines(rows @ rows.T, np.ones(12))[0, 1] == pytest.approx(1)
    same = np.ones((5, 5)) - 1e-8 * (1 - np.eye(5))
    assert (residual_cosines(same, np.ones(5)) == np.eye(5)).all()


def test_a_bridge_does_not_make_one_group_of_all():
    # Four directions at right angles, and their mean: cosine 1/2 with each.
    rows = np.eye(4)
    rows = np.concatenate([rows, unit(rows.mean(axis=0, keepdims=True))])
    cosines = rows @ rows.T
    assert max(len(group) for group in similar_groups(cosines, 0.49)[0]) == 2


def test_groups_are_disjoint_and_the_first_one_found_keeps_its_members():
    found = [np.array([0, 1, 2]), np.array([2, 3]), np.array([1, 4, 5])]
    assert [members.tolist() for members in disjoint(found, 10)] == [[0, 1, 2], [4, 5]]


def mask(*members, of=6):
    result = np.zeros(of, dtype=bool)
    result[list(members)] = True
    return result


def test_half_of_the_reputation_is_never_apart():
    assert not majority_is_coherent(np.ones(6), mask(0, 1, 2), mask())
    assert majority_is_coherent(np.array([0.9, 0.9, 0.9, 1.1, 1.1, 1.1]), mask(0, 1, 2), mask())
    assert majority_is_coherent(np.ones(6), mask(0, 1), mask())


@pytest.mark.parametrize("trust", [0.7, 0.757, 1 / 3, 0.9 / 1.1])
def test_half_is_half_whatever_the_rounding(trust):
    mass = np.full(6, trust)
    for members in ([0, 1, 2], [1, 3, 5], [3, 4, 5]):
        apart = np.isin(np.arange(6), members)
        assert not majority_is_coherent(mass, apart, np.zeros(6, dtype=bool))
        assert majority_is_coherent(mass, apart & (np.arange(6) != members[0]), np.zeros(6, dtype=bool))


def test_nobody_is_apart_where_most_of_the_rest_come_in_groups_too():
    assert majority_is_coherent(np.ones(6), mask(0, 1), mask(2))
    assert not majority_is_coherent(np.ones(6), mask(0, 1), mask(2, 3))
    assert majority_is_coherent(np.ones(6), mask(0, 1), mask(0, 1))


def test_who_resembles_its_own_past_speaks_for_the_copies_else_the_most_trusted():
    trust, past = np.array([0.9, 0.5, 0.5]), np.array([0.1, 0.6, 0.2])
    assert representative(np.arange(3), trust, past) == 1
    assert representative(np.arange(3), trust, np.array([0.1, 0.29, 0.2])) == 0  # by less than 0.1
    assert representative(np.arange(3), trust, np.array([np.nan, 0.6, 0.2])) == 0


def test_a_pair_is_not_blamed_a_crowd_almost_fully_and_the_trusted_hardly():
    assert copy_blame(np.full(2, 0.5)).tolist() == [0, 0]
    assert copy_blame(np.full(20, 0.5)).tolist() == [0.9] * 20
    blame = copy_blame(np.array([0.99, 0.33, 0.33, 0.33]))
    assert blame[0] < 0.01
    assert blame[1:].tolist() == [0.5] * 3
