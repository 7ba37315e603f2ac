"""The common parts of all figures of results: a style per defense, and panels with one legend."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from mabrfl.catalog import Entry, display_entry
from mabrfl.errors import extra_needed
from mabrfl.reports.arrangement import Grid
from mabrfl.reports.curves import Curve
from mabrfl.reports.drawing import DASHES, LINES, bare_axes, whole_rounds
from mabrfl.reports.labels import Column, Row

with extra_needed("a picture"):
    from matplotlib.axes import Axes
    from matplotlib.colors import to_hex, to_rgb
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

_WHITE, _BLACK = (1.0, 1.0, 1.0), (0.0, 0.0, 0.0)
_DARK = 0.2
"""Of the brightest part of a colour; one that is darker cannot be made darker still."""
_MORE = ("#882255", "#44AA99", "#999933", "#332288", "#CC6677")
"""Paul Tol's muted colours, for columns without a colour of their own; no entry has one of these."""
_MARKERS = ("p", "<", ">", "d", "8", "H")
_PANEL = (3.3, 2.5)
ACROSS = 3
"""Panels beside each other, where there may be many."""
_LEGEND = 1.9
_TITLE = 0.45
_FITS = 40
"""Characters over a panel; longer titles are written smaller, so that they do not run into those beside them."""
_CHARACTER = 0.075
_CHARACTER_OF_TITLE = 0.09
"""Inches that a character of a legend takes, and of a title."""


def literal(text: str) -> str:
    """Return text that Matplotlib shows as it is: no formulas between dollars, no hidden names."""
    text = text.replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def looks(columns: Sequence[Column]) -> dict[Column, dict[str, Any]]:
    """Return how to draw each column; a defense whose entry has a colour looks the same in every figure.

    The same defense with another option, or with a selector of the user's own, has a colour that no other column has,
    as long as there are some. Ways of sampling, as a rule of one defense, look as different as defenses do.
    """
    mixed = any(not column.own_selector for column in columns)
    chosen: dict[Column, tuple[str, Any, str]] = {}
    taken: set[tuple[str, str, str]] = set()
    # Of columns that differ in their options, the plain one has the defense's own look, whatever its place.
    for column in sorted(columns, key=lambda column: bool(column.sweep_label or column.variant)):
        own, selector = _entry(column), display_entry("selectors", column.selector)
        key = (column.defense, own.target, column.selector)
        known = own.colour and key not in taken and not column.sampling
        if known and (not mixed or selector.marker):
            chosen[column] = _selector_look(column, own, selector) if mixed else _own_look(own)
            taken.add(key)
    used = {colour for colour, _, _ in chosen.values()}
    free = [colour for colour in (*LINES, *_MORE) if colour not in used]
    for index, column in enumerate(column for column in columns if column not in chosen):
        dashes = DASHES[(index + index // len(free)) % len(DASHES)]
        chosen[column] = free[index % len(free)], dashes, _MARKERS[index % len(_MARKERS)]
    return {column: _style(column, *chosen[column]) for column in columns}


def _entry(column: Column) -> Entry:
    """Return the entry that says how a column looks: that of its preset, if the defense has presets."""
    defense = display_entry("defenses", column.defense)
    return display_entry("presets", column.preset) if defense.presets else defense


def _own_look(own: Entry) -> tuple[str, Any, str]:
    return own.colour, own.dashes or "solid", own.marker or _MARKERS[0]


def _selector_look(column: Column, own: Entry, selector: Entry) -> tuple[str, Any, str]:
    """Return a look in a figure with several selectors: these decide the dashes, the marker and the shade."""
    other = _WHITE if selector.shade > 0 else _BLACK
    colour = own.colour if column.own_selector else _mix(own.colour, other, abs(selector.shade))
    return colour, selector.dashes, selector.marker


def _style(column: Column, colour: str, dashes: Any, marker: str) -> dict[str, Any]:
    width = 2.2 if display_entry("defenses", column.defense).presets else 1.5
    return {"color": colour, "linestyle": dashes, "marker": marker, "linewidth": width}


def _mix(colour: str, other: tuple[float, float, float], share: float) -> str:
    """Return a colour mixed with this share of white or black; a dark one always with white."""
    rgb = to_rgb(colour)
    other = _WHITE if max(rgb) < _DARK else other
    red, green, blue = ((1 - share) * part + share * more for part, more in zip(rgb, other, strict=True))
    return to_hex((red, green, blue))


def plot_curve(axes: Axes, shown: Curve, look: dict[str, Any], *, band: bool = True, **changes: Any) -> None:
    """Draw a curve, and its deviation as a band; markers are for figures with few points."""
    style = {**look, "marker": None, **changes}
    axes.plot(shown.rounds, shown.mean, **style)
    if band and shown.deviation is not None:
        low, high = shown.mean - shown.deviation, shown.mean + shown.deviation
        axes.fill_between(shown.rounds, low, high, color=style["color"], alpha=0.15, linewidth=0)


def side_by_side(number: int) -> tuple[int, int]:
    """Return the rows and columns of this many panels, in a picture that is not too wide for a page."""
    return -(-number // ACROSS), min(number, ACROSS)


class Panels:
    """A figure of equal panels under one title, with one legend beside them.

    Parameters
    ----------
    num_rows, num_columns
        Of panels; all share both axes.
    title
        Above the figure.
    labels
        Of the legend, in its order; room is made for them. Other lines of the legend come after them.
    """

    def __init__(self, num_rows: int, num_columns: int, *, title: str, labels: Iterable[str] = ()) -> None:
        self._order = {literal(label): place for place, label in enumerate(labels)}
        longest = max((len(label) for label in self._order), default=0)
        # The title is written over the panels, not into the legend.
        panels = max(num_columns * _PANEL[0], 4.2, len(title) * _CHARACTER_OF_TITLE)
        width = panels + max(_LEGEND, 0.7 + longest * _CHARACTER)
        height = max(num_rows * _PANEL[1], 3.2 if num_rows == 1 else 0.0) + _TITLE
        self.figure = Figure(figsize=(width, height), layout="constrained")
        self._axes = self.figure.subplots(num_rows, num_columns, sharex=True, sharey=True, squeeze=False)
        self._handles: dict[str, Line2D] = {}
        self._used: set[tuple[int, int]] = set()
        self.figure.suptitle(literal(title), x=0.01, ha="left", fontsize=11)

    def at(self, row: int, column: int, title: str = "") -> Axes:
        """Return a panel, dressed."""
        axes: Axes = self._axes[row, column]
        if (row, column) not in self._used:
            self._used.add((row, column))
            bare_axes(axes)
            axes.xaxis.set_major_locator(whole_rounds(6))
        if title:
            axes.set_title(literal(title), fontsize=9.5 * min(1, _FITS / max(len(title), 1)), loc="left")
        return axes

    def explain(self, label: str, look: dict[str, Any], *, marker: bool = False) -> None:
        """Put a line into the legend, once."""
        style = {name: value for name, value in look.items() if marker or name != "marker"}
        self._handles.setdefault(label, Line2D([], [], label=literal(label), **style))

    def finish(self, x_label: str, y_label: str, *, y_limits: tuple[float, float] | None = (0, 100)) -> Figure:
        """Label the outer axes, hide panels without use, add the legend."""
        num_rows, num_columns = self._axes.shape
        for row in range(num_rows):
            for column in range(num_columns):
                axes = self._axes[row, column]
                if (row, column) not in self._used:
                    axes.set_visible(False)
                    continue
                lowest = all((below, column) not in self._used for below in range(row + 1, num_rows))
                axes.tick_params(labelbottom=lowest, labelsize=8.5)
                if lowest:
                    axes.set_xlabel(x_label, fontsize=9.5)
                if all((row, left) not in self._used for left in range(column)):
                    axes.set_ylabel(y_label, fontsize=9.5)
                if y_limits is not None:
                    axes.set_ylim(*y_limits)
        last = len(self._order)
        handles = sorted(self._handles.values(), key=lambda line: self._order.get(str(line.get_label()), last))
        if handles:
            self.figure.legend(handles=handles, loc="outside right upper", frameon=False, fontsize=9)
        return self.figure


def attacked_rows(grid: Grid) -> dict[str, list[Row]]:
    """Return the rows with attackers in which anything is done, by the attack's label."""
    rows: dict[str, list[Row]] = {}
    for row in grid.begun_rows:
        if row.percent > 0:
            rows.setdefault(row.label, []).append(row)
    return rows
