"""The names of settings, attacks and defenses in tables and figures.

A table has a :class:`Row` per share of attackers and attack, and a :class:`Column` per defense. Names come from the
sweep's labels, then from the paper. Settings in which things of one name differ are added.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from mabrfl.catalog import BUILT_IN, Entry, display_entry, effective_preset
from mabrfl.config.toml import one_line
from mabrfl.reports import paper_table as paper
from mabrfl.reports.naming import (
    attack_name,
    before_labels,
    defense_name,
    is_label,
    preset_name,
    selector_name,
)
from mabrfl.sweeps.grouping import settings_of, settings_text
from mabrfl.sweeps.results import Cell

T = TypeVar("T", "Row", "Column")

SAMPLING_AXIS = "sampling"
"""The axis of a sweep whose values are the lines of Fig. 1a, and columns of a table."""
ATTACK_OPTIONS, DEFENSE_OPTIONS = "attack_options.", "defense_options."

PARTITION = (
    *("kind", "q", "concentration", "shards", "gamma", "sizes"),
    *("feature_shift", "shift_strength", "label_noise", "noisy_clients"),
)
TRAINING = ("epochs", "batch_size", "optimizer", "learning_rate", "momentum", "weight_decay")
_NOT_OF_A_COLUMN = frozenset(
    {"dataset", "model", "rounds", "clients", "attack", "attackers", "defense", "before", "preset", "selector"}
    | {f"partition.{name}" for name in PARTITION}
    | {f"training.{name}" for name in TRAINING}
)
"""Settings that make another table or another row, and those that name a column anyway."""


@dataclass(frozen=True)
class Row:
    """A share of attackers and their attack.

    ``sweep_label`` is the sweep's name for the attack, if it differs from the attack's own. ``variant`` tells apart
    attacks of one name.
    """

    percent: float
    attack: str
    variant: str = ""
    sweep_label: str = ""

    @property
    def share(self) -> str:
        """The share as the paper writes it."""
        return f"{self.percent:.4g}%"

    @property
    def label(self) -> str:
        """The attack as the sweep or the paper names it."""
        return _joined(self.sweep_label or attack_name(self.attack), self.variant)

    @property
    def place(self) -> str:
        """The share and the attack."""
        return f"{self.share} {self.label}" if self.percent else "no attack"

    @property
    def order(self) -> tuple[Any, ...]:
        """A key that sorts rows as in the paper."""
        attacks = list(paper.attack_names())
        place = attacks.index(self.attack) if self.attack in attacks else len(attacks)
        return self.percent, place, self.attack, self.sweep_label, self.variant


@dataclass(frozen=True)
class Column:
    """A defense with its preset and selector.

    ``preset`` is empty where it decides nothing: for most defenses other than MAB-RFL. ``variant`` tells apart columns
    that differ in some other setting. ``sampling`` is the sweep's name for its way of sampling clients, if it has an
    axis of these; it says more than the selector's name. ``sweep_label`` is the sweep's name for the defense with these
    options, and ``names_selector`` says whether this name stands for one selector, too. ``before`` are its
    pre-aggregators.
    """

    defense: str
    preset: str
    selector: str
    variant: str = ""
    sampling: str = ""
    sweep_label: str = ""
    before: str = ""
    names_selector: bool = False

    @property
    def entry(self) -> Entry:
        """The catalogue's entry of the defense."""
        return display_entry("defenses", self.defense)

    @property
    def own_selector(self) -> bool:
        """Whether the defense has the selector that belongs to it."""
        return self.selector == self.entry.selector

    @property
    def ranked(self) -> bool:
        """Whether the paper ranks it: FedAvg, with any selector, is the baseline without a defense."""
        return not self.entry.baseline

    @property
    def label(self) -> str:
        """The defense as the sweep or the paper names it, with all that the paper does not have."""
        name = self.sweep_label or " + ".join([*before_labels(self.before), defense_name(self.defense)])
        if not self.sweep_label and (preset := preset_name(self.defense, self.preset)):
            name += f" {preset}"
        if not self.own_selector and not self.sampling and not self.names_selector:
            name += f" + {selector_name(self.selector)}"
        return _joined(name, self.sampling, self.variant)

    @property
    def order(self) -> tuple[Any, ...]:
        """A key that sorts columns as in the paper: other defenses, MAB-RFL, FedAvg; unknown ones before MAB-RFL."""
        own, others, presets = self.entry, paper.defense_names(), ["", *BUILT_IN["presets"]]
        place = len(others) + (1 if own.presets else 2 if own.baseline else 0)
        if self.defense in others and place == len(others):
            place = others.index(self.defense)
        preset = presets.index(self.preset) if self.preset in presets else len(presets)
        selector = (not self.own_selector, self.selector)
        return (
            place,
            self.defense,
            self.before,
            preset,
            self.preset,
            self.sampling,
            *selector,
            self.sweep_label,
            self.variant,
        )


def rows_of(cells: Sequence[Cell]) -> list[Row]:
    """Return the row of each cell. Attacks of one name that differ in their options say how.

    A cell without a point on the sweep's axis of attacks has the label that others have for the same attack.
    """
    options = [_options(cell, ATTACK_OPTIONS) for cell in cells]
    attacks = [
        json.dumps([cell.config["attack"], own], sort_keys=True) for cell, own in zip(cells, options, strict=True)
    ]
    labels: dict[str, set[str]] = defaultdict(set)
    for cell, attack in zip(cells, attacks, strict=True):
        labels[attack] |= {_attack_label(cell)} - {""}
    named = []
    for cell, attack, own in zip(cells, attacks, options, strict=True):
        label = _attack_label(cell)
        if "attack" not in cell.axes and len(labels[attack]) == 1:
            (label,) = labels[attack]
        named.append((Row(cell.percent, cell.config["attack"], sweep_label=label), own))
    return _with_variants(named, lambda row: replace(row, percent=0.0))


def columns_of(cells: Sequence[Cell]) -> list[Column]:
    """Return the column of each cell. Defenses of one name that differ in any other setting say how."""
    named = []
    for cell, column in zip(cells, sweep_columns(cells), strict=True):
        explained = (ATTACK_OPTIONS, DEFENSE_OPTIONS) if column.sweep_label else ATTACK_OPTIONS
        settings = settings_of(cell).items()
        own = {key: value for key, value in settings if key not in _NOT_OF_A_COLUMN and not key.startswith(explained)}
        sampling = one_line(str(cell.axes[SAMPLING_AXIS])) if SAMPLING_AXIS in cell.axes else ""
        named.append((replace(column, sampling=sampling), own))
    return _with_selectors(_with_variants(named, lambda column: column))


def sweep_columns(cells: Sequence[Cell]) -> list[Column]:
    """Return each cell's defense, preset and selector, with the sweep's label for the defense.

    A label names a defense with its options. It counts if all runs with these options have it, and no others. It
    names the selector, too, if all runs of this label have the same one.
    """
    columns = [column_of(cell) for cell in cells]
    options = [json.dumps(_options(cell, DEFENSE_OPTIONS), sort_keys=True) for cell in cells]
    names = [_axis_label(cell, "defense") for cell in cells]
    names_of: dict[tuple[Column, str], set[str]] = defaultdict(set)
    options_of: dict[tuple[Column, str], set[str]] = defaultdict(set)
    selectors: dict[str, set[str]] = defaultdict(set)
    for column, own, name in zip(columns, options, names, strict=True):
        names_of[column, own].add(name)
        options_of[column, name].add(own)
        selectors[name].add(column.selector)
    return [
        replace(column, sweep_label=name, names_selector=len(selectors[name]) == 1)
        if name and len(names_of[column, own]) == len(options_of[column, name]) == 1
        else column
        for column, own, name in zip(columns, options, names, strict=True)
    ]


def column_of(cell: Cell) -> Column:
    """Return a cell's defense, preset and selector."""
    defense, preset, selector = (cell.config[key] for key in ("defense", "preset", "selector"))
    return Column(defense, effective_preset(defense, preset), selector, before=cell.config.get("before", ""))


def _options(cell: Cell, prefix: str) -> dict[str, str]:
    return {key: value for key, value in settings_of(cell).items() if key.startswith(prefix)}


def _attack_label(cell: Cell) -> str:
    """Return the sweep's label of a cell's attack; none if it is the attack's own name."""
    label = _axis_label(cell, "attack")
    return label if label != attack_name(cell.config["attack"]) else ""


def _axis_label(cell: Cell, axis: str) -> str:
    value = cell.axes.get(axis)
    return one_line(str(value)) if is_label(axis, value, cell.config[axis]) else ""


def _with_variants(named: Sequence[tuple[T, Mapping[str, str]]], name_of: Callable[[T], Hashable]) -> list[T]:
    """Add to each the settings in which those of the same name differ; if several do, only the unusual values."""
    values: dict[Hashable, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for one, settings in named:
        for key, value in settings.items():
            values[name_of(one)][key][value] += 1
    return [replace(one, variant=_variant(settings, values[name_of(one)])) for one, settings in named]


def _variant(settings: Mapping[str, str], values: Mapping[str, Counter[str]]) -> str:
    varied = [key for key in settings if len(values[key]) > 1]
    if len(varied) > 1:
        varied = [key for key in varied if settings[key] != values[key].most_common(1)[0][0]]
    return settings_text(settings, varied)


def _with_selectors(columns: Sequence[Column]) -> list[Column]:
    """Add to each way of sampling its selector, if there are several of that way."""
    selectors: dict[Column, set[str]] = defaultdict(set)
    for column in columns:
        selectors[replace(column, selector="")].add(column.selector)
    return [
        replace(column, sampling=f"{column.sampling} + {selector_name(column.selector)}")
        if column.sampling and len(selectors[replace(column, selector="")]) > 1
        else column
        for column in columns
    ]


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)
