from __future__ import annotations

import numpy as np
import pytest

from helpers import random_rows
from mabrfl.attacks import Decoy, JitteredSybils, Knowledge, OrthogonalDrift, SplitSybils
from mabrfl.attacks._directions import random_unit
from mabrfl.errors import ConfigError
from mabrfl.testing import make_view

WIDTH = 4000
# Mean along the first axis; lengths 1, 2 and 6, so the median length is 2.
BENIGN = np.zeros((3, WIDTH))
BENIGN[:, 0] = 1.0, 2.0, 6.0
COURSE = np.eye(WIDTH)[0]


def cosines(rows):
    directions = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return directions @ directions.T


def off_diagonal(matrix):
    return matrix[~np.eye(len(matrix), dtype=bool)]


class TestSplitSybils:
    def test_clones_within_groups_and_the_chosen_cosine_between_them(self):
        rows = SplitSybils(groups=3, cosine=0.25)(make_view(BENIGN, attackers=7))
        expected = np.full((7, 7), 0.25)
        for group in range(3):
            members = np.arange(group, 7, 3)
            expected[np.ix_(members, members)] = 1.0
        np.testing.assert_allclose(cosines(rows), expected, atol=1e-12)

    def test_each_group_pushes_against_the_benign_mean_with_the_median_benign_length(self):
        rows = SplitSybils(cosine=0.25, scale=3.0)(make_view(BENIGN, attackers=4))
        np.testing.assert_allclose(rows @ COURSE, -0.5 * 3.0 * 2.0)
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 6.0)

    def test_a_client_stays_in_its_group_whoever_else_is_selected(self):
        attack = SplitSybils(groups=2, noise="fixed")
        everybody = make_view(BENIGN, attackers=4)
        few = make_view(BENIGN, attackers=4)
        object.__setattr__(few, "attackers", everybody.attackers[1:3])
        np.testing.assert_array_equal(attack(few), attack(everybody)[1:3])

    def test_noise_is_fresh_in_each_round_or_fixed(self):
        one, two = (make_view(BENIGN, round=number) for number in (1, 2))
        np.testing.assert_array_equal(SplitSybils(noise="fixed")(one), SplitSybils(noise="fixed")(two))
        between = cosines(np.stack([SplitSybils()(one)[0], SplitSybils()(two)[0]]))[0, 1]
        assert between == pytest.approx(0.25, abs=0.08)

    def test_it_is_inactive_where_the_benign_go_nowhere(self):
        assert SplitSybils()(make_view(np.empty((0, 5)))) is None
        assert SplitSybils()(make_view(np.array([[1.0, 0.0], [-1.0, 0.0]]))) is None

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"groups": 0}, "groups must be a whole number >= 1; got 0"),
            ({"cosine": 1.5}, "cosine must be at most 1; got 1.5"),
            ({"cosine": -0.1}, "cosine must be a finite number >= 0; got -0.1"),
            ({"noise": "frsh"}, "noise has no variant 'frsh'; did you mean 'fresh'"),
        ],
    )
    def test_bad_options_are_refused_by_name(self, options, message):
        with pytest.raises(ConfigError, match=message):
            SplitSybils(**options)


class TestJitteredSybils:
    @pytest.mark.parametrize("direction", ["against-mean", "random"])
    @pytest.mark.parametrize("cosine", [0.0, 0.1, 0.28, 1.0])
    def test_mutual_cosines_are_as_chosen(self, direction, cosine):
        rows = JitteredSybils(cosine=cosine, direction=direction)(make_view(BENIGN, attackers=8))
        np.testing.assert_allclose(off_diagonal(cosines(rows)), cosine, atol=4 / np.sqrt(WIDTH))
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 2.0)

    def test_each_leans_against_the_mean_by_the_root_of_the_mutual_cosine(self):
        rows = JitteredSybils(cosine=0.16)(make_view(BENIGN, attackers=8))
        np.testing.assert_allclose(rows @ COURSE / 2.0, -0.4)

    def test_the_random_push_is_the_same_all_along_and_at_right_angles_to_the_course(self):
        attack = JitteredSybils(cosine=1.0, direction="random")
        one, two = (attack(make_view(BENIGN, round=number))[0] for number in (1, 9))
        np.testing.assert_array_equal(one, two)
        assert abs(one @ COURSE) / 2.0 < 4 / np.sqrt(WIDTH)

    def test_fixed_noise_is_each_clients_own_for_the_run(self):
        attack = JitteredSybils(noise="fixed")
        one, two = (attack(make_view(BENIGN, round=number)) for number in (1, 2))
        np.testing.assert_array_equal(one, two)
        fresh = JitteredSybils(cosine=0.0)
        across = cosines(np.stack([fresh(make_view(BENIGN, round=number))[0] for number in (1, 2)]))[0, 1]
        assert abs(across) < 4 / np.sqrt(WIDTH)

    def test_bad_options_are_refused_by_name(self):
        with pytest.raises(ConfigError, match="direction has no variant 'mean'"):
            JitteredSybils(direction="mean")


class TestOrthogonalDrift:
    def view(self, own, **options):
        return make_view(BENIGN, own=own, attackers=len(own), knowledge=Knowledge.AGNOSTIC, **options)

    def test_lengths_are_those_of_the_attackers_own_updates_and_cosines_as_chosen(self):
        own = random_rows(6, WIDTH, seed=3)
        rows = OrthogonalDrift(cosine=0.25, scale=2.0)(self.view(own))
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 2 * np.linalg.norm(own, axis=1))
        np.testing.assert_allclose(off_diagonal(cosines(rows)), 0.25, atol=4 / np.sqrt(WIDTH))

    def test_it_adds_up_over_rounds_while_its_noise_averages_out(self):
        attack, own = OrthogonalDrift(cosine=0.25), random_rows(4, WIDTH, seed=3)
        total = np.mean([attack(self.view(own, round=number)).mean(axis=0) for number in range(1, 26)], axis=0)
        # A push of 0.5 is left, of noise sqrt(0.75 / 100).
        length = np.linalg.norm(total) / np.linalg.norm(own, axis=1).mean()
        assert length == pytest.approx(np.sqrt(0.25 + 0.0075), abs=0.02)

    def test_another_seed_drifts_elsewhere(self):
        own = random_rows(1, WIDTH)
        attack = OrthogonalDrift(cosine=1.0)
        rows = np.concatenate([attack(self.view(own, seed=seed)) for seed in (1, 2)])
        assert abs(cosines(rows)[0, 1]) < 4 / np.sqrt(WIDTH)


class TestDecoy:
    def test_decoys_push_openly_and_the_others_mildly(self):
        rows = Decoy(share=0.4, decoy_push=0.9, push=0.2)(make_view(BENIGN, attackers=5))
        np.testing.assert_allclose(rows @ COURSE / 2.0, [-0.9, -0.9, -0.2, -0.2, -0.2])
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 2.0)

    def test_who_is_a_decoy_does_not_depend_on_who_is_selected_and_there_is_at_least_one(self):
        view = make_view(BENIGN, attackers=5)
        assert Decoy(share=0.4).decoys(view) == frozenset(view.attackers[:2])
        assert len(Decoy(share=0.0).decoys(view)) == 1
        object.__setattr__(view, "attackers", view.attackers[3:])
        assert Decoy(share=0.4).decoys(view) == frozenset(view.controlled[:2])
        np.testing.assert_allclose(Decoy(push=0.2)(view) @ COURSE / 2.0, -0.2)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"share": 2.0}, "share must be at most 1; got 2.0"),
            ({"push": 0.5, "decoy_push": 0.4}, "push must be at most decoy_push = 0.4; got 0.5"),
        ],
    )
    def test_bad_options_are_refused_by_name(self, options, message):
        with pytest.raises(ConfigError, match=message):
            Decoy(**options)


def test_a_random_direction_at_right_angles_to_everything_is_none():
    axes = [np.array([1.0, 0.0]), np.array([0.0, 1.0])]
    rng = np.random.default_rng(0)
    np.testing.assert_array_equal(random_unit(rng, 2, axes), [0.0, 0.0])
    np.testing.assert_allclose(np.abs(random_unit(rng, 2, axes[:1])), [0.0, 1.0], atol=1e-12)
