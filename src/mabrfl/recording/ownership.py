"""Which files in a folder a run wrote, and the reservation of a folder for a new run."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from mabrfl.errors import OutputError
from mabrfl.recording.atomic import is_leftover
from mabrfl.recording.encoding import MALFORMED
from mabrfl.recording.record import RoundRecord
from mabrfl.recording.regular import open_regular

CONFIG, MANIFEST, ROUNDS, SUMMARY = "config.toml", "manifest.json", "rounds.jsonl", "summary.json"
PICTURES = ("accuracy.png", "accuracy.svg", "clients.png", "clients.svg")
MODEL = "model.safetensors"
"""The weights of the final model, if they were asked for."""
OURS = (CONFIG, MANIFEST, ROUNDS, SUMMARY, MODEL, *PICTURES)
CHECKPOINTS = "checkpoint"
"""With ``OURS``, everything that a run writes; nothing else is ever removed from a folder."""
PLAN = "cells.json"
"""The file of a sweep in its folder, which holds its runs in folders of their own."""
FAILED, SERIES = "failed.json", "series.json"
"""Files of a sweep in the folder of a run: why it failed; its rounds, if it was adopted."""
WRITTEN_ASIDE = (*OURS, FAILED, SERIES)
"""A killed process may have left an unfinished temporary file of any of these."""

_LONGEST_LINE = 64 * 2**20


def is_empty(path: Path) -> bool:
    """Whether a folder has nothing but unfinished temporary files of killed runs."""
    return all(is_leftover(file.name, WRITTEN_ASIDE) for file in path.iterdir())


def holds_run(path: Path) -> bool:
    """Whether a run of ours wrote into a folder, even if it was killed early."""
    with contextlib.suppress(OSError, ValueError, RecursionError), open_regular(path / MANIFEST) as file:
        document = json.loads(file.read())
        if isinstance(document, dict) and "config_hash" in document:
            return True
    with contextlib.suppress(OSError, *MALFORMED):
        # The manifest comes second: a run first claims its file of rounds.
        with open_regular(path / ROUNDS) as file:
            first = file.readline(_LONGEST_LINE)
        if first:
            RoundRecord.from_json(first.decode("utf-8"))
        return True
    return False


def refuse_others_files(path: Path, names: Iterable[str] = OURS) -> None:
    """Refuse to replace files of these names in a folder unless a run of ours wrote them.

    Raises
    ------
    OutputError
        If there are such files, and nothing shows that a run wrote them.
    """
    existing = [name for name in names if (path / name).exists()]
    if existing and not holds_run(path):
        raise OutputError(
            f"output folder {str(path)!r} has files that no run wrote, and a run would replace: {', '.join(existing)}; "
            "choose another folder, or move them"
        )


@contextlib.contextmanager
def reserved(path: Path) -> Iterator[Path]:
    """Make a new folder, with a number if the name is taken; callers at the same moment get different folders.

    If it is empty at the end, it is removed again.

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
        # rmdir removes empty folders only.
        with contextlib.suppress(OSError):
            folder.rmdir()
            if parent_is_new:
                path.parent.rmdir()
