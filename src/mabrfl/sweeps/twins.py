"""Two combinations of a grid that are one and the same run: an error, because one of them would silently be lost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from mabrfl.config.differences import value_label
from mabrfl.config.identity import WITHOUT_EFFECT, canonical
from mabrfl.errors import ConfigError
from mabrfl.sweeps.cells import PlannedCell, label_of

_OF_ATTACKS = ("attack", "attackers", "attack_options")


def without_twins(cells: Iterable[PlannedCell], where: str) -> Iterator[PlannedCell]:
    """Yield each cell of a grid once, and refuse two points of an axis that are one cell.

    Several attacks without attackers are one clean run, and so are several shares of attackers without an attack:
    these are no error.

    Raises
    ------
    ConfigError
        If two points differ only in settings without effect, or in how the same value is written.
    """
    first: dict[str, PlannedCell] = {}
    for cell in cells:
        twin = first.setdefault(cell.key, cell)
        if twin is cell:
            yield cell
        elif keys := [key for key in _differing(twin, cell) if not _is_unused(key, cell)]:
            raise ConfigError(f"{where}{_described(twin, cell, keys)}")


def _is_unused(key: str, cell: PlannedCell) -> bool:
    """Whether a setting belongs to an attack in a run without attackers."""
    return cell.config.attack == "none" and key.split(".", maxsplit=1)[0] in _OF_ATTACKS


def _differing(one: PlannedCell, other: PlannedCell) -> list[str]:
    """Return the settings that are written in two ways, or in one of two cells only."""
    absent = object()
    keys = dict.fromkeys((*one.written, *other.written))
    return [key for key in keys if canonical(one.written.get(key, absent)) != canonical(other.written.get(key, absent))]


def _described(one: PlannedCell, other: PlannedCell, differing: list[str]) -> str:
    axes = [axis for axis in one.axes if one.axes[axis] != other.axes[axis]]
    elsewhere = {axis: value for axis, value in one.axes.items() if axis not in axes}
    names = [_name({axis: cell.axes[axis] for axis in axes}) for cell in (one, other)]
    at = f" at {label_of(elsewhere)}" if elsewhere else ""
    why = " and ".join(_why(key, one) for key in differing)
    return (
        f"axes.{', axes.'.join(axes)}: {' and '.join(map(repr, names))} are one cell{at}, since {why}; "
        "leave out all but one, or set something that differs"
    )


def _name(point: dict[str, Any]) -> str:
    """Return the label of a point; with the names of the axes if there are several."""
    return value_label(next(iter(point.values()))) if len(point) == 1 else label_of(point)


def _why(key: str, cell: PlannedCell) -> str:
    if key in WITHOUT_EFFECT:
        return f"'{key}' does not change the result"
    settings = cell.settings
    return f"'{key}' is {value_label(settings[key])} for both" if key in settings else f"'{key}' comes to the same"
