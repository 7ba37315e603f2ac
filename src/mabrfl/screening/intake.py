"""Intake: every update is checked by itself before any statistics are taken.

A malformed update is quarantined and its sender blamed. The others' result is, bit for bit, what it
would have been without it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mabrfl import vectors
from mabrfl.rng import ClientId
from mabrfl.updates import Floats, Updates, canonical


@dataclass(frozen=True)
class Intake:
    """The well-formed updates in canonical order of their ids, and why the others are not."""

    ids: tuple[ClientId, ...]
    matrix: Floats
    norms: NDArray[np.float64]
    num_examples: NDArray[np.float64]
    malformed: dict[ClientId, str]


def inspect(updates: Updates, dimension: int | None = None) -> Intake:
    """Separate well-formed updates from malformed ones.

    An update is malformed if its id was used twice, it is no flat array of floating-point numbers of
    the expected length, one of its numbers is NaN or infinite, its norm is zero (or too small or too
    large for its own precision), or its number of examples is not positive and finite.

    Parameters
    ----------
    updates
        What the clients sent.
    dimension
        The length that the server expects; if unknown, what most of the rows have.
    """
    malformed = {client: "id sent twice" for client, times in Counter(updates.ids).items() if times > 1}
    counts = _counts(updates, malformed)
    expected = updates.dimension if updates.dimension is not None else dimension
    if isinstance(updates.matrix, np.ndarray) and updates.matrix.ndim == _MATRIX:
        rows: Sequence[Floats] | Floats = _whole(updates, updates.matrix, expected, malformed)
    else:
        rows = _one_by_one(updates, expected, malformed)
    matrix, norms, ids = _finite(updates.ids, rows, malformed)
    position = {client: k for k, client in enumerate(updates.ids)}
    examples = counts[[position[client] for client in ids]] if ids else np.zeros(0)
    return Intake(tuple(ids), matrix, norms, examples, malformed)


_MATRIX = 2
_WIDE_NORMS = (1e-150, 1e150)
_KEPT_DTYPES = (np.dtype(np.float32), np.dtype(np.float64))


def _counts(updates: Updates, malformed: dict[ClientId, str]) -> NDArray[np.float64]:
    """Return the reported example counts; blame those that are no positive finite number."""
    result = np.ones(len(updates.ids))
    for k, count in enumerate(updates.num_examples if updates.num_examples is not None else ()):
        try:
            result[k] = float(count)
        except (TypeError, ValueError, OverflowError):
            result[k] = np.nan
        if not 0 < result[k] < np.inf:
            malformed.setdefault(updates.ids[k], f"num_examples must be positive and finite; got {str(count)[:40]}")
    return result


def _whole(updates: Updates, matrix: Floats, expected: int | None, malformed: dict[ClientId, str]) -> Floats:
    """Check an (n, d) array, whose rows share one length and type."""
    if not np.issubdtype(matrix.dtype, np.floating):
        raise TypeError(f"updates must be floating-point numbers; got a matrix of {matrix.dtype}")
    if expected is not None and matrix.shape[1] != expected:
        for client in updates.ids:
            malformed.setdefault(client, f"length {matrix.shape[1]}, expected {expected}")
    return matrix if matrix.dtype in _KEPT_DTYPES else matrix.astype(np.float32)


def _one_by_one(updates: Updates, expected: int | None, malformed: dict[ClientId, str]) -> list[Floats]:
    """Check each row of a sequence by itself; put an empty row where one is malformed."""
    rows: list[NDArray[Any] | None] = [_as_row(row) for row in updates.matrix]
    if expected is None:
        lengths = Counter(len(row) for row in rows if row is not None)
        expected = min(lengths, key=lambda length: (-lengths[length], length)) if lengths else 0
    for k, (client, row) in enumerate(zip(updates.ids, rows, strict=True)):
        if row is None:
            malformed.setdefault(client, "not a flat array of floating-point numbers")
        elif len(row) != expected:
            malformed.setdefault(client, f"length {len(row)}, expected {expected}")
            rows[k] = None
    sound = [row for client, row in zip(updates.ids, rows, strict=True) if row is not None and client not in malformed]
    wide = bool(sound) and all(row.dtype == np.float64 for row in sound)
    dtype = np.float64 if wide else np.float32
    blank: Floats = np.full(expected, np.nan, dtype=dtype)
    with np.errstate(over="ignore"):
        return [blank if row is None else row.astype(dtype) for row in rows]


def _as_row(row: Any) -> NDArray[Any] | None:
    try:
        array = np.asarray(row)
    except (TypeError, ValueError):
        return None
    return array if array.ndim == 1 and np.issubdtype(array.dtype, np.floating) else None


def _finite(
    ids: Sequence[ClientId], rows: Sequence[Floats] | Floats, malformed: dict[ClientId, str]
) -> tuple[Floats, NDArray[np.float64], list[ClientId]]:
    """Drop rows without a usable norm; return the rest in canonical order, with their norms."""
    position = {client: k for k, client in enumerate(ids)}
    matrix, kept = _take(rows, [client for client in canonical(position) if client not in malformed], position)
    norms = vectors.row_norms(matrix)
    bad = [k for k in range(len(kept)) if not _usable(float(norms[k]), matrix.dtype)]
    if not bad:
        return matrix, norms, kept
    for k in bad:
        malformed[kept[k]] = _explain(float(norms[k]))
    matrix, kept = _take(rows, [client for client in kept if client not in malformed], position)
    return matrix, vectors.row_norms(matrix), kept


def _take(
    rows: Sequence[Floats] | Floats, wanted: list[ClientId], position: dict[ClientId, int]
) -> tuple[Floats, list[ClientId]]:
    order = [position[client] for client in wanted]
    if isinstance(rows, np.ndarray):
        matrix = rows if order == list(range(len(rows))) else rows[order]
    else:
        matrix = np.stack([rows[k] for k in order]) if order else np.zeros((0, len(rows[0]) if rows else 0))
    view = np.ascontiguousarray(matrix).view()
    view.flags.writeable = False
    return view, wanted


def _usable(norm: float, dtype: np.dtype[Any]) -> bool:
    if dtype == np.float64:  # squares must stay within float64, too
        return _WIDE_NORMS[0] <= norm <= _WIDE_NORMS[1]
    limits = np.finfo(dtype)
    return float(limits.tiny) <= norm <= float(limits.max)


def _explain(norm: float) -> str:
    if np.isnan(norm) or np.isinf(norm):
        return "NaN or infinite number"
    return f"norm {norm:.3g} is {'zero or too small' if norm < 1 else 'too large'}"
