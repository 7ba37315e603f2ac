"""Store a data file only if it is complete and verified."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mabrfl.errors import DatasetError
from mabrfl.simulation.data.content import Content
from mabrfl.simulation.data.sources import DataFile

_SCRATCH_PREFIX = ".mabrfl-fetch-"
_STALE_SECONDS = 24 * 3600


class StorageError(DatasetError):
    """The disk is full or the folder cannot be written: another mirror will not help."""


@contextmanager
def scratch_folder(folder: Path) -> Iterator[Path]:
    """Create ``folder`` and, inside it, a temporary folder that is always removed at the end.

    It is on the same file system, so files move out of it atomically. Two processes that fetch at the same time have
    one each.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        _remove_stale(folder)
        scratch = Path(tempfile.mkdtemp(prefix=_SCRATCH_PREFIX, dir=folder))
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def install(chunks: Iterable[bytes], target: Path, expected: DataFile, *, scratch: Path) -> None:
    """Write ``chunks`` to ``scratch``, verify size and SHA-256, sync to disk, then move to ``target``.

    Raises
    ------
    DatasetError
        If the content is not the expected one; ``target`` is then as it was.
    """
    temporary = scratch / f"{target.name}.new"
    digest, size = hashlib.sha256(), 0
    with new_file(temporary) as write:
        for chunk in chunks:
            size += len(chunk)
            if size > expected.size:
                raise DatasetError(f"{expected.name}: more than the expected {expected.size:,} bytes")
            digest.update(chunk)
            write(chunk)
        if size != expected.size:
            raise DatasetError(f"{expected.name}: {size:,} bytes instead of {expected.size:,}")
        if expected.sha256 and digest.hexdigest() != expected.sha256:
            raise DatasetError(f"{expected.name}: SHA-256 is {digest.hexdigest()}, expected {expected.sha256}")
    with writing(target):
        temporary.replace(target)


@contextmanager
def new_file(path: Path) -> Iterator[Callable[[bytes], None]]:
    """Open ``path`` for writing and yield a function that appends to it; at the end, sync the file to disk."""
    with writing(path):
        output = path.open("wb")

    def write(chunk: bytes) -> None:
        with writing(path):
            output.write(chunk)

    try:
        yield write
        with writing(path):
            output.flush()
            os.fsync(output.fileno())
    finally:
        # On a full disk, closing fails again; the first failure has been reported.
        with suppress(OSError):
            output.close()


def is_official(path: Path, expected: DataFile, *, decompress: bool = True) -> bool:
    """Return whether ``path`` has exactly the expected bytes, or their number if no SHA-256 is published.

    A gzip file is unpacked unless ``decompress`` is off.
    """
    digest, size = hashlib.sha256(), 0
    with Content(path, decompress=decompress) as content:
        # One byte more than expected shows that a file is too long.
        for chunk in content.chunks(expected.size + 1):
            digest.update(chunk)
            size += len(chunk)
    return size == expected.size and (not expected.sha256 or digest.hexdigest() == expected.sha256)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an operating system error while writing ``path`` into a StorageError that names it."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror or error}") from error


def _remove_stale(folder: Path) -> None:
    """Remove temporary folders of killed processes."""
    for leftover in folder.glob(f"{_SCRATCH_PREFIX}*"):
        try:
            age = time.time() - leftover.stat().st_mtime
        except OSError:
            continue
        if age > _STALE_SECONDS:
            shutil.rmtree(leftover, ignore_errors=True)
