"""Reading files while another process appends to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from mabrfl.errors import StateError
from mabrfl.recording.folder import shown
from mabrfl.recording.regular import open_regular


class Tail:
    """The lines of a file that grows, or of files that follow one another, each read once.

    Parameters
    ----------
    files
        Returns the files, in order. A file that does not exist counts as empty.
    """

    def __init__(self, files: Callable[[], Sequence[Path]]) -> None:
        self._files = files
        self._end, self._last = 0, b""

    def read(self) -> tuple[bool, list[bytes]]:
        """Return whether to forget all lines before, and the new complete lines, each with its end.

        All lines count as new if the file is another one, or was cut: the last line is not where it was.

        Raises
        ------
        StateError
            If a file cannot be read.
        """
        data = _bytes_from(self._files(), self._end - len(self._last))
        anew = not data.startswith(self._last)
        if anew:
            self._end, self._last = 0, b""
            data = _bytes_from(self._files(), 0)
        fresh = data[len(self._last) : data.rfind(b"\n") + 1]
        lines = [line + b"\n" for line in fresh.split(b"\n")[:-1]]
        if lines:
            self._end, self._last = self._end + len(fresh), lines[-1]
        return anew, lines


def _bytes_from(files: Sequence[Path], start: int) -> bytes:
    """Return what files hold together, from a position on."""
    parts = []
    for path in files:
        try:
            with open_regular(path) as file:
                size = file.seek(0, 2)
                if start < size:
                    file.seek(start)
                    parts.append(file.read())
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StateError(f"cannot read {shown(path)}: {error.strerror}") from error
        start = max(start - size, 0)
    return b"".join(parts)
