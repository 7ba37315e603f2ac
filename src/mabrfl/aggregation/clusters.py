"""Clustering of a few points, for rules that cluster clients: the same result in whatever order the points come."""

from __future__ import annotations

import math

import numpy as np
import scipy.cluster.hierarchy
import scipy.spatial.distance
from numpy.typing import NDArray

Points = NDArray[np.float64]
Labels = NDArray[np.intp]

_STARTS = 10
_ROUNDS = 300
_FEW_COLUMNS = 4


def k_means(points: Points, k: int) -> tuple[Labels, float]:
    """Return k clusters of least sum of squared distances to their centres, and that sum.

    Lloyd's iterations from several starts: each takes one of the outermost points, then again and again the point
    farthest from those taken. Nothing is drawn, and the best end counts.

    Examples
    --------
    >>> k_means(np.array([[0.0], [1.0], [9.0], [10.0]]), 2)
    (array([0, 0, 1, 1]), 1.0)
    """
    centres = _farthest_first(points, _outermost(points), k)
    labels = np.zeros((len(centres), len(points)), dtype=np.intp)
    for _ in range(_ROUNDS):
        moved = np.argmin(_squared_distances(points, centres), axis=2)
        members = moved[:, :, None] == np.arange(k)
        sizes = members.sum(axis=1)
        sums = np.einsum("bnk,nd->bkd", members.astype(np.float64), points)
        centres = np.where(sizes[..., None] > 0, sums / np.maximum(sizes, 1)[..., None], centres)
        if np.array_equal(moved, labels):
            break
        labels = moved
    spread = np.sum((points - np.take_along_axis(centres, labels[..., None], axis=1)) ** 2, axis=(1, 2))
    best = int(np.argmin(spread))
    order = {label: place for place, label in enumerate(dict.fromkeys(labels[best].tolist()))}
    return np.array([order[label] for label in labels[best].tolist()], dtype=np.intp), float(spread[best])


def _squared_distances(points: Points, centres: Points) -> NDArray[np.float64]:
    """Return ``(starts, points, k)``. Few columns are added up one by one: the same bytes, in a third of the time."""
    if points.shape[1] > _FEW_COLUMNS:
        return np.asarray(np.sum((points[None, :, None] - centres[:, None]) ** 2, axis=3))
    total = np.zeros((len(centres), len(points), centres.shape[1]))
    for column in range(points.shape[1]):
        total += (points[None, :, None, column] - centres[:, None, :, column]) ** 2
    return total


def _outermost(points: Points) -> NDArray[np.intp]:
    far = np.sum((points - points.mean(axis=0)) ** 2, axis=1)
    return np.argsort(-far, kind="stable")[:_STARTS]


def _farthest_first(points: Points, starts: NDArray[np.intp], k: int) -> Points:
    """Return ``(starts, k, columns)``: each start, then again and again the point farthest from those taken."""
    chosen = points[starts][:, None]
    nearest = np.full((len(starts), len(points)), np.inf)
    while chosen.shape[1] < k:
        nearest = np.minimum(nearest, np.sum((points - chosen[:, -1:]) ** 2, axis=2))
        chosen = np.concatenate([chosen, points[np.argmax(nearest, axis=1)][:, None]], axis=1)
    return chosen


def estimate_bandwidth(points: Points, quantile: float) -> float:
    """Return the mean distance of a point to the farthest of its nearest share of all points, itself among them.

    It is scikit-learn's function of the same name.
    """
    far = np.sort(scipy.spatial.distance.cdist(points, points), axis=1)
    return float(far[:, max(int(len(points) * quantile), 1) - 1].mean())


def mean_shift(points: Points, bandwidth: float) -> Labels:
    """Return the clusters of mean shift with a flat kernel; -1 for points farther than the bandwidth from all centres.

    Every point climbs to the mean of the points within the bandwidth until it rests. Of rests that are nearer to each
    other than the bandwidth the one with more points around it stays. It is scikit-learn's ``MeanShift`` with
    ``cluster_all=False``.

    Examples
    --------
    >>> mean_shift(np.array([[0.0], [0.1], [0.2], [5.0], [5.1], [20.0]]), 1.0)
    array([0, 0, 0, 1, 1, 2])
    """
    centres, counts = points.copy(), np.zeros(len(points), dtype=np.intp)
    climbing = np.ones(len(points), dtype=bool)
    for _ in range(_ROUNDS):
        near = scipy.spatial.distance.cdist(centres[climbing], points) <= bandwidth
        counts[climbing] = near.sum(axis=1)
        moved = near @ points / np.maximum(counts[climbing], 1)[:, None]
        shift = np.linalg.norm(moved - centres[climbing], axis=1)
        centres[climbing] = moved
        climbing[np.flatnonzero(climbing)[shift <= 1e-3 * bandwidth]] = False
        if not climbing.any():
            break
    order = np.lexsort((*centres.T[::-1], counts))[::-1]
    kept: list[Points] = []
    for row in order:
        if all(np.linalg.norm(centres[row] - other) > bandwidth for other in kept):
            kept.append(centres[row])
    far = scipy.spatial.distance.cdist(points, np.array(kept))
    labels = np.argmin(far, axis=1)
    return np.where(far.min(axis=1) <= bandwidth, labels, -1)


def majority_cluster(distances: NDArray[np.float64], size: int) -> NDArray[np.bool_]:
    """Mark the first cluster of at least this many points that single linkage forms.

    If ``size`` is more than half of the points, it is the one cluster that HDBSCAN finds with
    ``min_cluster_size=size, min_samples=1, allow_single_cluster=True``: no two clusters of that size can exist, and the
    points that are in it when it comes into being are those that stay in it longest.

    Examples
    --------
    >>> points = np.array([0.0, 1.0, 2.0, 9.0, 20.0])
    >>> majority_cluster(np.abs(points[:, None] - points), 3)
    array([ True,  True,  True, False, False])
    """
    n = len(distances)
    if n <= 1:
        return np.ones(n, dtype=bool)
    tree = scipy.cluster.hierarchy.linkage(scipy.spatial.distance.squareform(distances, checks=False), "single")
    height = next(height for height, count in zip(tree[:, 2], tree[:, 3], strict=True) if count >= size)
    labels = scipy.cluster.hierarchy.fcluster(tree, height, "distance")
    return np.asarray(labels == np.argmax(np.bincount(labels)))


def gap_clusters(points: Points, *, most: int, rng: np.random.Generator, num_references: int, power: int) -> int:
    r"""Return the number of clusters by the gap statistic (Tibshirani, Walther and Hastie, 2001).

    Columns are scaled to [0, 1]. With :math:`W_k` the spread of k clusters of the points, and :math:`W_k^*` that of
    uniform points: the first k with :math:`gap_k \ge gap_{k+1} - s_{k+1}`,
    :math:`gap_k = \overline{\ln W_k^*} - \ln W_k`.

    Parameters
    ----------
    points
        ``(n, columns)``.
    most
        The largest number tried.
    rng
        For the uniform points.
    num_references
        How many sets of uniform points.
    power
        Of the distances in W: 2, or 1 as in public code of RFLBAT.
    """
    low, high = points.min(axis=0), points.max(axis=0)
    scaled = (points - low) / np.where(high > low, high - low, 1.0)
    references = [rng.random(points.shape) for _ in range(num_references)]
    gaps: list[float] = []
    for k in range(1, min(most, len(points)) + 1):
        ours = _spread(scaled, k, power)
        if ours <= 1e-12:  # k different points, or all equal
            return k
        logs = np.log([max(_spread(reference, k, power), 1e-300) for reference in references])
        gap, deviation = float(logs.mean() - math.log(ours)), float(logs.std() * math.sqrt(1 + 1 / num_references))
        if gaps and gaps[-1] >= gap - deviation:
            return k - 1
        gaps.append(gap)
    return max(len(gaps), 1)


def _spread(points: Points, k: int, power: int) -> float:
    labels, spread = k_means(points, k)
    if power == 2:
        return spread
    centres = np.stack([points[labels == label].mean(axis=0) for label in range(labels.max() + 1)])
    return float(np.linalg.norm(points - centres[labels], axis=1).sum())
