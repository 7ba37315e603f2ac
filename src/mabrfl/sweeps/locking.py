"""One sweep at a time in a folder."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from mabrfl.errors import OutputError
from mabrfl.recording.folder import explained, lock, shown
from mabrfl.sweeps.plan import is_sweeps_folder

LOCK = ".lock"
PATIENCE = 60.0
"""Seconds to wait for the processes of a sweep that was killed a moment ago."""
_PAUSE = 0.1


def refuse_foreign_folder(results: Path) -> None:
    """Refuse a folder with files that are not results of a sweep; nothing changes.

    Raises
    ------
    OutputError
        If it is such a folder, or not a folder.
    """
    with explained(results):
        nearest = next((place for place in (results, *results.absolute().parents) if place.exists()), Path())
        if not nearest.is_dir():
            raise OutputError(f"output folder {shown(results)} cannot be made: {shown(nearest)} is a file")
        # The lock is written first, so a sweep killed early has only that; a copy may not have it.
        ours = (results / LOCK).exists() or is_sweeps_folder(results)
        if results.is_dir() and any(results.iterdir()) and not ours:
            raise OutputError(f"output folder {shown(results)} is not empty and not that of a sweep; choose another")


@contextlib.contextmanager
def claimed(results: Path) -> Iterator[None]:
    """Claim a folder for one sweep at a time; the claim ends with the process."""
    refuse_foreign_folder(results)
    with explained(results):
        results.mkdir(parents=True, exist_ok=True)
        file = open(results / LOCK, "a+", encoding="ascii")  # noqa: SIM115 (closed below, after the sweep)
    with file:
        deadline = time.monotonic() + PATIENCE
        while not lock(file):
            file.seek(0)
            owner = file.read(20).strip() or "unknown"
            # A running sweep is not waited for, only one that is being killed.
            if time.monotonic() >= deadline or _alive(owner):
                raise OutputError(f"another sweep (process {owner}) is running in {shown(results)}")
            time.sleep(_PAUSE)
        with explained(results):
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
        yield


def _alive(owner: str) -> bool:
    if not owner.isdigit() or int(owner) == os.getpid():
        return owner.isdigit()
    try:
        os.kill(int(owner), 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True
