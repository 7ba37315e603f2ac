"""The real data sets, if this machine has them."""

from __future__ import annotations

import numpy as np
import pytest

from mabrfl.catalog import entry
from mabrfl.simulation import data
from mabrfl.simulation.data.partition import dominant_label

SHAPES = {"mnist": (60_000, 1, 28, 28), "fashion-mnist": (60_000, 1, 28, 28), "cifar10": (50_000, 3, 32, 32)}


@pytest.mark.parametrize("name", SHAPES)
def test_real_files_load_and_can_be_shared_out_as_in_the_paper(name: str) -> None:
    if data.locate(name) is None:
        pytest.skip(f"{name} is not on this machine: set MABRFL_DATA to a folder that has it")
    loaded = data.load(name, download=False)
    assert loaded.train_inputs.shape == SHAPES[name]
    assert len(loaded.test_labels) == 10_000
    assert loaded.train_inputs.dtype == np.uint8
    assert np.bincount(loaded.train_labels, minlength=10).min() >= 5_000
    defaults = entry("datasets", name).defaults
    clients = dominant_label(
        loaded.train_labels,
        num_classes=10,
        num_clients=50,
        q=0.5,
        sizes=defaults.sizes,
        draw=defaults.draw,
        seed=0,
    )
    low, high = defaults.sizes
    assert all(low <= len(client) <= high for client in clients)


def test_real_mnist_is_the_official_one() -> None:
    if data.locate("mnist") is None:
        pytest.skip("mnist is not on this machine: set MABRFL_DATA to a folder that has it")
    assert data.check("mnist").status == "official"
    mnist = data.load("mnist")
    assert mnist.train_labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert np.bincount(mnist.train_labels).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert round(float(mnist.train_inputs.mean()) / 255, 4) == 0.1307
