"""Reader for IDX, the file format of MNIST and Fashion-MNIST.

Layout (http://yann.lecun.com/exdb/mnist): two zero bytes, a type byte, a byte with the number of
dimensions, each dimension as a big-endian 32-bit integer, then the values in C order, big-endian.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mabrfl.errors import DatasetError
from mabrfl.simulation.data.content import MAX_BYTES, Content

_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_idx(path: Path, *, max_bytes: int = MAX_BYTES) -> NDArray[Any]:
    """Return the array in an IDX file, plain or gzip, in native byte order.

    The size follows from the header and is checked before anything is read, so neither a lying header nor
    a gzip bomb costs memory.

    Parameters
    ----------
    path
        The file.
    max_bytes
        Refuse arrays (and files) larger than this.

    Raises
    ------
    DatasetError
        Wrong magic number, unknown type, zero dimension, too large, truncated, trailing bytes, bad checksum.
    """
    with Content(path, max_bytes=max_bytes) as content:
        zero_high, zero_low, type_code, num_dimensions = content.read(4, "the IDX magic number")
        if zero_high or zero_low:
            raise DatasetError(f"{path}: not an IDX file; it must start with two zero bytes")
        if type_code not in _TYPES:
            raise DatasetError(f"{path}: unknown IDX type byte 0x{type_code:02x}")
        header = content.read(4 * num_dimensions, "the IDX header")
        shape = tuple(int(size) for size in np.frombuffer(header, ">u4"))
        if not shape or 0 in shape:
            raise DatasetError(f"{path}: every IDX dimension must be at least 1; got shape {shape}")
        dtype = np.dtype(_TYPES[type_code])
        num_bytes = math.prod(shape) * dtype.itemsize
        if num_bytes > max_bytes:
            raise DatasetError(f"{path}: shape {shape} takes {num_bytes:,} bytes; at most {max_bytes:,} are read")
        values = content.read(num_bytes, f"shape {shape}")
        content.expect_end()
    return np.frombuffer(values, dtype).reshape(shape).astype(dtype.newbyteorder("="), copy=False)
