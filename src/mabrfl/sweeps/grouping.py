"""Which runs belong together, and which settings tell the others apart.

Decided here for all: labels of a sweep's cells, rows and columns of tables, lines of figures, sections of reports. Runs
belong together if they differ by their seed alone. Settings without effect on the result do not count.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from mabrfl.catalog import effective_preset
from mabrfl.config.differences import flat, value_label
from mabrfl.config.model import PARTITION_SETTINGS, PartitionKind
from mabrfl.config.toml import one_line
from mabrfl.sweeps.cells import PlannedCell
from mabrfl.sweeps.results import Cell, one_per_seed

_NOT_NAMED = frozenset({"seed", "workers", "device", "allow_majority"})
"""Settings that are no part of a group's name."""


def settings_of(cell: Cell) -> dict[str, str]:
    """Return the settings, by dotted key and as text, that make a run another one; the seed is not among them.

    A share of attackers counts by its number, and a bound on them only if it is not that number.
    """
    unused = {*_NOT_NAMED, *unused_settings(cell)}
    settings = {key: value_label(value) for key, value in flat(cell.config).items() if key not in unused}
    assumed = cell.config.get("assumed_malicious", cell.num_attackers)
    settings["assumed_malicious"] = "true" if assumed == cell.num_attackers else str(assumed)
    settings["attackers"] = str(cell.num_attackers)
    if not effective_preset(cell.config["defense"], cell.config["preset"]):
        del settings["preset"]
    return settings


def unused_settings(cell: Cell) -> frozenset[str]:
    """Return the settings that the run's kind of partition does not use."""
    kind = cell.config["partition"].get("kind")
    used = PARTITION_SETTINGS.get(cast("PartitionKind", kind)) if isinstance(kind, str) else None
    every = frozenset().union(*PARTITION_SETTINGS.values())
    return frozenset() if used is None else frozenset(f"partition.{name}" for name in every - used)


def identity_of(cell: Cell) -> str:
    """Return one text for all runs that differ by their seed alone."""
    return json.dumps(settings_of(cell), sort_keys=True)


def groups_of(cells: Iterable[Cell]) -> list[list[Cell]]:
    """Return groups of cells that differ by their seed alone, in the order of the first of each; every seed once."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(identity_of(cell), []).append(cell)
    return [one_per_seed(group) for group in groups.values()]


def named_groups(cells: Iterable[Cell]) -> list[tuple[str, list[Cell]]]:
    """Return the groups of cells, each with the settings that tell it from the others; no text if there is one."""
    groups = groups_of(cells)
    settings = [settings_of(group[0]) for group in groups]
    keys = distinguishing_keys(settings)
    return [(settings_text(own, keys), group) for own, group in zip(settings, groups, strict=True)]


def distinguishing_keys(group: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the first few keys by which each of these settings differs from all others.

    Examples
    --------
    >>> distinguishing_keys([{"q": 0.5, "rounds": 9, "clients": 4}, {"q": 0.5, "rounds": 8, "clients": 5}])
    ['rounds']
    """
    chosen: list[str] = []
    distinct = 1
    for key in dict.fromkeys(key for settings in group for key in settings):
        if distinct == len(group):
            break
        now = len({tuple(json.dumps(settings.get(each)) for each in (*chosen, key)) for settings in group})
        if now > distinct:
            chosen.append(key)
            distinct = now
    return chosen


def settings_text(settings: Mapping[str, str], keys: Iterable[str]) -> str:
    """Return some of the settings in one line.

    Examples
    --------
    >>> settings_text({"partition.q": "0.8", "rounds": "9"}, ["partition.q"])
    'q=0.8'
    """
    return one_line(", ".join(f"{key.rpartition('.')[2]}={settings[key]}" for key in keys if key in settings))


def with_unique_labels(cells: Iterable[PlannedCell]) -> list[PlannedCell]:
    """Return planned cells, all with different keys, with enough settings added that all labels differ."""
    labelled = list(cells)
    while True:
        by_label: defaultdict[str, list[int]] = defaultdict(list)
        for place, cell in enumerate(labelled):
            by_label[cell.label if cell.axes or cell.besides else ""].append(place)
        same = [places for places in by_label.values() if len(places) > 1]
        if not same:
            return labelled
        for places in same:
            settings = [labelled[place].settings for place in places]
            keys = distinguishing_keys(settings)
            added = [{key: own[key] for key in keys if key in own} for own in settings]
            if all(more.items() <= labelled[place].besides.items() for place, more in zip(places, added, strict=True)):
                # The values differ but read the same: "1" and 1.
                added = [{"cell": labelled[place].key[:16]} for place in places]
            for place, more in zip(places, added, strict=True):
                labelled[place] = replace(labelled[place], besides={**labelled[place].besides, **more})
