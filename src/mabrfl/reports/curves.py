"""Numbers of figures: cells of one place, which differ by their seed, as curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mabrfl.sweeps.results import Cell

Numbers = NDArray[np.float64]

WINDOW = 5
"""Rounds over which counts are added up before a rate is taken: single rounds have too few."""


@dataclass(frozen=True)
class Curve:
    """A quantity over the rounds: its mean over the seeds, and the deviation if there are several."""

    rounds: Numbers
    mean: Numbers
    deviation: Numbers | None = None

    @property
    def empty(self) -> bool:
        """Whether there is not one number in it."""
        return not bool(np.isfinite(self.mean).any())


def curve(cells: Sequence[Cell], name: str) -> Curve:
    """Return the mean of a series over cells, and its sample deviation. Cells without the series do not count."""
    rounds, stack = _stack(cells, name)
    mean = _mean(stack)
    if len(stack) < 2:
        return Curve(rounds, mean)
    counts = np.isfinite(stack).sum(axis=0)
    squares = np.where(np.isfinite(stack), (stack - mean) ** 2, 0.0).sum(axis=0)
    return Curve(rounds, mean, np.sqrt(squares / np.maximum(counts - 1, 1)))


def share_curve(cells: Sequence[Cell], part: Sequence[str], whole: Sequence[str]) -> Curve:
    """Return the share of one sum of counts in another, in percent, over windows of rounds and all seeds at once.

    Parameters
    ----------
    cells
        Of one place.
    part, whole
        Names of series whose counts are added up. Where the whole is zero there is no share.
    """
    rounds = _stack(cells, "round")[0]
    above, below = (sum((_total(cells, name) for name in names), np.zeros(len(rounds))) for names in (part, whole))
    above, below = _windowed(above), _windowed(below)
    return Curve(rounds, np.divide(100 * above, below, out=np.full(len(rounds), np.nan), where=below > 0))


def selection_curves(cells: Sequence[Cell]) -> tuple[Curve, Curve]:
    """Return how many percent of the honest clients, and of the attackers, were selected, over windows of rounds."""
    rounds = _stack(cells, "round")[0]
    malicious, everybody = _total(cells, "selected_malicious"), _total(cells, "selected")
    num_malicious = sum(cell.num_attackers for cell in cells)
    num_honest = sum(int(cell.config["clients"]) for cell in cells) - num_malicious
    return _rate(rounds, everybody - malicious, num_honest), _rate(rounds, malicious, num_malicious)


def _rate(rounds: Numbers, chosen: Numbers, size: int) -> Curve:
    if not size:
        return Curve(rounds, np.full(len(rounds), np.nan))
    return Curve(rounds, 100 * _windowed(chosen) / (size * _windowed(np.ones(len(rounds)))))


def isolation_curve(cells: Sequence[Cell], last: str) -> Curve:
    """Return how many percent of the attackers are out for good after each round.

    Parameters
    ----------
    cells
        Of one place; the attackers of all of them are counted together.
    last
        ``last_selected``: an attacker is out if it is never selected again until the end of the run;
        ``last_accepted``: if its updates are never accepted again. One that was in the last round is not out.
    """
    end = max((_end(cell) for cell in cells), default=0)
    rounds = np.arange(end + 1, dtype=np.float64)
    out = np.array(isolation_rounds(cells, last))
    if not len(out):
        return Curve(rounds, np.full(len(rounds), np.nan))
    return Curve(rounds, 100 * (out[None, :] <= rounds[:, None]).mean(axis=1))


def isolation_rounds(cells: Sequence[Cell], last: str) -> list[float]:
    """Return for each attacker of these cells the round after which it is out for good; infinity if it never is.

    See :func:`isolation_curve`. An attacker that changes its id is counted under each of them.
    """
    return [
        float(when) if when < _end(cell) else np.inf
        for cell in cells
        for attacker, when in zip(cell.clients.get("attacker", ()), cell.clients.get(last, ()), strict=False)
        if attacker
    ]


def _end(cell: Cell) -> int:
    rounds = cell.series.get("round")
    return int(rounds[-1] or 0) if rounds else 0


def _stack(cells: Sequence[Cell], name: str) -> tuple[Numbers, Numbers]:
    """Return the rounds and one line per cell that has the series, over the rounds that all of them have."""
    series = [cell.series for cell in cells if cell.series.get(name)]
    length = min((len(own[name]) for own in series), default=0)
    rounds = series[0]["round"][:length] if series and "round" in series[0] else range(1, length + 1)
    lines = [[np.nan if value is None else value for value in own[name][:length]] for own in series]
    return np.array(list(rounds), dtype=np.float64), np.array(lines, dtype=np.float64).reshape(len(series), length)


def _mean(stack: Numbers) -> Numbers:
    """Return the mean of each column over its finite values; NaN if there are none."""
    finite = np.isfinite(stack)
    counts = finite.sum(axis=0)
    sums = np.where(finite, stack, 0.0).sum(axis=0)
    mean: Numbers = np.divide(sums, counts, out=np.full(stack.shape[1], np.nan), where=counts > 0)
    return mean


def _total(cells: Sequence[Cell], name: str) -> Numbers:
    length = len(_stack(cells, "round")[0])
    stack = _stack(cells, name)[1]
    if not len(stack):
        return np.zeros(length)
    total: Numbers = np.where(np.isfinite(stack), stack, 0.0).sum(axis=0)
    return total


def _windowed(counts: Numbers) -> Numbers:
    """Return sums over the last :data:`WINDOW` rounds, fewer at the start."""
    sums = np.concatenate([[0.0], np.cumsum(counts)])
    ends = np.arange(1, len(sums))
    windowed: Numbers = sums[ends] - sums[np.maximum(ends - WINDOW, 0)]
    return windowed
