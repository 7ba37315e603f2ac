"""Reading the folders of runs, also of runs that were killed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mabrfl.errors import StateError
from mabrfl.recording.encoding import MALFORMED
from mabrfl.recording.folder import ROUNDS, SUMMARY, shown
from mabrfl.recording.record import RoundRecord
from mabrfl.recording.regular import open_regular


@dataclass(frozen=True)
class ReadRounds:
    """The rounds in the folder of a run.

    Attributes
    ----------
    records
        The complete ones, in order.
    torn_line
        Number of the last line if it was cut off in the middle of writing, else None.
    """

    records: tuple[RoundRecord, ...]
    torn_line: int | None = None


def read_rounds(path: Path | str) -> ReadRounds:
    """Read ``rounds.jsonl`` of a run folder (or the file itself), also of a run that was killed.

    A last line that was cut off is left out and reported; damage anywhere else is an error.
    """
    path = Path(path) / ROUNDS if Path(path).is_dir() else Path(path)
    try:
        with open_regular(path) as file:
            lines = file.read().decode("utf-8", errors="replace").split("\n")
    except OSError as error:
        raise StateError(f"cannot read {shown(path)}: {error.strerror}") from error
    records: list[RoundRecord] = []
    for number, line in enumerate(lines, start=1):
        last = number == len(lines)
        try:
            if line or not last:
                records.append(RoundRecord.from_json(line))
        except MALFORMED as error:
            if last:
                return ReadRounds(tuple(records), torn_line=number)
            raise StateError(f"{shown(path)} line {number} is not a round record: {error}") from error
    return ReadRounds(tuple(records))


def read_summary(path: Path | str) -> dict[str, Any]:
    """Read ``summary.json`` of a run folder."""
    path = Path(path) / SUMMARY
    try:
        with open_regular(path) as file:
            data = json.loads(file.read())
    except OSError as error:
        raise StateError(f"cannot read {shown(path)}: {error.strerror}; did the run finish?") from error
    except (ValueError, RecursionError) as error:
        raise StateError(f"{shown(path)} is not a summary: {error}") from error
    if not isinstance(data, dict):
        raise StateError(f"{shown(path)} is not a summary: it holds a {type(data).__name__}")
    return data
