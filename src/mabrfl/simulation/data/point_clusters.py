"""A generated task: each class is several clusters of points, so that no straight line separates two classes.

It needs no file and no network. It has another geometry than pictures: few features, none of which means much alone.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from mabrfl.rng import uniforms
from mabrfl.simulation.data.dataset import Dataset

CLASSES, CLUSTERS, FEATURES = 8, 3, 24
TRAIN, TEST = 3000, 1000
SPREAD = 1.0
"""The deviation of the centres of clusters, in deviations of the points around them."""


def load() -> Dataset:
    """Return the points as ``(N, 24)`` float32 in 8 classes, 3,000 for training and 1,000 for testing.

    Features have a mean of about 0 and a deviation of about 1. The points are the same on every machine: each number is
    a hash of its place, not a draw of a library's generator.
    """
    inputs, labels = _points()
    return Dataset("clusters", inputs[:TRAIN], labels[:TRAIN], inputs[TRAIN:], labels[TRAIN:], num_classes=CLASSES)


@cache
def _points() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    count = TRAIN + TEST
    labels = np.arange(count) % CLASSES
    cluster = labels * CLUSTERS + (np.arange(count) // CLASSES) % CLUSTERS
    centres = SPREAD * _normal("centres", CLASSES * CLUSTERS)
    points = (centres[cluster] + _normal("points", count)) / np.sqrt(1 + SPREAD**2)
    return points.astype(np.float32), labels.astype(np.int64)


def _normal(purpose: str, rows: int) -> NDArray[np.float64]:
    drawn: NDArray[np.float64] = ndtri(uniforms(0, f"clusters-{purpose}", 0, range(rows * FEATURES)))
    return drawn.reshape(rows, FEATURES)
