"""The folder of one run: claimed once, written so that it is readable at any moment."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import IO, Any

try:
    import fcntl
except ImportError:  # pragma: no cover (Windows)
    fcntl = None  # type: ignore[assignment]

from mabrfl.errors import OutputError
from mabrfl.recording.record import RoundRecord, plain

CONFIG, MANIFEST, ROUNDS, SUMMARY = "config.toml", "manifest.json", "rounds.jsonl", "summary.json"
PICTURES = ("accuracy.png", "accuracy.svg", "clients.png", "clients.svg")
OURS = (CONFIG, MANIFEST, ROUNDS, SUMMARY, *PICTURES)
"""Everything a run writes; nothing else is ever removed from a folder."""


class RunFolder:
    """The folder of one run; make it with :meth:`create`, and use it as a context manager.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as place, RunFolder.create(Path(place) / "run") as folder:
    ...     folder.start(config='dataset = "digits"', manifest={"seed": 0})
    ...     folder.append(RoundRecord(1, 90.0, 0.3, (0,), {}))
    ...     folder.finish({"final_accuracy": 90.0})
    ...     sorted(file.name for file in folder.path.iterdir())
    ['config.toml', 'manifest.json', 'rounds.jsonl', 'summary.json']
    """

    def __init__(self, path: Path, rounds: IO[str]) -> None:
        self.path = path
        self._rounds = rounds
        self._manifest: dict[str, Any] = {}

    @staticmethod
    def check(path: Path | str, *, force: bool = False) -> Path:
        """Refuse a folder that :meth:`create` would refuse, without touching anything."""
        path = Path(path)
        with _explained(path):
            if path.exists() and not path.is_dir():
                raise OutputError(f"output folder {shown(path)} is a file; choose another with --out")
            if path.is_dir() and not force and any(path.iterdir()):
                raise OutputError(f"output folder {shown(path)} is not empty; choose another, or use --force")
            nearest = next((place for place in (path, *path.absolute().parents) if place.exists()), Path("."))
            if not (nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)):
                raise OutputError(f"output folder {shown(path)} cannot be made: {shown(nearest)} is not writable")
        return path

    @classmethod
    def create(cls, path: Path | str, *, force: bool = False) -> RunFolder:
        """Make the folder and claim it; with ``force``, remove the files of an earlier run from it.

        Only files that a run writes are ever removed, and never those of a run that is still going.

        Raises
        ------
        OutputError
            If there is a file in its place, it is not empty, not writable, or claimed by another run.
        """
        path = cls.check(path, force=force)
        with _explained(path):
            path.mkdir(parents=True, exist_ok=True)
            rounds = _claim(path / ROUNDS, force=force)
            for name in OURS:
                if name != ROUNDS:
                    (path / name).unlink(missing_ok=True)
        return cls(path, rounds)

    def start(self, *, config: str, manifest: Mapping[str, Any]) -> None:
        """Write the complete configuration and where the run comes from, before the first round."""
        self._manifest = dict(manifest)
        self._write(CONFIG, config)
        self._write_json(MANIFEST, self._manifest)

    def append(self, record: RoundRecord) -> None:
        """Add one round; it is with the operating system when this returns."""
        with _explained(self.path):
            self._rounds.write(record.to_json() + "\n")
            self._rounds.flush()

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write the summary, and the time of the end into the manifest."""
        self._write_json(SUMMARY, summary)
        self._write_json(MANIFEST, {**self._manifest, "ended": datetime.now(UTC).isoformat(timespec="seconds")})

    def close(self) -> None:
        """Let go of the folder; harmless if done twice."""
        with _explained(self.path):
            self._rounds.close()

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write_json(self, name: str, data: Mapping[str, Any]) -> None:
        self._write(name, json.dumps(plain(data), indent=2, allow_nan=False) + "\n")

    def _write(self, name: str, text: str) -> None:
        with _explained(self.path):
            write_atomically(self.path / name, text)


def write_atomically(path: Path, text: str) -> None:
    """Replace a file as a whole: whoever reads it sees the old text or the new one, nothing between."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with open(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def shown(path: Path | str) -> str:
    """Return a path for a one-line message, quoted and with control characters escaped."""
    return repr(str(path))


def _claim(path: Path, *, force: bool) -> IO[str]:
    """Open the rounds file for this run alone."""
    flags = os.O_WRONLY | os.O_CREAT | (0 if force else os.O_EXCL)
    try:
        file = open(os.open(path, flags, 0o644), "w", encoding="utf-8", newline="\n")  # noqa: SIM115 (RunFolder closes it)
    except FileExistsError:
        raise OutputError(f"output folder {shown(path.parent)} was taken by another run just now") from None
    if not _lock(file):
        file.close()
        raise OutputError(f"output folder {shown(path.parent)} is in use by a run that is still going")
    os.ftruncate(file.fileno(), 0)
    return file


def _lock(file: IO[str]) -> bool:
    """Lock a file until it is closed; False if another process has done so."""
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
def _explained(path: Path) -> Iterator[None]:
    """Turn what the operating system refuses (no permission, disk full, ...) into an OutputError."""
    try:
        yield
    except (OSError, ValueError) as error:
        cause = getattr(error, "strerror", None) or str(error)
        raise OutputError(f"cannot write to output folder {shown(path)}: {cause}") from error
