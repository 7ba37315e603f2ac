"""Cells put in order as in the paper's Table 1: a grid per setting, a row per attack, a column per defense."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from mabrfl.config.toml import one_line
from mabrfl.reports import paper_table as paper
from mabrfl.reports.comparable import is_comparable
from mabrfl.reports.naming import attack_name, defense_name, is_label, selector_name
from mabrfl.reports.settings import PARTITION, TRAINING, Setting, by_setting
from mabrfl.sweeps.results import Cell, one_per_seed

T = TypeVar("T", "Row", "Column")

MAB_RFL = "mab-rfl"
_BASELINES = ("fedavg", "fedavg-uniform")
SAMPLING_AXIS = "sampling"
"""The axis of a sweep whose values are the lines of Fig. 1a, and columns of a table."""

_PRESETS = ("paper", "reference", "hardened")

_NOT_OF_A_COLUMN = frozenset(
    {"dataset", "model", "rounds", "clients", "attack", "attackers", "defense", "preset", "selector", "seed", "workers"}
    | {"device", "allow_majority", "assumed_malicious"}
    | {f"partition.{name}" for name in PARTITION}
    | {f"training.{name}" for name in TRAINING}
)
"""Settings that make another grid, another row, or nothing; and those that name a column anyway."""


@dataclass(frozen=True)
class Row:
    """A share of attackers and what they do.

    ``told`` is what a sweep calls the attack, if that is another name than its own. ``variant`` tells apart attacks of
    one name.
    """

    percent: float
    attack: str
    variant: str = ""
    told: str = ""

    @property
    def share(self) -> str:
        """The share as the paper writes it."""
        return f"{self.percent:.4g}%"

    @property
    def place(self) -> str:
        """The share and the attack, in a few words."""
        return f"{self.share} {self.label}" if self.percent else "no attack"

    @property
    def label(self) -> str:
        """The attack as the sweep or the paper names it."""
        name = self.told or attack_name(self.attack)
        return f"{name}, {self.variant}" if self.variant else name


@dataclass(frozen=True)
class Column:
    """A defense; for MAB-RFL its preset.

    ``variant`` tells apart columns that differ in some other setting. ``way`` is what a sweep calls its way of sampling
    clients, if it has an axis of these; it says more than the selector's name. ``told`` is what a sweep calls the
    defense with these options.
    """

    defense: str
    preset: str
    selector: str
    variant: str = ""
    way: str = ""
    told: str = ""

    @property
    def own_selector(self) -> bool:
        """Whether the defense has the selector that belongs to it."""
        return self.selector == ("acs" if self.defense == MAB_RFL else "all")

    @property
    def ranked(self) -> bool:
        """Whether the column competes; FedAvg is the baseline without a defense, which the paper does not rank.

        Nor is it ranked with another selector: it would be marked as the best beside a FedAvg that is better and not
        ranked; and ways of sampling may know more than any server does.
        """
        return self.defense not in _BASELINES

    @property
    def label(self) -> str:
        """The defense as the sweep or the paper names it, with what the paper does not have."""
        name = self.told or defense_name(self.defense)
        if not self.told and (self.defense == MAB_RFL or self.preset != "paper"):
            name += f" {one_line(self.preset)}"
        if not self.own_selector and not self.way:
            name += f" + {selector_name(self.selector)}"
        return ", ".join(part for part in (name, self.way, self.variant) if part)


@dataclass(frozen=True)
class Grid:
    """All cells of one setting, by row and column, and in the order of their plan.

    Several in one place differ by their seed; a run that was there twice is there once.
    """

    setting: Setting
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    places: Mapping[tuple[Row, Column], tuple[Cell, ...]] = field(repr=False)
    cells: tuple[Cell, ...] = field(repr=False)

    def at(self, row: Row, column: Column) -> tuple[Cell, ...]:
        """Return the cells in one place, by seed; none if the sweep does not have it."""
        return self.places.get((row, column), ())

    def done(self, row: Row, column: Column) -> list[Cell]:
        """Return the finished cells in one place, by seed."""
        return [cell for cell in self.at(row, column) if cell.status == "done"]

    @property
    def begun_rows(self) -> tuple[Row, ...]:
        """The rows in which at least one run is done; the others are not even gaps."""
        return tuple(row for row in self.rows if any(self.done(row, column) for column in self.columns))

    def paper_accuracy(self, row: Row, column: Column) -> float | None:
        """Return the paper's figure for this place; None if it has none, or the runs here are made in another way."""
        table, cells = paper.paper_table(self.setting.dataset), self.at(row, column)
        if table is None or not cells or not all(map(is_comparable, cells)):
            return None
        return table.accuracy(row.percent, row.attack, column.defense)


def arrange(cells: Iterable[Cell]) -> list[Grid]:
    """Put cells into one grid per setting, rows and columns in the paper's order."""
    return [_grid(setting, group) for setting, group in by_setting(cells).items()]


def column_of(cell: Cell) -> Column:
    """Return a cell's defense, preset and selector.

    To another defense than MAB-RFL a preset is the conditions of the run, and hardened has the paper's.
    """
    defense, preset, selector = (cell.config[key] for key in ("defense", "preset", "selector"))
    same = preset == "hardened" and defense != MAB_RFL and selector != "acs"
    return Column(defense, "paper" if same else preset, selector)


def slug(*parts: str) -> str:
    """Return words as part of a file name.

    Examples
    --------
    >>> slug("MNIST, mnist-cnn, 40 rounds", "30%")
    'mnist-mnist-cnn-40-rounds-30'
    """
    return re.sub(r"[^a-z0-9]+", "-", " ".join(parts).lower()).strip("-")


def _grid(setting: Setting, cells: Sequence[Cell]) -> Grid:
    rows = _with_variants(_rows(cells))
    columns = _with_selectors(_with_variants(_columns(cells)))
    places: dict[tuple[Row, Column], list[Cell]] = {}
    for cell, row, column in zip(cells, rows, columns, strict=True):
        places.setdefault((row, column), []).append(cell)
    once = {place: tuple(one_per_seed(found)) for place, found in places.items()}
    kept = {id(cell) for found in once.values() for cell in found}
    return Grid(
        setting,
        tuple(sorted(set(rows), key=_row_order)),
        tuple(sorted(set(columns), key=column_order)),
        once,
        tuple(cell for cell in cells if id(cell) in kept),
    )


def _with_variants(named: Sequence[tuple[T, Mapping[str, str]]]) -> list[T]:
    """Add to each name the settings in which those of the same name differ; of several, those that are unusual."""
    values: dict[T, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for name, settings in named:
        for key, value in settings.items():
            values[name][key][value] += 1
    return [replace(name, variant=_variant(settings, values[name])) for name, settings in named]


def _with_selectors(columns: Sequence[Column]) -> list[Column]:
    """Add to each way of sampling its selector, if there are several of that way."""
    selectors: dict[Column, set[str]] = defaultdict(set)
    for column in columns:
        selectors[replace(column, selector="")].add(column.selector)
    return [
        replace(column, way=f"{column.way} + {selector_name(column.selector)}")
        if column.way and len(selectors[replace(column, selector="")]) > 1
        else column
        for column in columns
    ]


def _variant(settings: Mapping[str, str], values: Mapping[str, Counter[str]]) -> str:
    varied = [key for key in settings if len(values[key]) > 1]
    if len(varied) > 1:
        varied = [key for key in varied if settings[key] != values[key].most_common(1)[0][0]]
    return one_line(", ".join(f"{key.rpartition('.')[2]}={settings[key]}" for key in varied))


def _rows(cells: Sequence[Cell]) -> list[tuple[Row, dict[str, str]]]:
    """Return each cell's row and the options of its attack; one attack has one name, whatever the share."""
    options = [_flat(cell.config.get("attack_options"), "attack_options.") for cell in cells]
    attacks = [
        json.dumps([cell.config["attack"], told], sort_keys=True) for cell, told in zip(cells, options, strict=True)
    ]
    names: dict[str, str] = {}
    for cell, attack in zip(cells, attacks, strict=True):
        names[attack] = names.get(attack) or _told(cell)
    return [
        (Row(cell.percent, cell.config["attack"], told=names[attack]), settings)
        for cell, attack, settings in zip(cells, attacks, options, strict=True)
    ]


def _told(cell: Cell) -> str:
    """Return what the sweep calls a cell's attack, if it is another name than the attack's own."""
    told = _label(cell, "attack")
    return told if told != attack_name(cell.config["attack"]) else ""


def _label(cell: Cell, axis: str) -> str:
    """Return the label of the point that a cell has on an axis; nothing if it has none."""
    name = cell.axes.get(axis)
    return one_line(str(name)) if is_label(axis, name, cell.config[axis]) else ""


def _columns(cells: Sequence[Cell]) -> list[tuple[Column, dict[str, str]]]:
    """Return each cell's column and settings; a defense with its options has the sweep's name, if always the same."""
    options = [_flat(cell.config.get("defense_options"), "defense_options.") for cell in cells]
    keys = [(column_of(cell), json.dumps(own, sort_keys=True)) for cell, own in zip(cells, options, strict=True)]
    names: dict[tuple[Column, str], set[str]] = defaultdict(set)
    for cell, key in zip(cells, keys, strict=True):
        names[key].add(_label(cell, "defense"))
    found = []
    for cell, key, own in zip(cells, keys, options, strict=True):
        told = next(iter(names[key])) if len(names[key]) == 1 else ""
        settings = {name: value for name, value in _settings(cell).items() if not (told and name in own)}
        found.append((replace(key[0], way=_way(cell), told=told), settings))
    return found


def _settings(cell: Cell) -> dict[str, str]:
    """Return what may tell apart two columns of one name."""
    settings = {name: value for name, value in _flat(cell.config).items() if name not in _NOT_OF_A_COLUMN}
    assumed = cell.config.get("assumed_malicious", cell.num_attackers)
    settings["assumed_malicious"] = "true" if assumed == cell.num_attackers else str(assumed)
    return settings


def _way(cell: Cell) -> str:
    return one_line(str(cell.axes[SAMPLING_AXIS])) if SAMPLING_AXIS in cell.axes else ""


def _flat(settings: Any, prefix: str = "") -> dict[str, str]:
    """Return nested settings by dotted keys, the values as text."""
    flat: dict[str, str] = {}
    for key, value in (settings if isinstance(settings, dict) else {}).items():
        if isinstance(value, dict):
            flat |= {} if key == "attack_options" else _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value if isinstance(value, str) else json.dumps(value)
    return flat


def _row_order(row: Row) -> tuple[Any, ...]:
    order = list(paper.attack_names())
    return (
        row.percent,
        order.index(row.attack) if row.attack in order else len(order),
        row.attack,
        row.told,
        row.variant,
    )


def column_order(column: Column) -> tuple[Any, ...]:
    """As in the paper: other defenses, MAB-RFL, FedAvg; what the paper does not have before MAB-RFL."""
    others = [name for name in paper.defense_names() if name not in (MAB_RFL, *_BASELINES)]
    if column.defense in others:
        place = others.index(column.defense)
    else:
        place = len(others) + (1 if column.defense == MAB_RFL else 2 if column.defense in _BASELINES else 0)
    preset = _PRESETS.index(column.preset) if column.preset in _PRESETS else len(_PRESETS)
    selector = (not column.own_selector, column.selector)
    return place, column.defense, preset, column.preset, column.way, *selector, column.told, column.variant
