"""Results put in order: as tables in the layout of the paper's Table 1, and as a list of conditions.

Runs that :mod:`mabrfl.sweeps.grouping` puts together are one place of a table and one condition. Names are those of
:mod:`mabrfl.reports.labels`.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mabrfl.config.differences import value_label
from mabrfl.config.toml import one_line
from mabrfl.reports import paper_table as paper
from mabrfl.reports.labels import (
    ATTACK_OPTIONS,
    DEFENSE_OPTIONS,
    PARTITION,
    TRAINING,
    Column,
    Row,
    column_of,
    columns_of,
    rows_of,
    sweep_columns,
)
from mabrfl.reports.naming import dataset_name, is_label, own_name
from mabrfl.sweeps.grouping import distinguishing_keys, groups_of, settings_of, settings_text, unused_settings
from mabrfl.sweeps.results import Cell, one_per_seed

_IN_COLUMNS = frozenset({"attack", "attackers", "before", "defense", "preset", "selector"})
_OF_A_DEFENSE = (DEFENSE_OPTIONS, "before_options.", "selector_options.", "assumed_malicious", "attackers_chosen")
_OF_A_PRESET = ("training.optimizer_state", "partition.draw", "partition.skip_last")
"""Settings that presets choose; like a defense's options they are compared among runs of one preset."""
_NEVER_IMPLIED = frozenset({"rounds", "clients"})
"""No label stands for these: accuracies after more rounds or with other clients do not compare."""
_NO_CONDITION = frozenset({"seed", "workers", "device", "allow_majority"})


@dataclass(frozen=True)
class TableSetting:
    """The settings that all runs of one table share: data, model, clients, rounds, local training.

    ``variant`` tells apart settings with the same title.
    """

    dataset: str
    model: str
    rounds: int
    clients: int
    rest: tuple[tuple[str, str], ...]
    variant: str = ""

    @property
    def title(self) -> str:
        """The setting in a few words."""
        name = f"{dataset_name(self.dataset)}, {own_name(self.model)}, {_count(self.rounds, 'round')}"
        return f"{name}, {self.variant}" if self.variant else name

    def beside(self, usual: TableSetting) -> TableSetting:
        """Return the setting with all that is not as usual in its title.

        Examples
        --------
        >>> usual = TableSetting("mnist", "mnist-cnn", 40, 50, (("q", "0.5"), ("optimizer", '"adam"')))
        >>> TableSetting("mnist", "mnist-cnn", 40, 20, (("q", "0.8"), ("optimizer", '"adam"'))).beside(usual).title
        'MNIST, mnist-cnn, 40 rounds, 20 clients, q = 0.8'
        """
        unusual = [] if self.clients == usual.clients else [_count(self.clients, "client")]
        for name, text in self.rest:
            if dict(usual.rest).get(name) != text:
                value = json.loads(text)
                unusual.append(str(value) if name in ("kind", "optimizer") else f"{name.replace('_', ' ')} = {value}")
        return replace(self, variant=one_line(", ".join(unusual)))

    @property
    def description(self) -> str:
        """All that the title leaves out, in a sentence."""
        settings = {name: json.loads(value) for name, value in self.rest}
        sizes = settings.get("sizes")
        parts = [_count(self.clients, "client")]
        if isinstance(sizes, list) and len(sizes) == 2:
            low, high = sizes
            parts[0] += f" with {low} examples each" if low == high else f" with {low} to {high} examples each"
        parts += [_partition_text(settings), *_poor_data(settings)]
        parts.append(
            f"{_count(settings.get('epochs'), 'local epoch')} of {settings.get('optimizer')}"
            f" (learning rate {settings.get('learning_rate')}, batches of {settings.get('batch_size')})"
        )
        return one_line(", ".join(parts))


def by_setting(cells: Iterable[Cell]) -> dict[TableSetting, list[Cell]]:
    """Return cells by their setting; of settings with one title, all but the most frequent say what is different."""
    groups: dict[TableSetting, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(setting_of(cell), []).append(cell)
    usual: dict[str, TableSetting] = {}
    for setting in sorted(groups, key=lambda setting: len(groups[setting]), reverse=True):
        usual.setdefault(setting.title, setting)
    return {setting.beside(usual[setting.title]): group for setting, group in groups.items()}


def setting_of(cell: Cell) -> TableSetting:
    """Return the setting of a cell; only cells of one setting are compared in a table."""
    config, unused = cell.config, unused_settings(cell)
    partition, training = config["partition"], config["training"]
    rest = [(name, partition[name]) for name in PARTITION if name in partition and f"partition.{name}" not in unused]
    rest += [(name, training[name]) for name in TRAINING if name in training]
    texts = tuple((name, json.dumps(value, sort_keys=True)) for name, value in rest)
    return TableSetting(config["dataset"], config["model"], config["rounds"], config["clients"], texts)


def _partition_text(settings: Mapping[str, Any]) -> str:
    kind = settings.get("kind")
    if kind == "dominant-label":
        return f"dominant labels (q = {settings.get('q')})"
    if kind == "dirichlet":
        return f"Dirichlet labels (concentration {settings.get('concentration')})"
    if kind == "shards":
        return f"{settings.get('shards')} shards of sorted data each"
    if kind == "quantity-skew":
        return f"IID data in Dirichlet quantities (concentration {settings.get('concentration')})"
    if kind == "gamma-similarity":
        return f"a share of {settings.get('gamma')} IID, the rest sorted by label"
    return str(kind).upper()


def _poor_data(settings: Mapping[str, Any]) -> list[str]:
    """Return the ways in which the data of clients are poor, in words."""
    shift, noise = settings.get("feature_shift", "none"), settings.get("label_noise", 0)
    parts = [] if shift == "none" else [f"{shift} by client (strength {settings.get('shift_strength')})"]
    whose = f"a share of {settings.get('noisy_clients')} of the honest clients"
    return [*parts, f"a share of {noise} of the labels wrong at {whose}"] if noise else parts


def _count(number: Any, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


@dataclass(frozen=True)
class Grid:
    """All cells of one setting, by row and column, and in the order of their plan.

    Cells in one place differ by their seed alone, and each seed is there once.
    """

    setting: TableSetting
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
        """The rows in which at least one run is done."""
        return tuple(row for row in self.rows if any(self.done(row, column) for column in self.columns))

    def paper_accuracy(self, row: Row, column: Column) -> float | None:
        """Return the paper's figure for this place; None if it has none, or the runs here are made in another way."""
        table, cells = paper.paper_table(self.setting.dataset), self.at(row, column)
        if table is None or not cells or not all(map(paper.is_comparable, cells)):
            return None
        return table.accuracy(row.percent, row.attack, column.defense)


def arrange(cells: Iterable[Cell]) -> list[Grid]:
    """Put cells into one grid per setting, rows and columns in the paper's order."""
    return [_grid(setting, group) for setting, group in by_setting(cells).items()]


def _grid(setting: TableSetting, cells: Sequence[Cell]) -> Grid:
    rows, columns = rows_of(cells), columns_of(cells)
    places: dict[tuple[Row, Column], list[Cell]] = {}
    for cell, row, column in zip(cells, rows, columns, strict=True):
        places.setdefault((row, column), []).append(cell)
    once = {place: tuple(one_per_seed(group)) for place, group in places.items()}
    kept = {id(cell) for group in once.values() for cell in group}
    return Grid(
        setting,
        tuple(sorted(set(rows), key=lambda row: row.order)),
        tuple(sorted(set(columns), key=lambda column: column.order)),
        once,
        tuple(cell for cell in cells if id(cell) in kept),
    )


def slug(*parts: str) -> str:
    """Return words as part of a file name.

    Examples
    --------
    >>> slug("MNIST, mnist-cnn, 40 rounds", "30%")
    'mnist-mnist-cnn-40-rounds-30'
    """
    return re.sub(r"[^a-z0-9]+", "-", " ".join(parts).lower()).strip("-")


@dataclass(frozen=True)
class Condition:
    """Runs that differ by their seed alone, as a line of a list.

    Attributes
    ----------
    row, column
        Attackers and attack; defense, preset and selector.
    rest
        All else that is particular: labels and values on the sweep's axes, and every other setting that differs from
        most of the runs.
    cells
        By seed, each seed once.
    """

    row: Row
    column: Column
    rest: str
    cells: tuple[Cell, ...] = field(repr=False, compare=False)


def conditions(cells: Sequence[Cell]) -> list[Condition]:
    """Return the conditions of results, by ``rest`` (in the plan's order), attackers, attack and defense."""
    names = _Conditions(cells)
    rows = {id(cell): row for cell, row in zip(cells, rows_of(cells), strict=True)}
    columns = {id(cell): column for cell, column in zip(cells, sweep_columns(cells), strict=True)}
    listed = []
    for group in groups_of(cells):
        row, column = rows[id(group[0])], columns[id(group[0])]
        listed.append(Condition(row, column, names.rest(group[0], column), tuple(group)))
    rests, attacks = [one.rest for one in listed], [one.row.label for one in listed]
    listed.sort(
        key=lambda one: (
            rests.index(one.rest),
            one.row.percent,
            attacks.index(one.row.label),
            one.column.order,
        )
    )
    return _with_unique_names(listed)


def _with_unique_names(listed: Sequence[Condition]) -> list[Condition]:
    """Add to conditions of the same name the settings that tell them apart."""
    same: dict[Condition, list[dict[str, str]]] = defaultdict(list)
    for one in listed:
        same[one].append(settings_of(one.cells[0]))
    keys = {one: distinguishing_keys(settings) for one, settings in same.items()}
    return [
        replace(one, rest=", ".join(filter(None, (one.rest, settings_text(settings_of(one.cells[0]), keys[one])))))
        for one in listed
    ]


class _Conditions:
    """The names of conditions among all cells of the results."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        values: dict[tuple[object, str], Counter[str]] = defaultdict(Counter)
        implied: dict[tuple[str, str], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        for cell in cells:
            points = _points(cell).items()
            for key, value in settings_of(cell).items():
                values[_compared(cell, key)][value] += 1
                for point in points:
                    implied[point][key].add(value)
        self._usual = {place: counts.most_common(1)[0][0] for place, counts in values.items()}
        self._varied = {key for (_, key), counts in values.items() if len(counts) > 1}
        self._implied = implied

    def rest(self, cell: Cell, column: Column) -> str:
        """Return the labels and values of a cell's axes, and the unusual settings that these do not stand for."""
        settings, explained, words = settings_of(cell), set(_IN_COLUMNS), []
        unusual = {key for key, value in settings.items() if value != self._usual[_compared(cell, key)]}
        for axis, text in _points(cell).items():
            implied = {key for key, values in self._implied[axis, text].items() if len(values) == 1} - _NEVER_IMPLIED
            named = axis == "attack" or (axis == "defense" and bool(column.sweep_label))
            if axis == "defense" and not named and not any(key.startswith(_OF_A_DEFENSE) for key in implied & unusual):
                continue  # the label only says which defense this is, and there is a column for that
            plain = axis in settings and text == settings_text(settings, [axis])
            if not named and not (plain and axis not in self._varied):
                words.append(text)
            explained |= {axis, *implied}
        left = [key for key in settings if key in unusual - explained and not key.startswith(ATTACK_OPTIONS)]
        return ", ".join([*words, *([settings_text(settings, left)] if left else [])])


def _points(cell: Cell) -> dict[str, str]:
    """Return a cell's place on the axes in words: labels, and values of settings that have no column of their own."""
    settings, points = settings_of(cell), {}
    for axis, value in cell.axes.items():
        if axis in _NO_CONDITION:
            continue
        if is_label(axis, value, settings.get(axis)):
            points[axis] = one_line(str(value))
        elif axis not in _IN_COLUMNS:
            points[axis] = settings_text({axis: settings.get(axis, value_label(value))}, [axis])
    return points


def _compared(cell: Cell, key: str) -> tuple[object, str]:
    """Return a setting, and the cells among which it is compared."""
    return (column_of(cell) if key.startswith(_OF_A_DEFENSE) or key in _OF_A_PRESET else None), key
