"""A defense without each of its parts in turn, compared with the whole; as Markdown, LaTeX and CSV.

A sweep needs an axis called ``ablation``. Its first point is the whole; every other one leaves something out.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from mabrfl.config.toml import one_line
from mabrfl.errors import StateError
from mabrfl.reports.detection import Average, DetectionRow, DetectionTable, average, detection_table
from mabrfl.reports.detection_formats import NONE, PERCENTAGES, average_text, mean_of, percent_text
from mabrfl.reports.tables import METRICS, Metric, begun_text, entry_text
from mabrfl.reports.text_tables import TextTable
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
        The point on the axis: the part that is left out.
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
    """Whether any run leaves a part out."""
    return len({str(cell.axes[AXIS]) for cell in cells if AXIS in cell.axes}) > 1


def ablation_table(cells: Sequence[Cell], metric: Metric = "final_accuracy") -> AblationTable:
    """Compare a defense without each of its parts with the whole.

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


_SHOWN = ("detection_recall", "honest_rejected_rate", "selection_rate_malicious_last_third")
"""The rates that are shown, of :data:`PERCENTAGES`."""


def ablation_text(table: AblationTable) -> TextTable:
    """Return the table as text: numbers without a part, and those of the whole in brackets."""
    success = any(row.part.attack_success for row in table.rows)
    head = ["Without", "Attackers", "Attack", "accuracy", "difference", *(PERCENTAGES[name][0] for name in _SHOWN)]
    head += ["attack success"] if success else []
    rows, last = [], ""
    for row in table.rows:
        condition = row.part.condition
        names = [row.without if row.without != last else "", condition.row.share, condition.row.label]
        rows.append([*names, *_numbers(row, table, success=success)])
        last = row.without
    sides = "lrl" + "r" * (len(head) - 3)
    return TextTable(f"{table.detection.setting.title}: ablation", head, sides, rows, _notes(table), names=3)


def _numbers(row: AblationRow, table: AblationTable, *, success: bool) -> list[str]:
    counts = table.detection.seed_counts
    ours = _texts(row.part, counts, success=success)
    whole = _texts(row.whole, counts, success=success) if row.whole is not None else [""] * len(ours)
    accuracy, *shares = (
        f"{one} ({other})" if other and {one, other} != {NONE} else one for one, other in zip(ours, whole, strict=True)
    )
    return [accuracy, average_text(row.difference), *shares]


def _texts(row: DetectionRow, counts: set[int], *, success: bool) -> list[str]:
    entry = row.accuracy
    if entry.mean is None:
        return [begun_text(entry) if entry.status == "running" else entry.status] + [NONE] * (len(_SHOWN) + success)
    shares = [percent_text(row.rates[name], PERCENTAGES[name][1]) for name in _SHOWN]
    shares += [percent_text(row.attack_success, 1, scale=1)] if success else []
    return [entry_text(entry, counts), *shares]


def _notes(table: AblationTable) -> str:
    setting = table.detection.setting
    return " ".join(
        [
            f"{setting.title}; {setting.description}.",
            f"In brackets: the same of the whole ({table.whole}); difference: of the two accuracies, in points.",
            "Percent; mean ± standard deviation over seeds, one seed where there is no ±.",
            f"Accuracy: {METRICS[table.detection.metric]}.",
            "Recall: the share of attackers' updates that were rejected, including rounds in which they behave. "
            "Honest rejected: the share of honest updates that were rejected. "
            "Attackers selected: the share of attackers selected in a round of the last third.",
            f"{table.detection.legend}.",
            f"{table.detection.progress}.",
        ]
    )


_NAMES = ("whole", "without", "attackers_percent", "attack", "attack_label", "conditions", "metric")


def ablation_csv(table: AblationTable) -> str:
    """Return the table as CSV: a line per part and attack, numbers unrounded, rates from 0 to 1."""
    shares = (*_SHOWN, "attack_success")
    fields = [*_NAMES, "status", "seeds", "accuracy", "accuracy_whole", "difference_mean", "difference_std"]
    fields += [f"{name}{side}" for name in shares for side in ("", "_whole")]
    text = io.StringIO()
    writer = csv.DictWriter(text, fields, lineterminator="\n")
    writer.writeheader()
    for row in table.rows:
        condition, difference = row.part.condition, mean_of(row.difference)
        line: dict[str, object] = {
            "whole": table.whole,
            "without": row.without,
            "attackers_percent": f"{condition.row.percent:g}",
            "attack": condition.cells[0].config["attack"],
            "attack_label": condition.row.label,
            "conditions": condition.rest,
            "metric": table.detection.metric,
            "status": row.part.accuracy.state,
            "seeds": row.part.accuracy.seeds,
            "difference_mean": difference["mean"],
            "difference_std": difference["std"],
        }
        for side, one in (("", row.part), ("_whole", row.whole)):
            if one is not None:
                line[f"accuracy{side}"] = one.accuracy.mean
                line |= {f"{name}{side}": mean_of(_share(one, name))["mean"] for name in shares}
        writer.writerow(line)
    return text.getvalue()


def _share(row: DetectionRow, name: str) -> Average | None:
    return row.attack_success if name == "attack_success" else row.rates[name]


ABLATION_FORMATS: Mapping[str, Callable[[AblationTable], str]] = {
    "markdown": lambda table: ablation_text(table).markdown(),
    "latex": lambda table: ablation_text(table).latex(),
    "csv": ablation_csv,
}
"""By the name that the command line has for them."""
