"""Checks of option classes: types by their annotations, numbers by their ranges."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import fields
from functools import cache
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints

from mabrfl.errors import ConfigError


@cache
def _hints(kind: Hashable) -> dict[str, Any]:
    return get_type_hints(kind)


def check_options(options: Any, ranges: Sequence[tuple[str, float, float]]) -> None:
    """Refuse options of the wrong type or out of range, and cut-offs in the wrong order."""
    hints = _hints(cast("Hashable", type(options)))
    for field in fields(options):
        _check_type(field.name, getattr(options, field.name), hints[field.name])
    for name, low, high in ranges:
        value = getattr(options, name)
        if not low <= value <= high:
            raise ConfigError(f"{name} must lie in [{low}, {high}]; got {value}")
    if options.never_to > options.always_from:
        raise ConfigError(
            f"never_to <= always_from must hold; got never_to={options.never_to}, always_from={options.always_from}"
        )


def _check_type(name: str, value: Any, hint: Any) -> None:
    """Refuse a value that is not of the option's type; NaN fails the range checks that follow."""
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            known = ", ".join(get_args(hint))
            raise ConfigError(f"{name} must be one of {known}; got {value!r}")
    elif hint is bool:
        if not isinstance(value, bool):
            raise ConfigError(f"{name} must be true or false; got {value!r}")
    elif isinstance(value, bool) or not isinstance(value, int | (float if hint is float else int)):
        raise ConfigError(f"{name} must be {'a number' if hint is float else 'an integer'}; got {value!r}")
