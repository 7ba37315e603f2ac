"""Rules that look at single coordinates: the honest exception, since no Gram matrix can stand for them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from mabrfl.vectors.slices import Floats, T, each_slice


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
