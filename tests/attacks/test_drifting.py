from __future__ import annotations

import numpy as np
import pytest

from mabrfl.attacks import Growing, Knowledge, StatisticalMimicry
from mabrfl.errors import ConfigError
from mabrfl.testing import make_view

BENIGN = np.array([[2.0, 1.0, 0.0], [2.0, -1.0, 0.0]])  # their mean is 2 along the first axis
OWN = np.array([[3.0, 4.0, 0.0], [0.0, 0.0, 1.0]])


class TestGrowing:
    def test_the_push_grows_by_the_same_length_in_every_round(self):
        attack = Growing(growth=0.1)
        for number in (1, 2, 10, 30):
            rows = attack(make_view(BENIGN, own=OWN, round=number))
            np.testing.assert_allclose(rows - OWN, [[-0.5 * number, 0, 0], [-0.1 * number, 0, 0]], atol=1e-12)

    def test_the_orthogonal_push_is_one_direction_for_the_run_and_needs_no_knowledge(self):
        attack = Growing(direction="orthogonal", growth=0.5)
        assert attack.knowledge is Knowledge.AGNOSTIC
        pushes = []
        for number in (1, 4):
            view = make_view(BENIGN, own=OWN, round=number, knowledge=Knowledge.AGNOSTIC)
            pushes.append((attack(view) - OWN) / (0.5 * number * np.array([[5.0], [1.0]])))
        np.testing.assert_allclose(np.linalg.norm(pushes, axis=2), 1)
        np.testing.assert_allclose(pushes - pushes[0][0], 0, atol=1e-12)

    def test_without_a_mean_to_oppose_it_does_nothing(self):
        assert Growing()(make_view(np.zeros((0, 3)), own=OWN)) is None
        assert Growing()(make_view(np.zeros((2, 3)), own=OWN)) is None

    def test_bad_options_are_refused_by_name(self):
        with pytest.raises(ConfigError, match="growth must be a finite number > 0; got 0"):
            Growing(growth=0)
        with pytest.raises(ConfigError, match="direction has no variant 'up'"):
            Growing(direction="up")


class TestStatisticalMimicry:
    def test_without_a_synthetic_part_it_is_the_honest_update_with_a_drift(self):
        attack = StatisticalMimicry(blend=0.0, drift=0.2, growth=1.5, limit=0.4)
        pushes = []
        for number, length in ((1, 0.2), (2, 0.3), (3, 0.4), (500, 0.4)):
            pushes.append(attack(make_view(BENIGN, own=OWN, round=number)) - OWN)
            np.testing.assert_allclose(np.linalg.norm(pushes[-1], axis=1), [5 * length, length])
        directions = np.concatenate(pushes) / np.linalg.norm(np.concatenate(pushes), axis=1, keepdims=True)
        np.testing.assert_allclose(directions, np.tile(directions[0], (8, 1)))

    def test_the_synthetic_part_has_the_mean_and_deviation_of_the_honest_updates(self):
        # What the paper calls mimicry: by mean and variance the updates cannot be told from honest ones.
        own = np.random.default_rng(0).normal([1.0, -2.0], [0.5, 3.0], size=(4000, 2))
        attack = StatisticalMimicry(blend=1.0, drift=1e-9, limit=1e-9)
        rows = attack(make_view(BENIGN[:, :2], attackers=4000, own=own))
        np.testing.assert_allclose(rows.mean(axis=0), own.mean(axis=0), atol=0.15)
        np.testing.assert_allclose(rows.std(axis=0), own.std(axis=0), rtol=0.05)

    def test_bad_options_are_refused_by_name(self):
        with pytest.raises(ConfigError, match="blend must be at most 1; got 2"):
            StatisticalMimicry(blend=2)
        with pytest.raises(ConfigError, match="growth must be a finite number > 0; got 0"):
            StatisticalMimicry(growth=0)
