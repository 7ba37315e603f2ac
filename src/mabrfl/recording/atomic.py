"""Files that are replaced as a whole: a reader sees the old content or the new content, never a mixture."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from pathlib import Path


def write_atomically(path: Path, text: str) -> None:
    """Replace a text file as a whole."""
    replace_file(path, [text.encode("utf-8")])


def replace_file(path: Path, chunks: Iterable[bytes | memoryview]) -> None:
    """Replace a file by these chunks, in order. They are on the disk before the old content is removed.

    If it is interrupted (a full disk, Ctrl-C), the old file is unchanged and no temporary file is left. Call
    :func:`sync_folder` afterwards if the *name* must also survive a power failure.
    """
    temporary = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
    # Mode 644 less the umask of the process, as for any file.
    handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o644)
    try:
        try:
            for chunk in chunks:
                write_all(handle, chunk)
            os.fsync(handle)
        finally:
            os.close(handle)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_all(handle: int, data: bytes | memoryview) -> None:
    """Write all of the data; one call of the operating system may write less."""
    left = memoryview(data).cast("B")
    while left.nbytes:
        left = left[os.write(handle, left) :]


def sync_folder(path: Path) -> None:
    """Write the names in a folder to the disk, if the system can do that for folders."""
    if os.name != "posix":  # pragma: no cover (Windows cannot open folders)
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def is_leftover(name: str, names: Iterable[str]) -> bool:
    """Whether a file is the temporary file of one of these names, left by a process killed in :func:`replace_file`.

    Examples
    --------
    >>> is_leftover(".config.toml-x1y2z3_4", ["config.toml"]), is_leftover("config.toml", ["config.toml"])
    (True, False)
    """
    return any(name.startswith(f".{each}-") for each in names)


def remove_leftovers(folder: Path, names: Iterable[str]) -> None:
    """Remove the temporary files of these names, left by processes killed in :func:`replace_file`."""
    for name in names:
        for leftover in folder.glob(f".{name}-*"):
            leftover.unlink(missing_ok=True)
