from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mabrfl.errors import DatasetError
from mabrfl.simulation.data import Dataset


def toy(**changes: Any) -> Dataset:
    fields: dict[str, Any] = {
        "name": "toy",
        "train_inputs": np.arange(12, dtype=np.uint8).reshape(3, 1, 2, 2),
        "train_labels": np.array([0, 1, 2]),
        "test_inputs": np.zeros((1, 1, 2, 2), np.uint8),
        "test_labels": np.array([2]),
        "num_classes": 3,
    }
    return Dataset(**(fields | changes))


def test_labels_of_any_integer_type_become_int64() -> None:
    data = toy(train_labels=np.array([0, 1, 2], np.uint8), test_labels=[1])
    assert data.train_labels.dtype == data.test_labels.dtype == np.int64
    assert data.input_shape == (1, 2, 2)


def test_float64_inputs_become_float32() -> None:
    data = toy(train_inputs=np.ones((3, 5)), test_inputs=np.ones((1, 5)))
    assert data.train_inputs.dtype == np.float32


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": ""}, "needs a name"),
        ({"num_classes": 1}, "num_classes must be at least 2; got 1"),
        ({"num_classes": 3.0}, r"num_classes must be an integer; got 3\.0"),
        ({"num_classes": True}, "num_classes must be an integer; got True"),
        ({"train_labels": [0, 1]}, "3 train inputs but 2 train labels"),
        ({"train_labels": [0, 1, 255]}, r"toy: train labels must be 0\.\.2; got 255 at index 2"),
        ({"test_labels": [-1]}, r"test labels must be 0\.\.2; got -1 at index 0"),
        ({"test_labels": [1.0]}, "test labels must be integers; got float64"),
        ({"test_labels": [[1]]}, r"non-empty flat array; got shape \(1, 1\)"),
        ({"train_inputs": np.zeros((3, 2, 2), np.uint8)}, r"got shape \(3, 2, 2\)"),
        ({"train_inputs": np.zeros((0, 1, 2, 2), np.uint8), "train_labels": [0]}, "inputs are empty"),
        ({"train_inputs": np.zeros((3, 1, 2, 2), np.int64)}, "uint8, float32 or float64; got int64"),
        ({"train_inputs": np.full((3, 4), np.nan)}, "train inputs must be finite"),
        ({"train_inputs": np.full((3, 4), 1e300)}, "beyond float32"),
        ({"train_inputs": np.zeros((3, 1, 2, 3), np.uint8)}, "must be alike"),
        ({"train_inputs": np.zeros((3, 1, 2, 2), np.float32)}, "must be alike; got .* float32 and .* uint8"),
    ],
)
def test_what_does_not_fit_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        toy(**changes)


def test_fingerprint_depends_on_values_shapes_types_and_classes_but_not_on_the_name() -> None:
    image = np.arange(12, dtype=np.uint8).reshape(3, 1, 2, 2)
    same = [toy(), toy(name="other"), toy(train_inputs=np.asfortranarray(image))]
    assert len({data.fingerprint() for data in same}) == 1
    others = [
        toy(),
        toy(num_classes=4),
        toy(train_labels=[0, 2, 1]),
        toy(test_labels=[1]),
        toy(train_inputs=image[::-1]),
        toy(train_inputs=image.reshape(3, 4), test_inputs=np.zeros((1, 4), np.uint8)),
        toy(train_inputs=image.astype(np.float32), test_inputs=np.zeros((1, 1, 2, 2), np.float32)),
    ]
    assert len({data.fingerprint() for data in others}) == len(others)
