"""What is the same in one table: data, model, clients, rounds and local training, and how that is called."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from mabrfl.config.toml import one_line
from mabrfl.reports.naming import dataset_name, own_name
from mabrfl.sweeps.results import Cell

PARTITION = ("kind", "q", "concentration", "sizes")
TRAINING = ("epochs", "batch_size", "optimizer", "learning_rate", "momentum", "weight_decay")
"""Settings of a run's partition and training that make it another table."""


@dataclass(frozen=True)
class Setting:
    """What is the same in one grid: data, model, clients, rounds, local training.

    ``variant`` tells apart settings that are otherwise called the same.
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
        name = f"{dataset_name(self.dataset)}, {own_name(self.model)}, {_number(self.rounds, 'round')}"
        return f"{name}, {self.variant}" if self.variant else name

    def beside(self, usual: Setting) -> Setting:
        """Return the setting with what is not as usual in its title.

        Examples
        --------
        >>> usual = Setting("mnist", "mnist-cnn", 40, 50, (("q", "0.5"), ("optimizer", '"adam"')))
        >>> Setting("mnist", "mnist-cnn", 40, 20, (("q", "0.8"), ("optimizer", '"adam"'))).beside(usual).title
        'MNIST, mnist-cnn, 40 rounds, 20 clients, q = 0.8'
        """
        told = [] if self.clients == usual.clients else [_number(self.clients, "client")]
        for name, value in self.rest:
            if dict(usual.rest).get(name) != value:
                shown = json.loads(value)
                told.append(str(shown) if name in ("kind", "optimizer") else f"{name.replace('_', ' ')} = {shown}")
        return replace(self, variant=one_line(", ".join(told)))

    @property
    def description(self) -> str:
        """What the title leaves out, in a sentence."""
        told = {name: json.loads(value) for name, value in self.rest}
        sizes = told.get("sizes")
        parts = [_number(self.clients, "client")]
        if isinstance(sizes, list) and len(sizes) == 2:
            low, high = sizes
            parts[0] += f" with {low} examples each" if low == high else f" with {low} to {high} examples each"
        parts.append(_partition(told))
        parts.append(
            f"{_number(told.get('epochs'), 'local epoch')} of {told.get('optimizer')}"
            f" (learning rate {told.get('learning_rate')}, batches of {told.get('batch_size')})"
        )
        return one_line(", ".join(parts))


def by_setting(cells: Iterable[Cell]) -> dict[Setting, list[Cell]]:
    """Return cells by their setting; of settings with one title, all but the most frequent say what is different."""
    found: dict[Setting, list[Cell]] = {}
    for cell in cells:
        found.setdefault(setting_of(cell), []).append(cell)
    usual: dict[str, Setting] = {}
    for setting in sorted(found, key=lambda setting: len(found[setting]), reverse=True):
        usual.setdefault(setting.title, setting)
    return {setting.beside(usual[setting.title]): group for setting, group in found.items()}


def setting_of(cell: Cell) -> Setting:
    """Return what a cell shares with those it may be compared with."""
    config = cell.config
    partition, training = config["partition"], config["training"]
    unused = unused_of(cell)
    rest = [(name, partition[name]) for name in PARTITION if name in partition and f"partition.{name}" not in unused]
    rest += [(name, training[name]) for name in TRAINING if name in training]
    return Setting(
        config["dataset"],
        config["model"],
        config["rounds"],
        config["clients"],
        tuple((name, json.dumps(value, sort_keys=True)) for name, value in rest),
    )


def unused_of(cell: Cell) -> frozenset[str]:
    """Return the settings that a cell has and that its kind of partition makes no use of."""
    kind = cell.config["partition"].get("kind")
    unused = {"dominant-label": "concentration", "dirichlet": "q"}.get(kind if isinstance(kind, str) else "")
    return frozenset({f"partition.{unused}"} if unused else ())


def _partition(told: Mapping[str, Any]) -> str:
    kind = told.get("kind")
    if kind == "dominant-label":
        return f"dominant labels (q = {told.get('q')})"
    return f"Dirichlet labels (concentration {told.get('concentration')})" if kind == "dirichlet" else str(kind).upper()


def _number(count: Any, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
