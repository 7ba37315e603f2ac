"""Put a data file in its place whole and verified, or not at all."""

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
    """Create ``folder`` and, inside it, a private folder that is gone afterwards, whatever happens.

    Being inside, it is on the same file system, so files move out of it atomically; being private, two
    processes that fetch at once never see each other's halves.
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
        if digest.hexdigest() != expected.sha256:
            raise DatasetError(f"{expected.name}: SHA-256 is {digest.hexdigest()}, expected {expected.sha256}")
    with writing(target):
        temporary.replace(target)


@contextmanager
def new_file(path: Path) -> Iterator[Callable[[bytes], None]]:
    """Open ``path`` for writing and give a function that appends to it; afterwards it is synced to disk."""
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
        # Closing tries once more to write what a full disk refused; that failure has been reported.
        with suppress(OSError):
            output.close()


def is_official(path: Path, expected: DataFile, *, decompress: bool = True) -> bool:
    """Say whether ``path`` holds exactly the expected bytes (of its content if gzip, unless told not to look)."""
    digest, size = hashlib.sha256(), 0
    with Content(path, decompress=decompress) as content:
        # One byte more than expected, so that a longer file is seen to be longer.
        for chunk in content.chunks(expected.size + 1):
            digest.update(chunk)
            size += len(chunk)
    return size == expected.size and digest.hexdigest() == expected.sha256


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an operating system error while writing ``path`` into a StorageError that names it."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror or error}") from error


def _remove_stale(folder: Path) -> None:
    """Remove what a killed process left behind."""
    for leftover in folder.glob(f"{_SCRATCH_PREFIX}*"):
        try:
            age = time.time() - leftover.stat().st_mtime
        except OSError:
            continue
        if age > _STALE_SECONDS:
            shutil.rmtree(leftover, ignore_errors=True)
