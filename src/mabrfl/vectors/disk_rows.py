"""Matrices of rows on disk: for updates and momenta that are larger than memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from mabrfl.vectors.slices import Floats


def disk_matrix(rows: int, width: int, dtype: np.dtype[Any], folder: Path | None = None) -> Floats:
    """Return a matrix of zeros whose numbers are in a file without a name, which is gone with the matrix.

    Parameters
    ----------
    rows, width, dtype
        Of the matrix.
    folder
        Where the file is; the system's folder for temporary files if left out, which may itself be in memory.
    """
    with tempfile.TemporaryFile(dir=folder) as file:
        if not rows * width:
            return np.zeros((rows, width), dtype=dtype)
        file.truncate(rows * width * dtype.itemsize)
        return np.memmap(file, dtype=dtype, mode="r+", shape=(rows, width))


def copy_on_disk(matrix: Floats, rows: Iterable[int], *, room: int | None = None, folder: Path | None = None) -> Floats:
    """Copy rows of a matrix, one by one, into a new matrix on disk, with ``room`` for more.

    Examples
    --------
    >>> copy_on_disk(np.array([[1.0, 2.0], [3.0, 4.0]]), [1, 0]).tolist()
    [[3.0, 4.0], [1.0, 2.0]]
    """
    chosen = list(rows)
    copy = disk_matrix(len(chosen) if room is None else room, matrix.shape[1], matrix.dtype, folder)
    for place, row in enumerate(chosen):
        copy[place] = matrix[row]
    return copy


def write_rows(rows: Iterable[Any], width: int, folder: Path | None = None) -> Floats:
    """Write rows to disk as they come, in single precision; return them as one read-only matrix.

    What is no flat array of ``width`` floating-point numbers becomes a row of NaN.

    Examples
    --------
    >>> write_rows(iter([[1.0, 2.0], [1.0, 2.0, 3.0], "no row"]), 2).tolist()
    [[1.0, 2.0], [nan, nan], [nan, nan]]
    """
    count = 0
    with tempfile.TemporaryFile(dir=folder) as file:
        for row in rows:
            file.write(_single_precision(row, width).tobytes())
            count += 1
        file.flush()
        if not count * width:
            return np.zeros((count, width), dtype=np.float32)
        return np.memmap(file, dtype=np.float32, mode="r", shape=(count, width))


def _single_precision(row: Any, width: int) -> Floats:
    try:
        array = np.asarray(row)
        sound = array.dtype.kind == "f" and array.shape == (width,)
    except Exception:  # noqa: BLE001 (a hostile object may raise anything, and must cost its sender alone)
        sound = False
    if not sound:
        return np.full(width, np.nan, dtype=np.float32)
    with np.errstate(over="ignore"):
        return array.astype(np.float32)
