"""Checks for rules, selectors and attacks: of settings, and of the conditions of theorems."""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import fields
from functools import cache
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints

from mabrfl.errors import ConfigError, QuorumError, suggest
from mabrfl.updates import Cohort, Reason


def check_whole(name: str, value: Any, *, at_least: int = 0) -> None:
    """Refuse anything but a whole number of at least ``at_least``."""
    try:
        good = not isinstance(value, bool) and operator.index(value) >= at_least
    except TypeError:
        good = False
    if not good:
        raise ConfigError(f"{name} must be a whole number >= {at_least}; got {value!r}")


def check_positive(name: str, value: Any, *, or_zero: bool = False) -> None:
    """Refuse anything but a finite number above zero, or from zero if ``or_zero``."""
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not (number and (value > 0 or (or_zero and value == 0))):
        raise ConfigError(f"{name} must be a finite number {'>=' if or_zero else '>'} 0; got {value!r}")


def check_choice(name: str, value: Any, known: Collection[Any]) -> None:
    """Refuse anything but one of the known values; the error names the nearest."""
    if isinstance(value, bool) or value not in known:
        hint = suggest(str(value), [str(each) for each in known])
        raise ConfigError(f"{name} has no variant {value!r}{hint}")


def quorum(
    rule: str, condition: str, cohort: Cohort, num_malicious: int, *, excess: int, strict: bool, times: int = 2
) -> tuple[str, ...]:
    """Return the event of a broken precondition ``n >= times * f + excess``, or nothing.

    Here n is the size of the cohort and f its proportional share of the malicious clients, before
    :meth:`~mabrfl.updates.Cohort.expected_malicious` keeps it below one half.

    Raises
    ------
    QuorumError
        Instead of returning the event, if ``strict``.
    """
    n = len(cohort)
    f = cohort.proportional(num_malicious)
    if n >= times * f + excess:
        return ()
    if strict:
        raise QuorumError(f"{rule} needs {condition}; got n={n}, f={f}")
    return (f"{rule}-precondition: {condition}; n={n}, f={f}",)


def outliers(n: int, rows: Iterable[int]) -> list[Reason]:
    """Return one reason per client: ``"outlier"`` for the given rows, ``"accepted"`` for the others."""
    reasons: list[Reason] = ["accepted"] * n
    for row in rows:
        reasons[row] = "outlier"
    return reasons


@cache
def _hints(kind: Hashable) -> dict[str, Any]:
    return get_type_hints(kind)


def check_options(options: Any, ranges: Sequence[tuple[str, float, float]]) -> None:
    """Refuse options of the wrong type or out of range."""
    hints = _hints(cast("Hashable", type(options)))
    for field in fields(options):
        _check_type(field.name, getattr(options, field.name), hints[field.name])
    for name, low, high in ranges:
        value = getattr(options, name)
        if not low <= value <= high:
            raise ConfigError(f"{name} must lie in [{low}, {high}]; got {value}")


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
