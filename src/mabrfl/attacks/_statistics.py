"""Mean, deviation and finite rows of updates: the parts of the colluding attacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mabrfl import vectors
from mabrfl.attacks.view import AttackerView
from mabrfl.updates import Floats


def bounded(values: NDArray[Any], dtype: np.dtype[Any]) -> Floats:
    """Return values in a narrower type; values that would become infinite become the largest finite number."""
    largest = np.finfo(dtype).max
    return np.asarray(np.clip(values, -largest, largest), dtype=dtype)


def column_mean(part: Floats) -> NDArray[np.float64]:
    """Mean of each column, in float64."""
    return np.asarray(np.mean(part.astype(np.float64, copy=False), axis=0))  # faster than sums that convert


def column_std(part: Floats, ddof: int, mean: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """Deviation of each column, in float64; zero if there are too few rows. The mean need not be formed again."""
    if len(part) <= ddof:
        return np.zeros(part.shape[1])
    squares = part - (column_mean(part) if mean is None else mean)
    squares *= squares
    return np.asarray(np.sqrt(np.sum(squares, axis=0) / (len(part) - ddof)))


def mean(matrix: Floats) -> Floats:
    """Mean of the rows, summed in float64."""
    return vectors.coordinatewise(matrix, column_mean)


def std(matrix: Floats, ddof: int = 0) -> Floats:
    """Coordinate-wise deviation of the rows; zeros if there are too few rows."""
    return vectors.coordinatewise(matrix, lambda part: column_std(part, ddof))


ColumnRule = Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]
"""A rule on columns in float64 and their means."""


def of_rows(matrix: Floats, rule: ColumnRule) -> Floats | None:
    """Apply a rule to all rows; None if there are none."""
    return _applied(matrix, rule)[0] if len(matrix) else None


def of_finite_rows(matrix: Floats, rule: ColumnRule) -> Floats | None:
    """Apply a rule to the finite rows; None if there are none.

    Mostly all rows are finite. In single precision the means show it, so that rows are measured only if one does not.
    """
    if len(matrix) and matrix.dtype == np.float32:
        result, finite = _applied(matrix, rule)
        if finite:
            return result
    return of_rows(take(matrix, np.flatnonzero(np.isfinite(vectors.row_norms(matrix)))), rule)


def _applied(matrix: Floats, rule: ColumnRule) -> tuple[Floats, bool]:
    """Return what a rule says, and whether all means are finite."""
    odd: list[int] = []

    def visit(part: Floats) -> Floats:
        wide = part.astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            mean = column_mean(wide)
            odd.append(int(np.count_nonzero(~np.isfinite(mean))))
            return bounded(rule(wide, mean), part.dtype)

    return vectors.coordinatewise(matrix, visit), not any(odd)


def finite_benign(view: AttackerView) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Return which benign rows are finite, and the norms of those."""
    norms = vectors.row_norms(view.benign)
    finite = np.flatnonzero(np.isfinite(norms))
    return finite, norms[finite]


def take(matrix: Floats, rows: NDArray[np.intp]) -> Floats:
    """Return these rows; the matrix itself, not a copy, if they are all of its rows."""
    return matrix if len(rows) == len(matrix) else matrix[rows]


def everyone_sends(row: Floats, view: AttackerView) -> Floats:
    """Return one row for all attackers, stored once (a read-only broadcast)."""
    return np.broadcast_to(row, view.shape)
