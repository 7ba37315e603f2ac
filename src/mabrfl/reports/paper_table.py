"""The paper's own Table 1 and settings, as data to compare with."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

_NOT_REPORTED = "---"
_SAME_PERCENT = 0.05
"""Two shares of attackers, in percent, are the same if they differ by less."""


@dataclass(frozen=True)
class PaperTable:
    """Table 1 for one data set.

    Attributes
    ----------
    dataset, model
        The catalogue's name of the data set, and what the paper calls the model.
    accuracies
        ``{(attackers in percent, attack, defense): accuracy in percent}``, by the catalogue's names and in the
        order of the paper; what it does not report is not there.
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
    """Return what the figures are taken from."""
    found: dict[str, str] = _document()["source"]
    return dict(found)


def readings() -> list[dict[str, Any]]:
    """Return where the print cannot be meant: what it has, and what we take it for."""
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
