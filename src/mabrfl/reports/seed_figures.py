"""The figure of single runs: a strip of points per defense, and how many of its runs collapsed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from mabrfl.errors import extra_needed
from mabrfl.reports.accuracy_figures import Named
from mabrfl.reports.arrangement import Grid, slug
from mabrfl.reports.labels import Column, Row
from mabrfl.reports.panels import Panels, looks, side_by_side

with extra_needed("a picture"):
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_FEWEST = 3
"""Seeds of one condition from which single runs are worth a figure."""
_COLLAPSED = 0.5
"""A run that ends below this share of the highest accuracy in the same figure has collapsed."""
_WIDTH = 0.5
"""Of a strip, where strips are 1 apart."""


def seeds(grids: Sequence[Grid]) -> Named:
    """Draw the final accuracy of every single run, a panel per share of attackers and attack, a strip per defense."""
    for grid in grids:
        rows = [row for row in grid.begun_rows if row.percent and _most(grid, row) >= _FEWEST]
        if rows:
            yield slug("seeds", grid.setting.title), partial(_seeds, grid, rows)


def finals(grid: Grid, row: Row, column: Column) -> list[float]:
    """Return the final accuracies of the runs in one place, by seed."""
    measured = (cell.measured("final_accuracy") for cell in grid.done(row, column))
    return [value for value in measured if value is not None]


def _most(grid: Grid, row: Row) -> int:
    return max(len(finals(grid, row, column)) for column in grid.columns)


def _seeds(grid: Grid, rows: Sequence[Row]) -> Figure:
    columns = [column for column in grid.columns if any(finals(grid, row, column) for row in rows)]
    shape = side_by_side(len(rows))
    panels = Panels(*shape, title=grid.setting.title, labels=[column.label for column in columns])
    styles = looks(grid.columns)
    line = _COLLAPSED * max(max(finals(grid, row, column), default=0.0) for row in rows for column in columns)
    for number, row in enumerate(rows):
        axes = panels.at(*divmod(number, shape[1]), row.place)
        for place, column in enumerate(columns):
            values = finals(grid, row, column)
            if values:
                _strip(axes, place, values, line, styles[column])
                panels.explain(column.label, {**styles[column], "linestyle": "none"}, marker=True)
        axes.set_xticks([])
        axes.set_xlim(-0.6, len(columns) - 0.4)
    figure = panels.finish("how many collapsed", "test accuracy (%)", y_limits=(-16, 103))
    for axes in figure.axes:
        axes.set_yticks(range(0, 101, 20))
    return figure


def _strip(axes: Axes, place: int, values: Sequence[float], line: float, look: Mapping[str, Any]) -> None:
    """Draw the runs beside each other in the order of their seeds, and below them how many collapsed."""
    across = place + np.linspace(-_WIDTH / 2, _WIDTH / 2, len(values)) if len(values) > 1 else [place]
    colour, marker = look["color"], look["marker"]
    axes.scatter(across, values, s=16, color=colour, marker=marker, alpha=0.75, linewidths=0, clip_on=False, zorder=3)
    collapsed = sum(value < line for value in values)
    weight = "bold" if collapsed else "normal"
    text = f"{collapsed} of {len(values)}"
    axes.text(place, -8, text, ha="center", va="center", fontsize=8, color=colour, fontweight=weight)
