"""The generated task: the same everywhere, and not linear."""

from __future__ import annotations

import numpy as np
import pytest

from mabrfl.simulation import data


def test_clusters_have_the_documented_shape_and_scale() -> None:
    points = data.load("clusters")
    assert points.train_inputs.shape == (3000, 24)
    assert points.test_inputs.shape == (1000, 24)
    assert np.bincount(points.train_labels).tolist() == [375] * 8
    assert np.bincount(points.test_labels).tolist() == [125] * 8
    assert abs(points.train_inputs.mean()) < 0.1
    assert 0.9 < points.train_inputs.std() < 1.1


def test_clusters_are_the_same_points_on_every_machine() -> None:
    points = data.load("clusters")
    # The third decimal is enough: the last bits are those of a machine's library of functions.
    assert points.train_inputs[0, :4] == pytest.approx([0.783, 0.541, 0.431, 0.318], abs=1e-3)
    assert points.test_inputs[-1, :4] == pytest.approx([0.553, 0.054, -0.263, 0.444], abs=1e-3)


def test_a_straight_line_does_not_separate_the_classes_but_near_neighbours_do() -> None:
    points = data.load("clusters")
    inputs, labels = points.train_inputs.astype(float), points.train_labels
    design = np.c_[inputs, np.ones(len(inputs))]
    linear, *_ = np.linalg.lstsq(design, np.eye(8)[labels], rcond=None)
    tests = points.test_inputs.astype(float)
    by_line = (np.c_[tests, np.ones(len(tests))] @ linear).argmax(1)
    distances = (tests**2).sum(1)[:, None] - 2 * tests @ inputs.T + (inputs**2).sum(1)
    nearest = labels[np.argsort(distances, axis=1)[:, :15]]
    by_neighbours = np.array([np.bincount(row, minlength=8).argmax() for row in nearest])
    assert (by_line == points.test_labels).mean() < 0.8
    assert (by_neighbours == points.test_labels).mean() > 0.9
