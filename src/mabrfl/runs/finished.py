"""Which run is in a folder, and whether it is finished."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mabrfl.catalog import check_code
from mabrfl.config import ResolvedConfig, config_hash, load_config, resolve
from mabrfl.config.differences import difference, flat
from mabrfl.config.identity import WITHOUT_EFFECT
from mabrfl.errors import ConfigError, OutputError, StateError
from mabrfl.recording import RunFolder, read_rounds, read_summary, remove_checkpoints
from mabrfl.recording.files import read_object
from mabrfl.recording.folder import CHECKPOINTS, CONFIG, MANIFEST, ROUNDS, SUMMARY, shown
from mabrfl.recording.ownership import SERIES
from mabrfl.recording.regular import open_regular
from mabrfl.runs.observers import RunResult

PATIENCE = 10.0
"""Seconds to wait for a folder whose last process was killed a moment ago."""
_NUMBERS = ("rounds", "seconds", "final_accuracy")
_TOO_LARGE = 1e15
_ROUNDED = 1e-5
"""Relative difference of accuracies that are the same: packed ones have six digits."""


def claim(path: Path, *, begun: bool, force: bool = False) -> RunFolder:
    """Claim the folder of a run: the one it was begun in, or a new one."""
    return RunFolder.resume(path, patience=PATIENCE) if begun else RunFolder.create(path, force=force)


def is_same_run(path: Path, config: ResolvedConfig) -> bool:
    """Whether a run was begun in this folder, by the same configuration.

    Raises
    ------
    StateError
        If it was begun by another one.
    """
    theirs, ours = _hash_in(path), config_hash(config)
    if theirs is not None and theirs != ours:
        raise StateError(f"the run in {shown(path)} is another one: {_difference(path, config)}")
    return theirs is not None or (path / ROUNDS).is_file()


def _difference(path: Path, config: ResolvedConfig) -> str:
    """Return which settings differ from those of the run in a folder; the two hashes if these cannot be read."""
    try:
        theirs = resolve(load_config(path / CONFIG))
    except ConfigError:
        theirs = config
    before, now = (flat(each.model_dump(mode="json", exclude=set(WITHOUT_EFFECT))) for each in (theirs, config))
    hashes = f"the hash of its configuration is {_hash_in(path)}, of this one {config_hash(config)}"
    return difference(before, now) or hashes


def changed_code(path: Path, config: ResolvedConfig) -> tuple[str, ...]:
    """Return the user's own names in a run whose code has changed since the run in this folder began."""
    return check_code(config.model_dump(mode="json"), read_manifest(path).get("code")).changed


def quoted(names: Iterable[str]) -> str:
    """Return names in quotes, in one line.

    Examples
    --------
    >>> quoted(["mine:Rule", "mine:Attack"])
    "'mine:Rule', 'mine:Attack'"
    """
    return ", ".join(f"'{name}'" for name in names)


def finished_summary(path: Path, key: str) -> dict[str, Any] | None:
    """Return the summary in a folder if the run of this hash is finished there, else None.

    This alone decides whether a run is done: for a sweep and its plan, for resuming a run, and for tables, figures and
    packing. A summary counts as missing if it cannot be read, says that the run was interrupted, belongs to another
    configuration, or has something else in place of a number.
    """
    try:
        summary = read_summary(path) if (path / SUMMARY).is_file() else {}
    except StateError:
        return None
    finished = summary.get("interrupted") is False and summary.get("config_hash") == key
    return summary if finished and all(_is_number(summary.get(name)) for name in _NUMBERS) else None


def damage(path: Path, summary: dict[str, Any]) -> str:
    """Return how the files of a finished run contradict its summary; an empty text if they agree.

    The rounds must be as many as the summary says and end at its accuracy, and the manifest must be readable.
    """
    try:
        read_object(path / MANIFEST)
        name, count, accuracy = _end_of_rounds(path)
    except StateError as error:
        return str(error)
    if count != summary.get("rounds"):
        return f"{SUMMARY} has {summary.get('rounds')} rounds, but {name} has {count}"
    expected = summary.get("final_accuracy")
    if accuracy != expected and not math.isclose(_finite(accuracy), _finite(expected), rel_tol=_ROUNDED):
        return f"{SUMMARY} has an accuracy of {expected}, but the last round in {name} has {accuracy}"
    return ""


def _end_of_rounds(path: Path) -> tuple[str, int, Any]:
    """Return the name of the file with the rounds of a run, their number, and the accuracy after the last one."""
    if not (path / ROUNDS).is_file() and (path / SERIES).is_file():  # an adopted cell
        series = read_object(path / SERIES).get("series", {})
        try:
            return SERIES, len(series["round"]), series["accuracy"][-1]
        except (KeyError, IndexError, TypeError) as error:
            raise StateError(f"{SERIES} has no rounds") from error
    try:
        data = (path / ROUNDS).read_bytes()
    except OSError as error:
        raise StateError(f"cannot read {ROUNDS}: {error.strerror}") from error
    if not data.endswith(b"\n"):
        raise StateError(f"{ROUNDS} is cut off")
    try:
        last = json.loads(data[data.rfind(b"\n", 0, -1) + 1 :])
        return ROUNDS, data.count(b"\n"), last["accuracy"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise StateError(f"the last line of {ROUNDS} is not a round") from error


def _finite(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else math.nan


def _is_number(value: Any) -> bool:
    """Whether a value is a number of a sensible size, or null, which stands for NaN and infinities."""
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _TOO_LARGE)


def finished_run(path: Path, config: ResolvedConfig) -> RunResult | None:
    """Return the run in a folder if it is finished, else None."""
    summary = finished_summary(path, config_hash(config))
    if summary is None:
        return None
    if wrong := (path / ROUNDS).is_file() and damage(path, summary):
        raise StateError(f"the run in {shown(path)} is damaged: {wrong}; --force runs it again")
    if not (path / ROUNDS).is_file():
        raise StateError(f"the run in {shown(path)} is finished, but its rounds are not there: was it adopted?")
    # The last step of a run; a kill may have come before it.
    remove_checkpoints(path / CHECKPOINTS)
    changed = quoted(changed_code(path, config))
    notes = ["this run is finished already"]
    notes += [f"the code of {changed} has changed since; --force runs it again"] if changed else []
    return RunResult(config, path, list(read_rounds(path).records), summary, notes)


def read_manifest(path: Path) -> dict[str, Any]:
    """Return the manifest of the run in a folder; an empty one if it was not written yet, or is damaged."""
    try:
        with open_regular(path / MANIFEST) as file:
            content = json.loads(file.read())
    except (FileNotFoundError, ValueError, RecursionError):
        return {}
    except OSError as error:
        raise OutputError(f"cannot read {shown(path / MANIFEST)}: {error}") from error
    return content if isinstance(content, dict) else {}


def _hash_in(path: Path) -> str | None:
    """Return the hash of the configuration that a folder belongs to, if any."""
    recorded = read_manifest(path).get("config_hash") if path.is_dir() else None
    if isinstance(recorded, str):
        return recorded
    try:
        return config_hash(load_config(path / CONFIG)) if (path / CONFIG).is_file() else None
    except ConfigError as error:
        raise StateError(
            f"{shown(path / CONFIG)} is not the configuration of a run: {error}; move its folder away to run it anew"
        ) from error
