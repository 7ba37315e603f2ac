"""The audit: one line of JSON per decision, each bound to the line before it by a hash.

What it is worth: whoever changes, removes or inserts a line without rewriting everything after it is found out. Who
may write to the folder can rewrite it all; against that, note the last hash elsewhere and check it with ``head``.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mabrfl.errors import StateError
from mabrfl.recording.atomic import write_all
from mabrfl.recording.encoding import canonical_json, parse_strictly
from mabrfl.recording.folder import explained, shown
from mabrfl.recording.record import plain

AUDIT = "audit.jsonl"
START = "0" * 64
"""What the first line names as the hash of the line before it."""

MAX_TEXT = 256
MAX_LINE = 1 << 20


def safe_text(value: Any, limit: int = MAX_TEXT) -> str:
    r"""Return a stranger's text as one line of visible characters, capped.

    Examples
    --------
    >>> safe_text("a\nb\x1b[31m")
    'a\\nb\\x1b[31m'
    >>> safe_text("x" * 300, limit=8)
    'xxxxxxx…'
    """
    text = str(value)[: 4 * limit]
    text = "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)
    return text if len(text) <= limit else text[: limit - 1] + "…"


@dataclass(frozen=True)
class AuditReport:
    """What a check of an audit found.

    Attributes
    ----------
    rows
        How many lines are good, from the first on.
    head
        The hash of the last good line; it stands for all of them.
    problem
        What is wrong with the line after it; None if nothing is.
    size
        Bytes of the good lines.
    """

    rows: int
    head: str
    problem: str | None
    size: int


class AuditLog:
    """The file of an audit, open for writing; make it with :meth:`open`."""

    def __init__(self, path: Path, file: io.FileIO, report: AuditReport) -> None:
        self.path = path
        self._file = file
        self._rows, self._head, self._size = report.rows, report.head, report.size

    @classmethod
    def open(cls, path: Path, mark: Mapping[str, Any] | None = None) -> AuditLog:
        """Open an audit at a :meth:`mark`; what was written after it belongs to a round that was never finished.

        Raises
        ------
        StateError
            If the lines before the mark are not what they were. Nothing is removed then.
        """
        rows = int(mark["rows"]) if mark is not None else 0
        report = verify(path, stop=rows) if path.exists() else AuditReport(0, START, None, 0)
        if mark is not None and (report.rows != rows or report.head != mark["sha256"]):
            raise StateError(
                f"{shown(path)}: expected {rows} lines ending in {mark['sha256']}, "
                f"got {report.rows} good ones ending in {report.head}" + (f"; {report.problem}" * bool(report.problem))
            )
        with explained(path.parent):
            file = io.FileIO(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), "r+")
            file.truncate(report.size)
            file.seek(report.size)
        return cls(path, file, report)

    def append(self, row: Mapping[str, Any]) -> None:
        """Add a line; it is with the operating system when this returns."""
        line, digest = _line({**plain(row), "seq": self._rows + 1, "previous": self._head})
        with explained(self.path.parent):
            write_all(self._file.fileno(), line)
        self._rows, self._head, self._size = self._rows + 1, digest, self._size + len(line)

    def mark(self) -> dict[str, Any]:
        """Return the place after the lines written so far, which are on the disk when this returns."""
        with explained(self.path.parent):
            os.fsync(self._file.fileno())
        return {"rows": self._rows, "bytes": self._size, "sha256": self._head}

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _line(row: Mapping[str, Any]) -> tuple[bytes, str]:
    """Return a row's line and hash. Signs that mean something to a browser are escaped as JSON can."""
    digest = hashlib.sha256(canonical_json(row)).hexdigest()
    line = canonical_json({**row, "sha256": digest})
    for sign in (b"<", b">", b"&"):
        line = line.replace(sign, b"\\u%04x" % ord(sign))
    return line, digest


def verify(path: Path | str, *, head: str | None = None, stop: int | None = None) -> AuditReport:
    """Check every line of an audit: that it is written as we write, and names the one before it.

    Parameters
    ----------
    path
        The file.
    head
        A hash noted earlier; it must be that of one of the lines.
    stop
        Check so many lines only.
    """
    rows, last, size, problem = 0, START, 0, None
    seen = head is None or head == START
    for number, line in _lines(Path(path)):
        if stop is not None and rows >= stop:
            break
        found = _checked(line, number, last)
        if isinstance(found, str):
            problem = f"line {number}: {found}"
            break
        rows, last, size = number, found["sha256"], size + len(line)
        seen = seen or last == head
    if problem is None and not seen:
        problem = f"no line has the hash {head}: lines were removed from the end, or it is another audit"
    return AuditReport(rows, last, problem, size)


def read_audit(path: Path | str) -> Iterator[dict[str, Any]]:
    """Yield the rows of an audit, checking each on the way.

    Raises
    ------
    StateError
        At the first line that is not as it was written.
    """
    last = START
    for number, line in _lines(Path(path)):
        found = _checked(line, number, last)
        if isinstance(found, str):
            raise StateError(f"{shown(path)} line {number}: {found}")
        last = found["sha256"]
        yield found


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(MAX_LINE):
                number += 1
                yield number, line
    except OSError as error:
        raise StateError(f"cannot read {shown(path)}: {error.strerror}") from error


def _checked(line: bytes, number: int, last: str) -> dict[str, Any] | str:
    """Return a line's row, or what is wrong with it."""
    if not line.endswith(b"\n"):
        return "cut off in the middle of writing"
    try:
        row = parse_strictly(line)
    except StateError as error:
        return str(error)
    if not isinstance(row, dict) or not isinstance(row.get("sha256"), str):
        return "no row of an audit"
    rewritten, digest = _line({key: row[key] for key in row if key != "sha256"})
    if digest != row["sha256"] or rewritten != line:
        return "changed since it was written"
    if row.get("previous") != last or row.get("seq") != number:
        return "does not follow the line before it: lines were removed, inserted or moved"
    return row
