"""Figures of accuracy and similarity: those of the paper (1a, 1b, 3 to 5), and accuracy over the rounds.

Every maker takes the grids of :mod:`mabrfl.reports.arrangement`. It yields functions that draw figures, each with the
stem of its file's name; none if the results lack what it needs. Matplotlib's object interface throughout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from mabrfl.config.toml import one_line
from mabrfl.errors import extra_needed
from mabrfl.reports.arrangement import Grid, slug
from mabrfl.reports.curves import curve
from mabrfl.reports.drawing import DASHES, LINES, whole_rounds
from mabrfl.reports.labels import SAMPLING_AXIS, Column, Row
from mabrfl.reports.panels import Panels, attacked_rows, looks, plot_curve, side_by_side
from mabrfl.sweeps.grouping import named_groups
from mabrfl.sweeps.results import Cell

with extra_needed("a picture"):
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Drawing = Callable[[], Figure]
Named = Iterator[tuple[str, Drawing]]


def accuracy(grids: Sequence[Grid]) -> Named:
    """Draw accuracy over the rounds, a panel per share of attackers and attack, a line per defense."""
    for grid in grids:
        if _finished(grid.cells):
            yield slug("accuracy", grid.setting.title), partial(_accuracy, grid)


def success(grids: Sequence[Grid]) -> Named:
    """Draw the attack success over the rounds, a panel per share of attackers and attack with a goal."""
    for grid in grids:
        rows = [
            row
            for row in grid.begun_rows
            if any(not curve(grid.done(row, column), "attack_success").empty for column in grid.columns)
        ]
        if rows:
            yield slug("success", grid.setting.title), partial(_success, grid, rows)


def _success(grid: Grid, rows: Sequence[Row]) -> Figure:
    shape = side_by_side(len(rows))
    panels = Panels(*shape, title=grid.setting.title, labels=[column.label for column in grid.columns])
    styles = looks(grid.columns)
    for number, row in enumerate(rows):
        axes = panels.at(*divmod(number, shape[1]), row.place)
        for column in grid.columns:
            shown = curve(grid.done(row, column), "attack_success")
            if not shown.empty:
                plot_curve(axes, shown, styles[column])
                panels.explain(column.label, styles[column])
    return panels.finish("round", "attack success (%)")


def _accuracy(grid: Grid) -> Figure:
    places, shape = _places(grid)
    panels = Panels(*shape, title=grid.setting.title, labels=[column.label for column in grid.columns])
    styles = looks(grid.columns)
    for row, place in places.items():
        axes = panels.at(*place, row.place)
        for column in grid.columns:
            shown = curve(grid.done(row, column), "accuracy")
            if not shown.empty:
                plot_curve(axes, shown, styles[column])
                panels.explain(column.label, styles[column])
    return panels.finish("round", "test accuracy (%)")


def _places(grid: Grid) -> tuple[dict[Row, tuple[int, int]], tuple[int, int]]:
    """Return the place of each row's panel: a line per share and a column per attack; if many, one after the other."""
    rows = grid.begun_rows
    shares = sorted({row.percent for row in rows})
    attacks = list(attacked_rows(grid)) or [""]
    if len(attacks) > _MOST_ATTACKS:
        shape = side_by_side(len(rows))
        return {row: divmod(number, shape[1]) for number, row in enumerate(rows)}, shape
    column = {row: attacks.index(row.label) if row.label in attacks else 0 for row in rows}
    return {row: (shares.index(row.percent), column[row]) for row in rows}, (len(shares), len(attacks))


_MOST_ATTACKS = 4
"""Of a picture with a column for each."""


def attackers(grids: Sequence[Grid], *, compare: bool = False) -> Named:
    """Draw the final accuracy against the share of attackers, a picture per attack (the paper's Figs. 3 to 5)."""
    for grid in grids:
        quiet = [row for row in grid.begun_rows if row.percent == 0]
        for label, rows in attacked_rows(grid).items():
            shown = [*quiet, *rows]
            if any(_drawn_points(grid, shown, column) > 1 for column in grid.columns if _meets(grid, column, label)):
                yield (
                    slug("attackers", grid.setting.title, label),
                    partial(_attackers, grid, shown, label, compare),
                )


def _meets(grid: Grid, column: Column, label: str) -> bool:
    """Whether the sweep plans a run of this defense under this attack."""
    return any(row.percent and row.label == label and grid.at(row, column) for row in grid.rows)


def _drawn_points(grid: Grid, rows: Sequence[Row], column: Column) -> int:
    return sum(bool(np.isfinite(_final(grid.done(row, column))[0])) for row in rows)


def _attackers(grid: Grid, rows: Sequence[Row], label: str, compare: bool) -> Figure:
    panels = Panels(1, 1, title=f"{grid.setting.title}: {label}", labels=[column.label for column in grid.columns])
    axes = panels.at(0, 0)
    styles = looks(grid.columns)
    planned = [row for row in grid.rows if not row.percent or row.label == label]
    for column in grid.columns:
        # What is missing is a gap in the line, never a straight line across.
        points = [(row.percent, *_final(grid.done(row, column))) for row in rows]
        shares, means, deviations = (np.array(values) for values in zip(*points, strict=True))
        if not np.isfinite(means).any():
            continue
        if not _meets(grid, column, label):
            # A baseline is a level to compare others with; any other defense says nothing about this attack.
            if not column.ranked:
                axes.axhline(float(np.nanmean(means)), **{**styles[column], "marker": None})
                panels.explain(f"{column.label} without attackers", styles[column])
            continue
        within = np.minimum(deviations, [means, 100 - means])  # there is no accuracy below 0 or above 100
        axes.errorbar(shares, means, yerr=within, capsize=2.5, markersize=5, clip_on=False, **styles[column])
        panels.explain(column.label, styles[column], marker=True)
        if compare:
            known = {row.percent: grid.paper_accuracy(row, column) for row in planned}
            _draw_paper(axes, panels, known, styles[column]["color"])
    axes.set_xticks(_apart(sorted({row.percent for row in rows})))
    axes.margins(x=0.04)
    return panels.finish("attackers (% of the clients)", "test accuracy (%)", y_limits=(_floor(axes), 100))


def _apart(ticks: Sequence[float]) -> list[float]:
    """Leave out ticks whose labels would run into the next one's."""
    kept: list[float] = []
    for tick in reversed(ticks):
        if not kept or kept[-1] - tick >= _LABEL * (ticks[-1] - ticks[0]):
            kept.append(tick)
    return kept[::-1]


_LABEL = 0.06
"""Of the width of a panel, taken by the label of a tick."""


def _floor(axes: Axes) -> float:
    """Return where an axis of accuracies begins: at 0, or higher if everything is far above."""
    values = [value for line in axes.get_lines() for value in np.asarray(line.get_ydata(), dtype=float)]
    lowest = np.nanmin(values, initial=100.0)
    return max((floor for floor in (0.0, 50.0, 75.0, 90.0) if lowest >= floor + 1), default=0.0)


def _draw_paper(axes: Axes, panels: Panels, known: Mapping[float, float | None], colour: str) -> None:
    faint: dict[str, Any] = {"linestyle": (0, (2, 2)), "linewidth": 1.1, "alpha": 0.45}
    points = {share: value for share, value in known.items() if value is not None}
    if len(points) > 1:
        axes.plot(list(points), list(points.values()), color=colour, **faint)
        panels.explain("the paper's, same colour", {"color": "#444444", **faint})


def _final(cells: Sequence[Cell]) -> tuple[float, float]:
    values = np.array([value for value in (cell.measured("final_accuracy") for cell in cells) if value is not None])
    if not len(values):
        return np.nan, np.nan
    return float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else np.nan


def sampling(grids: Sequence[Grid]) -> Named:
    """Draw accuracy over the rounds, a line per way of sampling clients and settings but the seed (Fig. 1a)."""
    for grid in grids:
        ways: dict[str, list[Cell]] = {}
        for cell in _finished(grid.cells):
            if SAMPLING_AXIS in cell.axes:
                ways.setdefault(one_line(str(cell.axes[SAMPLING_AXIS])), []).append(cell)
        groups = [(way, name, group) for way in ways for name, group in named_groups(ways[way])]
        lines = [(f"{way}, {name}" if name else way, group) for way, name, group in groups]
        if lines:
            yield slug("sampling", grid.setting.title), partial(_sampling, lines, grid.setting.title)


def _sampling(lines: Sequence[tuple[str, Sequence[Cell]]], title: str) -> Figure:
    panels = Panels(1, 1, title=title, labels=[label for label, _ in lines])
    axes = panels.at(0, 0)
    for index, (label, cells) in enumerate(lines):
        look = {"color": LINES[index % len(LINES)], "linestyle": DASHES[index % len(DASHES)], "linewidth": 1.9}
        plot_curve(axes, curve(cells, "accuracy"), look)
        panels.explain(label, look)
    return panels.finish("round", "test accuracy (%)")


def similarity(grids: Sequence[Grid]) -> Named:
    """Draw the largest pairwise cosine and distance of the updates without attackers (the paper's Fig. 1b)."""
    for grid in grids:
        quiet = [row for row in grid.rows if row.percent == 0]
        by_column = {column: [cell for row in quiet for cell in grid.done(row, column)] for column in grid.columns}
        shown = [column for column, cells in by_column.items() if not curve(cells, "largest_cosine").empty]
        for column in shown:
            which = (column.label,) if len(shown) > 1 else ()
            title = ": ".join([grid.setting.title, *which])
            yield slug("similarity", grid.setting.title, *which), partial(_similarity, by_column[column], title)


def _similarity(cells: Sequence[Cell], title: str) -> Figure:
    panels = Panels(1, 1, title=title, labels=["largest Euclidean distance"])
    axes = panels.at(0, 0)
    looks_of = {
        "largest_cosine": {"color": LINES[0], "linestyle": "solid", "linewidth": 1.9},
        "largest_distance": {"color": LINES[1], "linestyle": "dashed", "linewidth": 1.9},
    }
    plot_curve(axes, curve(cells, "largest_cosine"), looks_of["largest_cosine"])
    distance = curve(cells, "largest_distance")
    panels.explain("largest cosine" if distance.empty else "largest cosine (left)", looks_of["largest_cosine"])
    if not distance.empty:
        right = axes.twinx()
        right.spines[["top", "left"]].set_visible(False)
        right.xaxis.set_major_locator(whole_rounds(6))
        plot_curve(right, distance, looks_of["largest_distance"])
        right.set_ylim(bottom=0)
        right.set_ylabel("largest Euclidean distance", fontsize=9.5, color=LINES[1])
        right.tick_params(labelsize=8.5, colors=LINES[1])
        panels.explain("largest distance (right)", looks_of["largest_distance"])
    lowest = np.nanmin([0.0, *curve(cells, "largest_cosine").mean])
    return panels.finish("round", "largest cosine between two updates", y_limits=(float(lowest), 1.0))


def _finished(cells: Iterable[Cell]) -> list[Cell]:
    return [cell for cell in cells if cell.status == "done"]
