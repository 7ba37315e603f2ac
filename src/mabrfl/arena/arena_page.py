"""The leaderboard as one HTML file: sortable, and each cell leads to its runs and the commands that repeat them.

The page loads nothing. Its one script is inside, and its content security policy forbids all else.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from mabrfl.arena.arena_records import Records
from mabrfl.arena.leaderboard import (
    OURS,
    LeaderboardFigure,
    counts,
    figures,
    legend,
    measure_text,
    opening,
    percent,
    place_text,
)
from mabrfl.arena.repeating import words
from mabrfl.arena.scenarios import NOBODY, data_file
from mabrfl.arena.scoring import Measure, Score, baseline, scores
from mabrfl.arena.task_board import figure_text, not_begun, runs_text, task_counts, task_legend, task_opening
from mabrfl.arena.task_scoring import TaskScore, of_task, task_scores
from mabrfl.errors import extra_needed

with extra_needed("the page"):
    from jinja2 import Environment, PackageLoader, StrictUndefined

_KEPT = ("key", "accuracy", "success", "rejected", "caught", "error")


def page(records: Records, larger: Records | None = None, *, own: Sequence[str] = ()) -> str:
    """Return the page; the same records give the same text.

    Parameters
    ----------
    records
        Of the arena.
    larger
        Records of a larger tier, which is shown task by task as far as it is run.
    own
        Labels of the user's own defenses and attacks, which are marked.
    """
    known = scores(records)
    style = (resources.files("mabrfl.reports") / "data" / "report.css").read_text("utf-8") + data_file(
        "arena.css"
    ).decode()
    script = data_file("arena.js").decode()
    environment = Environment(
        loader=PackageLoader("mabrfl.arena", "data"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    policy = (
        f"default-src 'none'; style-src 'sha256-{_digest(style)}'; script-src 'sha256-{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    columns = figures(records.tier.shares)
    return environment.get_template("arena.html").render(
        policy=policy,
        style=style,
        script=script,
        ours=OURS,
        counts=counts(records),
        opening=_plain(opening(records, known)),
        legend=legend(),
        figures=columns,
        rows=[_row(score, columns, own) for score in known if score.done],
        waiting=[score.label for score in known if not score.done],
        shares=[percent(share) for share in records.tier.shares],
        tasks=[task.label for task in records.tier.tasks],
        data=_data(records, {score.label: place_text(score) for score in known if score.done}, own),
        larger=None if larger is None else _larger(larger, own),
        partial=records.tier.by_task,
    )


def _plain(lines: Sequence[str]) -> list[str]:
    return [line.replace("`", "") for line in lines]


def _larger(records: Records, own: Sequence[str]) -> dict[str, Any]:
    """Return what the page shows of a larger tier, task by task."""
    tier, columns = records.tier, figures(records.tier.shares)
    tasks, boards = [], []
    for task in tier.tasks:
        part = of_task(records, task.label)
        known = task_scores(part)
        boards.append({one.label: place_text(one.score) for one in known})
        tasks.append(
            {
                "label": task.label,
                "opening": _plain(task_opening(part, known)),
                "rows": [_task_row(one, columns, own) for one in known],
                "waiting": not_begun(part, known),
            }
        )
    begun = [column.label for column in records.columns if any(column.label in board for board in boards)]
    places = {label: [board.get(label, "—") for board in boards] for label in begun}
    return {
        "name": tier.name,
        "counts": task_counts(records).replace("`", ""),
        "legend": task_legend() if begun else [],
        "tasks": tasks if begun else [],
        "labels": [task.label for task in tier.tasks],
        "data": {"name": tier.name, **_data(records, places, own)} if begun else None,
    }


def _task_row(one: TaskScore, columns: Sequence[LeaderboardFigure], own: Sequence[str]) -> dict[str, Any]:
    row = _row(one.score, columns, own)
    for cell, column in zip(row["cells"], columns, strict=True):
        if cell["value"] is None:
            cell["mean"] = figure_text(one, column)
    return {**row, "runs": runs_text(one)}


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _row(score: Score, columns: Sequence[LeaderboardFigure], own: Sequence[str]) -> dict[str, Any]:
    measures = [(column.of(score), column.digits) for column in columns]
    return {
        "label": score.label,
        "own": score.label in own,
        "place": place_text(score),
        "order": score.place or 999,
        "cells": [_cell(*one) for one in measures],
        "runs": f"{score.done} of {score.total}",
        "done": score.done,
    }


def _cell(measure: Measure | None, digits: int) -> dict[str, Any]:
    mean, sign, deviation = measure_text(measure, digits).partition("±")
    value = None if measure is None else round(measure.mean, 3)
    return {"value": value, "mean": mean.strip(), "deviation": f"±{deviation}" if sign else ""}


def _data(records: Records, places: Mapping[str, str | list[str]], own: Sequence[str]) -> dict[str, Any]:
    """Return what the script needs: the runs of defenses with these places, and the words that repeat them."""
    tier = records.tier
    seeds = tier.seeds if tier.by_task else records.seeds()
    scenarios = [one for one in tier.scenarios() if one.seed in seeds]
    tasks = {task.label: place for place, task in enumerate(tier.tasks)}
    attacks = {NOBODY: -1, **{attack.label: place for place, attack in enumerate(tier.attacks)}}
    columns = []
    for label, place in places.items():
        column = records.column(label)
        assert column is not None  # it has a place
        runs = [column.runs.get(one) for one in scenarios]
        lists = {name: [getattr(run, name) if run else None for run in runs] for name in _KEPT}
        columns.append(
            {
                "label": label,
                "own": label in own,
                "place": place,
                "words": words(column.entrant.settings),
                "runs": {name: values for name, values in lists.items() if any(value is not None for value in values)},
            }
        )
    clean = baseline(records)
    return {
        **({"partial": True} if tier.by_task else {}),
        "tasks": [{"label": task.label, "words": words({**tier.settings, **task.settings})} for task in tier.tasks],
        "attacks": [
            {"label": attack.label, "own": attack.label in own, "words": words(attack.settings)}
            for attack in tier.attacks
        ],
        "shares": list(tier.shares),
        "scenarios": [[one.seed, tasks[one.task], one.share, attacks[one.attack]] for one in scenarios],
        "clean": [clean.get((one.task, one.seed)) for one in scenarios],
        "columns": columns,
    }
