"""The files of an audit: the present one, and those before it that were full. The chain of hashes runs through all."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from mabrfl.errors import StateError
from mabrfl.recording.folder import shown
from mabrfl.recording.regular import open_regular

AUDIT = "audit.jsonl"
MAX_LINE = 1 << 20

_FULL = re.compile(r"audit-\d{10}\.jsonl")


def full_name(first: int) -> str:
    """Return the name of a full file whose first line has this number.

    Examples
    --------
    >>> full_name(501)
    'audit-0000000501.jsonl'
    """
    return f"audit-{first:010d}.jsonl"


def audit_files(path: Path) -> list[Path]:
    """Return the files of an audit, oldest first: the full ones beside it, and itself if it exists."""
    if path.name != AUDIT or not path.parent.is_dir():
        return [path]
    full = sorted(file for file in path.parent.iterdir() if _FULL.fullmatch(file.name))
    return [*full, path] if path.exists() or not full else full


def audit_lines(path: Path) -> Iterator[tuple[Path, bytes]]:
    """Yield the lines of all files of an audit, each with its file.

    Raises
    ------
    StateError
        If a file cannot be read.
    """
    for file in audit_files(path):
        try:
            with open_regular(file) as opened:
                while line := opened.readline(MAX_LINE):
                    yield file, line
        except OSError as error:
            raise StateError(f"cannot read {shown(file)}: {error.strerror}") from error
