"""Bounded influence: the length of each client's step, the weight of its claimed examples, its share of the step."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


def weighted_median(values: Vector, weights: Vector) -> float:
    """Return the value below and above which no more than half of the weight lies.

    Examples
    --------
    >>> weighted_median(np.array([1.0, 2.0, 300.0]), np.array([0.2, 0.2, 0.5]))
    300.0
    >>> weighted_median(np.array([1.0, 2.0, 300.0]), np.array([0.9, 0.9, 0.3]))
    2.0
    """
    order = np.argsort(values, kind="stable")
    total = np.cumsum(weights[order])
    return float(values[order[int(np.searchsorted(total, total[-1] / 2))]])


def clipped_lengths(norms: Vector, typical: float, clip: float = 1.5) -> Vector:
    """Return the length that each update is given in the step: its own, at most ``clip`` times what is ``typical``.

    Lengths of honest clients grow with the number of their steps, so those with more data go further; a client with
    hardly any data is not blown up to the size of the others.

    Examples
    --------
    >>> clipped_lengths(np.array([1.0, 2.0, 300.0]), typical=2.0)
    array([1., 2., 3.])
    """
    return np.minimum(norms, clip * typical)


def bounded_claims(claims: Vector, typical: float, bound: float = 1.0) -> Vector:
    """Return what the numbers of examples that clients claim are worth: in units of a ``typical`` claim, up to a bound.

    Clients with more data know more, and lying about it is free. So claims are truncated [1]_, here at so many
    times the typical one: up to it with a bound of 1, so that a claim can only lower one's vote. With a bound
    of 0 they count nothing.

    Examples
    --------
    >>> bounded_claims(np.array([25.0, 100.0, 1e9]), typical=100.0)
    array([0.25, 1.  , 1.  ])

    References
    ----------
    .. [1] Portnoy, Tirosh, Hendler: Towards Federated Learning With Byzantine-Robust Client Weighting.
       Applied Sciences 12(17), 2022.
    """
    if not bound:
        return np.ones(len(claims))
    return np.maximum(np.minimum(claims, bound * typical) / typical, _LEAST)


def bounded_shares(lengths: Vector, most: float = 2.0) -> Vector:
    r"""Return lengths cut so that none has more than ``most`` / n of their sum.

    The cut c is the largest number with :math:`c \le \frac{most}{n} \sum_k \min(l_k, c)`.

    Parameters
    ----------
    lengths
        Of each client's part of the step; positive.
    most
        How many times an equal share one client may have at most; above 1.

    Examples
    --------
    >>> bounded_shares(np.array([1.0, 1.0, 1.0, 97.0]))
    array([1., 1., 1., 3.])
    """
    n = len(lengths)
    ordered = np.sort(lengths)[::-1]
    left = np.cumsum(ordered[::-1])[::-1]  # the sum of all but the k largest
    for k in range(n):
        # With the k largest cut at c: c = most / n * (k c + left). The last k with most * k < n always fits.
        cut = most * left[k] / (n - most * k)
        if ordered[k] <= cut:
            return np.asarray(np.minimum(lengths, cut))
    return lengths


_LEAST = 1e-6
"""A claim is worth this much at least, so that votes have a sum above zero whatever was claimed."""
