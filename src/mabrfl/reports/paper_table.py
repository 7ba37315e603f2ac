"""The paper's own Table 1 and settings, and which runs are compared with them: those made as the paper's were."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from mabrfl.catalog import display_entry
from mabrfl.config import RunConfig, resolve
from mabrfl.config.differences import flat
from mabrfl.config.identity import WITHOUT_EFFECT
from mabrfl.config.model import PartitionConfig, TrainingConfig
from mabrfl.errors import MabRflError
from mabrfl.sweeps.results import Cell

SMALLER: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "mnist": [{"model": "mnist-cnn-small", "rounds": 40}],
    "cifar10": [
        {"model": "vgg-tiny", "rounds": 25, "partition.sizes": [120, 200]},
        {
            "model": "cifar-cnn",
            "rounds": 30,
            "partition.sizes": [300, 500],
            "training.batch_size": 16,
            "training.precision": "bf16",
        },
    ],
}
"""The settings that differ from the paper's in ``experiments/table1-*-laptop.toml`` and ``-mid.toml``. Their tables are
compared with the paper's and say what is smaller; no other run with another model, fewer rounds or less data is
compared."""

_FREE = frozenset({"seed", "attackers", "allow_majority", *WITHOUT_EFFECT})
"""Settings that a figure of the paper is not bound to; the share of attackers is looked up by its number."""
_NOT_REPORTED = "---"
_SAME_PERCENT = 0.05
"""Two shares of attackers, in percent, are the same if they differ by less."""


@dataclass(frozen=True)
class PaperTable:
    """Table 1 for one data set.

    Attributes
    ----------
    dataset, model
        The catalogue's name of the data set, and the paper's name of the model.
    accuracies
        ``{(attackers in percent, attack, defense): accuracy in percent}``, by the catalogue's names and in the
        order of the paper, without those it does not report.
    """

    dataset: str
    model: str
    accuracies: Mapping[tuple[int, str, str], float]

    def accuracy(self, percent: float, attack: str, defense: str) -> float | None:
        """Return the paper's figure, or None if it has none."""
        for (row_percent, row_attack, column), value in self.accuracies.items():
            if (row_attack, column) == (attack, defense) and abs(row_percent - percent) < _SAME_PERCENT:
                return value
        return None


def paper_table(dataset: str) -> PaperTable | None:
    """Return the paper's table for a data set, or None if the paper does not have that data set.

    Examples
    --------
    >>> paper_table("mnist").accuracy(48, "lie", "mab-rfl")
    96.86
    >>> paper_table("digits") is None
    True
    """
    return _tables().get(dataset)


def defense_names() -> tuple[str, ...]:
    """Return our names of the paper's defenses, in the order of its columns."""
    return tuple(_document()["names"]["defenses"])


def attack_names() -> tuple[str, ...]:
    """Return our names of the paper's attacks, in the order of its rows."""
    return tuple(_document()["names"]["attacks"])


def settings(dataset: str | None = None) -> dict[str, Any]:
    """Return the settings of the paper's experiments; for a data set with its own on top."""
    common: dict[str, Any] = _document()["settings"]
    general = {name: value for name, value in common.items() if not isinstance(value, dict)}
    return general | dict(common.get(dataset, {}) if dataset else {})


def source() -> dict[str, str]:
    """Return the source of the figures."""
    source: dict[str, str] = _document()["source"]
    return dict(source)


def readings() -> list[dict[str, Any]]:
    """Return the misprints of the table: what it prints, and how we read it."""
    return [dict(reading) for reading in _document()["readings"]]


@cache
def _document() -> dict[str, Any]:
    file = resources.files("mabrfl.reports") / "data" / "table1.toml"
    return tomllib.loads(file.read_text(encoding="utf-8"))


@cache
def _tables() -> dict[str, PaperTable]:
    columns = list(defense_names())
    return {
        dataset: PaperTable(dataset, table["model"], _accuracies(table["rows"], columns))
        for dataset, table in _document()["tables"].items()
    }


def _accuracies(rows: list[list[Any]], columns: list[str]) -> dict[tuple[int, str, str], float]:
    return {
        (percent, attack, column): float(value)
        for percent, attack, *values in rows
        for column, value in zip(columns, values, strict=True)
        if value != _NOT_REPORTED
    }


def is_comparable(cell: Cell) -> bool:
    """Whether a run has the paper's conditions for its data set, defense, preset and attack.

    The paper has no figures of the preset ``hardened`` of MAB-RFL. For other defenses a preset is no more than the
    conditions of the run.

    Settings that the paper leaves open (optimiser, initialisation, the options of attacks and defenses) must have
    their defaults. A setting that a run does not have, because it is older than the setting, is no difference.
    """
    method, preset = cell.config["defense"], cell.config["preset"]
    if display_entry("defenses", method).presets and not display_entry("presets", preset).in_paper:
        return False
    named = (cell.config[name] for name in ("dataset", "defense", "preset", "attack"))
    papers = _papers(*named, cell.num_attackers)
    if papers is None:
        return False
    ours = flat(cell.config)
    scales = (papers, *(papers | dict(smaller) for smaller in SMALLER.get(cell.config["dataset"], ())))
    return any(all(_same(ours.get(key, value), value) for key, value in scale.items()) for scale in scales)


@cache
def _papers(dataset: str, defense: str, preset: str, attack: str, attackers: int) -> dict[str, Any] | None:
    """Return the settings of the paper's run by dotted key; None if there is no such run."""
    # Names from a file are looked up only if the paper has them: "module:Name" would import whatever it says.
    if defense not in defense_names() or attack not in ("none", *attack_names()):
        return None
    if paper_table(dataset) is None:
        return None
    setup = settings(dataset)
    try:
        config = resolve(
            RunConfig(
                dataset=dataset,
                defense=defense,
                preset=preset,
                attack=attack,
                attackers=attackers,
                clients=setup["clients"],
                rounds=setup["rounds"],
                allow_majority=True,
                training=TrainingConfig(epochs=setup["epochs"]),
                partition=PartitionConfig(q=setup["q"], sizes=tuple(setup["sizes"])),
            )
        )
    except (MabRflError, ValueError):
        return None
    # Settings of kinds of partition that the paper does not have.
    unused = {*_FREE, *(f"partition.{name}" for name in ("concentration", "shards", "gamma"))}
    return {key: value for key, value in flat(config.model_dump(mode="json")).items() if key not in unused}


def _same(ours: Any, papers: Any) -> bool:
    return json.dumps(ours) == json.dumps(papers) or (_is_number(ours) and _is_number(papers) and ours == papers)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
