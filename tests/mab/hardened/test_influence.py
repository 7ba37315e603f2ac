import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mabrfl.mab.hardened.influence import bounded_claims, bounded_shares, clipped_lengths, weighted_median


def test_the_typical_length_is_that_of_the_trusted():
    norms, trust = np.array([1.0, 1.1, 900.0, 950.0, 990.0]), np.array([0.9, 0.9, 0.3, 0.3, 0.3])
    assert weighted_median(norms, trust) == 1.1
    assert weighted_median(norms, np.ones(5)) == 900


def test_lengths_are_their_own_up_to_the_clip():
    norms = np.array([0.2, 1.0, 1.2, 1.4, 50.0])
    assert clipped_lengths(norms, 1.2, 1.5).tolist() == [0.2, 1.0, 1.2, 1.4, pytest.approx(1.8)]


def test_claims_count_up_to_the_bound():
    claims = np.array([10.0, 100.0, 190.0, 1e12])
    assert bounded_claims(claims, 100.0, 2.0).tolist() == [0.1, 1.0, 1.9, 2.0]
    assert bounded_claims(claims, 100.0, 0.5).tolist() == [0.1, 0.5, 0.5, 0.5]
    assert bounded_claims(claims, 100.0, 0).tolist() == [1.0] * 4


def test_absurd_claims_leave_every_vote_a_number_above_zero():
    worth = bounded_claims(np.array([5e-324, 1.0, 1.7e308]), 1.7e308, 2.0)
    assert np.all((worth > 0) & (worth <= 2))


@settings(max_examples=300)
@given(
    lengths=st.lists(st.floats(1e-12, 1e12), min_size=1, max_size=200),
)
def test_no_share_is_above_two_of_n_and_nothing_grows(lengths):
    lengths = np.array(lengths)
    bounded = bounded_shares(lengths)
    assert np.all(bounded <= lengths)
    assert np.all(bounded > 0)
    assert bounded.max() <= 2 / len(lengths) * bounded.sum() * (1 + 1e-9)


def test_shares_within_the_bound_stay_as_they_are():
    lengths = np.array([1.0, 1.2, 0.4, 1.9, 0.8])
    assert np.array_equal(bounded_shares(lengths), lengths)
    assert bounded_shares(np.array([3.0, 1e-9])).tolist() == [3.0, 1e-9]  # of two, each may have all


def test_the_cut_is_the_largest_one_that_keeps_the_bound():
    bounded = bounded_shares(np.array([9.0, 5.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]))
    assert bounded.tolist() == [3.0, 3.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    assert bounded[0] == 2 / 8 * bounded.sum()
