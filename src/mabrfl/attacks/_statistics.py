"""Mean, deviation and finite rows of updates: the parts of the colluding attacks."""

from __future__ import annotations

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
    return np.asarray(np.mean(part, axis=0, dtype=np.float64))


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
