"""Bounded reading of data files, plain or gzip: never more bytes than requested, whatever the file claims."""

from __future__ import annotations

import gzip
import stat
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Self, cast

from mabrfl.errors import DatasetError

MAX_BYTES = 1 << 30
CHUNK = 1 << 20
# No DEFLATE stream grows by more than this factor, so a smaller file cannot hold what a larger header promises.
_MAX_GZIP_RATIO = 1032


class Content:
    """The decompressed bytes of one regular file, read forward only.

    The first two bytes of a file, not its name, decide whether it is gzip.

    Parameters
    ----------
    path
        The file.
    max_bytes
        Refuse a file that takes more than this on disk.
    decompress
        Unpack gzip; otherwise read the file as it is.

    Raises
    ------
    DatasetError
        If it is missing, not a regular file, unreadable or too large.
    """

    def __init__(self, path: Path, *, max_bytes: int = MAX_BYTES, decompress: bool = True) -> None:
        self.path = path
        self._open_files = ExitStack()
        with reading(path):
            # A FIFO or a device could block or never end, so check before opening.
            info = path.stat()
            if not stat.S_ISREG(info.st_mode):
                raise DatasetError(f"{path}: not a regular file")
            if info.st_size > max_bytes:
                raise DatasetError(f"{path}: {info.st_size:,} bytes; at most {max_bytes:,} are read")
            raw = self._open_files.enter_context(path.open("rb"))
            self.compressed = decompress and raw.peek(2)[:2] == b"\x1f\x8b"
        self.capacity = info.st_size * (_MAX_GZIP_RATIO if self.compressed else 1)
        self.stream: IO[bytes] = raw
        if self.compressed:
            self.stream = cast(IO[bytes], self._open_files.enter_context(gzip.GzipFile(fileobj=raw)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open_files.close()

    def read(self, count: int, what: str) -> bytearray:
        """Return exactly ``count`` bytes; ``what`` names them in the error if there are fewer."""
        if count > self.capacity:
            raise DatasetError(f"{self.path}: {what} needs {count:,} bytes, more than the file can hold")
        buffer, filled = bytearray(count), 0
        for chunk in self.chunks(count):
            buffer[filled : filled + len(chunk)] = chunk
            filled += len(chunk)
        if filled < count:
            raise DatasetError(f"{self.path}: truncated; {what} needs {count:,} bytes, found {filled:,}")
        return buffer

    def chunks(self, limit: int) -> Iterator[bytes]:
        """Yield at most ``limit`` bytes in pieces of at most a mebibyte."""
        while limit > 0:
            with reading(self.path):
                chunk = self.stream.read(min(CHUNK, limit))
            if not chunk:
                return
            limit -= len(chunk)
            yield chunk

    def expect_end(self) -> None:
        """Raise if there is more; for gzip this is also where the checksum gets verified."""
        if next(self.chunks(1), b""):
            raise DatasetError(f"{self.path}: trailing bytes after the end of the data")


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn every error of reading ``path`` into a DatasetError that names it."""
    try:
        yield
    except EOFError as error:
        raise DatasetError(f"{path}: truncated; the compressed data ends early") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DatasetError(f"{path}: corrupt; {error}") from error
    except OSError as error:
        raise DatasetError(f"{path}: cannot be read; {error.strerror or error}") from error
