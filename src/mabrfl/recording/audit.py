"""The audit: one line of JSON per decision, each bound to the line before it by a hash.

A complete line is never removed. A run that resumes from a state saved before its last lines adds a line of kind
``back``: the decisions between the two no longer stand (see :class:`AuditHistory`).

A line that is changed, removed or inserted is detected, unless all lines after it are rewritten. Anyone with write
access to the folder can do that; against it, note the last hash elsewhere and check it with ``head``.
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
from mabrfl.recording.atomic import sync_folder, write_all
from mabrfl.recording.audit_files import AUDIT, MAX_LINE, audit_files, audit_lines, full_name
from mabrfl.recording.audit_history import AuditHistory, valid_rows
from mabrfl.recording.encoding import canonical_json, parse_strictly
from mabrfl.recording.folder import explained, shown
from mabrfl.recording.record import plain

__all__ = [
    "AUDIT",
    "START",
    "AuditHistory",
    "AuditLog",
    "AuditReport",
    "checked_line",
    "read_audit",
    "safe_text",
    "valid_rows",
    "verify",
]

START = "0" * 64
"""The first line has this as the hash of the line before it."""

MAX_TEXT = 256
_LONG = ("evidence", "facts", "events")


def safe_text(value: Any, limit: int = MAX_TEXT) -> str:
    r"""Return untrusted text as one line of visible characters, cut to a length.

    Examples
    --------
    >>> safe_text("a\nb\x1b[31m")
    'a\\nb\\x1b[31m'
    >>> safe_text("x" * 300, limit=8)
    'xxxxxxx…'
    """
    text = str(value)[: 4 * limit]
    if not text.isprintable():
        text = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
    return text if len(text) <= limit else text[: limit - 1] + "…"


@dataclass(frozen=True)
class AuditReport:
    """The result of a check of an audit.

    Attributes
    ----------
    rows
        How many lines are good, from the first on.
    head
        The hash of the last good line; it covers all lines before it.
    problem
        The problem with the next line; None if there is none.
    size, first
        Bytes of the good lines in the present file, and the number of its first line.
    torn
        Bytes of the next line, if it is the last one and incomplete; else 0.
    history
        Which of the good lines are valid.
    """

    rows: int
    head: str
    problem: str | None
    size: int
    torn: int
    history: AuditHistory
    first: int = 1


class AuditLog:
    """The file of an audit, open for writing; make it with :meth:`open`.

    Attributes
    ----------
    history
        The valid decisions in the lines that were in the file when it was opened.
    """

    def __init__(self, path: Path, file: io.FileIO, report: AuditReport, mark: int) -> None:
        self.path = path
        self.history = report.history
        self._file = file
        self._rows, self._head, self._size, self._first = report.rows, report.head, report.size, report.first
        self._mark, self._torn, self._uncut = mark, report.torn, report.torn > 0

    @classmethod
    def open(cls, path: Path, mark: Mapping[str, Any] | None = None, *, head: str | None = None) -> AuditLog:
        """Open an audit to continue from a :meth:`mark`, or from the beginning. Then call :meth:`go_back`.

        Lines after the mark belong to a round that was not finished. They stay. Only an incomplete last line is
        cut off, when the next line is written. ``head`` is a hash noted earlier: one of the lines must have it.

        Raises
        ------
        StateError
            If the lines before the mark have changed, or a line after it is damaged. Nothing is removed then.
        """
        rows = 0 if mark is None else checked_mark(mark)["rows"]
        new = mark is None and head is None and not any(file.exists() for file in audit_files(path))
        report = AuditReport(0, START, None, 0, 0, AuditHistory()) if new else verify(path, head=head, mark=mark)
        if report.problem is not None and not report.torn:
            raise StateError(
                f"{shown(path)}: {report.problem}. Put the file back from a copy; the saved state needs its first "
                f"{rows} lines"
            )
        with explained(path.parent):
            file = io.FileIO(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), "r+")
            file.seek(report.size)
        return cls(path, file, report, rows)

    def go_back(self, round: int, time: str) -> int:
        """Record that the run continues from the mark, after this round, if anything was written since.

        Returns
        -------
        int
            How many decisions this undoes.
        """
        undone = self.history.after(self._mark)
        if undone or self._torn:
            row = {"kind": "back", "time": time, "round": round, "after": self._mark, "undone": undone}
            self.append({**row, "torn_bytes": self._torn})
        return undone

    def append(self, row: Mapping[str, Any]) -> None:
        """Add a line; the operating system has it when this returns."""
        line, digest = _line({**plain(row), "seq": self._rows + 1, "previous": self._head})
        if len(line) >= MAX_LINE:  # too long to be read again
            kept = {name: value for name, value in plain(row).items() if name not in _LONG}
            line, digest = _line({**kept, "cut": len(line), "seq": self._rows + 1, "previous": self._head})
        with explained(self.path.parent):
            if self._uncut:
                self._file.truncate(self._size)
                self._uncut = False
            write_all(self._file.fileno(), line)
        self._rows, self._head, self._size = self._rows + 1, digest, self._size + len(line)

    def mark(self) -> dict[str, Any]:
        """Return the end of the lines written so far; they are on the disk when this returns."""
        with explained(self.path.parent):
            os.fsync(self._file.fileno())
        return {"rows": self._rows, "bytes": self._size, "sha256": self._head}

    def rotate(self, largest: int) -> None:
        """Begin a new file if the present one has more than this many bytes; the old one is kept, and never changes."""
        if self._size <= largest:
            return
        with explained(self.path.parent):
            os.fsync(self._file.fileno())
            os.replace(self.path, self.path.with_name(full_name(self._first)))
            self._file.close()
            self._file = io.FileIO(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644), "r+")
            sync_folder(self.path.parent)
        self._size, self._first = 0, self._rows + 1

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _line(row: Mapping[str, Any]) -> tuple[bytes, str]:
    """Return a row's line and hash. Characters with a meaning in HTML are escaped as JSON allows."""
    digest = hashlib.sha256(canonical_json(row)).hexdigest()
    line = canonical_json({**row, "sha256": digest})
    for char in (b"<", b">", b"&"):
        line = line.replace(char, b"\\u%04x" % ord(char))
    return line, digest


def checked_mark(mark: Any) -> dict[str, Any]:
    """Return a mark that a saved state holds; see :meth:`AuditLog.mark`.

    Raises
    ------
    StateError
        If it is none.
    """
    if isinstance(mark, dict) and isinstance(mark.get("sha256"), str):
        rows = mark.get("rows")
        if isinstance(rows, int) and not isinstance(rows, bool) and rows >= 0:
            return mark
    raise StateError(f"the state does not say where its audit ends; got {mark!r:.80}")


def verify(
    path: Path | str, *, head: str | None = None, stop: int | None = None, mark: Mapping[str, Any] | None = None
) -> AuditReport:
    """Check every line of an audit: its form, its hash, and that it names the line before it.

    Parameters
    ----------
    path
        The file.
    head
        A hash noted earlier; one of the lines must have it.
    stop
        Check only this many lines.
    mark
        What a saved state knows of the audit. If its lines are not all there, the run cannot go on from that state:
        this is a problem, and no line counts as torn.
    """
    rows, last, size, problem, torn, history = 0, START, 0, None, 0, AuditHistory()
    seen = head is None or head == START
    known = START if mark is None or not mark["rows"] else None
    present, first = Path(path), 1
    for number, (file, line) in enumerate(audit_lines(present), start=1):
        if stop is not None and rows >= stop:
            break
        row = checked_line(line, number, last)
        if file == present and not size:
            first = number
        if isinstance(row, str):
            problem = f"line {number}{'' if file == present else f' (in {file.name})'}: {row}"
            torn = 0 if line.endswith(b"\n") or len(line) >= MAX_LINE or file != present else len(line)
            break
        history.take(row)
        rows, last, size = number, row["sha256"], size + len(line) if file == present else 0
        seen = seen or last == head
        if mark is not None and number == mark["rows"]:
            known = last
    if mark is not None and known != mark["sha256"]:
        found = f"got {rows} good ones ending in {last}" if known is None else f"line {mark['rows']} ends in {known}"
        expected = f"expected {mark['rows']} lines ending in {mark['sha256']}, which the saved state knows; {found}"
        problem, torn = expected + (f"; {problem}" if problem else ""), 0
    if problem is None and not seen:
        problem = f"no line has the hash {head}: lines were removed from the end, or it is another audit"
    return AuditReport(rows, last, problem, size, torn, history, first if size else rows + 1)


def read_audit(path: Path | str) -> Iterator[dict[str, Any]]:
    """Check and yield the rows of an audit; to count them, see :func:`valid_rows`.

    Raises
    ------
    StateError
        At the first line that has changed since it was written.
    """
    last = START
    for number, (file, line) in enumerate(audit_lines(Path(path)), start=1):
        row = checked_line(line, number, last)
        if isinstance(row, str):
            raise StateError(f"{shown(file)} line {number}: {row}")
        last = row["sha256"]
        yield row


def checked_line(line: bytes, number: int, last: str) -> dict[str, Any] | str:
    """Return the row of a line of an audit, given its number and the hash of the line before it; or its problem."""
    if not line.endswith(b"\n"):
        return "cut off in the middle of writing"
    try:
        row = parse_strictly(line)
    except StateError as error:
        return str(error)
    if not isinstance(row, dict) or not isinstance(row.get("sha256"), str) or type(row.get("seq")) is not int:
        return "not a row of an audit"
    rewritten, digest = _line({key: row[key] for key in row if key != "sha256"})
    if digest != row["sha256"] or rewritten != line:
        return "changed since it was written"
    if row.get("previous") != last or row.get("seq") != number:
        return "does not follow the line before it: lines were removed, inserted or moved"
    return "does not go back to an earlier line" if row.get("kind") == "back" and not _goes_back(row) else row


def _goes_back(row: Mapping[str, Any]) -> bool:
    after = row.get("after")
    return type(after) is int and 0 <= after < row["seq"]
