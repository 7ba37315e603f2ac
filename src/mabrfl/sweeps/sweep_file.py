"""Sweep files: a base configuration, axes over it, and the cells that follow.

.. code-block:: toml

    name = "table"

    [base]                                    # a run's settings, as in a config.toml
    dataset = "digits"

    [[grid]]                                  # every combination of its axes, the first one outermost
    axes.attackers = [0.1, 0.3]               # the name of a setting, with its values
    axes."training.epochs" = [1, 3]           # one inside a section
    axes.defense = ["krum", { label = "ours", defense = "mab-rfl", preset = "paper" }]   # several settings at once

    [[grid]]                                  # more combinations; what is there already is not run twice
    base = { attack = "lie" }                 # settings of this grid alone
    axes.seed = [1, 2]
    exclude = [{ seed = 2, attack = "lie" }]  # combinations to leave out: all of these settings, each a value or a list

With one grid only, ``[axes]`` and ``[[exclude]]`` may stand at the top. A cell is named by the hash of its complete
configuration: change any setting, and it is another cell.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mabrfl.config import ResolvedConfig, config_hash, load_config, resolve
from mabrfl.config.differences import flat, value_label
from mabrfl.config.identity import canonical
from mabrfl.config.toml import known_keys, parse_toml, read_bytes, shown
from mabrfl.errors import ConfigError, suggest
from mabrfl.sweeps.cells import (
    PlannedCell,
    Settings,
    label_of,
    matches,
    pattern_label,
    without_match,
)
from mabrfl.sweeps.grouping import with_unique_labels
from mabrfl.sweeps.twins import without_twins

MAX_CELLS = 100_000
LABEL = "label"

_TOP = ("name", "base", "axes", "exclude", "grid")
_GRID = ("base", "axes", "exclude")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_OPTIONS = ("before_options", "defense_options", "selector_options", "attack_options")


@dataclass(frozen=True)
class Sweep:
    """The content of a sweep file.

    Attributes
    ----------
    name
        Of the sweep.
    cells
        In the order in which they are to run; no two have the same key.
    text
        The file, as it was read.
    """

    name: str
    cells: tuple[PlannedCell, ...]
    text: bytes


def load_sweep(path: Path | str) -> Sweep:
    """Read a sweep file.

    Raises
    ------
    ConfigError
        In one line that names the file, the place in it, and what is wrong.
    """
    return parse_sweep(read_bytes(path, "sweep"), shown(path, "sweep"), default_name=Path(path).stem)


def parse_sweep(text: bytes, source: str = "sweep", default_name: str = "sweep") -> Sweep:
    r"""Return the sweep of a file's text; errors call it ``source``.

    Examples
    --------
    >>> sweep = parse_sweep(b'axes.defense = ["krum", "median"]\naxes.seed = [1, 2]')
    >>> [cell.label for cell in sweep.cells]
    ['defense=krum, seed=1', 'defense=krum, seed=2', 'defense=median, seed=1', 'defense=median, seed=2']
    """
    document = parse_toml(text, source)
    try:
        _check_keys(document, _TOP, "a sweep file")
        name = document.get("name", default_name)
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ConfigError(f"name must be made of letters, digits, '.', '_' and '-'; got {name!r}")
        base = flat(_table(document, "base"))
        cells: dict[str, PlannedCell] = {}
        for number, grid in enumerate(_grids(document), start=1):
            where = f"grid {number}: " if "grid" in document else ""
            for cell in without_twins(_kept(_cells(base, grid, where), grid, where), where):
                cells.setdefault(cell.key, cell)
                if len(cells) > MAX_CELLS:
                    raise ConfigError(f"a sweep has at most {MAX_CELLS:,} cells")
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from error
    if not cells:
        raise ConfigError(f"{source}: no cell is left to run")
    return Sweep(name, tuple(with_unique_labels(cells.values())), text)


def _grids(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if "grid" not in document:
        return [{key: document[key] for key in ("axes", "exclude") if key in document}]
    for key in ("axes", "exclude"):
        if key in document:
            raise ConfigError(f"[{key}] at the top does not go with [[grid]]; put it into one")
    grids = document["grid"]
    if not isinstance(grids, list) or not all(isinstance(grid, dict) for grid in grids):
        raise ConfigError("grid must be a list of tables, [[grid]]")
    for number, grid in enumerate(grids, start=1):
        _check_keys(grid, _GRID, f"[[grid]] number {number}")
    return grids


def _cells(base: Settings, grid: Mapping[str, Any], where: str) -> Iterator[PlannedCell]:
    base = {**base, **flat(_table(grid, "base"))}
    axes = _axes(_table(grid, "axes"), base, where)
    if math.prod(len(values) for values in axes.values()) > MAX_CELLS:
        raise ConfigError(f"{where}a sweep has at most {MAX_CELLS:,} cells")
    for chosen in itertools.product(*axes.values()):
        labels = {axis: label for axis, (label, _) in zip(axes, chosen, strict=True)}
        settings = _united([values for _, values in chosen], where)
        try:
            config = _resolved({**base, **settings})
        except ConfigError as error:
            at = f"at {label_of(labels)}: " if labels else ""
            raise ConfigError(f"{where}{at}{error}") from error
        yield PlannedCell(config_hash(config), config, labels, written={**base, **settings})


def _resolved(settings: Mapping[str, Any]) -> ResolvedConfig:
    """Return the run of these settings; without attackers, the one without an attack.

    In this way a share of 0 beside several attacks is one clean cell.
    """
    config = resolve(load_config(None, settings))
    if config.attack == "none" or config.num_attackers:
        return config
    attacks = ("attack", "attackers", "attack_options")
    return resolve(
        load_config(None, {key: value for key, value in settings.items() if key.split(".")[0] not in attacks})
    )


def _kept(cells: Iterator[PlannedCell], grid: Mapping[str, Any], where: str) -> Iterable[PlannedCell]:
    """Return the cells of a grid without those that it excludes."""
    axes = flat(_table(grid, "axes"))
    excluded = [_pattern(entry, axes, where) for entry in _list(grid, "exclude", where)]
    if not excluded:
        return cells
    combinations = list(cells)
    for pattern in excluded:
        if not any(matches(cell, pattern) for cell in combinations):
            hints = (without_match(combinations, key, values) for key, values in pattern.items())
            hint = next(filter(None, hints), "")
            raise ConfigError(f"{where}exclude: no combination has {pattern_label(pattern)}{hint}")
    return [cell for cell in combinations if not any(matches(cell, pattern) for pattern in excluded)]


def _axes(table: Mapping[str, Any], base: Settings, where: str) -> dict[str, list[tuple[Any, Settings]]]:
    """Return each axis with its points: the label of each, and its settings on top of ``base``."""
    axes = {}
    for axis, values in flat(table).items():
        if not isinstance(values, list) or not values:
            raise ConfigError(f"{where}axes.{axis} must be a list of values; got {values!r}")
        axes[axis] = [_point(axis, value, where) for value in values]
        _refuse_equal_points(axes[axis], base, f"{where}axes.{axis}")
        (name, number), *_ = Counter(value_label(label) for label, _ in axes[axis]).most_common(1)
        if number > 1:
            raise ConfigError(f"{where}axes.{axis}: {number} values are called {name!r}; give each a label of its own")
    return axes


def _refuse_equal_points(points: Sequence[tuple[Any, Settings]], base: Settings, place: str) -> None:
    """Refuse an axis with two points of the same settings: they would be one cell, and one would be lost."""
    alike: dict[str, list[str]] = {}
    for label, settings in points:
        # As a cell's identity has it: 1 is 1.0, but neither true nor "1".
        whole = json.dumps(canonical({**base, **settings}), sort_keys=True, default=str)
        alike.setdefault(whole, []).append(value_label(label))
    for names in alike.values():
        if len(set(names)) > 1:
            raise ConfigError(
                f"{place}: {' and '.join(repr(name) for name in dict.fromkeys(names))} have the same settings, so they "
                "would be one cell; leave out all but one, or set something that differs"
            )
        if len(names) > 1:
            raise ConfigError(
                f"{place}: {len(names)} values are called {names[0]!r} with the same settings; leave out all but one"
            )


def _point(axis: str, value: Any, where: str) -> tuple[Any, Settings]:
    if not isinstance(value, dict):
        if not _is_setting(axis):
            raise ConfigError(
                f"{where}axes.{axis}: there is no such setting{suggest(axis, known_keys())} "
                f"(an axis of another name has tables of settings as values)"
            )
        return value, {axis: value}
    settings = flat(value)
    label = settings.pop(LABEL, None)
    if label is not None and not isinstance(label, str):
        raise ConfigError(f"{where}axes.{axis}: a label must be a string; got {label!r}")
    for key in settings:
        if not _is_setting(key):
            raise ConfigError(f"{where}axes.{axis}: there is no setting '{key}'{suggest(key, known_keys())}")
    if label is None and settings.keys() == {axis}:
        return settings[axis], settings
    return label or ", ".join(f"{key}={value_label(each)}" for key, each in settings.items()), settings


def _is_setting(key: str) -> bool:
    return (key in known_keys() and key not in (*_OPTIONS, "training", "partition")) or (
        key.partition(".")[0] in _OPTIONS and key.count(".") == 1
    )


def _united(parts: Sequence[Settings], where: str) -> Settings:
    united: Settings = {}
    for part in parts:
        for key in part:
            if key in united:
                raise ConfigError(f"{where}two axes set '{key}'")
        united |= part
    return united


def _pattern(entry: Any, axes: Mapping[str, Any], where: str) -> dict[str, list[Any]]:
    if not isinstance(entry, dict) or not entry:
        raise ConfigError(f"{where}exclude must be a list of tables of settings; got {entry!r}")
    pattern = flat(entry)
    for key in pattern:
        if key not in axes and not _is_setting(key):
            raise ConfigError(f"{where}exclude: no axis or setting '{key}'{suggest(key, [*axes, *known_keys()])}")
    return {key: value if isinstance(value, list) else [value] for key, value in pattern.items()}


def _check_keys(table: Mapping[str, Any], known: Sequence[str], what: str) -> None:
    for key in table:
        if key not in known:
            hint = suggest(key, known) if key not in known_keys() else "; settings of the runs belong into [base]"
            raise ConfigError(f"unknown key '{key}' in {what}{hint}")


def _table(document: Mapping[str, Any], key: str) -> dict[str, Any]:
    table = document.get(key, {})
    if not isinstance(table, dict):
        raise ConfigError(f"{key} must be a table; got {table!r}")
    return table


def _list(grid: Mapping[str, Any], key: str, where: str) -> list[Any]:
    entries = grid.get(key, [])
    if not isinstance(entries, list):
        raise ConfigError(f"{where}{key} must be a list of tables; got {entries!r}")
    return entries
