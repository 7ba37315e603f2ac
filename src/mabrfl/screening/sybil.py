"""ISA, identifying sybil attacks: the largest group of updates too similar in direction (Alg. 4)."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components


def similarity_threshold(
    round_number: int, *, c_max: float, c_min: float, schedule_decay: float = 20.0, first_round: int = 1
) -> float:
    r"""Return how similar two updates may be in round t (Eq. 3).

    .. math:: \max\{c_{max}\, e^{(1 - t) / 20},\; c_{min}\}

    Examples
    --------
    >>> [round(similarity_threshold(t, c_max=0.7, c_min=0.3), 3) for t in (1, 2, 17, 18)]
    [0.7, 0.666, 0.315, 0.3]
    """
    return max(c_max * float(np.exp((first_round - round_number) / schedule_decay)), c_min)


def components(
    cosines: NDArray[np.float64], threshold: float, edge_test: Literal["at-least", "above"] = "at-least"
) -> NDArray[np.intp]:
    """Return the number of each client's connected component in the similarity graph (Alg. 4 line 1).

    Components are numbered in the order of their first member.
    """
    linked = cosines >= threshold if edge_test == "at-least" else cosines > threshold
    _, labels = connected_components(linked, directed=False)
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.asarray(np.argsort(np.argsort(first))[inverse])


def largest_components(
    labels: NDArray[np.intp],
    *,
    count: int = 1,
    min_size: int = 2,
    rng: np.random.Generator | None = None,
) -> NDArray[np.bool_]:
    """Mark the members of the ``count`` largest components (Alg. 4 lines 2-3).

    Parameters
    ----------
    labels
        The component of each client, numbered in the order of their first member.
    count
        How many components to mark.
    min_size
        Components smaller than this are never marked.
    rng
        Decides between equally large components; if None, the one with the first member wins.
    """
    sizes = np.bincount(labels)
    order = np.arange(len(sizes)) if rng is None else rng.permutation(len(sizes))
    ranked = order[np.argsort(-sizes[order], kind="stable")][:count]
    return np.isin(labels, ranked[sizes[ranked] >= min_size])
