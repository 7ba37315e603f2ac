from __future__ import annotations

import subprocess
import sys

import numpy as np
from sklearn.datasets import load_digits

from mabrfl.simulation import data


def test_digits_have_the_documented_shape_and_range() -> None:
    digits = data.load("digits")
    assert digits.train_inputs.shape == (1437, 1, 8, 8)
    assert digits.test_inputs.shape == (360, 1, 8, 8)
    assert digits.train_inputs.dtype == np.float32
    assert digits.train_inputs.min() == 0.0
    assert digits.train_inputs.max() == 1.0


def test_split_shares_out_every_image_once() -> None:
    digits = data.load("digits")
    both = np.concatenate([digits.train_inputs, digits.test_inputs]).reshape(1797, 64) * 16
    original = load_digits().data
    assert sorted(map(tuple, both.astype(int))) == sorted(map(tuple, original.astype(int)))


def test_split_is_stratified() -> None:
    digits = data.load("digits")
    train, test = np.bincount(digits.train_labels), np.bincount(digits.test_labels)
    np.testing.assert_array_less(np.abs(test - (train + test) * 360 / 1797), 1.0)


def test_split_never_changes() -> None:
    expected = "422becae6be5499ab5e291b72ab4d63486f3fb8a0f6c5ce604f8ef6d75b3bdee"
    assert data.load("digits").fingerprint() == expected


def test_digits_are_read_without_importing_scikit_learn() -> None:
    script = "import sys; from mabrfl.simulation.data import load; load('digits'); print('sklearn' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"
