"""Clipped clustering (equal to Blades on 50 matrices, see test_conformance.py) and the majority of signs."""

from __future__ import annotations

import numpy as np
import pytest

from helpers import make_cohort, step_of
from mabrfl.aggregation import ClippedClustering, SignMajority
from mabrfl.errors import ConfigError, StateError

# Three near the first axis, two near the second; norms 1, 1, 3, 1, 8.
ROWS = np.array([[1.0, 0], [0.8, 0.6], [3.0, 0], [0.0, 1], [0.0, 8]])


def test_the_larger_cluster_by_cosine_is_clipped_to_the_median_norm_and_averaged():
    cohort = make_cohort(ROWS)
    decision = ClippedClustering()(cohort)
    assert decision.reasons == ["accepted", "accepted", "accepted", "outlier", "outlier"]
    assert decision.facts["bound"] == 1
    np.testing.assert_allclose(step_of(cohort, decision), np.mean([[1, 0], [0.8, 0.6], [1, 0]], axis=0))


def test_the_bound_is_the_median_of_all_norms_so_far_and_survives_a_restart():
    rule = ClippedClustering()
    rule(make_cohort(ROWS))
    assert rule(make_cohort(4 * ROWS)).facts["bound"] == 4  # of 1, 1, 1, 3, 4, 4, 4, 8, 12, 32
    other = ClippedClustering()
    other.load_state_dict(rule.state_dict())
    assert other(make_cohort(ROWS)).facts == rule(make_cohort(ROWS)).facts
    with pytest.raises(StateError, match="must have 'norms'"):
        other.load_state_dict({"norms": np.array([-1.0])})


def test_clusters_of_one_size_are_decided_by_how_alike_their_members_are():
    rows = np.array([[1.0, 0], [1.0, 0.1], [0.0, 1], [-0.5, 1]])
    assert ClippedClustering()(make_cohort(rows)).reasons == ["accepted", "accepted", "outlier", "outlier"]


def test_one_or_two_updates_are_no_clusters():
    assert ClippedClustering()(make_cohort(ROWS[:2])).reasons == ["accepted", "accepted"]
    with pytest.raises(ConfigError, match="linkage"):
        ClippedClustering(linkage="ward")  # type: ignore[arg-type]


def test_each_coordinate_goes_where_most_clients_want_by_the_same_amount():
    rows = np.array([[3.0, -4, 0, 0], [1.0, 2, 2, 0], [-100, -1, 1, 0]])
    cohort = make_cohort(rows)
    # Norms 5, 3 and 100: the median is 5, and the length 5 / sqrt(4). Votes: 2 to 1, 1 to 2, 2 to 0, none.
    np.testing.assert_allclose(step_of(cohort, SignMajority()(cohort)), [2.5, -2.5, 2.5, 0])


def test_a_minority_cannot_turn_a_coordinate_on_which_the_others_agree():
    # The fault tolerance of the paper (theorem 2): with all honest signs right, any minority is outvoted.
    honest = np.abs(np.random.default_rng(0).normal(size=(6, 30))) + 0.1
    for liars in range(6):
        cohort = make_cohort(np.vstack([honest, -1e6 * np.ones((liars, 30))]))
        assert (step_of(cohort, SignMajority()(cohort)) > 0).all()
