from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from mabrfl.errors import DatasetError
from mabrfl.simulation.data.cifar import read_batches


def record(label: int, red: int, green: int, blue: int) -> bytes:
    return bytes([label]) + bytes([red]) * 1024 + bytes([green]) * 1024 + bytes([blue]) * 1024


def test_batches_follow_one_another_and_planes_are_red_green_blue(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(record(3, 10, 20, 30) + record(9, 1, 2, 3))
    (tmp_path / "b.bin").write_bytes(record(0, 7, 8, 9))
    images, labels = read_batches(tmp_path, ("a.bin", "b.bin"))
    assert images.shape == (3, 3, 32, 32)
    assert images.dtype == np.uint8
    assert labels.dtype == np.int64
    assert labels.tolist() == [3, 9, 0]
    assert images[:, :, 5, 31].tolist() == [[10, 20, 30], [1, 2, 3], [7, 8, 9]]


def test_rows_come_before_columns(tmp_path: Path) -> None:
    pixels = np.zeros((3, 32, 32), np.uint8)
    pixels[1, 4, 7] = 200
    (tmp_path / "a.bin").write_bytes(b"\x05" + pixels.tobytes())
    images, _ = read_batches(tmp_path, ("a.bin",))
    assert np.argwhere(images).tolist() == [[0, 1, 4, 7]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "size must be a multiple of 3,073 bytes; got 0"),
        (record(1, 2, 3, 4)[:-1], "size must be a multiple of 3,073 bytes; got 3,072"),
        (record(1, 2, 3, 4) + b"x", "size must be a multiple of 3,073 bytes; got 3,074"),
        (record(1, 2, 3, 4) + record(10, 2, 3, 4), r"labels must be 0\.\.9; got 10 in record 1"),
        (gzip.compress(record(1, 2, 3, 4)), "this is a gzip file; unpack it first"),
    ],
)
def test_malformed_batches_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.bin").write_bytes(content)
    with pytest.raises(DatasetError, match=rf"a\.bin: {message}"):
        read_batches(tmp_path, ("a.bin",))


def test_missing_batch_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(record(1, 2, 3, 4))
    with pytest.raises(DatasetError, match=r"b\.bin: cannot be read; No such file"):
        read_batches(tmp_path, ("a.bin", "b.bin"))
