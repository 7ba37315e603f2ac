"""Figures of how a defense treats honest clients and attackers; the paper has none of these."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from mabrfl.catalog import display_entry
from mabrfl.reports.arrangement import Grid, slug
from mabrfl.reports.curves import Curve, curve, isolation_curve, selection_curves, share_curve
from mabrfl.reports.drawing import ATTACKER, HONEST
from mabrfl.reports.labels import Column, Row
from mabrfl.reports.panels import ACROSS, Panels, attacked_rows, looks, plot_curve, side_by_side

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SOLID: dict[str, Any] = {"linestyle": "solid"}
_DASHED: dict[str, Any] = {"linestyle": (0, (3, 1.5))}
_KEY: dict[str, Any] = {"color": "#444444", "linewidth": 1.6}


def detection(grids: Sequence[Grid]) -> Iterator[tuple[str, Callable[[], Figure]]]:
    """Draw precision and recall over the rounds, a picture per attack, a row of panels per share of attackers."""
    return _per_attack(grids, "detection", _detection, _rejects)


def _detection(grid: Grid, rows: Sequence[Row], columns: Sequence[Column], title: str) -> Figure:
    panels = Panels(len(rows), 2, title=title, labels=[column.label for column in columns])
    styles = looks(grid.columns)
    measures = (
        ("precision", ("caught",), ("caught", "honest_rejected")),
        ("recall", ("caught",), ("caught", "missed")),
    )
    for place, row in enumerate(rows):
        for side, (name, part, whole) in enumerate(measures):
            axes = panels.at(place, side, f"{row.share}: {name}")
            for column in columns:
                shown = share_curve(grid.done(row, column), part, whole)
                if not shown.empty:
                    plot_curve(axes, shown, styles[column], clip_on=False)
                    panels.explain(column.label, styles[column])
    return panels.finish("round", "share (%)")


def selection(grids: Sequence[Grid]) -> Iterator[tuple[str, Callable[[], Figure]]]:
    """Draw how many honest clients and how many attackers are selected, a picture per attack."""
    return _per_attack(grids, "selection", _selection, _chooses)


def _selection(grid: Grid, rows: Sequence[Row], columns: Sequence[Column], title: str) -> Figure:
    panels = Panels(*side_by_side(len(rows)), title=title, labels=[column.label for column in columns])
    styles = looks(grid.columns)
    for place, row in enumerate(rows):
        axes = panels.at(*divmod(place, ACROSS), row.share)
        for column in columns:
            for shown, dashes in zip(selection_curves(grid.done(row, column)), (_SOLID, _DASHED), strict=True):
                if not shown.empty:
                    plot_curve(axes, shown, styles[column], clip_on=False, **dashes)
            panels.explain(column.label, styles[column] | _SOLID)
    panels.explain("honest clients", _KEY | _SOLID)
    panels.explain("attackers", _KEY | _DASHED)
    return panels.finish("round", "clients selected (%)")


def reputation(grids: Sequence[Grid]) -> Iterator[tuple[str, Callable[[], Figure]]]:
    """Draw the beliefs in honest clients and in attackers, a picture per attack, a column of panels per defense."""
    return _per_attack(grids, "reputation", _reputation, _learns)


def _reputation(grid: Grid, rows: Sequence[Row], columns: Sequence[Column], title: str) -> Figure:
    panels = Panels(len(rows), len(columns), title=title, labels=["honest clients"])
    for place, row in enumerate(rows):
        for side, column in enumerate(columns):
            cells = grid.done(row, column)
            if not cells:
                continue
            axes = panels.at(place, side, f"{row.share}: {column.label}")
            for who, colour, dashes in (("honest", HONEST, _SOLID), ("malicious", ATTACKER, _DASHED)):
                look = {"color": colour, "linewidth": 1.9, **dashes}
                low, mean, high = (curve(cells, f"{name}_belief_{who}") for name in ("low", "mean", "high"))
                if not mean.empty:
                    plot_curve(axes, mean, look, band=False, clip_on=False)
                    if not (low.empty or high.empty):
                        axes.fill_between(mean.rounds, low.mean, high.mean, color=colour, alpha=0.15, linewidth=0)
                    panels.explain("honest clients" if who == "honest" else "attackers", look)
    return panels.finish("round", "belief B/(B+M)", y_limits=(0, 1))


def isolation(grids: Sequence[Grid]) -> Iterator[tuple[str, Callable[[], Figure]]]:
    """Draw how many attackers are out for good after each round, a picture per attack."""
    return _per_attack(grids, "isolation", _isolation, lambda *place: _learns(*place) or _rejects(*place))


def _isolation(grid: Grid, rows: Sequence[Row], columns: Sequence[Column], title: str) -> Figure:
    panels = Panels(*side_by_side(len(rows)), title=title, labels=[column.label for column in columns])
    styles = looks(grid.columns)
    for place, row in enumerate(rows):
        axes = panels.at(*divmod(place, ACROSS), row.share)
        for column in columns:
            cells = grid.done(row, column)
            lines = [("last_selected", _SOLID), ("last_accepted", _DASHED)]
            # A selector that invites everyone never isolates anyone; that line would only hide the others.
            for last, dashes in lines if column.selector != "all" else lines[1:]:
                shown = isolation_curve(cells, last)
                if not shown.empty:
                    plot_curve(axes, shown, styles[column], drawstyle="steps-post", **dashes)
                    panels.explain(column.label, styles[column] | _SOLID)
    panels.explain("never selected again", _KEY | _SOLID)
    panels.explain("never accepted again", _KEY | _DASHED)
    return panels.finish("after round", "attackers (%)")


def _per_attack(
    grids: Sequence[Grid],
    name: str,
    draw: Callable[[Grid, Sequence[Row], Sequence[Column], str], Figure],
    belongs: Callable[[Grid, Row, Column], bool],
) -> Iterator[tuple[str, Callable[[], Figure]]]:
    """Draw a picture per grid and attack, of the columns that belong in it."""
    for grid in grids:
        for label, rows in attacked_rows(grid).items():
            columns = [
                column
                for column in grid.columns
                if any(grid.done(row, column) and belongs(grid, row, column) for row in rows)
            ]
            used = [row for row in rows if any(grid.done(row, column) for column in columns)]
            if used:
                title = f"{grid.setting.title}: {label}"
                yield slug(name, grid.setting.title, label), partial(draw, grid, used, columns, title)


def _rejects(grid: Grid, _row: Row, column: Column) -> bool:
    """Whether the defense rejected a client in any row; if so it is drawn even where it rejects none."""
    names = ("caught", "honest_rejected")
    totals: Iterator[Curve] = (curve(grid.done(row, column), name) for row in grid.rows for name in names)
    return any(bool(np.nansum(total.mean) > 0) for total in totals)


def _learns(_grid: Grid, _row: Row, column: Column) -> bool:
    """Whether clients are selected by reputation, or may be."""
    return display_entry("selectors", column.selector).learns or display_entry("defenses", column.defense).learns


def _chooses(_grid: Grid, _row: Row, column: Column) -> bool:
    return column.selector != "all"
