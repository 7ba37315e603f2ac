"""Reader for the binary versions of CIFAR-10 and CIFAR-100 (https://www.cs.toronto.edu/~kriz/cifar.html).

Each record is one label byte (CIFAR-100: the coarse and the fine label) and 3,072 pixel bytes: the red, green and
blue planes of 32 x 32, row by row. The Python version of the same data is a pickle, which can run code when read, and
is not supported.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mabrfl.errors import DatasetError
from mabrfl.simulation.data.content import Content

FOLDER, FOLDER_100 = "cifar-10-batches-bin", "cifar-100-binary"
TRAIN_FILES = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TEST_FILE = "test_batch.bin"
NUM_CLASSES = 10

_IMAGE_SHAPE = (3, 32, 32)
_IMAGE_BYTES = 3 * 32 * 32
# Ten times the official batch of CIFAR-10, twice the training file of CIFAR-100.
_MAX_RECORDS = 100_000


def read_batches(
    folder: Path, names: tuple[str, ...], *, label_bytes: int = 1, num_classes: int = NUM_CLASSES
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the ``(N, 3, 32, 32)`` images and the N labels of several batch files, one after the other.

    Parameters
    ----------
    folder, names
        The files.
    label_bytes
        Labels in front of an image; the last one, which is the finest, is returned.
    num_classes
        How many of these labels there are.

    Raises
    ------
    DatasetError
        If a file is missing, its size is no multiple of a record, or a label is ``num_classes`` or more.
    """
    batches = [_read_records(folder / name, label_bytes, num_classes) for name in names]
    images = np.concatenate([records[:, label_bytes:] for records in batches]).reshape(-1, *_IMAGE_SHAPE)
    return images, np.concatenate([records[:, label_bytes - 1] for records in batches]).astype(np.int64)


def _read_records(path: Path, label_bytes: int, num_classes: int) -> NDArray[np.uint8]:
    width = label_bytes + _IMAGE_BYTES
    with Content(path, max_bytes=_MAX_RECORDS * width) as content:
        if content.compressed:
            raise DatasetError(f"{path}: this is a gzip file; unpack it first")
        size = content.capacity
        if size == 0 or size % width:
            raise DatasetError(f"{path}: size must be a multiple of {width:,} bytes; got {size:,}")
        values = content.read(size, f"{size // width:,} records")
        content.expect_end()
    records = np.frombuffer(values, np.uint8).reshape(-1, width)
    labels = records[:, label_bytes - 1]
    wrong = np.flatnonzero(labels >= num_classes)
    if wrong.size:
        first = int(wrong[0])
        raise DatasetError(f"{path}: labels must be 0..{num_classes - 1}; got {labels[first]} in record {first}")
    return records
