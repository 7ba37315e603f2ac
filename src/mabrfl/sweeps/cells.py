"""The cells of a sweep: one run each, known by the hash of its complete configuration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mabrfl.config import ResolvedConfig
from mabrfl.config.differences import flat, value_label
from mabrfl.config.identity import WITHOUT_EFFECT
from mabrfl.errors import ConfigError, suggest

Settings = dict[str, Any]
"""Dotted keys and their values."""


@dataclass(frozen=True)
class Typed:
    """A value as typed on the command line, and the values that it may stand for."""

    text: str
    meanings: tuple[Any, ...] = ()


@dataclass(frozen=True)
class PlannedCell:
    """One run of a sweep.

    Attributes
    ----------
    key
        Its identity: the hash of the complete configuration.
    config
        The complete configuration.
    axes
        The axes of the sweep, and this cell's values on them.
    besides
        Settings that tell it from cells of other grids at the same place on the axes.
    written
        The settings by dotted key as the file has them, nothing filled in.
    """

    key: str
    config: ResolvedConfig
    axes: Mapping[str, Any]
    besides: Mapping[str, Any] = field(default_factory=dict)
    written: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def label(self) -> str:
        """A line that no other cell has: the values on the axes, and ``besides``."""
        return ", ".join(filter(None, (label_of(self.axes), label_of(self.besides)))) or self.key[:8]

    @property
    def plain_config(self) -> dict[str, Any]:
        """The complete configuration as JSON has it, but for what has no effect on the result."""
        return self.config.model_dump(mode="json", exclude=set(WITHOUT_EFFECT))

    @property
    def settings(self) -> Settings:
        """The same by dotted key."""
        return flat(self.plain_config)


def select(cells: Sequence[PlannedCell], wanted: Mapping[str, Sequence[Any]]) -> list[PlannedCell]:
    """Return the cells in which each of these keys, an axis or a setting, has one of its values.

    Raises
    ------
    ConfigError
        If a key is neither an axis nor a setting of any cell, a value is that of no cell, or no cell is left.
    """
    names = {name for cell in cells for name in (*cell.axes, *cell.settings)}
    for key, values in wanted.items():
        if key not in names:
            raise ConfigError(f"the sweep has neither an axis nor a setting '{key}'{suggest(key, names)}")
        for value in values:
            if hint := without_match(cells, key, [value]):
                raise ConfigError(f"no cell of the sweep has {pattern_label({key: [value]})}{hint}")
    selected = [cell for cell in cells if matches(cell, wanted)]
    if not selected:
        raise ConfigError(f"no cell of the sweep has {pattern_label(wanted)}")
    return selected


def without_match(cells: Iterable[PlannedCell], key: str, values: Sequence[Any]) -> str:
    """Return a hint on values of a key that no cell has; nothing if a cell has one of them."""
    known: set[str] = set()
    for cell in cells:
        if matches(cell, {key: values}):
            return ""
        known |= {value_label(place[key]) for place in (cell.axes, cell.settings) if key in place}
    return suggest(_typed_label(values[0]), known) if values and known else "; no cell has that setting"


def pattern_label(wanted: Mapping[str, Sequence[Any]]) -> str:
    """Return the pattern of :func:`matches` in one line."""
    return ", ".join(f"{key}={' or '.join(map(_typed_label, values))}" for key, values in wanted.items())


def matches(cell: PlannedCell, wanted: Mapping[str, Sequence[Any]]) -> bool:
    """Whether each of these keys, an axis or a setting, has one of its values in a cell."""
    settings = cell.settings
    return all(
        any(_same(value, place[key]) for value in values for place in (cell.axes, settings) if key in place)
        for key, values in wanted.items()
    )


def _same(wanted: Any, value: Any) -> bool:
    """Compare as a person would: "0.3" is 0.3, but a truth value is not a number."""
    if isinstance(wanted, Typed):
        return any(_same(meaning, value) for meaning in (wanted.text, *wanted.meanings))
    if isinstance(wanted, bool) is isinstance(value, bool) and wanted == value:
        return True
    return isinstance(wanted, str) and wanted == value_label(value)


def _typed_label(value: Any) -> str:
    return value.text if isinstance(value, Typed) else value_label(value)


def label_of(axes: Mapping[str, Any]) -> str:
    """Return a place on the axes in one line."""
    return ", ".join(f"{axis}={value_label(value)}" for axis, value in axes.items())
