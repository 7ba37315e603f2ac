"""The handwritten digits that come with scikit-learn: small, and on every machine that can simulate.

1,797 images of 8 x 8 from Alpaydin and Kaynak's *Optical Recognition of Handwritten Digits* (UCI, 1998).
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mabrfl.errors import require
from mabrfl.rng import digest
from mabrfl.simulation.data.dataset import Dataset

NUM_TEST = 360


def load() -> Dataset:
    """Return the digits as ``(N, 1, 8, 8)`` float32 in [0, 1], 1,437 for training and 360 for testing.

    The split is stratified and fixed: it depends neither on a run's seed nor on a library's version.
    """
    inputs, labels, test = _images()
    return Dataset("digits", inputs[~test], labels[~test], inputs[test], labels[test], num_classes=10)


@cache
def _images() -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.bool_]]:
    """Return all images, their labels and which are for testing; they are read once per process."""
    rows = _rows()
    labels = rows[:, -1].astype(np.int64)
    return (rows[:, :-1].reshape(-1, 1, 8, 8) / 16).astype(np.float32), labels, _stratified(labels, NUM_TEST)


def _rows() -> NDArray[Any]:
    """Return 64 pixels of 0 to 16 and a label for each image, from scikit-learn's file.

    Reading the file takes 0.02 s. To import ``sklearn.datasets``, which reads the same file, takes more than a second.
    """
    require("sklearn", "the data set 'digits'")
    package = Path(getattr(find_spec("sklearn"), "origin", None) or "").parent
    rows: NDArray[Any] = np.loadtxt(package / "datasets" / "data" / "digits.csv.gz", delimiter=",")
    return rows


def _stratified(labels: NDArray[np.int64], num_chosen: int) -> NDArray[np.bool_]:
    """Choose a share of each class (largest remainders), by the rank of a hash of each sample's index."""
    classes, counts = np.unique(labels, return_counts=True)
    shares = counts * num_chosen / len(labels)
    quotas = np.floor(shares).astype(int)
    quotas[np.argsort(quotas - shares, kind="stable")[: num_chosen - quotas.sum()]] += 1
    ranks = np.array([digest("digits-split", index) for index in range(len(labels))], dtype=np.uint64)
    chosen = np.zeros(len(labels), dtype=np.bool_)
    for label, quota in zip(classes, quotas, strict=True):
        members = np.flatnonzero(labels == label)
        chosen[members[np.argsort(ranks[members])[:quota]]] = True
    return chosen
