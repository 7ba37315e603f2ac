"""Weighted sums of rows, and momenta."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mabrfl.vectors.slices import Floats, each_slice, span, wide

_SAFE_WEIGHTS = (1e-30, 1e30)
"""Weights in here fit into float32."""


def combine(weights: NDArray[Any], matrix: Floats) -> Floats:
    """Return the weighted sum of rows, ``w @ X``, in the rows' own precision; in single precision if that is half.

    Rows of weight zero are not read at all.
    """
    used = np.flatnonzero(weights)
    exact = np.asarray(weights, dtype=np.float64)[used]
    step = np.zeros(matrix.shape[1], dtype=np.result_type(matrix.dtype, np.float32))
    everything = len(used) == matrix.shape[0]
    low, high = _SAFE_WEIGHTS
    ordinary = bool(np.all((np.abs(exact) > low) & (np.abs(exact) < high)))
    scale = exact.astype(step.dtype) if ordinary else exact

    def visit(columns: slice) -> None:
        part = wide(matrix[:, columns] if everything else matrix[used, columns])
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


def folding(
    memory: Floats,
    rows: NDArray[np.intp],
    updates: Floats,
    take: NDArray[np.intp] | None = None,
    *,
    decay: NDArray[np.float64],
    gain: NDArray[np.float64],
) -> Callable[[slice], None]:
    """Return what sets ``memory[rows] = gain * updates[take] + decay * memory[rows]`` in a slice of columns, in place.

    It computes at least in single precision. Gains that single precision cannot hold belong to updates of extreme
    size: those are multiplied in double precision, so that the product, which is of ordinary size, is right.

    Parameters
    ----------
    memory
        ``(capacity, d)`` array, changed in place.
    rows, take
        Which rows of ``memory`` and of ``updates`` belong together; all updates if ``take`` is left out.
    updates
        ``(n, d)`` array.
    decay, gain
        One factor per row of ``rows``.
    """
    low, high = _SAFE_WEIGHTS
    ordinary = bool(np.all((gain > low) & (gain < high)))
    precision = np.result_type(memory.dtype, np.float32)
    factor = decay.astype(precision)[:, None]
    scale = (gain.astype(precision) if ordinary else gain)[:, None]
    as_sent = bool(np.all(gain == 1))
    copies = as_sent and not np.any(factor)
    chosen = slice(None) if take is None or len(take) == len(updates) else take
    place = span(rows)

    def fold_slice(columns: slice) -> None:
        part = updates[chosen, columns] if as_sent else scale * updates[chosen, columns]
        if place is None or precision != memory.dtype:
            memory[rows, columns] = part if copies else part + factor * memory[rows, columns]
        else:  # a view instead of two copies
            kept = memory[place, columns]
            kept *= factor
            kept += part

    return fold_slice
