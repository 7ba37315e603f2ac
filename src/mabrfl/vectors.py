"""The only file that loops over d, the number of model parameters.

Client updates are n rows of d numbers, and d is what is large. Everything a defense decides follows
from the n x n matrix of inner products, ``G = X @ X.T``, and ends in a weighted sum, ``w @ X``. So the
work here is: norms, G, the weighted sum, the momentum fold, and, as the honest exception, the
coordinate-wise rules.

All of it goes over fixed slices of columns that fit into a core's cache, on as many threads as there
are cores. Each slice is computed by one thread and the partial results are added up in float64 in the
order of the slices, so that the result is the same, bit for bit, for any number of threads.
"""

from __future__ import annotations

import functools
import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

Floats = NDArray[np.floating[Any]]
T = TypeVar("T")

SLICE = 8192
"""Columns per slice; part of the definition of the result (float32 sums within, float64 across)."""

_SAFE_NORMS = (1e-12, 1e12)
"""Rows whose norms lie in here can be multiplied in float32 without overflow or underflow."""

_SAFE_WEIGHTS = (1e-30, 1e30)
"""Weights in here fit into float32."""


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def each_slice(width: int, visit: Callable[[slice], T], *, threads: int | None = None) -> list[T]:
    """Call ``visit`` with each slice of ``range(width)``; return the results in order of the slices."""
    slices = [slice(start, min(start + SLICE, width)) for start in range(0, width, SLICE)]
    threads = min(threads or _cores(), len(slices))
    with _blas().limit(limits=1, user_api="blas"):
        if threads <= 1:
            return [visit(columns) for columns in slices]
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(visit, slices))


def row_norms(matrix: Floats) -> NDArray[np.float64]:
    """Return the Euclidean norm of each row in float64; NaN or Inf where a row is not finite.

    Squares are summed in the rows' own precision within a slice, which is fast and exact enough for
    ordinary sizes; a row for which that overflows or underflows is measured again in float64.

    Examples
    --------
    >>> row_norms(np.array([[3.0, 4.0], [3e30, 4e30]], dtype=np.float32)).round(-24)
    array([0.e+00, 5.e+30])
    """
    if matrix.shape[0] == 0 or matrix.shape[1] == 0:
        return np.zeros(matrix.shape[0])

    def visit(columns: slice) -> NDArray[np.float64]:
        part = matrix[:, columns]
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            return np.asarray(np.einsum("ij,ij->i", part, part), dtype=np.float64)

    with np.errstate(invalid="ignore"):
        norms = np.asarray(np.sqrt(np.sum(each_slice(matrix.shape[1], visit), axis=0)))
    low, high = _SAFE_NORMS
    for row in np.flatnonzero(~((norms > low) & (norms < high))):
        norms[row] = _exact_norm(matrix[row])
    return norms


def _exact_norm(row: Floats) -> float:
    """Return the norm of one row, scaled by its largest entry so that nothing overflows."""
    largest = float(np.max(np.abs(row)))
    if not np.isfinite(largest) or largest == 0.0:
        return largest
    with np.errstate(over="ignore"):
        return largest * float(np.linalg.norm(row.astype(np.float64) / largest))


def gram(
    matrix: Floats, norms: NDArray[np.float64] | None = None, rows: NDArray[np.intp] | None = None
) -> NDArray[np.float64]:
    """Return ``X @ X.T`` in float64, from products in the rows' own precision.

    Rows of extreme size are scaled by powers of two first, which changes no digit of the result.

    Parameters
    ----------
    matrix
        ``(n, d)`` array of finite numbers.
    norms
        The norms of X, if known already.
    rows
        Which rows of the array X consists of; all of them if left out.
    """
    if norms is None:
        norms = row_norms(matrix if rows is None else matrix[rows])
    exponents = None if _ordinary(norms) else np.frexp(norms)[1]
    chosen = slice(None) if rows is None else rows
    partial = each_slice(matrix.shape[1], lambda columns: _product(matrix[chosen, columns], exponents))
    return _total(partial, len(norms), exponents)


def block_grams(
    matrix: Floats,
    blocks: Sequence[Sequence[slice]],
    norms: NDArray[np.float64] | None = None,
    rows: NDArray[np.intp] | None = None,
) -> tuple[NDArray[np.float64], list[NDArray[np.float64]]]:
    """Return ``X @ X.T``, the same bytes as :func:`gram`, and its share over each block of columns, in one pass.

    A slice inside a block is multiplied once for both. A slice that contains the bound of a block is multiplied
    whole, for ``X @ X.T``, and again cut at the bound, for the blocks. So the shares of blocks that cover all
    columns add up to ``X @ X.T`` up to rounding within a slice: entry (i, j) differs by at most
    ``2 * SLICE * u * norms[i] * norms[j]``, with ``u`` the unit roundoff of the rows' precision.

    Parameters
    ----------
    matrix
        ``(n, d)`` array of finite numbers.
    blocks
        The columns of each block, as slices ``start:stop`` without overlap.
    norms
        The norms of X, if known already.
    rows
        Which rows of the array X consists of; all of them if left out.
    """
    if norms is None:
        norms = row_norms(matrix if rows is None else matrix[rows])
    exponents = None if _ordinary(norms) else np.frexp(norms)[1]
    chosen = slice(None) if rows is None else rows
    bounds = sorted({bound for block in blocks for columns in block for bound in (columns.start, columns.stop)})

    def visit(columns: slice) -> tuple[NDArray[np.float64], dict[int, NDArray[np.float64]]]:
        part = matrix[chosen, columns]
        whole = _product(part, exponents)
        cuts = bounds[bisect_right(bounds, columns.start) : bisect_left(bounds, columns.stop)]
        if not cuts:
            return whole, {columns.start: whole}
        edges = pairwise([columns.start, *cuts, columns.stop])
        inside = ((start, slice(start - columns.start, stop - columns.start)) for start, stop in edges)
        return whole, {start: _product(part[:, piece], exponents) for start, piece in inside}

    partial = each_slice(matrix.shape[1], visit)
    pieces = {start: product for _, products in partial for start, product in products.items()}
    total = _total([whole for whole, _ in partial], len(norms), exponents)
    return total, [_block_gram(matrix, block, pieces, exponents, rows) for block in blocks]


def _block_gram(
    matrix: Floats,
    block: Sequence[slice],
    pieces: Mapping[int, NDArray[np.float64]],
    exponents: NDArray[np.intc] | None,
    rows: NDArray[np.intp] | None,
) -> NDArray[np.float64]:
    """Add up the pieces of one block. If a row is of extreme size there, take its products again, scaled to that."""
    n, starts = len(matrix if rows is None else rows), list(pieces)  # in ascending order
    if exponents is None:
        ends = [(bisect_left(starts, columns.start), bisect_left(starts, columns.stop)) for columns in block]
        total = _total([pieces[start] for first, last in ends for start in starts[first:last]], n, None)
        if np.all(np.diag(total) > _SAFE_NORMS[0] ** 2):
            return total
    return sum((gram(matrix[:, columns], rows=rows) for columns in block), np.zeros((n, n)))


def label_residual_gram(
    matrix: Floats,
    norms: NDArray[np.float64],
    weight: slice,
    bias: slice,
    rows: NDArray[np.intp] | None = None,
) -> NDArray[np.float64]:
    r"""Return the Gram matrix of what labels do not explain in the updates of an output layer.

    With :math:`W_i` (classes x features) and :math:`b_i` (classes) the layer's part of row i, divided by its norm,

    .. math:: R_i = W_i - b_i \otimes \mu, \qquad \mu = \sum_{ik} b_{ik} W_{ik} \Big/ \sum_{ik} b_{ik}^2.

    For cross-entropy, b says which labels a client's examples have, and :math:`b \otimes \mu` is what these labels
    do to an average example. R is which examples carry the labels. Clients with different labels, but the same
    idea of each, have similar R; a client with wrong labels does not.

    Parameters
    ----------
    matrix
        ``(n, d)`` array of finite numbers.
    norms
        The norms of the rows, none of them zero.
    weight, bias
        The columns of the layer's weights, class by class, and of its bias.
    rows
        Which rows of the array to take; all of them if left out.

    Examples
    --------
    Two classes with one feature and a bias each. The last client has the labels of the others' wrong:

    >>> updates = np.array([[1.0, -1.0, 1.0, -1.0], [2.0, -1.0, 2.0, -1.0], [-1.0, 1.0, 1.0, -1.0]])
    >>> cosines(label_residual_gram(updates, row_norms(updates), slice(0, 2), slice(2, 4))).round(1)
    array([[ 1. ,  0.9, -1. ],
           [ 0.9,  1. , -0.9],
           [-1. , -0.9,  1. ]])
    """
    chosen = slice(None) if rows is None else rows
    part = matrix[chosen, weight]
    precision = matrix.dtype if _ordinary(norms) else np.dtype(np.float64)
    biases = matrix[chosen, bias] / norms[:, None]
    total = max(float(np.sum(biases**2)), np.finfo(np.float64).tiny)
    with _blas().limit(limits=1, user_api="blas"):
        weights = part.astype(precision, copy=False).reshape(biases.size, -1)  # a row per client and class
        mean = (biases / norms[:, None]).astype(precision).ravel() @ weights / total
        toward = (weights @ mean).astype(np.float64).reshape(biases.shape) / norms[:, None]
        cross = toward @ biases.T
        length = float(mean.astype(np.float64) @ mean)
        products = gram(part) / np.outer(norms, norms)
        return np.asarray(products - cross - cross.T + biases @ biases.T * length)


def _ordinary(norms: NDArray[np.float64]) -> bool:
    low, high = _SAFE_NORMS
    return bool(np.all((norms == 0) | ((norms > low) & (norms < high))))


def _product(part: Floats, exponents: NDArray[np.intc] | None) -> NDArray[np.float64]:
    """Return the Gram matrix of one slice, its rows divided by ``2**exponents``."""
    if exponents is not None:
        part = np.ldexp(part, -exponents[:, None])
    return (part @ part.T).astype(np.float64)


def _total(partial: list[NDArray[np.float64]], n: int, exponents: NDArray[np.intc] | None) -> NDArray[np.float64]:
    """Add up the slices' Gram matrices and undo the scaling of their rows."""
    total = np.sum(partial, axis=0) if partial else np.zeros((n, n))
    if exponents is not None:
        total = np.ldexp(total, exponents[:, None] + exponents[None, :])
    return (total + total.T) / 2


def products(matrix: Floats, vector: Floats, norms: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """Return the inner product of each row with one vector, ``X @ v``, in float64.

    Where a row (its ``norms``, if known already) or the vector is of extreme size, products are taken in float64.
    """
    if matrix.shape[1] == 0:
        return np.zeros(matrix.shape[0])
    norms = row_norms(matrix) if norms is None else norms
    if not _ordinary(np.append(norms, row_norms(vector[None]))):
        vector = vector.astype(np.float64)
    partial = each_slice(matrix.shape[1], lambda columns: (matrix[:, columns] @ vector[columns]).astype(np.float64))
    return np.asarray(np.sum(partial, axis=0))


def combine(weights: NDArray[Any], matrix: Floats) -> Floats:
    """Return the weighted sum of rows, ``w @ X``, in the rows' own precision.

    Rows of weight zero are not read at all.
    """
    used = np.flatnonzero(weights)
    exact = np.asarray(weights, dtype=np.float64)[used]
    step = np.zeros(matrix.shape[1], dtype=matrix.dtype)
    everything = len(used) == matrix.shape[0]
    low, high = _SAFE_WEIGHTS
    ordinary = bool(np.all((np.abs(exact) > low) & (np.abs(exact) < high)))
    scale = exact.astype(matrix.dtype) if ordinary else exact

    def visit(columns: slice) -> None:
        part = matrix[:, columns] if everything else matrix[used, columns]
        if ordinary:
            np.matmul(scale, part, out=step[columns])
        else:  # a weight beyond the rows' precision belongs to a row just as far on the other side
            with np.errstate(over="ignore"):
                step[columns] = scale @ part.astype(np.float64)

    if len(used):
        each_slice(matrix.shape[1], visit)
    return step


def mix(weights: NDArray[np.float64], matrix: Floats) -> Floats:
    """Return several weighted sums of rows, ``W @ X``, in the rows' own precision.

    Examples
    --------
    >>> mix(np.array([[0.5, 0.5]]), np.array([[1.0, 2.0], [3.0, 6.0]]))
    array([[2., 4.]])
    """
    mixed = np.empty((len(weights), matrix.shape[1]), dtype=matrix.dtype)
    low, high = _SAFE_WEIGHTS
    used = np.abs(weights[weights != 0])
    ordinary = bool(np.all((used > low) & (used < high)))
    scale = weights.astype(matrix.dtype) if ordinary else weights

    def visit(columns: slice) -> None:
        part = matrix[:, columns] if ordinary else matrix[:, columns].astype(np.float64)
        with np.errstate(over="ignore"):
            mixed[:, columns] = scale @ part

    each_slice(matrix.shape[1], visit)
    return mixed


def fold(
    memory: Floats,
    rows: NDArray[np.intp],
    updates: Floats,
    take: NDArray[np.intp],
    *,
    decay: NDArray[np.float64],
    bounds: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Set ``memory[rows] = updates[take] + decay * memory[rows]`` in place; return its Gram matrix.

    One pass over the data does both: a slice is still in the cache when its products are taken.

    Parameters
    ----------
    memory
        ``(capacity, d)`` array, changed in place.
    rows, take
        Which rows of ``memory`` and of ``updates`` belong together.
    updates
        ``(n, d)`` array.
    decay
        One factor per row of ``rows``.
    bounds
        An upper bound on the norm of each result, so that extreme rows can be scaled.
    """
    factor = decay.astype(memory.dtype)[:, None]
    remembers = bool(np.any(factor))
    everything = len(take) == updates.shape[0]
    exponents = None if _ordinary(bounds) else np.frexp(bounds)[1]

    consecutive = len(rows) > 0 and bool(np.all(np.diff(rows) == 1))
    span = slice(rows[0], rows[0] + len(rows)) if consecutive else slice(0)

    def visit(columns: slice) -> NDArray[np.float64]:
        part = updates[:, columns] if everything else updates[take, columns]
        if consecutive:  # a view instead of two copies
            kept = memory[span, columns]
            np.multiply(kept, factor, out=kept)
            np.add(kept, part, out=kept)
            return _product(kept, exponents)
        if remembers:
            part = part + factor * memory[rows, columns]
        memory[rows, columns] = part
        return _product(part, exponents)

    return _total(each_slice(memory.shape[1], visit), len(rows), exponents)


def fold_scaled(
    memory: Floats,
    rows: NDArray[np.intp],
    updates: Floats,
    *,
    decay: NDArray[np.float64],
    gain: NDArray[np.float64],
) -> None:
    """Set ``memory[rows] = gain * updates + decay * memory[rows]`` in place.

    Gains that single precision cannot hold belong to updates of extreme size: those are multiplied in
    double precision, so that the product, which is of ordinary size, is right.
    """
    low, high = _SAFE_WEIGHTS
    ordinary = bool(np.all((gain > low) & (gain < high)))
    factor = decay.astype(memory.dtype)[:, None]
    scale = (gain.astype(memory.dtype) if ordinary else gain)[:, None]

    def visit(columns: slice) -> None:
        memory[rows, columns] = scale * updates[:, columns] + factor * memory[rows, columns]

    each_slice(memory.shape[1], visit)


def coordinatewise(matrix: Floats, rule: Callable[[Floats], Floats]) -> Floats:
    """Apply a rule on columns, ``(n, slice) -> (slice,)``, to the whole matrix slice by slice."""
    step = np.empty(matrix.shape[1], dtype=matrix.dtype)

    def visit(columns: slice) -> None:
        step[columns] = rule(matrix[:, columns])

    each_slice(matrix.shape[1], visit)
    return step


def magnitude_thresholds(matrix: Floats, count: int) -> Floats:
    """Return, for each row, the magnitude that its ``count`` largest entries have at least.

    Examples
    --------
    >>> magnitude_thresholds(np.array([[1.0, -5.0, 3.0, 0.0]]), 2)
    array([3.])
    """
    place = matrix.shape[1] - count
    return np.array([np.partition(np.abs(row), place)[place] for row in matrix], dtype=matrix.dtype)


def sparse_statistics(
    matrix: Floats, blocks: Sequence[slice], thresholds: Floats
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return, by block and row, the squared norm of the entries above the row's threshold, and the balance of signs.

    The balance is the mean sign of those that are not zero; 0 if there are none.
    """
    limits = thresholds[:, None]

    def visit(part: Floats) -> NDArray[np.float64]:
        kept = np.where(np.abs(part) >= limits, part, 0).astype(np.float64)
        signs = np.sign(kept)
        return np.stack([np.einsum("ij,ij->i", kept, kept), signs.sum(axis=1), np.abs(signs).sum(axis=1)])

    empty = np.zeros((3, len(matrix)))
    totals = np.empty((len(blocks), 3, len(matrix)))
    for number, block in enumerate(blocks):
        rows = matrix[:, block]
        parts = each_slice(rows.shape[1], functools.partial(_visit_columns, rows, visit))
        totals[number] = sum(parts, empty)
    return totals[:, 0], totals[:, 1] / np.maximum(totals[:, 2], 1.0)


def _visit_columns(rows: Floats, visit: Callable[[Floats], T], columns: slice) -> T:
    return visit(rows[:, columns])


def sign_agreement(matrix: Floats, thresholds: Floats) -> NDArray[np.float64]:
    """Return, for each row, the share of entries above its threshold that have the sign of the majority of all rows."""
    limits = thresholds[:, None]

    def visit(columns: slice) -> NDArray[np.float64]:
        part = matrix[:, columns]
        signs = np.sign(part)
        large = np.abs(part) >= limits
        agree = large & (signs == np.sign(signs.sum(axis=0)))
        return np.stack([agree.sum(axis=1), large.sum(axis=1)]).astype(np.float64)

    agree, large = np.sum(each_slice(matrix.shape[1], visit), axis=0)
    return np.asarray(agree / np.maximum(large, 1.0))


def cosines(inner: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the cosine similarities that belong to a Gram matrix; 0 beside a zero vector.

    Examples
    --------
    >>> cosines(np.array([[4.0, 1.0], [1.0, 1.0]]))
    array([[1. , 0.5],
           [0.5, 1. ]])
    """
    lengths = np.sqrt(np.clip(np.diag(inner), 0, None))
    inverse = np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    return np.clip(inner * inverse[:, None] * inverse[None, :], -1.0, 1.0)


def squared_distances(inner: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the squared Euclidean distances between rows that belong to a Gram matrix.

    Examples
    --------
    >>> squared_distances(np.array([[4.0, 1.0], [1.0, 1.0]]))
    array([[0., 3.],
           [3., 0.]])
    """
    squares = np.diag(inner)
    distances = np.clip(squares[:, None] + squares[None, :] - 2 * inner, 0, None)
    np.fill_diagonal(distances, 0.0)
    return distances
