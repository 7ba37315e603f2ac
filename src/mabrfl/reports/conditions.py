"""Cells that differ by nothing but their seed, put together and named by all in which they differ from others."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mabrfl.config.toml import one_line
from mabrfl.reports.arrangement import Column, column_of, column_order
from mabrfl.reports.naming import attack_name, is_label
from mabrfl.reports.settings import unused_of
from mabrfl.sweeps.cells import flat, value_label
from mabrfl.sweeps.results import Cell, one_per_seed

_WITHOUT_NAME = frozenset({"seed", "workers", "device", "allow_majority"})
_IN_COLUMNS = frozenset({"attack", "attackers", "defense", "preset", "selector"})
_ATTACK_OPTIONS = "attack_options."
_OF_A_DEFENSE = ("defense_options.", "selector_options.", "assumed_malicious", "attackers_chosen")
_OF_A_PRESET = ("training.optimizer_state", "partition.draw", "partition.skip_last")
"""Settings that presets choose; like a defense's options they are compared with those of the same preset alone."""
_NEVER_IMPLIED = frozenset({"rounds", "clients"})
"""No label stands for these: figures of more rounds or other clients do not compare."""

Settings = Mapping[str, str]
"""Dotted keys and values, as text."""


@dataclass(frozen=True)
class Condition:
    """Runs that differ by their seed alone.

    Attributes
    ----------
    percent, attack
        How many percent of the clients attack, and what they do: the sweep's label for it, or the attack's name.
    column
        The defense, its preset and its selector.
    rest
        What else is particular: labels and values on the sweep's axes, and every other setting that is not what it is
        in most of the runs.
    cells
        By seed, each seed once.
    """

    percent: float
    attack: str
    column: Column
    rest: str
    cells: tuple[Cell, ...] = field(repr=False, compare=False)

    @property
    def share(self) -> str:
        """The share of attackers."""
        return f"{self.percent:.4g}%"


def conditions(cells: Iterable[Cell]) -> list[Condition]:
    """Return the conditions of results, by what is particular (in the plan's order), attackers, attack and defense."""
    together: dict[str, list[Cell]] = {}
    for cell in cells:
        together.setdefault(identity_of(cell), []).append(cell)
    groups = list(together.values())
    names = _Names([cell for group in groups for cell in group])
    found = []
    for group in groups:
        first, by_seed = group[0], tuple(one_per_seed(group))
        found.append(Condition(first.percent, names.attack(first), column_of(first), names.rest(first), by_seed))
    rests, attacks = [one.rest for one in found], [one.attack for one in found]
    found.sort(
        key=lambda one: (rests.index(one.rest), one.percent, attacks.index(one.attack), column_order(one.column))
    )
    return _told_apart(found)


def by_settings(cells: Iterable[Cell]) -> list[tuple[str, list[Cell]]]:
    """Put together what differs by the seed alone, each with the settings in which it differs from the others here."""
    together: dict[str, list[Cell]] = {}
    for cell in cells:
        together.setdefault(identity_of(cell), []).append(cell)
    groups = [(settings_of(group[0]), group) for group in together.values()]
    keys = list(dict.fromkeys(key for settings, _ in groups for key in settings))
    differing = [key for key in keys if len({settings.get(key) for settings, _ in groups}) > 1]
    return [
        (_with("", {key: settings[key] for key in differing if key in settings}), one_per_seed(group))
        for settings, group in groups
    ]


def settings_of(cell: Cell) -> dict[str, str]:
    """Return what a run's name may be made of; settings without effect on it are left out."""
    unused = {*_WITHOUT_NAME, *unused_of(cell)}
    settings = {key: value_label(value) for key, value in flat(cell.config).items() if key not in unused}
    assumed = cell.config.get("assumed_malicious", cell.num_attackers)
    settings["assumed_malicious"] = "true" if assumed == cell.num_attackers else str(assumed)
    settings["attackers"] = str(cell.num_attackers)
    return settings


def identity_of(cell: Cell) -> str:
    """Return what is the same in runs that differ by their seed alone, as text."""
    return json.dumps(settings_of(cell), sort_keys=True)


class _Names:
    """How conditions are called, among all cells of the results."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        values: dict[tuple[object, str], Counter[str]] = defaultdict(Counter)
        implied: dict[tuple[str, str], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        options: dict[tuple[str, str], set[str]] = defaultdict(set)
        for cell in cells:
            points, attack = _points(cell).items(), _attack(cell)
            for key, value in settings_of(cell).items():
                values[_compared(cell, key)][value] += 1
                for point in points:
                    implied[point][key].add(value)
                options[attack, key].add(value)
        self._usual = {place: counts.most_common(1)[0][0] for place, counts in values.items()}
        self._varied = {key for (_, key), counts in values.items() if len(counts) > 1}
        self._implied, self._options = implied, options

    def attack(self, cell: Cell) -> str:
        """Return an attack's label or name, with the options in which those of that name differ."""
        name = _attack(cell)
        settings = settings_of(cell).items()
        differing = {key: value for key, value in settings if len(self._options[name, key]) > 1}
        return _with(name, {key: value for key, value in differing.items() if key.startswith(_ATTACK_OPTIONS)})

    def rest(self, cell: Cell) -> str:
        """Return the labels and values of a cell's axes, and the unusual settings that these do not stand for."""
        settings, told, words = settings_of(cell), set(_IN_COLUMNS), []
        unusual = {key for key, value in settings.items() if value != self._usual[_compared(cell, key)]}
        for axis, text in _points(cell).items():
            implied = {key for key, values in self._implied[axis, text].items() if len(values) == 1} - _NEVER_IMPLIED
            if axis == "defense" and not any(key.startswith(_OF_A_DEFENSE) for key in implied & unusual):
                continue  # it only says which defense this is, and there is a column for that
            plain = axis in settings and text == _setting(axis, settings[axis])
            if axis != "attack" and not (plain and axis not in self._varied):
                words.append(text)
            told |= {axis, *implied}
        left = [key for key in settings if key in unusual - told and not key.startswith(_ATTACK_OPTIONS)]
        return ", ".join([*words, *(_setting(key, settings[key]) for key in left)])


def _points(cell: Cell) -> dict[str, str]:
    """Return where a cell is on the axes, in words: labels, and values of settings that have no column of their own."""
    settings, points = settings_of(cell), {}
    for axis, value in cell.axes.items():
        if axis in _WITHOUT_NAME:
            continue
        if is_label(axis, value, settings.get(axis)):
            points[axis] = one_line(str(value))
        elif axis not in _IN_COLUMNS:
            points[axis] = _setting(axis, settings.get(axis, value_label(value)))
    return points


def _attack(cell: Cell) -> str:
    return _points(cell).get("attack") or attack_name(cell.config["attack"])


def _compared(cell: Cell, key: str) -> tuple[object, str]:
    """Return a setting, and among which cells it is compared."""
    return (column_of(cell) if key.startswith(_OF_A_DEFENSE) or key in _OF_A_PRESET else None), key


def _told_apart(found: Sequence[Condition]) -> list[Condition]:
    """Add to conditions of the same name the settings in which they differ."""
    values: dict[Condition, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for one in found:
        for key, value in settings_of(one.cells[0]).items():
            values[one][key].add(value)
    told = []
    for one in found:
        settings = settings_of(one.cells[0]).items()
        differing = {key: value for key, value in settings if len(values[one][key]) > 1}
        told.append(replace(one, rest=_with(one.rest, differing)))
    return told


def _with(name: str, settings: Settings) -> str:
    return ", ".join([*([name] if name else []), *(_setting(key, value) for key, value in settings.items())])


def _setting(key: str, value: str) -> str:
    return one_line(f"{key.rpartition('.')[2]}={value}")
