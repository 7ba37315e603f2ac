"""Reader for the binary version of CIFAR-10 (https://www.cs.toronto.edu/~kriz/cifar.html).

Each record is one label byte and 3,072 pixel bytes: the red, green and blue planes of 32 x 32, row by row.
The Python version of the same data is a pickle, which can run code when read, and is not supported.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mabrfl.errors import DatasetError
from mabrfl.simulation.data.content import Content

FOLDER = "cifar-10-batches-bin"
TRAIN_FILES = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TEST_FILE = "test_batch.bin"
NUM_CLASSES = 10

_IMAGE_SHAPE = (3, 32, 32)
_RECORD_BYTES = 1 + 3 * 32 * 32
# Ten times the official batch.
_MAX_BATCH_BYTES = 100_000 * _RECORD_BYTES


def read_batches(folder: Path, names: tuple[str, ...]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the ``(N, 3, 32, 32)`` images and the N labels of several batch files, one after the other.

    Raises
    ------
    DatasetError
        If a file is missing, its size is no multiple of 3,073 bytes, or a label is 10 or more.
    """
    batches = [_read_records(folder / name) for name in names]
    images = np.concatenate([records[:, 1:] for records in batches]).reshape(-1, *_IMAGE_SHAPE)
    return images, np.concatenate([records[:, 0] for records in batches]).astype(np.int64)


def _read_records(path: Path) -> NDArray[np.uint8]:
    with Content(path, max_bytes=_MAX_BATCH_BYTES) as content:
        if content.compressed:
            raise DatasetError(f"{path}: this is a gzip file; unpack it first")
        size = content.capacity
        if size == 0 or size % _RECORD_BYTES:
            raise DatasetError(f"{path}: size must be a multiple of {_RECORD_BYTES:,} bytes; got {size:,}")
        values = content.read(size, f"{size // _RECORD_BYTES:,} records")
        content.expect_end()
    records = np.frombuffer(values, np.uint8).reshape(-1, _RECORD_BYTES)
    wrong = np.flatnonzero(records[:, 0] >= NUM_CLASSES)
    if wrong.size:
        first = int(wrong[0])
        raise DatasetError(f"{path}: labels must be 0..{NUM_CLASSES - 1}; got {records[first, 0]} in record {first}")
    return records
