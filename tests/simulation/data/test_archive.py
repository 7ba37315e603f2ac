from __future__ import annotations

import gzip
import io
import tarfile
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from mabrfl.errors import DatasetError
from mabrfl.simulation.data import archive as archive_module
from mabrfl.simulation.data.archive import read_members
from mabrfl.simulation.data.sources import DataFile

WANTED = {"box/a.bin": DataFile("a.bin", 5, ""), "box/b.bin": DataFile("b.bin", 3, "")}


def member(name: str, content: bytes = b"", **attributes: Any) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for key, value in attributes.items():
        setattr(info, key, value)
    return info, content


A, B = member("box/a.bin", b"aaaaa"), member("box/b.bin", b"bbb")


def packed(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def unpack(tmp_path: Path, content: bytes) -> dict[str, bytes]:
    path = tmp_path / "some.tgz"
    path.write_bytes(content)
    before = sorted(tmp_path.rglob("*"))
    try:
        return {file.name: b"".join(chunks) for file, chunks in read_members(path, WANTED)}
    finally:
        assert sorted(tmp_path.rglob("*")) == before


def test_wanted_files_are_read_and_all_others_skipped(tmp_path: Path) -> None:
    others = [
        member("../evil", b"x"),
        member("/etc/evil", b"x"),
        member("C:\\evil", b"x"),
        member("BOX/A.BIN", b"x"),
        member("x" * 4096, b"x"),
        member("link", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
        member("device", type=tarfile.CHRTYPE),
    ]
    assert unpack(tmp_path, packed(*others, A, B)) == {"a.bin": b"aaaaa", "b.bin": b"bbb"}


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([A], "lacks box/b.bin"),
        ([], "lacks box/a.bin, box/b.bin"),
        ([A, A, B], "holds box/a.bin twice"),
        ([member("box/a.bin", b"aaaaaa"), B], "box/a.bin has 6 bytes; expected 5"),
        ([member("box/a.bin", type=tarfile.SYMTYPE, linkname="/etc/passwd"), B], "a.bin is not a regular file"),
        ([B, member("box/a.bin", type=tarfile.LNKTYPE, linkname="box/b.bin")], "a.bin is not a regular file"),
        ([member("box/a.bin", type=tarfile.BLKTYPE), B], "a.bin is not a regular file"),
        ([member("box/a.bin", type=tarfile.FIFOTYPE), B], "a.bin is not a regular file"),
        ([member("box/a.bin", type=tarfile.DIRTYPE), B], "a.bin is not a regular file"),
    ],
)
def test_unexpected_members_are_refused(tmp_path: Path, members: list[Any], message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        unpack(tmp_path, packed(*members))


def test_too_many_members_are_refused(tmp_path: Path) -> None:
    many = [member(f"f{number}") for number in range(archive_module.MAX_MEMBERS)]
    with pytest.raises(DatasetError, match="more than 1,000 members"):
        unpack(tmp_path, packed(*many, A, B))


def test_archive_that_unpacks_to_too_much_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="unpacks to more than 16,777,224 bytes"):
        unpack(tmp_path, packed(member("bomb", bytes(17 << 20)), A, B))


def test_giant_extended_header_costs_bounded_memory(tmp_path: Path) -> None:
    info, _ = member("pax")
    info.type, info.size = tarfile.XHDTYPE, 4 << 30
    path = tmp_path / "pax.tgz"
    with gzip.open(path, "wb") as output:
        output.write(info.tobuf(tarfile.GNU_FORMAT))
        for _ in range(64):
            output.write(bytes(1 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(DatasetError, match="unpacks to more than"):
            list(read_members(path, WANTED))
        assert tracemalloc.get_traced_memory()[1] < 48 << 20
    finally:
        tracemalloc.stop()


def test_archive_truncated_anywhere_is_refused(tmp_path: Path) -> None:
    whole = packed(A, B)
    for length in range(0, len(whole) - 8):
        with pytest.raises(DatasetError, match=r"some\.tgz: (corrupt archive|lacks)"):
            unpack(tmp_path, whole[:length])


@pytest.mark.parametrize("content", [b"<html>404 Not Found</html>", b"PK\x03\x04" + bytes(600), bytes(5000)])
def test_what_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(DatasetError, match=r"corrupt archive|lacks"):
        unpack(tmp_path, content)
