from __future__ import annotations

import numpy as np
import pytest

from helpers import random_rows
from mabrfl.attacks import AttackerView, Gaussian, Knowledge, Magnitude, SignFlip
from mabrfl.errors import ConfigError
from mabrfl.testing import make_view

BENIGN = random_rows(3, 4)


def alone(attackers, own=None, width=2000, seed=0, number=1):
    return AttackerView(
        round=number,
        attackers=attackers,
        num_clients=10,
        num_malicious=4,
        knowledge=Knowledge.AGNOSTIC,
        global_weights=np.zeros(width, dtype=np.float32),
        own_updates=own,
        seed=seed,
    )


def test_sign_flip_sends_each_attackers_own_update_backwards():
    own = np.array([[1.0, -2.0, 0.0, 4.0], [0.5, 0.0, 1.0, -1.0]])
    rows = SignFlip(scale=2.0)(make_view(BENIGN, own=own, knowledge=Knowledge.AGNOSTIC))
    np.testing.assert_array_equal(rows, [[-2.0, 4.0, 0.0, -8.0], [-1.0, 0.0, -2.0, 2.0]])


def test_sign_flip_at_the_edge_of_float32_stays_finite():
    own = np.full((2, 4), 3e38, dtype=np.float32)
    rows = SignFlip(scale=5.0)(make_view(BENIGN.astype(np.float32), own=own))
    assert np.isfinite(rows).all()
    assert (rows < 0).all()


def test_relative_noise_is_scale_times_as_long_as_the_own_update():
    own = np.zeros((2, 2000), dtype=np.float32)
    own[0, 0], own[1, 0] = 3.0, 0.5
    rows = Gaussian(scale=10.0)(alone((1, 2), own))
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), [30.0, 5.0], rtol=0.06)


def test_absolute_noise_has_the_deviation_asked_for_and_needs_no_training():
    attack = Gaussian(scale=7.0, unit="absolute")
    assert not attack.trains
    rows = attack(alone((1, 2)))
    np.testing.assert_allclose(rows.std(axis=1), 7.0, rtol=0.06)
    assert abs(rows.mean()) < 0.5


def test_noise_around_the_own_update_has_it_as_its_mean():
    attack = Gaussian(scale=0.1, unit="absolute", centre="own")
    assert attack.trains
    own = np.full((1, 2000), 5.0, dtype=np.float32)
    rows = attack(alone((1,), own))
    assert rows.mean() == pytest.approx(5.0, abs=0.01)
    assert rows.std() == pytest.approx(0.1, rel=0.06)


def test_noise_of_an_attacker_does_not_depend_on_who_else_was_selected():
    attack = Gaussian(unit="absolute")
    together, single = attack(alone((1, 5, 7))), attack(alone((5,)))
    np.testing.assert_array_equal(together[1], single[0])
    assert not np.array_equal(together[0], together[1])


def test_noise_changes_with_the_round_and_the_seed():
    attack = Gaussian(unit="absolute")
    rows = [attack(alone((1,), number=number, seed=seed))[0] for number in (1, 2) for seed in (0, 1)]
    assert len({row.tobytes() for row in rows}) == 4


def test_without_the_training_they_need_both_are_inactive():
    assert SignFlip()(alone((1,))) is None
    assert Gaussian()(alone((1,))) is None


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf"), True, "1"])
@pytest.mark.parametrize("attack", [SignFlip, Gaussian])
def test_scale_must_be_a_positive_number(attack, value):
    with pytest.raises(ConfigError, match="scale must be a finite number > 0; got"):
        attack(scale=value)


def test_unknown_unit_or_centre_is_refused():
    with pytest.raises(ConfigError, match="unit has no variant 'relative'"):
        Gaussian(unit="relative")
    with pytest.raises(ConfigError, match="centre has no variant 'ownn'; did you mean 'own'"):
        Gaussian(centre="ownn")


def test_options_are_keyword_only():
    with pytest.raises(TypeError, match="positional"):
        SignFlip(2.0)


class TestMagnitude:
    def test_each_sends_its_honest_update_many_times_as_long(self):
        own = random_rows(2, 5)
        rows = Magnitude()(make_view(random_rows(3, 5), own=own, knowledge=Knowledge.AGNOSTIC))
        np.testing.assert_allclose(rows, 100 * own)

    def test_it_stays_finite(self):
        own = np.array([[1e38, -1.0]], dtype=np.float32)
        view = make_view(np.zeros((1, 2), np.float32), attackers=1, own=own, knowledge=Knowledge.AGNOSTIC)
        np.testing.assert_array_equal(Magnitude()(view), [[np.finfo(np.float32).max, -100.0]])

    def test_factor_must_be_positive(self):
        with pytest.raises(ConfigError, match="factor must be a finite number > 0; got 0"):
            Magnitude(factor=0)
