"""Slow twins of the aggregation rules: each is its paper's definition, with plain loops over vectors.

Nothing here uses a Gram matrix, or anything of the package.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Vectors = Sequence[Vector]


def as_vectors(matrix: NDArray[Any]) -> list[Vector]:
    return [np.array(row, dtype=np.float64) for row in matrix]


def distance(a: Vector, b: Vector) -> float:
    return math.sqrt(math.fsum((x - y) ** 2 for x, y in zip(a, b, strict=True)))


def mean(vectors: Vectors) -> Vector:
    total = np.zeros(len(vectors[0]))
    for vector in vectors:
        total = total + vector
    return total / len(vectors)


def fedavg(vectors: Vectors, num_examples: Sequence[float]) -> Vector:
    total = np.zeros(len(vectors[0]))
    for vector, count in zip(vectors, num_examples, strict=True):
        total = total + vector * (count / sum(num_examples))
    return total


def krum_score(vectors: Vectors, i: int, num_neighbours: int, power: int) -> float:
    far = sorted(distance(vectors[i], vectors[j]) for j in range(len(vectors)) if j != i)
    return math.fsum(each**power for each in far[: max(num_neighbours, 1)])


def num_neighbours(n: int, f: int, neighbours: str) -> int:
    return {"n-f-2": n - f - 2, "n-f-1": n - f - 1, "n-f-3": n - f - 3, "all": n - 1}[neighbours]


def krum_order(vectors: Vectors, f: int, neighbours: str = "n-f-2", power: int = 2) -> list[int]:
    """Return the clients from the lowest score to the highest."""
    count = num_neighbours(len(vectors), f, neighbours)
    return sorted(range(len(vectors)), key=lambda i: krum_score(vectors, i, count, power))


def krum(vectors: Vectors, f: int, neighbours: str = "n-f-2", power: int = 2) -> Vector:
    return vectors[krum_order(vectors, f, neighbours, power)[0]]


def multi_krum(vectors: Vectors, f: int, num_selected: int) -> Vector:
    return mean([vectors[i] for i in krum_order(vectors, f)[:num_selected]])


def multi_krum_repeated(vectors: Vectors, f: int, neighbours: str) -> Vector:
    left, chosen = list(vectors), []
    while len(left) > 2 * f + 2 or not chosen:
        chosen.append(left.pop(krum_order(left, f, neighbours)[0]))
    return mean(chosen)


def faba(vectors: Vectors, f: int, removal: str = "iterative") -> list[int]:
    """Return the clients that remain."""
    left = list(range(len(vectors)))
    if removal == "iterative":
        for _ in range(f):
            centre = mean([vectors[i] for i in left])
            left.remove(max(left, key=lambda i: distance(vectors[i], centre)))
        return left
    centre = mean(vectors)
    if removal == "one-shot":
        far = [distance(vector, centre) for vector in vectors]
    else:
        far = [math.fsum(distance(vector, other) for other in vectors) for vector in vectors]
    gone = sorted(left, key=lambda i: -far[i])[:f]
    return [i for i in left if i not in gone]


def median(vectors: Vectors) -> Vector:
    result = []
    for values in zip(*vectors, strict=True):
        ordered, n = sorted(values), len(values)
        result.append(ordered[n // 2] if n % 2 else (ordered[n // 2 - 1] + ordered[n // 2]) / 2)
    return np.array(result)


def trimmed_mean(vectors: Vectors, f: int) -> Vector:
    result = []
    for values in zip(*vectors, strict=True):
        kept = sorted(values)[f : len(values) - f]
        result.append(math.fsum(kept) / len(kept))
    return np.array(result)


def dnc_good(vectors: Vectors, columns: Sequence[int], num_removed: int) -> set[int]:
    """Return whom one pass over these coordinates calls good."""
    sample = np.array([[vector[column] for column in columns] for vector in vectors])
    centred = sample - sample.mean(axis=0)
    top = np.linalg.svd(centred, full_matrices=False)[2][0]
    scores = [float(row @ top) ** 2 for row in centred]
    order = sorted(range(len(vectors)), key=lambda i: scores[i])
    return set(order[: len(vectors) - num_removed])


def centered_clip(vectors: Vectors, centre: Vector, radius: float, num_iterations: int) -> Vector:
    for _ in range(num_iterations):
        moves = []
        for vector in vectors:
            far = distance(vector, centre)
            moves.append((vector - centre) * (min(1.0, radius / far) if far > 0 else 1.0))
        centre = centre + mean(moves)
    return centre


def geometric_median(vectors: Vectors, start: Vector, smoothing: float, num_iterations: int) -> Vector:
    point = start
    for _ in range(num_iterations):
        pulls = [1 / max(smoothing, distance(vector, point)) for vector in vectors]
        point = sum((pull * vector for pull, vector in zip(pulls, vectors, strict=True)), np.zeros(len(point)))
        point = point / sum(pulls)
    return point


def sum_of_distances(vectors: Vectors, point: Vector) -> float:
    return math.fsum(distance(vector, point) for vector in vectors)
