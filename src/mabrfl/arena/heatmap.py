"""The arena as a picture: what each defense loses under each attack, and its worst case at the side."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mabrfl.arena.arena_records import Records
from mabrfl.arena.leaderboard import percent, place_text
from mabrfl.arena.scoring import Score, baseline, loss_of, scores
from mabrfl.errors import extra_needed
from mabrfl.reports.drawing import clean_style

with extra_needed("a picture"):
    import matplotlib as mpl
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST = 90.0
_MISSING = "#E8E8E8"
_MARK = "#0072B2"
_DARK = 0.6


def heatmap(records: Records, *, own: Sequence[str] = ()) -> Figure:
    """Return the picture: rows by place, a column per attack with the mean loss over tasks, shares and seeds.

    Parameters
    ----------
    records
        Of the arena.
    own
        Labels of defenses and attacks that are marked.
    """
    known = [score for score in scores(records) if score.done]
    attacks = [attack.label for attack in records.tier.attacks]
    shares = records.tier.shares
    losses = mean_losses(records, known)
    worst = np.array([[_at(score, share) for share in shares] for score in known]).reshape(len(known), len(shares))
    with clean_style():
        mpl.rcParams["font.size"] = 8
        figure = Figure(
            figsize=(2.6 + 0.32 * (len(attacks) + len(shares)), 1.9 + 0.24 * len(known)), layout="constrained"
        )
        left, right = figure.subplots(1, 2, width_ratios=[len(attacks), len(shares) + 0.4])
        _draw(left, losses, attacks, own)
        _draw(right, worst, [percent(share) for share in shares], ())
        left.set_yticks(range(len(known)), [f"{score.label}  {place_text(score):>4}" for score in known])
        right.set_yticks([])
        for label, score in zip(left.get_yticklabels(), known, strict=True):
            if score.label in own:
                label.set(color=_MARK, fontweight="bold")
        left.set_title("Points lost, mean over tasks and shares of attackers", fontsize=9)
        right.set_title("Worst case", fontsize=9)
    return figure


def mean_losses(records: Records, known: Sequence[Score]) -> NDArray[np.float64]:
    """Return the mean loss of each of these defenses under each attack; NaN where there is no run."""
    clean = baseline(records)
    attacks = {attack.label: place for place, attack in enumerate(records.tier.attacks)}
    result = np.full((len(known), len(attacks)), np.nan)
    for row, score in enumerate(known):
        column = records.column(score.label)
        found: dict[str, list[float]] = {}
        for one, run in {} if column is None else column.runs.items():
            if one.attack in attacks and (loss := loss_of(run, one, clean)) is not None:
                found.setdefault(one.attack, []).append(loss)
        for attack, some in found.items():
            result[row, attacks[attack]] = float(np.mean(some))
    return result


def _at(score: Score, share: float) -> float:
    return score.worst[share].mean if score.worst is not None else np.nan


def _draw(axes: Axes, values: NDArray[np.float64], columns: Sequence[str], own: Sequence[str]) -> None:
    colours = mpl.colormaps["YlOrBr"].with_extremes(bad=_MISSING)
    axes.imshow(np.ma.masked_invalid(values), cmap=colours, vmin=0, vmax=_MOST, aspect="auto", interpolation="nearest")
    axes.set_xticks(range(len(columns)), columns, rotation=90)
    for label in axes.get_xticklabels():
        if label.get_text() in own:
            label.set(color=_MARK, fontweight="bold")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value):
            colour = "white" if value > _DARK * _MOST else "black"
            text = f"{value:.0f}".replace("-0", "0")
            axes.text(column, row, text, ha="center", va="center", fontsize=6, color=colour)
