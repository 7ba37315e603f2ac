"""The end of a run on the command line: its summary, its files, or the command that continues it."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mabrfl.cli.live import in_words
from mabrfl.recording import RoundRecord
from mabrfl.recording.folder import CHECKPOINTS, SUMMARY
from mabrfl.runs import RunResult

FILES = {
    "summary.json": "the numbers above",
    "rounds.jsonl": "every round: verdicts, evidence, reputation",
    "config.toml": "all settings; run it again with: mabrfl run",
    "manifest.json": "versions, seed, data, commit",
    "model.safetensors": "the final model: module.load_state_dict(safetensors.torch.load_file(...))",
    "accuracy.png": "accuracy over the rounds",
    "clients.png": "the verdict on each client in each round",
}


def show_run(console: Console, result: RunResult, path: Path) -> None:
    """Print the summary of one run and the files in its folder."""
    console.print()
    console.print(comparison([result]))
    events = event_counts(result.records)
    if events:
        counts = ", ".join(f"{event} ({number}x)" for event, number in events.most_common(5))
        console.print(Text(f"events: {counts}", style="dim"), soft_wrap=True)
    for warning in warnings(result.records):
        console.print(Text(f"warning: {warning}", style="yellow"), soft_wrap=True)
    console.print(Text(f"\nresults in {path}", style="bold"), soft_wrap=True)
    for name, content in FILES.items():
        if (path / name).exists():
            console.print(Text(f"  {name:14}  {content}"), soft_wrap=True)


def show_interruption(path: Path) -> None:
    """Say where the finished rounds of an interrupted run are, and how to continue it."""
    where = f"; the finished rounds are in {path}" if (path / SUMMARY).exists() else ""
    how = f"; go on with: mabrfl run --resume --out {shlex.quote(str(path))}" if (path / CHECKPOINTS).exists() else ""
    Console(stderr=True).print(Text(f"interrupted{where}{how}", style="yellow"), soft_wrap=True)


def comparison(results: Sequence[RunResult]) -> Table:
    """Return the summaries of runs side by side, a column each."""
    table = Table(header_style="bold", show_header=len(results) > 1)
    table.add_column("")
    for result in results:
        table.add_column(result.config.defense, justify="right")
    for label, cells in zip(_LABELS, zip(*(_cells(result.summary) for result in results), strict=True), strict=True):
        if label != _SUCCESS or set(cells) != {_NOTHING}:
            table.add_row(label, *cells)
    return table


def event_counts(records: Sequence[RoundRecord]) -> Counter[str]:
    """Count the rounds in which each kind of event happened; details after a colon are left out."""
    return Counter(event for record in records for event in {text.partition(":")[0] for text in record.events})


_SUCCESS, _NOTHING = "attack success rate", "-"


def warnings(records: Sequence[RoundRecord]) -> list[str]:
    """Return what a user should know about a run that went wrong without an error."""
    return [text for text in (rejected_warning(records), still_warning(records)) if text]


def still_warning(records: Sequence[RoundRecord]) -> str:
    """Return a warning if the step of a round was not finite; an empty text otherwise."""
    number = event_counts(records)["step-not-finite"]
    if not number:
        return ""
    return (
        f"in {number} of {len(records)} rounds the defense gave a step with NaN or infinite numbers, and the model did "
        "not move; are its weights finite?"
    )


def rejected_warning(records: Sequence[RoundRecord]) -> str:
    """Return a warning if every update was rejected, round after round; an empty text otherwise."""
    empty = [bool(record.verdicts) and not any(one.accepted for one in record.verdicts.values()) for record in records]
    streak = max((len(list(group)) for is_empty, group in groupby(empty) if is_empty), default=0)
    if not streak or streak < min(_STREAK, len(records)):
        return ""
    reasons = Counter(
        one.reason
        for record, is_empty in zip(records, empty, strict=True)
        if is_empty
        for one in record.verdicts.values()
    )
    reason = reasons.most_common(1)[0][0]
    why = (
        "; honest updates that are very similar (few examples, few steps) are taken for sybils"
        if reason == "sybil"
        else ""
    )
    return f"in {sum(empty)} of {len(records)} rounds every update was rejected, most often as {reason}{why}"


_STREAK = 3
"""Rounds in a row without an accepted update after which there is a warning."""
_LABELS = (
    "final accuracy",
    "mean of the last 10 rounds",
    "best accuracy",
    _SUCCESS,
    "attackers caught (recall)",
    "rejections that were right (precision)",
    "honest updates rejected",
    "rounds",
    "time",
)


def _cells(summary: dict[str, Any]) -> tuple[str, ...]:
    return (
        _percent(summary["final_accuracy"]),
        _percent(summary["mean_last10"]),
        _percent(summary["best_accuracy"]),
        _percent(summary.get("attack_success")),
        _percent(summary["detection_recall"], 100),
        _percent(summary["detection_precision"], 100),
        _percent(summary["honest_rejected_rate"], 100),
        str(summary["rounds"]),
        in_words(summary["seconds"]),
    )


def _percent(value: float | None, scale: float = 1) -> str:
    return _NOTHING if value is None else f"{scale * value:.1f} %"
