from __future__ import annotations

import gzip
import os
import struct
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest

from mabrfl.errors import DatasetError
from mabrfl.simulation.data.idx import read_idx


def idx(shape: tuple[int, ...], body: bytes, type_code: int = 0x08, magic: bytes = b"\x00\x00") -> bytes:
    return magic + bytes([type_code, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + body


GOOD = idx((2, 3), bytes(range(6)))


def read(tmp_path: Path, content: bytes) -> np.ndarray:
    path = tmp_path / "some-idx"
    path.write_bytes(content)
    return read_idx(path)


@pytest.mark.parametrize("wrap", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_values_come_in_the_declared_shape(tmp_path: Path, wrap) -> None:
    array = read(tmp_path, wrap(GOOD))
    np.testing.assert_array_equal(array, np.array([[0, 1, 2], [3, 4, 5]], np.uint8))
    assert array.flags.writeable


@pytest.mark.parametrize(
    ("type_code", "body", "expected"),
    [
        (0x09, b"\xff\x7f", np.array([-1, 127], np.int8)),
        (0x0B, b"\x01\x00\xff\xfe", np.array([256, -2], np.int16)),
        (0x0C, struct.pack(">2i", 70_000, -1), np.array([70_000, -1], np.int32)),
        (0x0D, struct.pack(">2f", 0.5, -2.0), np.array([0.5, -2.0], np.float32)),
        (0x0E, struct.pack(">2d", 0.1, 1e300), np.array([0.1, 1e300], np.float64)),
    ],
)
def test_every_type_of_the_format_is_read_big_endian(
    tmp_path: Path, type_code: int, body: bytes, expected: np.ndarray
) -> None:
    array = read(tmp_path, idx((2,), body, type_code))
    assert array.dtype == expected.dtype
    assert array.dtype.isnative
    np.testing.assert_array_equal(array, expected)


def test_gzip_of_several_members_is_one_content(tmp_path: Path) -> None:
    assert read(tmp_path, gzip.compress(GOOD[:7]) + gzip.compress(GOOD[7:])).sum() == 15


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "truncated; the IDX magic number needs 4 bytes|more than the file can hold"),
        (idx((2,), b"ab", magic=b"\x00\x01"), "must start with two zero bytes"),
        (b"<!DOCTYPE html><html>404</html>", "not an IDX file"),
        (idx((2,), b"ab", type_code=0x0A), "unknown IDX type byte 0x0a"),
        (idx((), b""), r"every IDX dimension must be at least 1; got shape \(\)"),
        (idx((0,), b""), r"every IDX dimension must be at least 1; got shape \(0,\)"),
        (idx((5, 0, 5), b""), r"got shape \(5, 0, 5\)"),
        (idx((7,), b"abcdef"), r"shape \(7,\) needs 7 bytes, found 6"),
        (idx((50,), b"abcdef"), r"shape \(50,\) needs 50 bytes, more than the file can hold"),
        (idx((5,), b"abcdef"), "trailing bytes"),
        (idx((2**32 - 1,) * 200, b"x" * 99), "takes .* bytes; at most 1,073,741,824 are read"),
        (b"\x00\x00\x08\xff" + b"\x00\x00\x00\x01", "the IDX header needs 1,020 bytes, more than the file can hold"),
        (gzip.compress(idx((7,), b"abcdef")), r"truncated; shape \(7,\) needs 7 bytes, found 6"),
        (gzip.compress(idx((5,), b"abcdef")), "trailing bytes"),
        (gzip.compress(GOOD) + b"junk", "corrupt; Not a gzipped file"),
        (b"\x1f\x8b" + b"\xff" * 30, "corrupt; Unknown compression method"),
    ],
)
def test_malformed_files_are_refused_by_name_and_reason(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(DatasetError, match=message) as caught:
        read(tmp_path, content)
    assert str(tmp_path / "some-idx") in str(caught.value)


def test_gzip_truncated_anywhere_is_refused(tmp_path: Path) -> None:
    whole = gzip.compress(GOOD)
    for length in range(len(whole)):
        with pytest.raises(DatasetError, match=r"truncated|corrupt|more than the file can hold"):
            read(tmp_path, whole[:length])


def test_gzip_with_a_wrong_checksum_is_refused(tmp_path: Path) -> None:
    whole = bytearray(gzip.compress(GOOD))
    whole[-8] ^= 1
    with pytest.raises(DatasetError, match="corrupt; CRC check failed"):
        read(tmp_path, bytes(whole))


def test_gzip_with_a_flipped_bit_in_the_data_is_refused(tmp_path: Path) -> None:
    body = np.random.Generator(np.random.PCG64(0)).integers(256, size=500, dtype=np.uint8).tobytes()
    whole = gzip.compress(idx((500,), body))
    # The ten header bytes of gzip hold nothing that the content depends on.
    for position in range(10, len(whole)):
        broken = bytearray(whole)
        broken[position] ^= 1
        with pytest.raises(DatasetError, match=r"truncated|corrupt|trailing|IDX|needs"):
            read(tmp_path, bytes(broken))


def bomb(header: bytes, mebibytes: int) -> bytes:
    packer = zlib.compressobj(9, wbits=31)
    zeros = bytes(1 << 20)
    return b"".join([packer.compress(header), *(packer.compress(zeros) for _ in range(mebibytes)), packer.flush()])


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (idx((10,), b""), "trailing bytes"),
        (idx((400 << 20,), b""), "more than the file can hold"),
        (idx((3 << 30,), b""), "at most 1,073,741,824 are read"),
    ],
    ids=["header says little", "header says more than there can be", "header says too much"],
)
def test_gzip_bomb_costs_no_memory(tmp_path: Path, header: bytes, message: str) -> None:
    path = tmp_path / "bomb.gz"
    path.write_bytes(bomb(header, 100))
    assert path.stat().st_size < 200_000
    tracemalloc.start()
    try:
        with pytest.raises(DatasetError, match=message):
            read_idx(path)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_file_beyond_the_cap_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "large"
    with path.open("wb") as sparse:
        sparse.truncate(2 << 30)
    with pytest.raises(DatasetError, match="2,147,483,648 bytes; at most 1,073,741,824 are read"):
        read_idx(path)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"absent: cannot be read; No such file"):
        read_idx(tmp_path / "absent")


def test_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="not a regular file"):
        read_idx(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_named_pipe_is_refused_without_waiting_on_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DatasetError, match="not a regular file"):
        read_idx(tmp_path / "pipe")
