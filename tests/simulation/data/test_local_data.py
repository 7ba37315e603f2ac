"""Feature shift by client, and wrong labels of honest clients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mabrfl.config import RunConfig, resolve
from mabrfl.errors import ConfigError
from mabrfl.simulation.client_data import client_data
from mabrfl.simulation.data import Dataset, load
from mabrfl.simulation.data.local_data import PoorData, localised, rotated

DIGITS = load("digits")
PARTS = [np.arange(0, 100), np.arange(50, 150), np.arange(150, 200), np.array([3, 3, 3])]
ROOT = np.arange(200, 220)


def changed(attackers: tuple[int, ...] = (), **options: Any) -> tuple[Dataset, list[np.ndarray], np.ndarray]:
    data, parts, root = localised(DIGITS, PARTS, ROOT, PoorData(**options), attackers=attackers, seed=1)
    assert root is not None
    return data, parts, root


@pytest.mark.parametrize("options", [{}, {"label_noise": 0.5, "noisy_clients": 0.0}])
def test_without_a_change_the_data_are_the_same_object(options: dict[str, float]) -> None:
    data, parts, root = changed(**options)
    assert data is DIGITS
    assert parts == PARTS
    assert root is ROOT


def test_every_client_has_a_copy_of_its_own_and_the_root_and_test_data_stay() -> None:
    data, parts, root = changed(feature_shift="brightness", label_noise=0.2)
    assert [len(part) for part in parts] == [100, 100, 50, 3]
    assert len(np.unique(np.concatenate([*parts, root]))) == 273
    assert np.array_equal(data.train_inputs[root], DIGITS.train_inputs[ROOT])
    assert np.array_equal(data.train_labels[root], DIGITS.train_labels[ROOT])
    assert data.test_inputs is DIGITS.test_inputs


def test_brightness_is_one_factor_for_each_client() -> None:
    data, parts, _ = changed(feature_shift="brightness", shift_strength=0.5)
    factors = []
    for before, after in zip(PARTS, parts, strict=True):
        old, new = DIGITS.train_inputs[before], data.train_inputs[after]
        factors.append(float(new.sum() / old.sum()))
        np.testing.assert_allclose(new, old * factors[-1], rtol=1e-5)
    assert len({round(factor, 3) for factor in factors}) == 4
    assert all(0.5 <= factor <= 1.5 for factor in factors)


def test_bytes_are_rounded_and_stay_in_their_range() -> None:
    inputs = np.full((4, 3), 250, np.uint8)
    data = Dataset("toy", inputs, [0, 1, 0, 1], inputs, [0, 1, 0, 1], 2)
    parts = [np.array([k]) for k in range(4)]
    poor = PoorData(feature_shift="brightness", shift_strength=1.0)
    values = localised(data, parts, None, poor, seed=0)[0].train_inputs
    assert values.dtype == np.uint8
    assert values.max() == 255
    assert values.min() < 250


def test_a_quarter_turn_is_numpys() -> None:
    """Second opinion: numpy.rot90, without interpolation."""
    pictures = np.arange(2 * 1 * 5 * 5, dtype=np.float32).reshape(2, 1, 5, 5)
    np.testing.assert_allclose(rotated(pictures, 90), np.rot90(pictures, axes=(2, 3)), atol=1e-5)
    np.testing.assert_allclose(rotated(pictures, 0), pictures)


def test_rotations_differ_between_clients_and_a_strength_of_zero_is_none() -> None:
    data, parts, _ = changed(feature_shift="rotation")
    # Clients 0 and 1 share the samples 50 to 99.
    assert not np.allclose(data.train_inputs[parts[0][50:]], data.train_inputs[parts[1][:50]])
    still, parts, _ = changed(feature_shift="rotation", shift_strength=0.0)
    np.testing.assert_allclose(still.train_inputs[parts[0]], DIGITS.train_inputs[PARTS[0]], atol=1e-6)


def test_only_pictures_are_rotated() -> None:
    flat = Dataset("flat", np.ones((4, 3)), [0, 1, 0, 1], np.ones((1, 3)), [0], 2)
    with pytest.raises(ConfigError, match=r"rotation' needs pictures \(C, H, W\); got inputs of shape \(3,\)"):
        localised(flat, [np.arange(4)], None, PoorData(feature_shift="rotation"), seed=0)


def test_label_noise_is_exactly_its_share_and_always_another_class() -> None:
    data, parts, _ = changed(label_noise=0.3)
    wrong = [int((data.train_labels[b] != DIGITS.train_labels[a]).sum()) for a, b in zip(PARTS, parts, strict=True)]
    assert wrong == [30, 30, 15, 1]
    noisy = data.train_labels[np.concatenate(parts)]
    assert noisy.min() >= 0
    assert noisy.max() <= 9


def test_attackers_have_no_label_noise_and_noisy_clients_are_a_share_of_the_honest() -> None:
    for attackers, share, number in (((0,), 1.0, 3), ((0, 1), 0.5, 1), ((), 0.5, 2), ((), 0.25, 1)):
        data, parts, _ = changed(attackers, label_noise=1.0, noisy_clients=share)
        noisy = {
            client
            for client, part in enumerate(parts)
            if (data.train_labels[part] != DIGITS.train_labels[PARTS[client]]).any()
        }
        assert noisy.isdisjoint(attackers)
        assert len(noisy) == number


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"feature_shift": "rotate"}, "feature_shift: unknown 'rotate'; did you mean 'rotation'"),
        ({"label_noise": 1.5}, r"label_noise must be in \[0, 1\]; got 1.5"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PoorData(**options)


def test_settings_of_a_run_reach_the_data() -> None:
    partition = {"label_noise": 0.5, "noisy_clients": 0.5, "feature_shift": "rotation"}
    run = resolve(RunConfig(defense="fltrust", partition=partition))
    data, parts, root = client_data(run, DIGITS, frozenset({1}))
    plain, usual, _ = client_data(resolve(RunConfig(defense="fltrust")), DIGITS, frozenset({1}))
    assert plain is DIGITS
    assert root is not None
    noisy = [
        client
        for client, (new, old) in enumerate(zip(parts, usual, strict=True))
        if (data.train_labels[new] != DIGITS.train_labels[old]).any()
    ]
    assert len(noisy) == round(0.5 * 19)
    assert 1 not in noisy
