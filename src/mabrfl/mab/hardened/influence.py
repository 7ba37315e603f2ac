"""Bounded influence: the length of each client's step, the weight of its claimed examples, the votes of a group."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mabrfl.mab.hardened.copies import residual_cosines

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


def clipped_lengths(
    norms: Vector, typical: float, step_size: Literal["clipped", "typical", "mean"] = "clipped", clip: float = 1.5
) -> Vector:
    """Return the length that each update is given in the step.

    ``clipped``: its own, at most ``clip`` times what is ``typical``. Lengths of honest clients grow with the
    number of their steps, so those with more data go further; a client with hardly any data is not
    blown up to the size of the others.

    Examples
    --------
    >>> clipped_lengths(np.array([1.0, 2.0, 300.0]), typical=2.0)
    array([1., 2., 3.])
    """
    if step_size == "clipped" or not len(norms):
        return np.minimum(norms, clip * typical)
    return np.full(len(norms), typical if step_size == "typical" else np.mean(norms))


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


def independent_votes(weights: Vector, *views: NDArray[np.float64]) -> Vector:
    r"""Divide each client's vote by the number of votes that its direction has already.

    With residual cosines :math:`r_{kj}` (see :func:`~mabrfl.mab.hardened.copies.residual_cosines`),

    .. math:: v_k = \frac{w_k}{1 + \sum_{j \ne k} \max(r_{kj}, 0)},

    so m clients with a common residual direction have together m / (1 + (m - 1) r) votes: one if they
    send copies, almost m if they are independent. The sum is the design effect of cluster sampling
    (Kish 1965). Of several views of the same clients (their momenta, and what they sent this round), each pair
    is judged by that in which it agrees most, so that clients with an honest past cannot push together in one round.

    Parameters
    ----------
    weights
        Votes before.
    views
        Cosines, each an ``(n, n)`` matrix.

    Examples
    --------
    Three of six clients push the same way, beside what all have in common:

    >>> common, rows = np.eye(7)[0], np.eye(7)[[1, 1, 1, 4, 5, 6]]
    >>> rows = 0.8 * common + 0.6 * rows
    >>> votes = independent_votes(np.ones(6), rows @ rows.T)
    >>> bool(votes[:3].sum() < 0.5 * votes[3:].sum())
    True
    """
    if len(weights) < _FEWEST:
        return weights
    shared = np.maximum.reduce([residual_cosines(cosines, weights) for cosines in views]).clip(0, None)
    np.fill_diagonal(shared, 0)
    return np.asarray(weights / (1 + shared.sum(axis=1)))


_LEAST = 1e-6
"""A claim is worth this much at least, so that votes have a sum above zero whatever was claimed."""
_FEWEST = 3
"""Two residuals are opposite by construction: nothing can be said about them."""
