"""Reader for SVHN's cropped digits, ``train_32x32.mat`` and ``test_32x32.mat`` (http://ufldl.stanford.edu/housenumbers).

A file has two variables: X, 32 x 32 x 3 x N pixels, and y, N labels from 1 to 10, in which 10 stands for the digit 0.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.io import loadmat, whosmat

from mabrfl.errors import DatasetError
from mabrfl.simulation.data.content import MAX_BYTES, Content

FILES = ("train_32x32.mat", "test_32x32.mat")
NUM_CLASSES = 10

_PIXELS = (32, 32, 3)


def read_mat(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the ``(N, 3, 32, 32)`` images and the N labels, the digits 0 to 9.

    The shapes in the file's headers are checked before the values are read.

    Raises
    ------
    DatasetError
        If the file is no MATLAB file of version 5, or its variables are not of the form above.
    """
    with Content(path) as content:
        source: Any = io.BytesIO(b"".join(content.chunks(MAX_BYTES)))
    try:
        shapes = {name: shape for name, shape, _ in whosmat(source)}
    except Exception as error:  # scipy raises many kinds for a file that is none
        raise DatasetError(f"{path}: not a MATLAB file of version 5; {str(error) or type(error).__name__}") from error
    pixels, labels = shapes.get("X", ()), shapes.get("y", ())
    count = pixels[-1] if len(pixels) == len(_PIXELS) + 1 else 0
    if tuple(pixels[:-1]) != _PIXELS or tuple(labels) != (count, 1) or not 0 < count * 3072 <= MAX_BYTES:
        raise DatasetError(f"{path}: must have X of shape (32, 32, 3, N) and y of shape (N, 1); got {shapes}")
    try:
        source.seek(0)
        values = loadmat(source, variable_names=["X", "y"])
    except Exception as error:
        raise DatasetError(f"{path}: corrupt; {str(error) or type(error).__name__}") from error
    images, digits = np.asarray(values["X"]), np.asarray(values["y"]).reshape(-1)
    if images.dtype != np.uint8:
        raise DatasetError(f"{path}: pixels must be uint8; got {images.dtype}")
    wrong = np.flatnonzero((digits < 1) | (digits > NUM_CLASSES))
    if wrong.size:
        raise DatasetError(f"{path}: labels must be 1..{NUM_CLASSES}; got {digits[wrong[0]]} at index {wrong[0]}")
    return np.ascontiguousarray(images.transpose(3, 2, 0, 1)), digits.astype(np.int64) % NUM_CLASSES
