import numpy as np
import pytest

from mabrfl.mab.hardened.influence import bounded_claims, clipped_lengths, independent_votes, weighted_median


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_the_typical_length_is_that_of_the_trusted():
    norms, trust = np.array([1.0, 1.1, 900.0, 950.0, 990.0]), np.array([0.9, 0.9, 0.3, 0.3, 0.3])
    assert weighted_median(norms, trust) == 1.1
    assert weighted_median(norms, np.ones(5)) == 900


def test_lengths_are_their_own_up_to_the_clip():
    norms = np.array([0.2, 1.0, 1.2, 1.4, 50.0])
    assert clipped_lengths(norms, 1.2, "clipped", 1.5).tolist() == [0.2, 1.0, 1.2, 1.4, pytest.approx(1.8)]
    assert clipped_lengths(norms, 1.2, "typical").tolist() == [1.2] * 5
    assert clipped_lengths(norms, 1.2, "mean")[0] == pytest.approx(norms.mean())
    assert clipped_lengths(norms[:0], 1.2, "mean").tolist() == []


def test_claims_count_up_to_the_bound():
    claims = np.array([10.0, 100.0, 190.0, 1e12])
    assert bounded_claims(claims, 100.0, 2.0).tolist() == [0.1, 1.0, 1.9, 2.0]
    assert bounded_claims(claims, 100.0, 0.5).tolist() == [0.1, 0.5, 0.5, 0.5]
    assert bounded_claims(claims, 100.0, 0).tolist() == [1.0] * 4


def test_absurd_claims_leave_every_vote_a_number_above_zero():
    worth = bounded_claims(np.array([5e-324, 1.0, 1.7e308]), 1.7e308, 2.0)
    assert np.all((worth > 0) & (worth <= 2))


def test_independent_clients_have_about_one_vote_each():
    rng = np.random.default_rng(0)
    rows = unit(rng.normal(size=(1, 5000)) + rng.normal(size=(30, 5000)))
    votes = independent_votes(np.ones(30), rows @ rows.T)
    assert votes.min() > 0.85


def test_a_crowd_with_one_direction_has_few_votes_together():
    rng = np.random.default_rng(0)
    crowd = unit(np.sqrt(0.9) * unit(rng.normal(size=(1, 5000))) + np.sqrt(0.1) * unit(rng.normal(size=(15, 5000))))
    rows = np.concatenate([crowd, unit(rng.normal(size=(35, 5000)))])
    votes = independent_votes(np.ones(50), rows @ rows.T)
    assert votes[:15].sum() < 2
    assert votes[15:].sum() > 6 * votes[:15].sum()


def test_a_crowd_with_different_pasts_has_few_votes_if_it_sends_one_thing_now():
    rng = np.random.default_rng(0)
    past, now = unit(rng.normal(size=(30, 5000))), unit(rng.normal(size=(30, 5000)))
    now[:10] = now[0]
    votes = independent_votes(np.ones(30), past @ past.T, now @ now.T)
    assert votes[:10].sum() < 1.5
    assert independent_votes(np.ones(30), past @ past.T)[:10].sum() > 6


def test_two_clients_are_left_as_they_are():
    assert independent_votes(np.array([0.3, 0.7]), np.eye(2)).tolist() == [0.3, 0.7]
