import numpy as np
import pytest

from mabrfl.hardening.copies import copied_groups, copy_blame, representative, residual_cosines, similar_groups


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
    assert [group.tolist() for group in similar_groups(residual_cosines(rows @ rows.T, np.ones(20)), 0.9)] == [
        [0, 1, 2, 3]
    ]


def test_residuals_are_taken_from_the_trusted_mean():
    rows = honest(10, common=1.0)
    trust = np.ones(10)
    trust[:5] = 1e-6
    mean = rows[5:].mean(axis=0)
    expected = unit(rows - mean)
    np.testing.assert_allclose(residual_cosines(rows @ rows.T, trust), expected @ expected.T, atol=1e-3)


def test_copies_of_the_mean_itself_are_copies_although_they_leave_no_residual():
    rows = honest(12, common=2.0)
    rows[:3] = unit(rows.mean(axis=0, keepdims=True))
    assert residual_cosines(rows @ rows.T, np.ones(12))[0, 1] == 1


def test_a_bridge_makes_one_group_of_all_by_chains_and_of_nobody_by_all_pairs():
    # Four directions at right angles, and their mean: cosine 1/2 with each.
    rows = np.eye(4)
    rows = np.concatenate([rows, unit(rows.mean(axis=0, keepdims=True))])
    cosines = rows @ rows.T
    assert [len(group) for group in similar_groups(cosines, 0.5, "chains")] == [5]
    assert max(len(group) for group in similar_groups(cosines, 0.49, "all-pairs")) == 2


def test_groups_are_disjoint_and_the_first_one_found_keeps_its_members():
    found = [(np.array([0, 1, 2]), 10.0), (np.array([2, 3]), 10.0), (np.array([1, 4, 5]), 10.0)]
    groups = copied_groups(found, np.ones(10), guard=True, seats=10)
    assert [group.members.tolist() for group in groups] == [[0, 1, 2], [4, 5]]


def test_half_of_the_reputation_is_never_taken_for_copies():
    found = [(np.array([0, 1, 2]), 6.0)]
    assert copied_groups(found, np.ones(6), guard=True, seats=6)[0].guarded
    assert not copied_groups(found, np.ones(6), guard=False, seats=6)[0].guarded
    light = np.array([0.9, 0.9, 0.9, 1.1, 1.1, 1.1])
    assert not copied_groups(found, light, guard=True, seats=6)[0].guarded


def test_the_original_is_the_one_whose_past_it_resembles():
    trust, past = np.array([0.9, 0.5, 0.5]), np.array([0.1, 0.6, 0.2])
    assert representative(np.arange(3), trust, past, 0.3) == (1, True)
    assert representative(np.arange(3), trust, past, 0.5) == (0, False)
    assert representative(np.arange(3), trust, past, 0.0) == (0, False)
    assert representative(np.arange(3), trust, np.full(3, np.nan), 0.3) == (0, False)


def test_a_pair_is_not_blamed_and_a_crowd_almost_fully():
    assert copy_blame(2) == 0
    assert copy_blame(4) == 0.5
    assert copy_blame(20) == 0.9
