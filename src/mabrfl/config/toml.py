"""Configurations as TOML files: read with one-line errors, written complete."""

from __future__ import annotations

import os
import stat
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import tomli_w
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from mabrfl._version import __version__
from mabrfl.config.model import RunConfig, Section
from mabrfl.errors import ConfigError, suggest

Kind = Literal["config", "sweep"]
"""The purpose of a file of settings, which is also its name in the folder of the results."""
MAX_BYTES = 1_000_000
_LONGEST_SHOWN = 80
_WORDING = (
    ("Input should", "must"),
    ("String should", "must"),
    ("must be a valid dictionary or instance of", "must be a table, as in"),
    ("must be a valid tuple", "must be a list"),
    ("must be a valid integer", "must be an integer"),
    ("must be a valid", "must be a"),
)
"""Pydantic's words, and ours."""


def load_config(path: Path | str | None = None, overrides: Mapping[str, Any] | None = None) -> RunConfig:
    """Read a run's settings from a TOML file, with the caller's own on top.

    Parameters
    ----------
    path
        The file, ``"-"`` for standard input, or None for the defaults alone.
    overrides
        Settings by (dotted) key, ``{"rounds": 5, "training.epochs": 1}``; nested tables will do as well.

    Raises
    ------
    ConfigError
        In one line that names the file, the key, the rule and the value.

    Examples
    --------
    >>> load_config(None, {"training.epochs": 1}).training.epochs
    1
    """
    settings = {} if path is None else parse_toml(read_bytes(path), shown(path))
    if settings.keys() & {"axes", "grid"}:
        raise ConfigError(f"{shown(path or '')} is the file of a sweep, not of a run; try: mabrfl sweep {path}")
    nested = _nested(overrides or {})
    _merge(settings, nested)
    try:
        return RunConfig(**settings)
    except ValidationError as error:
        raise ConfigError(error_in_one_line(error, nested, "" if path is None else f"{shown(path)}: ")) from None


def dump_toml(config: RunConfig) -> str:
    """Return a configuration as TOML that :func:`load_config` reads back to an equal one."""
    settings = _without_none(config.model_dump(mode="json"))
    header = f"# mabrfl {__version__}. To run this again: mabrfl run config.toml\n"
    return header + tomli_w.dumps(settings)


def parse_toml(data: bytes, source: str) -> dict[str, Any]:
    """Return a TOML document as plain values; ``source`` is how errors call it."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ConfigError(f"{source} must be UTF-8; got UTF-16")
    if data.startswith(b"\xef\xbb\xbf"):
        raise ConfigError(f"{source} must be UTF-8 without a byte order mark at its start")
    if b"\x00" in data:
        raise ConfigError(f"{source} is not a text file: it has NUL bytes")
    try:
        return tomllib.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{source} must be UTF-8; byte {error.start} is not") from error
    except RecursionError as error:
        raise ConfigError(f"{source} is nested too deeply") from error
    except ValueError as error:
        raise ConfigError(f"{source} is not valid TOML: {one_line(str(error))}") from error


def shown(path: Path | str, kind: Kind = "config") -> str:
    """Return how messages call a file of settings."""
    return "standard input" if str(path) == "-" else f"{kind} file {str(path)!r}"


def one_line(text: str) -> str:
    """Return text without line breaks and control characters."""
    return "".join(character if character.isprintable() else " " for character in text)


def read_bytes(path: Path | str, kind: Kind = "config") -> bytes:
    """Read a file of settings, or standard input if its name is ``"-"``."""
    if str(path) == "-":
        data = sys.stdin.buffer.read(MAX_BYTES + 1)
    else:
        try:
            data = _read_regular(Path(path), kind)
        except FileNotFoundError as error:
            raise ConfigError(f"{shown(path, kind)} does not exist") from error
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{shown(path, kind)} cannot be read: {getattr(error, 'strerror', None) or error}"
            ) from error
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{shown(path, kind)} must be at most {MAX_BYTES:,} bytes long")
    return data


def _read_regular(path: Path, kind: Kind) -> bytes:
    """Read a file that is one: a named pipe would block for ever, a device has no end."""
    # Opened without blocking and examined when open, so that nothing can be exchanged in between.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise ConfigError(f"{shown(path, kind)} is a folder{_hint(path, kind)}")
        if not stat.S_ISREG(mode):
            raise ConfigError(f"{shown(path, kind)} is not a regular file; '-' reads standard input")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(MAX_BYTES + 1)
    finally:
        os.close(descriptor)


def _hint(folder: Path, kind: Kind) -> str:
    inside = folder / f"{kind}.toml"
    return f"; did you mean '{inside}'?" if inside.is_file() else ""


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Turn dotted keys into tables."""
    tree: dict[str, Any] = {}
    for key, value in flat.items():
        *tables, last = key.split(".")
        branch: dict[str, Any] = {last: _nested(value) if isinstance(value, Mapping) else value}
        for table in reversed(tables):
            branch = {table: branch}
        _merge(tree, branch)
    return tree


def _merge(into: dict[str, Any], other: Mapping[str, Any]) -> None:
    for key, value in other.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value


def _without_none(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _without_none(value) if isinstance(value, dict) else value
        for key, value in settings.items()
        if value is not None
    }


def error_in_one_line(error: ValidationError, overrides: Mapping[str, Any], source: str) -> str:
    """Return the first of pydantic's errors as one line: the key, the rule, and the value."""
    details = error.errors(include_url=False)
    first = details[0]
    place = tuple(str(part) for part in first["loc"])
    message = _unknown_key(place) if first["type"] == "extra_forbidden" else _wrong_value(first, place)
    more = f" (and {len(details) - 1} more)" if len(details) > 1 else ""
    return one_line(("" if _holds(overrides, place) else source) + message + more)


def _unknown_key(place: tuple[str, ...]) -> str:
    *tables, key = place
    where = f" in [{'.'.join(tables)}]" if tables else ""
    siblings = {name.rpartition(".")[2] for name in known_keys() if name.rpartition(".")[0] == ".".join(tables)}
    elsewhere = [name for name in known_keys() if name.rpartition(".")[2] == key]
    hint = f"; did you mean '{elsewhere[0]}'?" if elsewhere else suggest(key, siblings)
    return f"unknown key '{key}'{where}{hint}"


def _wrong_value(details: ErrorDetails, place: tuple[str, ...]) -> str:
    rule = details["msg"].removeprefix("Value error, ")
    for theirs, ours in _WORDING:
        rule = rule.replace(theirs, ours)
    value = repr(details["input"])
    if isinstance(details["input"], Section) or "got " in rule:
        return f"{'.'.join(place)}: {rule}" if place else rule
    value = value if len(value) <= _LONGEST_SHOWN else value[:_LONGEST_SHOWN] + "..."
    return f"{'.'.join(place)} {rule}; got {value}"


def _holds(settings: Mapping[str, Any], place: tuple[str, ...]) -> bool:
    branch: Any = settings
    for part in place:
        if not isinstance(branch, Mapping):
            return True
        if part not in branch:
            return False
        branch = branch[part]
    return bool(place)


def known_keys() -> list[str]:
    """Return every key of a run's settings, those of its sections as ``section.key``."""
    return list(_keys_of(RunConfig, ""))


def _keys_of(model: type[Section], prefix: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield prefix + name
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            yield from _keys_of(field.annotation, f"{prefix}{name}.")
