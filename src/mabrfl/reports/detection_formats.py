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
    """Return the table as text; a column that nothing stands in is left out."""
    rest, success = (any(row.condition.rest for row in table.rows), any(row.attack_success for row in table.rows))
    names = ["Attackers", "Attack", "Defense", *(["Conditions"] if rest else [])]
    shares = [head for head, _ in PERCENTAGES.values()]
    goal = ["attack success"] if success else []
    rows = []
    for row in table.rows:
        told = row.condition
        cells = [told.row.share, told.row.label, told.column.label, *([told.rest] if rest else [])]
        rows.append([*cells, *_cells(row, table.seed_counts), *([_success(row)] if success else [])])
    head = [*names, "accuracy", "less clean", *shares, "isolated after", "shut out after", *goal]
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
    found = row.difference
    if row.is_clean:
        return "clean"
    text = average_text(found)
    if found is None or found.seeds == row.accuracy.seeds:
        return text
    return f"{text} ({found.seeds} of {row.accuracy.seeds})"


def average_text(found: Average | None) -> str:
    """Return a difference in points, with its deviation over seeds."""
    if found is None:
        return NONE
    return signed(found.mean) if found.deviation is None else f"{signed(found.mean)} ± {found.deviation:.2f}"


def percent_text(found: Average | None, decimals: int, scale: float = 100) -> str:
    """Return a share in percent, with its deviation over seeds."""
    if found is None:
        return NONE
    text = f"{scale * found.mean:.{decimals}f}"
    return text if found.deviation is None else f"{text} ± {scale * found.deviation:.{decimals}f}"


def _success(row: DetectionRow) -> str:
    return percent_text(row.attack_success, 1, scale=1) if row.accuracy.mean is not None else ""


def _rounds(found: Isolation | None) -> str:
    """Return ``6 (2 of 45 never)``."""
    if found is None:
        return NONE
    median = "never" if math.isinf(found.median) else f"{found.median:g}"
    return f"{median} ({found.never} of {found.attackers} never)" if found.never else median


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
        "Less clean: the difference in points to FedAvg without attackers, same conditions and seeds.",
        "Precision: how many of the rejected updates were attackers'; recall: how many of the attackers' updates were "
        "rejected, those of rounds in which they behave included; "
        "honest rejected: how many of the honest updates were.",
        "Honest selected: how many of the honest clients, in a round; attackers selected: how many of the attackers, "
        "in a round of the last third.",
        "Isolated: never selected again after that round; shut out: never accepted again; the median of all attackers, "
        "and how many were still selected, or accepted, in the last round.",
        *(["An attacker that changes its id is counted under each."] if renamed else []),
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
            f"{name}_{part}": value for name, found in numbers.items() for part, value in mean_of(found).items()
        }
        for name, found in (("isolated", row.isolated), ("shut_out", row.shut_out)):
            line |= {f"{name}_{part}": getattr(found, part) for part in _ISOLATION if found is not None}
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


def mean_of(found: Average | None) -> dict[str, float | None]:
    """Return ``mean`` and ``std`` for CSV."""
    return {"mean": None, "std": None} if found is None else {"mean": found.mean, "std": found.deviation}


DETECTION_FORMATS: Mapping[str, Callable[[DetectionTable], str]] = {
    "markdown": detection_markdown,
    "latex": detection_latex,
    "csv": detection_csv,
}
"""By the name that the command line has for them."""
