"""Intake: every update is checked by itself before any statistics are taken.

A malformed update is quarantined and its sender blamed, unless it is zero: that says nothing, and an honest
client without data, or with a learning rate that has come to its end, sends no other. The others' result is,
bit for bit, what it would have been without it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mabrfl import vectors
from mabrfl.rng import ClientId
from mabrfl.updates import Floats, Updates, canonical
from mabrfl.vectors.disk_rows import copy_on_disk


@dataclass(frozen=True)
class Intake:
    """The well-formed updates in canonical order of their ids, and why the others are not.

    ``silent`` are those of the malformed that sent nothing but zeros, or next to nothing: not to be blamed. ``grams``
    are the Gram matrices, if they were asked for and all updates are well-formed.
    """

    ids: tuple[ClientId, ...]
    matrix: Floats
    norms: NDArray[np.float64]
    num_examples: NDArray[np.float64]
    malformed: dict[ClientId, str]
    silent: frozenset[ClientId] = frozenset()
    grams: vectors.Grams | None = None


def inspect(
    updates: Updates,
    dimension: int | None = None,
    dtype: np.dtype[Any] | None = None,
    *,
    multiply: Sequence[Sequence[slice]] | None = None,
) -> Intake:
    """Separate well-formed updates from malformed ones.

    An update is malformed if its id was used twice, it is no flat array of floating-point numbers of
    the expected length, one of its numbers is NaN or infinite, its norm is zero (or too small or too
    large for the server's precision), or its number of examples is not positive and finite.

    Parameters
    ----------
    updates
        What the clients sent.
    dimension
        The length that the server expects; if unknown, what most of the clients sent. If no length has
        more senders than any other, nobody is believed.
    dtype
        The server's precision, to which everything is converted before it is judged; if unknown, that of
        a whole matrix, and single precision for rows that came one by one. So no client can choose it.
    multiply
        Blocks of columns, perhaps none: their Gram matrices and that of the whole are taken in the pass of the norms.
    """
    malformed = {client: "id sent twice" for client, times in Counter(updates.ids).items() if times > 1}
    counts = _counts(updates, malformed)
    expected = updates.dimension if updates.dimension is not None else dimension
    if isinstance(updates.matrix, np.ndarray) and updates.matrix.ndim == _MATRIX:
        rows: Sequence[Floats] | Floats = _whole(updates, updates.matrix, expected, dtype, malformed)
        width = updates.matrix.shape[1]
    else:
        rows, width = _one_by_one(updates, expected, dtype, malformed)
    position = {client: k for k, client in enumerate(updates.ids)}
    empty: Floats = np.zeros((0, width if expected is None else expected), dtype=dtype or np.float32)
    kept = [client for client in canonical(position) if client not in malformed]
    matrix = _take(rows, [position[client] for client in kept], empty)
    norms, grams = (vectors.row_norms(matrix), None) if multiply is None else vectors.norms_and_grams(matrix, multiply)
    bad = [k for k in range(len(kept)) if not _usable(float(norms[k]), matrix.dtype)]
    silent = frozenset(kept[k] for k in bad if norms[k] < 1)
    if bad:
        malformed.update({kept[k]: _explain(float(norms[k])) for k in bad})
        kept = [client for client in kept if client not in malformed]
        matrix = _take(rows, [position[client] for client in kept], empty)
        norms, grams = vectors.row_norms(matrix), None
    examples = counts[[position[client] for client in kept]] if kept else np.zeros(0)
    return Intake(tuple(kept), matrix, norms, examples, malformed, silent, grams)


_MATRIX = 2
_DOUBLE = np.dtype(np.float64)
_WIDE_NORMS = (1e-150, 1e150)


def _counts(updates: Updates, malformed: dict[ClientId, str]) -> NDArray[np.float64]:
    """Return the reported example counts; blame those that are no positive finite number."""
    result = np.ones(len(updates.ids))
    for k, count in enumerate(updates.num_examples if updates.num_examples is not None else ()):
        try:
            result[k] = float(count)
        except Exception:  # noqa: BLE001 (a hostile object may raise anything, and must cost its sender alone)
            result[k] = np.nan
        if not 0 < result[k] < np.inf:
            shown = count if isinstance(count, float) else type(count).__name__
            malformed.setdefault(updates.ids[k], f"num_examples must be positive and finite; got {shown}")
    return result


def _whole(
    updates: Updates,
    matrix: Floats,
    expected: int | None,
    dtype: np.dtype[Any] | None,
    malformed: dict[ClientId, str],
) -> Floats:
    """Check an (n, d) array, whose rows share one length and type."""
    if matrix.dtype.kind != "f":
        raise TypeError(f"updates must be floating-point numbers; got a matrix of {matrix.dtype}")
    if expected is not None and matrix.shape[1] != expected:
        for client in updates.ids:
            malformed.setdefault(client, f"length {matrix.shape[1]}, expected {expected}")
    own = np.dtype(np.float64 if matrix.dtype.itemsize >= _DOUBLE.itemsize else np.float32)
    with np.errstate(over="ignore"):
        return matrix.astype(dtype or own, copy=False)


def _one_by_one(
    updates: Updates, expected: int | None, dtype: np.dtype[Any] | None, malformed: dict[ClientId, str]
) -> tuple[list[Floats], int]:
    """Check each row of a sequence by itself; put an empty row where one is malformed. Return the length, too."""
    rows = [_as_row(row) for row in updates.matrix]
    for client, row in zip(updates.ids, rows, strict=True):
        if row is None:
            malformed.setdefault(client, "not a flat array of floating-point numbers")
    if expected is None:
        sound = (row for client, row in zip(updates.ids, rows, strict=True) if client not in malformed)
        expected = _most_common([len(row) for row in sound if row is not None])
    nothing: Floats = np.zeros(0, dtype=dtype or np.float32)
    checked = []
    for client, row in zip(updates.ids, rows, strict=True):
        if row is not None and len(row) != expected:
            said = f"expected {expected}" if expected is not None else "and no length has most senders: declare it"
            malformed.setdefault(client, f"length {len(row)}, {said}")
        with np.errstate(over="ignore"):
            checked.append(nothing if row is None or client in malformed else row.astype(nothing.dtype))
    return checked, expected or 0


def _most_common(lengths: list[int]) -> int | None:
    """Return the length that more rows have than any other length, or None."""
    ranked = [*Counter(lengths).most_common(2), (-1, 0)]
    return ranked[0][0] if ranked[0][1] > ranked[1][1] else None


def _as_row(row: Any) -> NDArray[Any] | None:
    try:
        array = np.asarray(row)
    except Exception:  # noqa: BLE001 (a hostile object may raise anything, and must cost its sender alone)
        return None
    return array if array.ndim == 1 and array.dtype.kind == "f" else None


def _take(rows: Sequence[Floats] | Floats, order: list[int], empty: Floats) -> Floats:
    """Return these rows, in this order, as one read-only matrix; a copy only if need be."""
    if not order:
        matrix = empty
    elif isinstance(rows, np.ndarray):
        matrix = rows if order == list(range(len(rows))) else _chosen(rows, order)
    else:
        matrix = np.stack([rows[k] for k in order])
    view = np.ascontiguousarray(matrix).view()
    view.flags.writeable = False
    return view


def _chosen(rows: Floats, order: list[int]) -> Floats:
    """Return these rows in this order; on disk if they are on disk, since they may be larger than memory."""
    if isinstance(rows, np.memmap):
        return copy_on_disk(rows, order, folder=None if rows.filename is None else Path(rows.filename).parent)
    return rows[order]


def _usable(norm: float, dtype: np.dtype[Any]) -> bool:
    if dtype == _DOUBLE:  # squares must stay within float64, too
        return _WIDE_NORMS[0] <= norm <= _WIDE_NORMS[1]
    limits = np.finfo(dtype)
    return float(limits.tiny) <= norm <= float(limits.max)


def _explain(norm: float) -> str:
    if np.isnan(norm) or np.isinf(norm):
        return "NaN or infinite number"
    return f"norm {norm:.3g} is {'zero or too small' if norm < 1 else 'too large'}"
