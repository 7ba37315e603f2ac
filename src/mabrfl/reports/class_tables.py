"""Accuracy by class, and which classes the final model takes for which: a table per run, from its records."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from mabrfl.errors import StateError
from mabrfl.recording import RoundRecord, read_rounds
from mabrfl.recording.folder import ROUNDS
from mabrfl.reports.naming import attack_name, dataset_name, defense_name
from mabrfl.reports.text_tables import TextTable
from mabrfl.sweeps.results import Cell
from mabrfl.sweeps.rows import Rows

_NONE = "—"


def class_tables(cells: Iterable[Cell]) -> list[TextTable]:
    """Return a table per finished run.

    Raises
    ------
    StateError
        If no run has such numbers: packed results do not.
    """
    return [_table(cell, record) for cell, record in _last_rounds(cells)]


def class_rows(cells: Iterable[Cell]) -> Rows:
    """Return a row per finished run and class, for CSV."""
    rows = Rows()
    for cell, record in _last_rounds(cells):
        for label, accuracy in enumerate(record.per_class or ()):
            row = {"key": cell.key[:16], "seed": cell.config["seed"], "defense": cell.config["defense"]}
            row |= {"attack": cell.config["attack"], "attackers": cell.num_attackers, "round": record.round}
            row |= {"class": label, "accuracy": None if math.isnan(accuracy) else accuracy}
            rows.append(row | _predicted(record, label))
    return rows


def _predicted(record: RoundRecord, label: int) -> dict[str, int]:
    counts = record.confusion[label] if record.confusion else ()
    return {f"predicted_{other}": count for other, count in enumerate(counts)}


def _last_rounds(cells: Iterable[Cell]) -> Iterator[tuple[Cell, RoundRecord]]:
    found = False
    for cell in cells:
        if cell.status == "done" and cell.folder is not None and (cell.folder / ROUNDS).is_file():
            records = read_rounds(cell.folder).records
            if records and records[-1].per_class:
                found = True
                yield cell, records[-1]
    if not found:
        raise StateError("no finished run has numbers by class; packed results do not, the folder of a run has them")


def _table(cell: Cell, record: RoundRecord) -> TextTable:
    config, classes = cell.config, len(record.per_class or ())
    attack = f"{attack_name(config['attack'])}, {cell.percent:g}% attackers" if cell.num_attackers else "no attack"
    names = (dataset_name(config["dataset"]), defense_name(config["defense"]), attack, f"seed {config['seed']}")
    note = f"Accuracy (%) of the model after round {record.round} by class of the test set."
    head, rows = ["class", "accuracy"], []
    if record.confusion:
        head += ["examples", *map(str, range(classes))]
        note += " To the right: how many of its examples the model takes for each class."
    for label, accuracy in enumerate(record.per_class or ()):
        row = [str(label), _NONE if math.isnan(accuracy) else f"{accuracy:.2f}"]
        if record.confusion:
            counts = record.confusion[label]
            row += [str(sum(counts)), *map(str, counts)]
        rows.append(row)
    return TextTable(f"{', '.join(names)}: by class", head, "r" * len(head), rows, note)
