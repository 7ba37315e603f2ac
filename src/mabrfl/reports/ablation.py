"""A defense without each of its parts in turn, held against the whole: what each part is worth, and where.

A sweep says so by an axis called ``ablation``. Its first point is the whole, every other one leaves something out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from mabrfl.config.toml import one_line
from mabrfl.errors import StateError
from mabrfl.reports.detection import Average, DetectionRow, DetectionTable, average, detection_table
from mabrfl.reports.tables import Metric
from mabrfl.sweeps.grouping import groups_of, identity_of, settings_of
from mabrfl.sweeps.results import Cell

AXIS = "ablation"
_OF_THE_DEFENSE = ("defense", "preset", "selector")
"""How the keys begin that an ablation may change; everything else has to be the same in the whole."""


@dataclass(frozen=True)
class AblationRow:
    """One part left out under one attack.

    Attributes
    ----------
    without
        The point on the axis: what is left out.
    part, whole
        The condition without it, and with everything; None if the sweep does not have the latter.
    difference
        Accuracy without the part less that of the whole, in points, seed by seed; None if no seed has both.
    """

    without: str
    part: DetectionRow
    whole: DetectionRow | None
    difference: Average | None


@dataclass(frozen=True)
class AblationTable:
    """All parts that are left out, in the order of the plan."""

    whole: str
    rows: tuple[AblationRow, ...]
    detection: DetectionTable = field(repr=False)


def has_ablation(cells: Sequence[Cell]) -> bool:
    """Whether anything is left out in any run."""
    return len({str(cell.axes[AXIS]) for cell in cells if AXIS in cell.axes}) > 1


def ablation_table(cells: Sequence[Cell], metric: Metric = "final_accuracy") -> AblationTable:
    """Hold every part that is left out against the whole.

    Parameters
    ----------
    cells
        Of one or several results. Two are a pair if they differ in nothing but the defense, its preset, its selector
        and their options.
    metric
        The accuracy that is compared.

    Raises
    ------
    StateError
        If nothing is left out in any of them.
    """
    if not has_ablation(cells):
        raise StateError(
            f"nothing is left out in these results: the sweep needs an axis '{AXIS}' with two points or more"
        )
    ours = [cell for cell in cells if AXIS in cell.axes]
    first = str(ours[0].axes[AXIS])
    detection = detection_table(cells, metric)
    places = {identity_of(row.condition.cells[0]): row for row in detection.rows}
    wholes = [cell for cell in ours if str(cell.axes[AXIS]) == first]
    whole = {_circumstances(cell): cell for same in groups_of(wholes) for cell in same}
    rows: dict[tuple[str, int], AblationRow] = {}
    for cell in ours:
        without, row = str(cell.axes[AXIS]), places[identity_of(cell)]
        if without != first and (without, id(row)) not in rows:
            pairs = [(one, whole.get(_circumstances(one))) for one in row.condition.cells]
            beside = next((places[identity_of(other)] for _, other in pairs if other is not None), None)
            difference = average(_difference(one, other, metric) for one, other in pairs)
            rows[without, id(row)] = AblationRow(one_line(without), row, beside, difference)
    return AblationTable(one_line(first), tuple(rows.values()), detection)


def _circumstances(cell: Cell) -> str:
    """Return everything but the defense, as text."""
    settings = {key: value for key, value in settings_of(cell).items() if not key.startswith(_OF_THE_DEFENSE)}
    return json.dumps([cell.config["seed"], settings], sort_keys=True)


def _difference(part: Cell, whole: Cell | None, metric: Metric) -> float | None:
    value, other = part.measured(metric), None if whole is None else whole.measured(metric)
    return None if value is None or other is None else value - other
