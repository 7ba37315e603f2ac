import numpy as np
import pytest

from mabrfl.hardening.influence import clipped_lengths, independent_votes, too_long


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_only_updates_many_times_the_median_are_too_long():
    norms = np.array([0.1, 1.0, 1.0, 2.0, 9.0, 11.0])
    norms[3] = 1.0
    assert too_long(norms, 10).tolist() == [False] * 5 + [True]
    assert not too_long(norms, 0).any()


def test_lengths_are_their_own_up_to_the_clip():
    norms = np.array([0.2, 1.0, 1.2, 1.4, 50.0])
    assert clipped_lengths(norms, "clipped", 1.5).tolist() == [0.2, 1.0, 1.2, 1.4, pytest.approx(1.8)]
    assert clipped_lengths(norms, "median").tolist() == [1.2] * 5
    assert clipped_lengths(norms, "mean")[0] == pytest.approx(norms.mean())
    assert clipped_lengths(norms[:0]).tolist() == []


def test_independent_clients_have_about_one_vote_each():
    rng = np.random.default_rng(0)
    rows = unit(rng.normal(size=(1, 5000)) + rng.normal(size=(30, 5000)))
    votes = independent_votes(rows @ rows.T, np.ones(30))
    assert votes.min() > 0.85


def test_a_crowd_with_one_direction_has_few_votes_together():
    rng = np.random.default_rng(0)
    crowd = unit(np.sqrt(0.9) * unit(rng.normal(size=(1, 5000))) + np.sqrt(0.1) * unit(rng.normal(size=(15, 5000))))
    rows = np.concatenate([crowd, unit(rng.normal(size=(35, 5000)))])
    votes = independent_votes(rows @ rows.T, np.ones(50))
    assert votes[:15].sum() < 2
    assert votes[15:].sum() > 6 * votes[:15].sum()


def test_two_clients_are_left_as_they_are():
    assert independent_votes(np.eye(2), np.array([0.3, 0.7])).tolist() == [0.3, 0.7]
