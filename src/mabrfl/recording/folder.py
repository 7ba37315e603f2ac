"""The folder of one run: one process at a time owns it, and it is readable at any moment."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Self

from numpy.typing import NDArray

try:
    import fcntl
except ImportError:  # pragma: no cover (Windows)
    fcntl = None  # type: ignore[assignment]

from mabrfl.errors import DiskError, OutputError, StateError
from mabrfl.recording.atomic import remove_leftovers, replace_file, sync_folder, write_all, write_atomically
from mabrfl.recording.checkpoint import remove_checkpoints, save_checkpoint
from mabrfl.recording.encoding import to_safetensors
from mabrfl.recording.ownership import (
    CHECKPOINTS,
    CONFIG,
    MANIFEST,
    MODEL,
    OURS,
    PLAN,
    ROUNDS,
    SUMMARY,
    WRITTEN_ASIDE,
    is_empty,
    refuse_others_files,
)
from mabrfl.recording.record import RoundRecord, plain

__all__ = ["CHECKPOINTS", "CONFIG", "MANIFEST", "ROUNDS", "SUMMARY", "RunFolder", "explained", "lock", "shown"]

FULL = (errno.ENOSPC, errno.EDQUOT)
"""The errors of a full disk, and of a user's quota that is used up."""
_LOCK_SECONDS = 0.05


class RunFolder:
    """The folder of one run; make it with :meth:`create` or :meth:`resume`, and use it as a context manager.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place, RunFolder.create(Path(place) / "run") as folder:
    ...     folder.start(config='dataset = "digits"', manifest={"seed": 0})
    ...     folder.append(RoundRecord(1, 90.0, 0.3, (0,), {}))
    ...     folder.finish({"final_accuracy": 90.0})
    ...     sorted(file.name for file in folder.path.iterdir())
    ['config.toml', 'manifest.json', 'rounds.jsonl', 'summary.json']
    """

    def __init__(self, path: Path, rounds: io.FileIO) -> None:
        self.path = path
        self._rounds = rounds
        self._written = hashlib.sha256()
        self._manifest: dict[str, Any] = {}

    @staticmethod
    def check(path: Path | str, *, force: bool = False, replaced: Iterable[str] = OURS) -> Path:
        """Refuse a folder that :meth:`create` would refuse; nothing changes.

        With ``force``, files of the ``replaced`` names are refused if no run wrote them.
        """
        path = Path(path)
        with explained(path):
            if path.exists() and not path.is_dir():
                raise OutputError(f"output folder {shown(path)} is a file; choose another with --out")
            if path.is_dir() and not force and not is_empty(path):
                raise OutputError(f"output folder {shown(path)} is not empty; choose another, or use --force")
            if (path / PLAN).is_file():
                raise OutputError(f"output folder {shown(path)} is that of a sweep; choose another with --out")
            if path.is_dir():
                refuse_others_files(path, replaced)
            nearest = next((place for place in (path, *path.absolute().parents) if place.exists()), Path("."))
            if not (nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)):
                raise OutputError(f"output folder {shown(path)} cannot be made: {shown(nearest)} is not writable")
        return path

    @classmethod
    def create(cls, path: Path | str, *, force: bool = False) -> RunFolder:
        """Make the folder and claim it; with ``force``, remove the files of an earlier run from it.

        Only files that a run wrote are removed, and never those of a run that is still going.

        Raises
        ------
        OutputError
            If the path is a file, or the folder is not empty (with ``force``: has files of these names that no run
            wrote), not writable, or claimed by another run.
        """
        path = cls.check(path, force=force)
        with explained(path):
            path.mkdir(parents=True, exist_ok=True)
            rounds = _claim(path / ROUNDS, os.O_CREAT | (0 if force else os.O_EXCL))
            os.ftruncate(rounds.fileno(), 0)
            _clear(path, keep=(ROUNDS,))
            remove_checkpoints(path / CHECKPOINTS)
        return cls(path, rounds)

    @classmethod
    def resume(cls, path: Path | str, *, patience: float = 0.0) -> RunFolder:
        """Claim the folder of an unfinished run; nothing in it changes yet.

        Then call :meth:`rewind` to say where to continue.

        Parameters
        ----------
        path
            The folder.
        patience
            Seconds to wait for another process to release it, such as one that was killed a moment ago.

        Raises
        ------
        OutputError
            If the folder is missing, not writable, or claimed by another run.
        """
        path = Path(path)
        with explained(path):
            rounds = _claim(path / ROUNDS, os.O_CREAT, patience)
        return cls(path, rounds)

    def rewind(self, mark: Mapping[str, Any] | None = None) -> None:
        """Go back to a :meth:`mark`, or to the start; rounds written after it are removed.

        The files that only a finished run has (the summary, the pictures) are removed too.

        Raises
        ------
        StateError
            If the bytes of the rounds before the mark have changed. Nothing is removed then.
        """
        size, expected = (0, None) if mark is None else (mark["bytes"], mark["sha256"])
        if type(size) is not int or size < 0:
            raise StateError(f"the state does not say where its rounds end; got {size!r:.80}")
        with explained(self.path):
            self._rounds.seek(0)
            before = self._rounds.read(size)
            digest = hashlib.sha256(before)
            if mark is not None and (len(before) != size or digest.hexdigest() != expected):
                raise StateError(
                    f"{ROUNDS}: expected {size:,} bytes with SHA-256 {expected}, "
                    f"got {len(before):,} with {digest.hexdigest()}"
                )
            _clear(self.path, keep=(ROUNDS, CONFIG, MANIFEST))
            self._rounds.seek(size)
            self._rounds.truncate(size)
            self._written = digest

    def mark(self) -> dict[str, Any]:
        """Return the end of the rounds written so far; they are on the disk when this returns."""
        with explained(self.path):
            os.fsync(self._rounds.fileno())
            return {"bytes": self._rounds.tell(), "sha256": self._written.hexdigest()}

    def start(self, *, config: str, manifest: Mapping[str, Any]) -> None:
        """Write the complete configuration and the manifest, before the first round."""
        self._write(CONFIG, config)
        self.write_manifest(manifest)

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        """Write the manifest: where the run comes from."""
        self._manifest = dict(manifest)
        self._write_json(MANIFEST, self._manifest)

    def append(self, record: RoundRecord) -> None:
        """Add one round; the operating system has it when this returns."""
        line = record.to_json().encode("ascii") + b"\n"
        with explained(self.path):
            write_all(self._rounds.fileno(), line)
        self._written.update(line)

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints; it exists while the run is not finished."""
        return self.path / CHECKPOINTS

    def checkpoint(self, state: Mapping[str, Any], *, round: int, config_hash: str) -> None:
        """Save a state together with its position in the file of rounds."""
        with explained(self.path):
            save_checkpoint(self.checkpoints, {**state, "rounds": self.mark()}, round=round, config_hash=config_hash)

    def save_model(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Write the weights of the final model, under the names of the module's ``state_dict``."""
        with explained(self.path):
            replace_file(self.path / MODEL, to_safetensors(arrays))

    def finish(self, summary: Mapping[str, Any], *, complete: bool = True) -> None:
        """Write the time of the end into the manifest, and the summary.

        The summary is written last: a run is finished if it has a summary without ``interrupted``. If it is
        ``complete``, its checkpoints are then removed.
        """
        self._write_json(MANIFEST, {**self._manifest, "ended": datetime.now(UTC).isoformat(timespec="seconds")})
        self._write_json(SUMMARY, summary)
        if complete:
            with explained(self.path):
                sync_folder(self.path)
                remove_checkpoints(self.checkpoints)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the folder; a second call does nothing."""
        with explained(self.path):
            self._rounds.close()

    def _write_json(self, name: str, data: Mapping[str, Any]) -> None:
        self._write(name, json.dumps(plain(data), indent=2, allow_nan=False) + "\n")

    def _write(self, name: str, text: str) -> None:
        with explained(self.path):
            write_atomically(self.path / name, text)


def shown(path: Path | str) -> str:
    """Return a path for a one-line message, quoted and with control characters escaped."""
    return repr(str(path))


def _clear(path: Path, *, keep: tuple[str, ...]) -> None:
    for name in OURS:
        if name not in keep:
            (path / name).unlink(missing_ok=True)
    remove_leftovers(path, WRITTEN_ASIDE)


def _claim(path: Path, how: int, patience: float = 0.0) -> io.FileIO:
    """Open the rounds file for this run alone."""
    try:
        # Unbuffered: nothing is left to write at the end, when a full disk may have space again.
        file = io.FileIO(os.open(path, os.O_RDWR | how | getattr(os, "O_BINARY", 0), 0o644), "r+")
    except FileExistsError:
        raise OutputError(f"output folder {shown(path.parent)} was taken by another run just now") from None
    deadline = time.monotonic() + patience
    while not lock(file):
        if time.monotonic() >= deadline:
            file.close()
            raise OutputError(f"output folder {shown(path.parent)} is in use by a run that is still going")
        time.sleep(_LOCK_SECONDS)
    return file


def lock(file: IO[Any]) -> bool:
    """Lock a file until it is closed or the process ends; return False if another process has locked it."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        # Some network file systems have no locks; exclusive creation still guards a fresh folder.
        return True
    return True


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn errors of the operating system (no permission, ...) into OutputError; a full disk into DiskError."""
    try:
        yield
    except (OSError, ValueError) as error:
        cause = getattr(error, "strerror", None) or str(error)
        kind = DiskError if getattr(error, "errno", None) in (*FULL, errno.EROFS) else OutputError
        raise kind(f"cannot write to output folder {shown(path)}: {cause}") from error
