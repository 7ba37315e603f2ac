"""Matrices of pairs of clients, n x n, and what follows from them.

With thousands of clients such a matrix is larger than any cache. So the work is done block by block, and without
copies of the whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]
Indices = NDArray[np.intp]

_BLOCK = 1 << 16
"""Numbers in a block of rows."""
_CANCELS = 2.0**13
"""Units of rounding below which the squared distance of two rows, as a share of their squares, has lost its digits."""
_TILE = 64
"""Rows and columns of a square tile."""


def row_blocks(rows: int, columns: int) -> Iterator[slice]:
    """Yield slices of rows that have about as many numbers as fit into a core's cache."""
    step = max(1, _BLOCK // max(columns, 1))
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def symmetrise(matrix: Matrix) -> Matrix:
    """Replace a square matrix by the mean of itself and its transpose, in place; return it.

    Examples
    --------
    >>> symmetrise(np.array([[1.0, 2.0], [4.0, 1.0]]))
    array([[1., 3.],
           [3., 1.]])
    """
    n = len(matrix)
    tiles = [slice(start, min(start + _TILE, n)) for start in range(0, n, _TILE)]
    for number, rows in enumerate(tiles):
        for columns in tiles[number:]:
            mean = matrix[rows, columns] + matrix[columns, rows].T
            mean /= 2
            matrix[rows, columns] = mean
            matrix[columns, rows] = mean.T
    return matrix


def cosines(inner: Matrix, *, out: Matrix | None = None) -> Matrix:
    """Return the cosine similarities that belong to a Gram matrix; 0 beside a zero vector.

    They are written into ``out``, which may be the Gram matrix itself, if it is given.

    Examples
    --------
    >>> cosines(np.array([[4.0, 1.0], [1.0, 1.0]]))
    array([[1. , 0.5],
           [0.5, 1. ]])
    """
    lengths = np.sqrt(np.clip(np.diag(inner), 0, None))
    inverse = np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    result = np.empty(inner.shape) if out is None else out
    for rows in row_blocks(*inner.shape):
        part = np.multiply(inner[rows], inverse[rows, None], out=result[rows])
        part *= inverse
        np.clip(part, -1.0, 1.0, out=part)
    return result


def squared_distances(inner: Matrix) -> Matrix:
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


def row_nearly_all_share(inner: Matrix, dtype: np.dtype[Any]) -> int | None:
    """Return the row that most others nearly agree with, if those are half of all rows or more; else None.

    Rows nearly agree if their squared distance, taken from the Gram matrix, would lose three digits or more of those
    that products in this precision have.

    Examples
    --------
    >>> rows = np.array([[1.0, 1.0001], [1.0, 1.0], [1.0, 0.9999], [-1.0, 1.0]])
    >>> row_nearly_all_share(rows @ rows.T, np.dtype(np.float32)), row_nearly_all_share(rows @ rows.T, rows.dtype)
    (0, None)
    """
    n, squares = len(inner), np.diag(inner)
    near = np.zeros(n, dtype=np.intp)
    least = 1 - _CANCELS * float(np.finfo(dtype).eps)
    for rows in row_blocks(n, n):
        means = (squares[rows, None] + squares) / 2
        near[rows] = np.count_nonzero(inner[rows] > least * means, axis=1) - 1
    row = int(np.argmax(near)) if n > 1 else 0
    return row if n > 1 and near[row] >= n // 2 else None


def upper_triangle(matrix: Matrix, members: Indices | None = None) -> Vector:
    """Return the entries above the diagonal, row by row, of these rows and columns: what SciPy's clustering takes.

    Members, here and below, are distinct and in ascending order; all rows if left out.

    Examples
    --------
    >>> upper_triangle(np.arange(16.0).reshape(4, 4), np.array([0, 1, 3]))
    array([1., 3., 7.])
    """
    if members is not None and len(members) == len(matrix):
        members = None
    n = len(matrix) if members is None else len(members)
    entries = np.empty(n * (n - 1) // 2)
    end = 0
    for k in range(n - 1):
        start, end = end, end + n - 1 - k
        entries[start:end] = matrix[k, k + 1 :] if members is None else matrix[members[k]].take(members[k + 1 :])
    return entries


def row_sums(matrix: Matrix, members: Indices | None = None) -> Vector:
    """Return the sum of each of these rows over these columns.

    Examples
    --------
    >>> row_sums(np.arange(16.0).reshape(4, 4), np.array([0, 1, 3]))
    array([ 4., 16., 40.])
    """
    if members is None or len(members) == len(matrix):
        return np.asarray(matrix.sum(axis=1))
    sums = np.empty(len(members))
    for rows in row_blocks(len(members), len(members)):
        sums[rows] = matrix[members[rows]].take(members, axis=1).sum(axis=1)
    return sums


def block_sum(matrix: Matrix, rows: Indices, columns: Indices) -> float:
    """Return the sum of the entries in these rows and these columns."""
    if len(rows) > len(columns):  # a row of the matrix stays in the cache
        return block_sum(matrix.T, columns, rows)
    if len(rows) <= _BLOCK // max(len(columns), 1):  # most branches of a tree are small
        return float(matrix[rows[:, None], columns].sum())
    return float(sum(matrix[rows[some, None], columns].sum() for some in row_blocks(len(rows), len(columns))))


def largest_beside(matrix: Matrix) -> Vector:
    """Return the largest entry of each row of a square matrix, the diagonal left out; minus infinity if alone.

    Examples
    --------
    >>> largest_beside(np.array([[9.0, 2.0, 3.0], [2.0, 9.0, 1.0], [3.0, 1.0, 9.0]]))
    array([3., 2., 3.])
    """
    largest = np.empty(len(matrix))
    for rows in row_blocks(*matrix.shape):
        part = matrix[rows].copy()
        np.fill_diagonal(part[:, rows], -np.inf)
        largest[rows] = part.max(axis=1)
    return largest


def median_is_below(matrix: Matrix, bound: float) -> bool:
    """Whether the median of the entries beside the diagonal is below a bound that those on it are not below.

    Examples
    --------
    >>> ones = np.array([[1.0, 0.3, 0.4], [0.3, 1.0, 0.8], [0.4, 0.8, 1.0]])
    >>> median_is_below(ones, 0.5), median_is_below(ones, 0.4)
    (True, False)
    """
    n = len(matrix)
    below = sum(int(np.count_nonzero(matrix[rows] < bound)) for rows in row_blocks(n, n))
    if 2 * below != n * (n - 1):
        return 2 * below > n * (n - 1)
    return bool(np.median(matrix[~np.eye(n, dtype=bool)]) < bound)  # its two middle entries are on either side
