"""The table of detection as Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping

from mabrfl.reports.detection import RATES, Average, DetectionRow, DetectionTable, Isolation
from mabrfl.reports.tables import METRICS, begun_text, entry_text, signed
from mabrfl.reports.text_tables import TextTable

NONE = "—"
PERCENTAGES: Mapping[str, tuple[str, int]] = {
    "detection_precision": ("precision", 1),
    "detection_recall": ("recall", 1),
    "honest_rejected_rate": ("honest rejected", 2),
    "selection_rate_honest": ("honest selected", 1),
    "selection_rate_malicious_last_third": ("attackers selected", 1),
}
"""The rates that are shown, with their heads and decimals."""


def detection_text(table: DetectionTable) -> TextTable:
    """Return the table as text, without columns that would be empty."""
    rest, success = (any(row.condition.rest for row in table.rows), any(row.attack_success for row in table.rows))
    names = ["Attackers", "Attack", "Defense", *(["Conditions"] if rest else [])]
    shares = [head for head, _ in PERCENTAGES.values()]
    goal = ["attack success"] if success else []
    rows = []
    for row in table.rows:
        condition = row.condition
        cells = [condition.row.share, condition.row.label, condition.column.label, *([condition.rest] if rest else [])]
        rows.append([*cells, *_cells(row, table.seed_counts), *([_success(row)] if success else [])])
    head = [*names, "accuracy", "vs. clean FedAvg", *shares, "isolated after", "shut out after", *goal]
    sides = "r" + "l" * (len(names) - 1) + "r" * (len(head) - len(names))
    return TextTable(f"{table.setting.title}: detection", head, sides, rows, _notes(table), names=len(names))


def detection_markdown(table: DetectionTable) -> str:
    """Return the table in Markdown."""
    return detection_text(table).markdown()


def detection_latex(table: DetectionTable) -> str:
    """Return the table in LaTeX."""
    return detection_text(table).latex()


def _cells(row: DetectionRow, counts: set[int]) -> list[str]:
    entry = row.accuracy
    if entry.mean is None:
        return [begun_text(entry) if entry.status == "running" else entry.status] + [""] * (3 + len(PERCENTAGES))
    shares = [percent_text(row.rates[name], decimals) for name, (_, decimals) in PERCENTAGES.items()]
    return [entry_text(entry, counts), _difference(row), *shares, _rounds(row.isolated), _rounds(row.shut_out)]


def _difference(row: DetectionRow) -> str:
    difference = row.difference
    if row.is_clean:
        return "clean"
    text = average_text(difference)
    if difference is None or difference.seeds == row.accuracy.seeds:
        return text
    return f"{text} ({difference.seeds} of {row.accuracy.seeds})"


def average_text(value: Average | None) -> str:
    """Return a difference in points, with its deviation over seeds."""
    if value is None:
        return NONE
    return signed(value.mean) if value.deviation is None else f"{signed(value.mean)} ± {value.deviation:.2f}"


def percent_text(value: Average | None, decimals: int, scale: float = 100) -> str:
    """Return a share in percent, with its deviation over seeds."""
    if value is None:
        return NONE
    text = f"{scale * value.mean:.{decimals}f}"
    return text if value.deviation is None else f"{text} ± {scale * value.deviation:.{decimals}f}"


def _success(row: DetectionRow) -> str:
    return percent_text(row.attack_success, 1, scale=1) if row.accuracy.mean is not None else ""


def _rounds(isolation: Isolation | None) -> str:
    """Return ``6 (2 of 45 never)``."""
    if isolation is None:
        return NONE
    median = "never" if math.isinf(isolation.median) else f"{isolation.median:g}"
    return f"{median} ({isolation.never} of {isolation.attackers} never)" if isolation.never else median


def _notes(table: DetectionTable) -> str:
    several = " unless the conditions say otherwise" if any(row.condition.rest for row in table.rows) else ""
    renamed = any(
        row.isolated and row.isolated.attackers > sum(cell.num_attackers for cell in row.condition.cells)
        for row in table.rows
    )
    notes = [
        f"{table.setting.title}; {table.setting.description}{several}.",
        "Percent; mean ± standard deviation over seeds, one seed where there is no ±.",
        f"Accuracy: {METRICS[table.metric]}.",
        "Vs. clean FedAvg: the difference in points to FedAvg without attackers, same conditions and seeds.",
        "Precision: the share of rejected updates that were attackers'. "
        "Recall: the share of attackers' updates that were rejected, including rounds in which they behave. "
        "Honest rejected: the share of honest updates that were rejected.",
        "Honest selected: the share of honest clients selected in a round. "
        "Attackers selected: the share of attackers selected in a round of the last third.",
        "Isolated after: the round after which an attacker was never selected again. "
        "Shut out after: the round after which it was never accepted again. Both are medians over all attackers; "
        "never: still selected, or accepted, in the last round.",
        *(["An attacker that changes its id is counted once per id."] if renamed else []),
        f"{table.legend}.",
        f"{table.progress}.",
    ]
    return " ".join(notes)


_NAMES = (
    *("dataset", "model", "rounds", "clients", "attackers_percent", "attack", "attack_label", "defense", "preset"),
    *(
        "selector",
        "defense_label",
        "conditions",
        "metric",
        "status",
        "seeds",
        "seeds_planned",
        "seeds_failed",
        "mean",
        "std",
    ),
    *("difference_mean", "difference_std", "difference_seeds"),
)
_ISOLATION = ("median", "never", "attackers")


def detection_csv(table: DetectionTable) -> str:
    """Return the table as CSV: a line per condition, numbers unrounded, rates from 0 to 1, ``inf`` for never."""
    fields = [*_NAMES, *(f"{name}_{part}" for name in (*RATES, "attack_success") for part in ("mean", "std"))]
    fields += [f"{name}_{part}" for name in ("isolated", "shut_out") for part in _ISOLATION]
    text = io.StringIO()
    writer = csv.DictWriter(text, fields, lineterminator="\n")
    writer.writeheader()
    for row in table.rows:
        numbers = {**row.rates, "attack_success": row.attack_success}
        line = _names_of(row, table) | {
            f"{name}_{part}": value for name, number in numbers.items() for part, value in mean_of(number).items()
        }
        for name, isolation in (("isolated", row.isolated), ("shut_out", row.shut_out)):
            line |= {f"{name}_{part}": getattr(isolation, part) for part in _ISOLATION if isolation is not None}
        writer.writerow(line)
    return text.getvalue()


def _names_of(row: DetectionRow, table: DetectionTable) -> dict[str, object]:
    condition, entry = row.condition, row.accuracy
    config = condition.cells[0].config
    difference = mean_of(row.difference)
    return {
        **{name: config[name] for name in ("dataset", "model", "rounds", "clients", "attack", "defense", "selector")},
        "preset": condition.column.preset,
        "defense_label": condition.column.label,
        "attackers_percent": f"{condition.row.percent:g}",
        "attack_label": condition.row.label,
        "conditions": condition.rest,
        "metric": table.metric,
        "status": entry.state,
        "seeds": entry.seeds,
        "seeds_planned": entry.planned,
        "seeds_failed": entry.failed,
        "mean": entry.mean,
        "std": entry.deviation,
        "difference_mean": difference["mean"],
        "difference_std": difference["std"],
        "difference_seeds": 0 if row.difference is None else row.difference.seeds,
    }


def mean_of(value: Average | None) -> dict[str, float | None]:
    """Return ``mean`` and ``std`` for CSV."""
    return {"mean": None, "std": None} if value is None else {"mean": value.mean, "std": value.deviation}


DETECTION_FORMATS: Mapping[str, Callable[[DetectionTable], str]] = {
    "markdown": detection_markdown,
    "latex": detection_latex,
    "csv": detection_csv,
}
"""By the name that the command line has for them."""
