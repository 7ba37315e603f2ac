"""Files of results: they are replaced as a whole, and read up to a size limit."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import Any

from mabrfl.errors import OutputError, StateError
from mabrfl.recording.atomic import replace_file
from mabrfl.recording.encoding import parse_strictly
from mabrfl.recording.folder import shown
from mabrfl.recording.regular import open_regular

MAX_BYTES = 128 * 2**20
"""The longest document that is read, unpacked: a hundred times the size of a sweep over the paper's whole table."""

_GZIP = b"\x1f\x8b"


def write_whole(path: Path, data: bytes) -> None:
    """Replace a file as a whole; its folder is made if it is missing.

    Raises
    ------
    OutputError
        If the operating system refuses; the old file is unchanged then.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, [data])
    except (OSError, ValueError) as error:
        raise OutputError(f"cannot write {shown(path)}: {getattr(error, 'strerror', None) or error}") from error


def read_bytes(path: Path, *, packed: bool = False) -> bytes:
    """Read a file of at most :data:`MAX_BYTES`; for a packed file that is its unpacked size.

    Raises
    ------
    StateError
        If it cannot be read, is too long, or is not a packed file although it should be.
    """
    try:
        with open_regular(path) as stream, gzip.open(stream, "rb") if packed else stream as file:
            data = file.read(MAX_BYTES + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        what = "a packed file, but damaged" if is_packed(path) else "not a packed results file, or is damaged"
        raise StateError(f"{shown(path)} is {what}: {error}") from error
    except (OSError, ValueError) as error:
        raise StateError(f"cannot read {shown(path)}: {getattr(error, 'strerror', None) or error}") from error
    if len(data) > MAX_BYTES:
        raise StateError(f"{shown(path)} must hold at most {MAX_BYTES:,} bytes")
    return data


def is_packed(path: Path) -> bool:
    """Whether a file begins like a packed one, damaged or not."""
    try:
        with open_regular(path) as file:
            return file.read(len(_GZIP)) == _GZIP
    except (OSError, ValueError):
        return False


def parse_json(data: bytes, path: Path) -> Any:
    """Parse JSON without NaN, infinities and numbers that overflow; a :class:`StateError` names the file."""
    try:
        return parse_strictly(data, repeated_names=True)
    except StateError as error:
        raise StateError(f"{shown(path)} is {error}") from error


def read_object(path: Path, *, strict: bool = True) -> dict[str, Any]:
    """Return a JSON object from a file; an empty one if there is no file or, unless ``strict``, if it is damaged.

    Raises
    ------
    StateError
        If it is damaged.
    """
    if not path.is_file():
        return {}
    try:
        document = parse_json(read_bytes(path), path)
        if not isinstance(document, dict):
            raise StateError(f"{shown(path)} must hold an object; got a {type(document).__name__}")
    except StateError:
        if strict:
            raise
        return {}
    return document
