"""A record of the audit's last hash outside the state folder, so that an older copy of the folder is noticed."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mabrfl.errors import ConfigError, MabRflError, StateError
from mabrfl.recording.audit import safe_text
from mabrfl.recording.files import read_bytes, write_whole
from mabrfl.recording.folder import shown

log = logging.getLogger("flwr")

_SECONDS = 30.0
_HASH = 64


@dataclass(frozen=True)
class HeadRecord:
    """The place of the record: a file, or a command.

    Attributes
    ----------
    place
        A path, or the words of a command. After every round it is run with ``record HASH``; at the start with ``show``,
        and prints the last hash, or nothing.
    """

    place: Path | tuple[str, ...]

    @classmethod
    def at(cls, place: str | Path | Sequence[str]) -> HeadRecord:
        """Return the record at a path, or by a command, which is a list of words."""
        if isinstance(place, str | Path):
            return cls(Path(place).absolute())
        if not place or not all(isinstance(word, str) for word in place):
            raise ConfigError(f"record_head must be a path or the words of a command; got {place!r:.80}")
        return cls(tuple(place))

    def record(self, head: str) -> bool:
        """Record a hash; a failure is logged, since the older hash still protects all that was before it."""
        try:
            if isinstance(self.place, Path):
                write_whole(self.place, f"{head}\n".encode())
            else:
                self._run("record", head)
        except (MabRflError, OSError, subprocess.SubprocessError) as error:
            log.warning("the last hash of the audit could not be recorded: %s", safe_text(error, 1000))
            return False
        return True

    def recorded(self) -> str | None:
        """Return the recorded hash; None if there is none yet.

        Raises
        ------
        StateError
            If it cannot be read: then nothing says whether the folder is the newest one.
        """
        try:
            if not isinstance(self.place, Path):
                text = self._run("show")
            elif not self.place.exists():
                return None
            else:
                text = read_bytes(self.place).decode("ascii", "replace")
        except (OSError, subprocess.SubprocessError) as error:
            raise StateError(f"the recorded hash of the audit cannot be read: {error}") from error
        head = text.strip()
        if head and (len(head) != _HASH or set(head) - set("0123456789abcdef")):
            where = shown(self.place) if isinstance(self.place, Path) else f"the command {self.place[0]!r}"
            raise StateError(f"{where} must have the hash of an audit's line; got {head!r:.80}")
        return head or None

    def _run(self, *words: str) -> str:
        command = [*self.place, *words] if not isinstance(self.place, Path) else []
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, check=True, stdin=subprocess.DEVNULL
        )
        return done.stdout[: 4 * _HASH]
