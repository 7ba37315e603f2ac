"""Which files in a folder a run wrote, and a folder for a new run that nobody else takes."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from mabrfl.errors import OutputError
from mabrfl.recording.atomic import is_leftover
from mabrfl.recording.record import RoundRecord

CONFIG, MANIFEST, ROUNDS, SUMMARY = "config.toml", "manifest.json", "rounds.jsonl", "summary.json"
PICTURES = ("accuracy.png", "accuracy.svg", "clients.png", "clients.svg")
OURS = (CONFIG, MANIFEST, ROUNDS, SUMMARY, *PICTURES)
CHECKPOINTS = "checkpoint"
"""With ``OURS`` everything a run writes; nothing else is ever removed from a folder."""
FAILED, SERIES = "failed.json", "series.json"
"""What a sweep writes into the folder of a run: why it failed; its rounds, if it was adopted."""
WRITTEN_ASIDE = (*OURS, FAILED, SERIES)
"""Of all of them, a process that was killed may have left half of a new one, under a name of its own."""

_LONGEST_LINE = 64 * 2**20


def is_empty(path: Path) -> bool:
    """Whether a folder has nothing but what killed processes of ours left, half written."""
    return all(is_leftover(file.name, WRITTEN_ASIDE) for file in path.iterdir())


def holds_run(path: Path) -> bool:
    """Whether a run of ours wrote what is in a folder, however early it was killed."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        told = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        if isinstance(told, dict) and "config_hash" in told:
            return True
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        # The manifest comes second: a run begins with claiming its file of rounds.
        with open(path / ROUNDS, encoding="utf-8") as file:
            first = file.readline(_LONGEST_LINE)
        if first:
            RoundRecord.from_json(first)
        return True
    return False


def refuse_others_files(path: Path, names: Iterable[str] = OURS) -> None:
    """Refuse to replace files of these names in a folder unless a run of ours wrote them.

    Raises
    ------
    OutputError
        If there are such files, and nothing says that they are a run's.
    """
    there = [name for name in names if (path / name).exists()]
    if there and not holds_run(path):
        raise OutputError(
            f"output folder {str(path)!r} has files that no run wrote, and a run would replace: {', '.join(there)}; "
            "choose another folder, or move them"
        )


@contextlib.contextmanager
def reserved(path: Path) -> Iterator[Path]:
    """Make a folder that was not there, numbered if need be: of several who ask at the same moment, each has its own.

    If it is still empty in the end, it is removed again.

    Raises
    ------
    OutputError
        If it cannot be made.
    """
    parent_is_new = not path.parent.exists()
    for number in itertools.count(1):
        folder = path if number == 1 else path.with_name(f"{path.name}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise OutputError(f"output folder {str(folder)!r} cannot be made: {error.strerror}") from error
        break
    try:
        yield folder
    finally:
        # Only what is empty can be removed in this way.
        with contextlib.suppress(OSError):
            folder.rmdir()
            if parent_is_new:
                path.parent.rmdir()
