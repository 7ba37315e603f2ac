"""Errors in a user's own code: which of the run's names failed, in which file and line."""

from __future__ import annotations

import errno
import sys
import sysconfig
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mabrfl.catalog.kinds import SINGULAR, Kind
from mabrfl.catalog.user_code import own_names
from mabrfl.errors import MabRflError, OwnCodeError

_NOT_THE_USERS = (
    str(Path(__file__).resolve().parents[1]),
    *(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")),
)
_LONGEST = 80


@contextmanager
def named_failures(settings: Mapping[str, Any]) -> Iterator[None]:
    """Turn an error that a user's own code raises in this block into one that names it, with file and line.

    Parameters
    ----------
    settings
        The run's complete configuration, as plain tables.

    Raises
    ------
    OwnCodeError
        If the traceback goes through the module of one of the user's own names. Other errors, errors of this package
        and those of a full disk stay as they are.
    """
    try:
        yield
    except MabRflError:
        raise
    except Exception as error:
        message = "" if getattr(error, "errno", None) == errno.ENOSPC else _message(error, settings)
        if not message:
            raise
        raise OwnCodeError(message) from error


def _message(error: Exception, settings: Mapping[str, Any]) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    functions = [frame.f_code.co_qualname for frame, _ in traceback.walk_tb(error.__traceback__)]
    candidates = []
    for kind, name, file in _own_files(settings):
        own = [place for place, frame in enumerate(frames) if _same(frame.filename, file)]
        if own:
            # Of several names in one file, the one whose function was called; else the attack, if an attack was called.
            called = name.rpartition(":")[2].partition(".")[0]
            named = any(functions[place].partition(".")[0] == called for place in own)
            by_folder = own[0] > 0 and Path(frames[own[0] - 1].filename).parent.name == kind
            # An attack may rehearse a defense: the last of the two in the traceback is the one that failed.
            candidates.append((own[-1], named, by_folder, kind, name))
    if not candidates:
        return ""
    place, _, _, kind, name = max(candidates, key=lambda candidate: candidate[:3])
    frame = [frame for frame in frames[place:] if not _installed(frame.filename)][-1]
    code = f" ({frame.line[:_LONGEST]})" if frame.line else ""
    text = " ".join(str(error).split())
    return (
        f"your {SINGULAR[kind]} '{name}' failed at line {frame.lineno} of {Path(frame.filename).name}{code}: "
        f"{type(error).__name__}{': ' if text else ''}{text}"
    )


def _own_files(settings: Mapping[str, Any]) -> Iterator[tuple[Kind, str, str]]:
    """Yield the user's own names in a configuration, each with the file of its module."""
    for kind, name, target in own_names(settings):
        module = sys.modules.get(target.partition(":")[0])
        if file := getattr(module, "__file__", None):
            yield kind, name, file


def _same(one: str, other: str) -> bool:
    return Path(one).resolve() == Path(other).resolve()


def _installed(file: str) -> bool:
    return file.startswith("<") or str(Path(file).resolve()).startswith(_NOT_THE_USERS)
