"""The clusterings, beside scikit-learn's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mabrfl.aggregation.clusters import estimate_bandwidth, gap_clusters, k_means, majority_cluster, mean_shift
from mabrfl.rng import generator

cluster = pytest.importorskip("sklearn.cluster")


def blobs(seed: int, sizes: tuple[int, ...], columns: int = 3, spread: float = 0.3) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(len(sizes), columns)) * 3
    return np.vstack(
        [centre + spread * rng.normal(size=(size, columns)) for centre, size in zip(centres, sizes, strict=True)]
    )


def same_partition(one: Any, two: Any) -> bool:
    return len(set(zip(one, two, strict=True))) == len(set(one)) == len(set(two))


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_k_means_is_as_good_as_scikit_learns_best_of_ten(seed: int, k: int) -> None:
    points = blobs(seed, (12, 7, 5))
    labels, spread = k_means(points, k)
    theirs = cluster.KMeans(k, n_init=10, random_state=0).fit(points)
    assert spread <= theirs.inertia_ * (1.001 if k <= 3 else 1.1)
    assert len(set(labels.tolist())) == k


def test_k_means_does_not_depend_on_the_order() -> None:
    points = blobs(1, (9, 8, 7), spread=2.0)
    order = np.random.default_rng(0).permutation(len(points))
    for k in (2, 3, 4):
        labels, spread = k_means(points, k)
        shuffled, other = k_means(points[order], k)
        assert spread == pytest.approx(other)
        assert same_partition(labels[order].tolist(), shuffled.tolist())


@pytest.mark.parametrize("seed", range(15))
def test_mean_shift_and_its_bandwidth_are_scikit_learns(seed: int) -> None:
    points = blobs(seed, (15, 8, 3))
    bandwidth = estimate_bandwidth(points, 0.5)
    assert bandwidth == pytest.approx(cluster.estimate_bandwidth(points, quantile=0.5))
    for width in (bandwidth, 0.5 * bandwidth, 1.0):
        theirs = cluster.MeanShift(bandwidth=width, cluster_all=False).fit(points).labels_
        assert same_partition(mean_shift(points, width).tolist(), theirs.tolist())


@pytest.mark.parametrize("seed", range(30))
def test_the_majority_cluster_is_hdbscans(seed: int) -> None:
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(int(rng.integers(4, 40)), 3))
    points[: len(points) // 3] += rng.choice([0.0, 4.0])
    n = len(points)
    distances = np.linalg.norm(points[:, None] - points, axis=2)
    hdbscan = cluster.HDBSCAN(
        min_cluster_size=n // 2 + 1, min_samples=1, allow_single_cluster=True, metric="precomputed", copy=True
    )
    theirs = hdbscan.fit(distances).labels_ == 0
    assert majority_cluster(distances, n // 2 + 1).tolist() == theirs.tolist()


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_the_gap_statistic_finds_well_separated_clusters_and_only_these(number: int) -> None:
    centres = np.array([[0.0, 0.0], [9.0, 9.0], [0.0, 9.0], [9.0, 0.0]])[:number]
    rng = np.random.default_rng(number)
    points = np.vstack([centre + rng.uniform(-1, 1, size=(15, 2)) for centre in centres])
    for power in (1, 2):
        rng = generator(0, "gap", number)
        assert gap_clusters(points, most=7, rng=rng, num_references=10, power=power) == number


def test_equal_points_are_one_cluster() -> None:
    assert gap_clusters(np.ones((6, 2)), most=7, rng=generator(0, "gap"), num_references=3, power=2) == 1
    assert k_means(np.ones((4, 2)), 2)[0].tolist() == [0, 0, 0, 0]
