"""Inner products of rows."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from mabrfl.vectors.norms import SAFE_NORMS, is_ordinary, norms_of, row_norms, squares_in
from mabrfl.vectors.pairs import row_blocks
from mabrfl.vectors.slices import Floats, each_slice, one_blas_thread, span, visit_slices, wide

Grams = tuple[NDArray[np.float64], list[NDArray[np.float64]]]
"""The Gram matrix of rows, and its share over each block of columns."""
_Products = tuple[Floats, list[tuple[int, Floats]]]


def gram(
    matrix: Floats,
    norms: NDArray[np.float64] | None = None,
    rows: NDArray[np.intp] | None = None,
    *,
    before: Callable[[slice], None] | None = None,
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
    before
        Called with each slice of columns before it is read: it may change these columns, and needs no pass of its own.
    """
    return block_grams(matrix, (), norms, rows, before=before)[0]


def norms_and_grams(matrix: Floats, blocks: Sequence[Sequence[slice]] = ()) -> tuple[NDArray[np.float64], Grams | None]:
    """Return :func:`row_norms` and :func:`block_grams` in one pass: a slice is still in the cache when needed again.

    There are no Gram matrices if a row is not finite, or of extreme size.

    Examples
    --------
    >>> norms_and_grams(np.array([[3.0, 4.0], [0.0, 2.0]]))
    (array([5., 2.]), (array([[25.,  8.],
           [ 8.,  4.]]), []))
    """
    if matrix.shape[0] == 0 or matrix.shape[1] == 0:
        return row_norms(matrix), None
    squares: list[NDArray[np.float64]] = []
    totals = _BlockTotals(len(matrix), blocks)

    def visit(columns: slice) -> tuple[NDArray[np.float64], _Products]:
        part = matrix[:, columns]
        with np.errstate(all="ignore"):
            return squares_in(part), totals.multiply(part, columns)

    with np.errstate(all="ignore"):
        for some, products in visit_slices(matrix.shape[1], visit):
            squares.append(some)
            totals.add(products)
    norms = norms_of(matrix, squares)
    return norms, totals.grams(matrix) if is_ordinary(norms) else None


def difference_gram(matrix: Floats, row: int) -> NDArray[np.float64]:
    """Return the Gram matrix of the rows less one of them, in float64, without a copy of the matrix.

    Examples
    --------
    >>> difference_gram(np.array([[1000.0, 1.0], [1000.0, 3.0], [1001.0, 1.0]]), 0)
    array([[0., 0., 0.],
           [0., 4., 0.],
           [0., 0., 1.]])
    """

    def differences(columns: slice) -> Floats:
        return np.asarray(matrix[:, columns] - matrix[row, columns])

    def squares(columns: slice) -> NDArray[np.float64]:
        part = differences(columns).astype(np.float64)
        return np.asarray(np.einsum("ij,ij->i", part, part))

    width = matrix.shape[1]
    norms = np.sqrt(np.sum(each_slice(width, squares), axis=0))
    exponents = None if is_ordinary(norms) else np.frexp(norms)[1]
    products = visit_slices(width, lambda columns: slice_product(differences(columns), exponents))
    return total_gram(products, len(matrix), exponents)


def block_grams(
    matrix: Floats,
    blocks: Sequence[Sequence[slice]],
    norms: NDArray[np.float64] | None = None,
    rows: NDArray[np.intp] | None = None,
    *,
    before: Callable[[slice], None] | None = None,
) -> Grams:
    """Return ``X @ X.T``, the same bytes as :func:`gram`, and its share over each block of columns, in one pass.

    A slice inside a block is multiplied once for both. A slice that contains the bound of a block is multiplied
    whole, for ``X @ X.T``, and again cut at the bound, for the blocks. So the shares of blocks that cover all
    columns add up to ``X @ X.T`` up to rounding within a slice: entry (i, j) differs by at most
    ``2 * SLICE * u * norms[i] * norms[j]``, with ``u`` the unit roundoff of the rows' precision.

    Parameters
    ----------
    matrix, norms, rows, before
        See :func:`gram`.
    blocks
        The columns of each block, as slices ``start:stop`` without overlap.
    """
    if norms is None:
        norms = row_norms(matrix if rows is None else matrix[rows])
    totals = _BlockTotals(len(norms), blocks, None if is_ordinary(norms) else np.frexp(norms)[1])
    chosen = slice(None) if rows is None else rows if (found := span(rows)) is None else found

    def visit(columns: slice) -> _Products:
        if before is not None:
            before(columns)
        return totals.multiply(wide(matrix[chosen, columns]), columns)

    for products in visit_slices(matrix.shape[1], visit):
        totals.add(products)
    return totals.grams(matrix, rows)


class _BlockTotals:
    """The Gram matrices of rows over all columns and over blocks of them, added up slice by slice."""

    def __init__(self, n: int, blocks: Sequence[Sequence[slice]], exponents: NDArray[np.intc] | None = None) -> None:
        self._blocks, self._exponents = blocks, exponents
        self._total, self._shares = _Total(n), [_Total(n) for _ in blocks]
        self._bounds = sorted({bound for block in blocks for each in block for bound in (each.start, each.stop)})

    def multiply(self, part: Floats, columns: slice) -> _Products:
        """Return the Gram matrix of a slice, and those of its parts that belong to a block, with the block's number."""
        whole = slice_product(part, self._exponents)
        if self._exponents is not None:  # blocks are measured one by one
            return whole, []
        cuts = self._bounds[bisect_right(self._bounds, columns.start) : bisect_left(self._bounds, columns.stop)]
        if not cuts:
            return whole, [(owner, whole) for owner in self._owners(columns.start)]
        pieces = []
        for start, stop in pairwise([columns.start, *cuts, columns.stop]):
            if found := self._owners(start):
                piece = slice_product(part[:, start - columns.start : stop - columns.start], None)
                pieces += [(owner, piece) for owner in found]
        return whole, pieces

    def _owners(self, start: int) -> list[int]:
        return [k for k, block in enumerate(self._blocks) if any(part.start <= start < part.stop for part in block)]

    def add(self, products: _Products) -> None:
        """Add the products of the next slice."""
        whole, pieces = products
        self._total.add(whole)
        for owner, piece in pieces:
            self._shares[owner].add(piece)

    def grams(self, matrix: Floats, rows: NDArray[np.intp] | None = None) -> Grams:
        """Return the sums. A block in which a row is of extreme size is multiplied again, from the matrix."""
        usual = self._exponents is None
        sound = [usual and bool(np.all(share.diagonal() > SAFE_NORMS[0] ** 2)) for share in self._shares]
        return self._total.value(self._exponents), [
            share.value(None) if right else _scaled_gram(matrix, block, rows)
            for block, share, right in zip(self._blocks, self._shares, sound, strict=True)
        ]


def _scaled_gram(matrix: Floats, block: Sequence[slice], rows: NDArray[np.intp] | None) -> NDArray[np.float64]:
    """Return the Gram matrix of one block in which a row is of extreme size: each row is scaled to its size there."""
    n = len(matrix if rows is None else rows)
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

    >>> from mabrfl.vectors import cosines
    >>> updates = np.array([[1.0, -1.0, 1.0, -1.0], [2.0, -1.0, 2.0, -1.0], [-1.0, 1.0, 1.0, -1.0]])
    >>> cosines(label_residual_gram(updates, row_norms(updates), slice(0, 2), slice(2, 4))).round(1)
    array([[ 1. ,  0.9, -1. ],
           [ 0.9,  1. , -0.9],
           [-1. , -0.9,  1. ]])
    """
    chosen = slice(None) if rows is None else rows
    part = wide(matrix[chosen, weight])
    precision = part.dtype if is_ordinary(norms) else np.dtype(np.float64)
    biases = matrix[chosen, bias] / norms[:, None]
    total = max(float(np.sum(biases**2)), np.finfo(np.float64).tiny)
    with one_blas_thread():
        weights = part.astype(precision, copy=False).reshape(biases.size, -1)  # a row per client and class
        mean = (biases / norms[:, None]).astype(precision).ravel() @ weights / total
        toward = (weights @ mean).astype(np.float64).reshape(biases.shape) / norms[:, None]
        cross = toward @ biases.T
        length = float(mean.astype(np.float64) @ mean)
        result = gram(part)
        for some in row_blocks(*result.shape):
            result[some] /= np.outer(norms[some], norms)
            result[some] -= cross[some]
            result[some] -= cross.T[some]
        # With thousands of clients, a fresh matrix would take longer than the product.
        labels = np.matmul(biases, biases.T, out=cross)
        labels *= length
        result += labels
        return result


def slice_product(part: Floats, exponents: NDArray[np.intc] | None) -> Floats:
    """Return the Gram matrix of one slice, its rows divided by ``2**exponents``."""
    if exponents is not None:
        part = np.ldexp(part, -exponents[:, None])
    return part @ part.T


class _Total:
    """The Gram matrices of slices, added up in float64 as they come."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._sum: NDArray[np.float64] | None = None
        self._single: list[Floats] = []  # NumPy adds up single numbers pairwise, and so do we

    def add(self, product: Floats) -> None:
        if self._n == 1:
            self._single.append(product)
        elif self._sum is None:
            self._sum = product.astype(np.float64)
        else:
            self._sum += product

    def diagonal(self) -> NDArray[np.float64]:
        return np.diag(self._whole())

    def value(self, exponents: NDArray[np.intc] | None) -> NDArray[np.float64]:
        """Return the sum, with the scaling of the rows undone."""
        total = self._whole()
        if exponents is not None:
            total = np.ldexp(total, exponents[:, None] + exponents[None, :])
        return total

    def _whole(self) -> NDArray[np.float64]:
        if self._single:
            return np.asarray(np.sum(np.array(self._single, dtype=np.float64), axis=0))
        return np.zeros((self._n, self._n)) if self._sum is None else self._sum


def total_gram(products: Iterable[Floats], n: int, exponents: NDArray[np.intc] | None) -> NDArray[np.float64]:
    """Add up the slices' Gram matrices and undo the scaling of their rows."""
    total = _Total(n)
    for product in products:
        total.add(product)
    return total.value(exponents)


def products(matrix: Floats, vector: Floats, norms: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """Return the inner product of each row with one vector, ``X @ v``, in float64.

    Where a row (its ``norms``, if known already) or the vector is of extreme size, products are taken in float64.
    """
    if matrix.shape[1] == 0:
        return np.zeros(matrix.shape[0])
    norms = row_norms(matrix) if norms is None else norms
    if not is_ordinary(np.append(norms, row_norms(vector[None]))):
        vector = vector.astype(np.float64)
    partial = each_slice(matrix.shape[1], lambda columns: (matrix[:, columns] @ vector[columns]).astype(np.float64))
    return np.asarray(np.sum(partial, axis=0))
