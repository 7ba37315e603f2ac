"""Opening files of a folder that others can write to: a pipe would block for ever, and a device has no end."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular(path: Path | str, *, links: bool = True) -> BinaryIO:
    """Open a regular file for reading; anything else is refused without waiting for it.

    Parameters
    ----------
    path
        The file.
    links
        Whether to follow a symbolic link.

    Raises
    ------
    OSError
        If it cannot be opened, or is a folder, a pipe, a socket or a device.
    """
    return open(_checked(os.open(path, os.O_RDONLY | _flags(links=links))), "rb")


def open_lock(path: Path) -> BinaryIO:
    """Open a file that is only locked, for writing if this process may create it; refuse pipes and devices as above."""
    return open(_checked(os.open(path, os.O_RDWR | os.O_CREAT | _flags(links=True), 0o644)), "r+b")


def _flags(*, links: bool) -> int:
    # Opened without blocking and examined when open, so that nothing can be exchanged in between.
    names = ("O_NONBLOCK", "O_BINARY", "O_NOCTTY", *(() if links else ("O_NOFOLLOW",)))
    return sum({getattr(os, name, 0) for name in names})


def _checked(handle: int) -> int:
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return handle
    os.close(handle)
    code = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
    raise OSError(code, "expected a regular file, got " + ("a folder" if stat.S_ISDIR(mode) else "a pipe or device"))
