"""Norms of rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mabrfl.vectors.slices import Floats, each_slice

SAFE_NORMS = (1e-12, 1e12)
"""Rows whose norms lie in here can be multiplied in float32 without overflow or underflow."""


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
    return norms_of(matrix, each_slice(matrix.shape[1], lambda columns: squares_in(matrix[:, columns])))


def squares_in(part: Floats) -> NDArray[np.float64]:
    """Return the squared norm of each row of one slice."""
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        return np.asarray(np.einsum("ij,ij->i", part, part), dtype=np.float64)


def norms_of(matrix: Floats, squares: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Add up the slices' squares; measure rows again for which they are too large or too small."""
    with np.errstate(invalid="ignore"):
        norms = np.asarray(np.sqrt(np.sum(squares, axis=0)))
    low, high = SAFE_NORMS
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


def is_ordinary(norms: NDArray[np.float64]) -> bool:
    """Whether rows with these norms can be multiplied in single precision as they are."""
    low, high = SAFE_NORMS
    return bool(np.all((norms == 0) | ((norms > low) & (norms < high))))
