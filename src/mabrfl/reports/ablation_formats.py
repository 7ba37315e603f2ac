"""The table of an ablation as Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping

from mabrfl.reports.ablation import AblationRow, AblationTable
from mabrfl.reports.detection import Average, DetectionRow
from mabrfl.reports.detection_formats import NONE, PERCENTAGES, average_text, mean_of, percent_text
from mabrfl.reports.tables import METRICS, begun_text, entry_text
from mabrfl.reports.text_tables import TextTable

_SHOWN = ("detection_recall", "honest_rejected_rate", "selection_rate_malicious_last_third")
"""The rates that are shown, of :data:`PERCENTAGES`."""


def ablation_text(table: AblationTable) -> TextTable:
    """Return the table as text: what is without a part, and in brackets what the whole has."""
    success = any(row.part.attack_success for row in table.rows)
    head = ["Without", "Attackers", "Attack", "accuracy", "difference", *(PERCENTAGES[name][0] for name in _SHOWN)]
    head += ["attack success"] if success else []
    rows, last = [], ""
    for row in table.rows:
        told = row.part.condition
        names = [row.without if row.without != last else "", told.row.share, told.row.label]
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
            "Recall: how many of the attackers' updates were rejected, those of rounds in which they behave included; "
            "honest rejected: how many of the honest ones; "
            "attackers selected: how many of them, in a round of the last third.",
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
