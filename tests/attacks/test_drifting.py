from __future__ import annotations

import numpy as np
import pytest

from mabrfl.attacks import Growing, Knowledge
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
