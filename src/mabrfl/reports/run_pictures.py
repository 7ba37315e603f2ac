"""Pictures of one run: accuracy over the rounds, and every client in every round.

Figures are made with Matplotlib's object interface, so nothing here touches pyplot's global state, and
a library user can go on drawing on the figure.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mabrfl.errors import extra_needed
from mabrfl.recording.client_states import STATES, states_in
from mabrfl.recording.record import RoundRecord
from mabrfl.reports.drawing import ATTACKER, DASHES, HONEST, LINES, bare_axes, percent_axis, save, whole_rounds
from mabrfl.rng import ClientId
from mabrfl.updates import canonical

with extra_needed("a picture"):
    from matplotlib.axes import Axes
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch, Rectangle

__all__ = ["accuracy_figure", "clients_figure", "save"]

_LEGEND, _TITLE = 28, 80
"""Characters in a line of the legend, and of the title, of the picture of accuracies."""
_CODES = {state: code for code, state in enumerate(STATES)}
_GROUPS_WIDTH = 0.85
_MARGINS = (3.4, 1.1)
_MANY_CELLS = 2000
"""Above this, an SVG holds the map as an image instead of a path per cell."""


def accuracy_figure(runs: Mapping[str, Sequence[RoundRecord]], *, title: str | None = None) -> Figure:
    """Draw test accuracy over the rounds, a line per run, with the final value at its end.

    Parameters
    ----------
    runs
        Records by label; the label goes into the legend.
    title
        Above the picture, if any.
    """
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for index, (label, records) in enumerate(runs.items()):
        rounds = [record.round for record in records]
        accuracies = [record.accuracy for record in records]
        axes.plot(
            rounds,
            accuracies,
            color=LINES[index % len(LINES)],
            linestyle=DASHES[index % len(DASHES)],
            marker="o" if len(rounds) <= 40 else None,
            markersize=3.5,
            linewidth=1.8,
            label=_labelled(label, accuracies),
            clip_on=False,
            zorder=3,
        )
    _dress_accuracy(axes, title, any(runs.values()))
    return figure


def _labelled(label: str, accuracies: Sequence[float]) -> str:
    """Return a line of the legend: ``module:Name`` by its name, broken where it would take the picture's place."""
    name = label.rpartition(":")[2] or label
    final = accuracies[-1] if accuracies else math.nan
    text = f"{name}  ({final:.1f} %)" if math.isfinite(final) else name
    return text if len(text) <= _LEGEND else textwrap.fill(text, _LEGEND)


def _dress_accuracy(axes: Axes, title: str | None, anything: bool) -> None:
    axes.set_xlabel("round")
    percent_axis(axes, "test accuracy (%)")
    axes.xaxis.set_major_locator(whole_rounds(9))
    axes.margins(x=0.02)
    bare_axes(axes)
    if title:
        axes.set_title(textwrap.fill(title, _TITLE), loc="left", fontsize=11)
    if anything:
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0, frameon=False)


def clients_figure(
    records: Sequence[RoundRecord],
    attackers: Collection[ClientId],
    num_clients: int,
    *,
    title: str | None = None,
) -> Figure:
    """Draw clients x rounds: not selected, accepted, or rejected and why; the true attackers at the bottom.

    Parameters
    ----------
    records
        The rounds, in order.
    attackers
        The truth; these rows are grouped, bracketed, and have coloured labels.
    num_clients
        K; clients 0..K-1 get a row even if they never took part. Zero if clients have names: those seen get one.
    title
        Above the picture, if any.
    """
    seen = {client for record in records for client in (*record.selected, *record.verdicts)}
    everyone = canonical(seen | set(attackers) | set(range(num_clients)))
    honest = [client for client in everyone if client not in attackers]
    rows = [*honest, *(client for client in everyone if client in attackers)]
    figure = Figure(figsize=_size(len(records), len(rows)), layout="constrained")
    groups, axes = figure.subplots(1, 2, width_ratios=(_GROUPS_WIDTH, figure.get_figwidth() - _MARGINS[0]))
    _draw_groups(groups, len(honest), len(rows))
    _draw_states(axes, _states(records, rows), [record.round for record in records])
    _label_rows(axes, rows, len(honest))
    axes.set_xlabel("round")
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=11, wrap=True)
    axes.legend(
        handles=_legend(records),
        loc="upper left",
        bbox_to_anchor=(1.01, 1),
        borderaxespad=0,
        frameon=False,
        handlelength=1.2,
        handleheight=1.2,
    )
    return figure


def _size(num_rounds: int, num_rows: int) -> tuple[float, float]:
    """Inches: cells stay wide enough to see and the labels tall enough to read, within a page."""
    width = min(max(num_rounds * 0.22, 2.6), 11.0)
    height = min(max(num_rows * 0.155, 1.8), 14.0)
    return width + _MARGINS[0], height + _MARGINS[1]


def _states(records: Sequence[RoundRecord], rows: Sequence[ClientId]) -> NDArray[np.int_]:
    """Return the ``(clients, rounds)`` codes of each client in each round: absent, silent, accepted, or a reason."""
    place = {client: row for row, client in enumerate(rows)}
    states = np.full((len(rows), len(records)), _CODES["absent"])
    for column, record in enumerate(records):
        for client, state in states_in(record).items():
            states[place[client], column] = _CODES[state]
    return states


def _draw_states(axes: Axes, states: NDArray[np.int_], rounds: Sequence[int]) -> None:
    num_rows, num_columns = states.shape
    colours = ListedColormap([colour for _, colour in STATES.values()])
    gap = 0.6 if num_columns <= 60 else 0.25
    if states.size:
        left = rounds[0] - 0.5
        columns = left + np.arange(num_columns + 1)
        axes.pcolormesh(
            columns,
            np.arange(num_rows + 1) - 0.5,
            states,
            cmap=colours,
            vmin=-0.5,
            vmax=len(STATES) - 0.5,
            edgecolors="white",
            linewidth=gap,
            rasterized=states.size > _MANY_CELLS,
        )
        axes.set_xlim(columns[0], columns[-1])
    axes.set_ylim(num_rows - 0.5, -0.5)
    axes.xaxis.set_major_locator(whole_rounds(min(num_columns, 12)))
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)


def _label_rows(axes: Axes, rows: Sequence[ClientId], num_honest: int) -> None:
    # Above ninety rows the labels would run into each other: label every second, third, ... one.
    ticks = range(0, len(rows), max(1, math.ceil(len(rows) / 90)))
    axes.set_yticks(list(ticks), [str(rows[row])[:12] for row in ticks], fontsize=7)
    for row, label in zip(ticks, axes.get_yticklabels(), strict=True):
        label.set_color(ATTACKER if row >= num_honest else HONEST)
        label.set_fontweight("bold" if row >= num_honest else "normal")
    if 0 < num_honest < len(rows):
        axes.axhline(num_honest - 0.5, color=ATTACKER, linewidth=1.2)


def _draw_groups(axes: Axes, num_honest: int, num_rows: int) -> None:
    """Beside the map, say in words and with a bar which rows are honest and which are attackers."""
    axes.set_axis_off()
    axes.set_xlim(0, 1)
    axes.set_ylim(num_rows - 0.5, -0.5)
    groups = ((0, num_honest, "honest", HONEST), (num_honest, num_rows, _plural(num_rows - num_honest), ATTACKER))
    for first, end, word, colour in groups:
        if first < end:
            axes.add_patch(Rectangle((0.93, first - 0.42), 0.07, end - first - 0.16, color=colour, linewidth=0))
            middle = (first + end - 1) / 2
            axes.text(0.86, middle, f"{end - first} {word}", color=colour, fontsize=9, ha="right", va="center")


def _plural(count: int) -> str:
    return "attacker" if count == 1 else "attackers"


def _legend(records: Sequence[RoundRecord]) -> list[Patch]:
    silent = any(set(record.selected) - set(record.verdicts) for record in records)
    seldom = {"silent": silent, "otherwise": any(record.otherwise_rejected for record in records)}
    shown = [state for state in STATES if seldom.get(state, True)]
    return [
        Patch(facecolor=colour, edgecolor="#999999", linewidth=0.5, label=label)
        for label, colour in (STATES[state] for state in shown)
    ]
