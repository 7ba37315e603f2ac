"""Read expected files out of an untrusted tar or zip archive; nothing is ever written under a name from inside it."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from mabrfl.errors import DatasetError
from mabrfl.simulation.data.content import CHUNK, Content
from mabrfl.simulation.data.sources import DataFile

MAX_MEMBERS = 1_000
# Room for headers, padding and the small files that come along with the expected ones.
_MAX_OVERHEAD = 16 << 20


def read_members(path: Path, wanted: Mapping[str, DataFile]) -> Iterator[tuple[DataFile, Iterator[bytes]]]:
    """Yield each wanted file of a tar archive (plain or gzip) with an iterator over its bytes.

    Read the bytes of one file before you ask for the next. Other members are skipped; the whole archive may have at
    most 1,000 members and 16 MiB more than the wanted files together.

    Parameters
    ----------
    path
        The archive.
    wanted
        Exact member name to the file expected there.

    Raises
    ------
    DatasetError
        If it is corrupt or too large, if a wanted member is missing, doubled, of the wrong size or no
        regular file (a link, a device, a sparse file).
    """
    max_bytes = sum(file.size for file in wanted.values()) + _MAX_OVERHEAD
    seen: set[str] = set()
    with Content(path, max_bytes=max_bytes) as content, _untrusted(path):
        stream = _CappedStream(content, max_bytes)
        with tarfile.open(fileobj=stream, mode="r|", bufsize=CHUNK) as archive:
            for count, member in enumerate(archive, start=1):
                if count > MAX_MEMBERS:
                    raise DatasetError(f"{path}: more than {MAX_MEMBERS:,} members")
                if member.name not in wanted:
                    continue
                if member.name in seen:
                    raise DatasetError(f"{path}: holds {member.name} twice")
                seen.add(member.name)
                yield wanted[member.name], _member_chunks(path, archive, member, wanted[member.name])
    if absent := sorted(set(wanted) - seen):
        raise DatasetError(f"{path}: lacks {', '.join(absent)}")


def read_zip_members(path: Path, wanted: Mapping[str, DataFile]) -> Iterator[tuple[DataFile, Iterator[bytes]]]:
    """Yield each wanted file of a zip archive with an iterator over its bytes; ``<name>.gz`` is unpacked.

    At most one byte more than expected is unpacked of each.

    Raises
    ------
    DatasetError
        If it is corrupt, or if a wanted member is missing.
    """
    with _untrusted(path), zipfile.ZipFile(path) as archive:
        for name, file in wanted.items():
            if name not in archive.NameToInfo:
                raise DatasetError(f"{path}: lacks {name}")
            yield file, _zip_chunks(path, archive, name, file.size + 1)


def _zip_chunks(path: Path, archive: zipfile.ZipFile, name: str, limit: int) -> Iterator[bytes]:
    with _untrusted(path), archive.open(name) as member:
        source = gzip.GzipFile(fileobj=member) if name.endswith(".gz") else member
        while limit > 0 and (chunk := source.read(min(CHUNK, limit))):
            limit -= len(chunk)
            yield chunk


class _CappedStream(io.RawIOBase):
    """A forward-only view of a file's content that raises once more than ``max_bytes`` have been read.

    tarfile reads extended headers as a whole, however long they claim to be; this bounds them.
    """

    def __init__(self, content: Content, max_bytes: int) -> None:
        super().__init__()
        self._content = content
        self._max_bytes = max_bytes
        self._left = max_bytes

    def read(self, count: int = CHUNK, /) -> bytes:
        data = self._content.stream.read(min(count, CHUNK))
        self._left -= len(data)
        if self._left < 0:
            raise DatasetError(f"{self._content.path}: unpacks to more than {self._max_bytes:,} bytes")
        return data


def _member_chunks(
    path: Path, archive: tarfile.TarFile, member: tarfile.TarInfo, expected: DataFile
) -> Iterator[bytes]:
    if not member.isreg() or member.issparse():
        raise DatasetError(f"{path}: {member.name} is not a regular file")
    if member.size != expected.size:
        raise DatasetError(f"{path}: {member.name} has {member.size:,} bytes; expected {expected.size:,}")
    with _untrusted(path):
        source = archive.extractfile(member)
        while source is not None and (chunk := source.read(CHUNK)):
            yield chunk


@contextmanager
def _untrusted(path: Path) -> Iterator[None]:
    """Turn anything raised while parsing into a DatasetError: tarfile's list of exceptions is open-ended."""
    try:
        yield
    except DatasetError:
        raise
    except Exception as error:
        raise DatasetError(f"{path}: corrupt archive; {str(error) or type(error).__name__}") from error
