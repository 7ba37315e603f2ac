"""Several results side by side: the settings in which they differ, their outcomes, and their curves."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mabrfl.errors import StateError
from mabrfl.sweeps.grouping import distinguishing_keys, settings_of, settings_text
from mabrfl.sweeps.results import Cell, one_per_seed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEASURES: Mapping[str, tuple[str, float]] = {
    "final_accuracy": ("final accuracy (%)", 1),
    "mean_last10": ("mean of the last 10 rounds (%)", 1),
    "best_accuracy": ("best accuracy (%)", 1),
    "attack_success": ("attack success (%)", 1),
    "detection_recall": ("attackers' updates rejected (%)", 100),
    "detection_precision": ("rejections that were right (%)", 100),
    "honest_rejected_rate": ("honest updates rejected (%)", 100),
    "malicious_selections": ("selections of attackers", 1),
    "seconds": ("seconds", 1),
}
"""The numbers of a summary that are compared: their name for people, and a factor."""
MOST_PANELS = 12
NOT_SET = "not set"
"""The value of a setting that the runs of a side do not have, such as an option of another defense."""


@dataclass(frozen=True)
class Match:
    """Runs with the same settings but for those in which the sides differ: a group of seeds on each side.

    Attributes
    ----------
    label
        The settings that tell it from the other matches; empty if there is only one.
    groups
        The runs of each side; empty if a side has none.
    """

    label: str
    groups: tuple[tuple[Cell, ...], ...]

    def values(self, measure: str) -> list[tuple[float, float | None] | None]:
        """Return the mean and the deviation over seeds on each side; None where there is no number."""
        factor = MEASURES[measure][1]
        result: list[tuple[float, float | None] | None] = []
        for group in self.groups:
            numbers = [factor * value for cell in group if (value := cell.measured(measure)) is not None]
            spread = statistics.stdev(numbers) if len(numbers) > 1 else None
            result.append((statistics.fmean(numbers), spread) if numbers else None)
        return result


@dataclass(frozen=True)
class SideBySide:
    """Results side by side.

    Attributes
    ----------
    names
        Of the sides.
    differences
        The settings that have one value on each side, and not the same: by key, the value of each side.
    matches
        Runs to be compared.
    """

    names: tuple[str, ...]
    differences: Mapping[str, tuple[str, ...]]
    matches: tuple[Match, ...]


def side_by_side(sides: Sequence[tuple[str, Sequence[Cell]]]) -> SideBySide:
    """Match the finished runs of several results.

    Settings with one value on each side that is not the same on all are what differs. Runs match if they agree in all
    other settings; those that differ by their seed alone count together.

    Raises
    ------
    StateError
        If one of the results has no finished run.
    """
    done = [[cell for cell in cells if cell.status == "done"] for _, cells in sides]
    for (name, _), cells in zip(sides, done, strict=True):
        if not cells:
            raise StateError(f"{name} has no finished run to compare")
    settings = [[settings_of(cell) for cell in cells] for cells in done]
    keys = dict.fromkeys(key for some in settings for own in some for key in own)
    values = {key: [{own.get(key, NOT_SET) for own in some} for some in settings] for key in keys}
    differing = {
        key: tuple(next(iter(one)) for one in each)
        for key, each in values.items()
        if all(len(one) == 1 for one in each) and len(set.union(*each)) > 1
    }
    seeds = [{str(cell.config["seed"]) for cell in cells} for cells in done]
    if all(len(one) == 1 for one in seeds) and len(set.union(*seeds)) > 1:
        differing["seed"] = tuple(next(iter(one)) for one in seeds)
    places: dict[str, list[list[Cell]]] = {}
    named: dict[str, dict[str, str]] = {}
    for side, (cells, some) in enumerate(zip(done, settings, strict=True)):
        for cell, own in zip(cells, some, strict=True):
            rest = {key: value for key, value in own.items() if key not in differing}
            place = json.dumps(rest, sort_keys=True)
            named[place] = rest
            places.setdefault(place, [[] for _ in sides])[side].append(cell)
    telling = distinguishing_keys(list(named.values()))
    matches = tuple(
        Match(settings_text(named[place], telling), tuple(tuple(one_per_seed(group)) for group in groups))
        for place, groups in places.items()
    )
    return SideBySide(tuple(name for name, _ in sides), differing, matches)


def curves_figure(compared: SideBySide) -> Figure:
    """Draw the accuracy over the rounds, a line per side and a panel per match; with a band over several seeds."""
    from mabrfl.reports.curves import curve  # noqa: PLC0415
    from mabrfl.reports.drawing import DASHES, LINES, bare_axes, clean_style, percent_axis, whole_rounds  # noqa: PLC0415 (Matplotlib takes a second)

    with clean_style():
        from matplotlib.figure import Figure as Canvas  # noqa: PLC0415

        matches = compared.matches[:MOST_PANELS]
        columns = min(3, len(matches))
        rows = -(-len(matches) // columns)
        figure = Canvas(figsize=(2.4 + 3.6 * columns, 1.2 + 2.8 * rows), layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False)
        for axes in panels.flat[len(matches) :]:
            axes.set_axis_off()
        for axes, match in zip(panels.flat, matches, strict=False):
            for side, (name, group) in enumerate(zip(compared.names, match.groups, strict=True)):
                line = curve(group, "accuracy") if group else None
                if line is None or line.empty:
                    continue
                colour, dashes = LINES[side % len(LINES)], DASHES[side % len(DASHES)]
                axes.plot(line.rounds, line.mean, color=colour, linestyle=dashes, label=name)
                if line.deviation is not None:
                    low, high = line.mean - line.deviation, line.mean + line.deviation
                    axes.fill_between(line.rounds, low, high, color=colour, alpha=0.15, linewidth=0)
            percent_axis(axes, "test accuracy (%)")
            axes.set_xlabel("round")
            axes.xaxis.set_major_locator(whole_rounds(8))
            axes.set_title(match.label, loc="left", fontsize=9, wrap=True)
            bare_axes(axes)
        handles: dict[str, Any] = {}
        for axes in panels.flat:
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                handles.setdefault(label, handle)
        figure.legend(list(handles.values()), list(handles), loc="outside right upper", frameon=False)
        return figure
