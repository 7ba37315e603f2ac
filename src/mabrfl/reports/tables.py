"""The paper's Table 1 from our results: means over seeds, marks, and the paper's own figures beside ours."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from mabrfl.errors import StateError
from mabrfl.reports import paper_table as paper
from mabrfl.reports.arrangement import Grid, arrange
from mabrfl.reports.labels import Column, Row
from mabrfl.reports.naming import STATUS_WORDS
from mabrfl.sweeps.results import Cell, Status

Metric = Literal["final_accuracy", "mean_last10", "attack_success"]
METRICS: Mapping[str, str] = {
    "final_accuracy": "accuracy (%) of the final model",
    "mean_last10": "mean accuracy (%) of the last 10 rounds",
    "attack_success": "attack success (%): examples of the attack's goal that the final model classifies as the attack "
    "wants; lower is better",
}
Mark = Literal["", "best", "second"]
_DECIMALS = 2
_NOT_DONE: tuple[Status, ...] = ("failed", "running")
"""Counted in the notes besides the runs that are done."""


@dataclass(frozen=True)
class TableEntry:
    """One place of a table.

    Attributes
    ----------
    status
        ``done`` if at least one seed is; else the status of the most advanced seed; ``unplanned`` if the sweep does not
        have this place.
    mean, deviation
        Over the seeds that are done; the deviation is that of a sample (n - 1), None for a single seed.
    seeds, planned, failed
        How many seeds are done, how many there are in the plan, and how many failed.
    begun
        Rounds that are done, and rounds in all, of the run that got furthest without being done; None if there is none.
    paper
        The paper's figure, if it has one.
    mark
        Whether this is the best of its row (or within a standard deviation of the best), or the best of the others. No
        marks as long as one is not run, nor by accuracy where the attack has a goal of its own.
    marked_by
        The mean over the seeds that all columns of the row have, by which they are marked; None if it reads as
        ``mean`` does.
    """

    status: Status | Literal["unplanned"]
    mean: float | None = None
    deviation: float | None = None
    seeds: int = 0
    planned: int = 0
    failed: int = 0
    paper: float | None = None
    mark: Mark = ""
    marked_by: float | None = None
    begun: tuple[int, int] | None = None

    @property
    def state(self) -> str:
        """The status in a word."""
        return self.status if self.status == "unplanned" else STATUS_WORDS[self.status]

    @property
    def difference(self) -> float | None:
        """Ours less the paper's, in points, of the figures as they are shown."""
        if self.mean is None or self.paper is None:
            return None
        return shown(self.mean) - shown(self.paper)


@dataclass(frozen=True)
class Table:
    """One setting's table."""

    grid: Grid
    metric: Metric
    entries: Mapping[tuple[Row, Column], TableEntry] = field(repr=False)
    marked: bool = True

    def at(self, row: Row, column: Column) -> TableEntry:
        """Return the entry of one place."""
        return self.entries[row, column]

    @property
    def seed_counts(self) -> set[int]:
        """How many seeds the means are over."""
        return {entry.seeds for entry in self.entries.values() if entry.seeds}

    @property
    def unmarked_rows(self) -> tuple[Row, ...]:
        """The rows with a number in which there are no marks, since another column is planned and not run yet."""
        return tuple(row for row in self.grid.begun_rows if not _is_run(self._competing(row)))

    @property
    def rows_with_a_goal(self) -> tuple[Row, ...]:
        """The rows without marks since accuracy does not say what their attack reached."""
        rows = self.grid.begun_rows if self.metric != "attack_success" and competing(self.grid) else ()
        return tuple(row for row in rows if has_goal(self.grid, row))

    def _competing(self, row: Row) -> list[TableEntry]:
        return [self.at(row, column) for column in competing(self.grid)]

    @property
    def seeds_differ(self) -> bool:
        """Whether the columns of some row have different numbers of seeds."""
        return any(len({entry.seeds for entry in self._competing(row) if entry.seeds}) > 1 for row in self.grid.rows)

    @property
    def compares(self) -> bool:
        """Whether any place has a figure of the paper beside it."""
        return any(entry.paper is not None and entry.planned for entry in self.entries.values())

    def notes(self, *, compare: bool = True) -> list[str]:
        """Return the notes for readers, a sentence each; with ``compare`` also about the paper's figures."""
        notes = [f"{self.grid.setting.description}.", f"{_capital(METRICS[self.metric])}{self._over_seeds()}."]
        table = paper.paper_table(self.grid.setting.dataset)
        if table is not None and compare and self.compares:
            rounds = paper.settings()["rounds"]
            notes.append(
                f"The paper's figures are from its Table 1 ({table.model}, {rounds} rounds, seeds not stated)."
            )
        return [*notes, self._progress()]

    def _over_seeds(self) -> str:
        several = {count for count in self.seed_counts if count > 1}
        if not several:
            return ", one seed" if self.seed_counts else ""
        seeds = f"over {min(several)} seeds" if len(several) == 1 else "with the number of seeds in brackets"
        single = "; one seed where there is no ±" if 1 in self.seed_counts else ""
        return f", mean ± standard deviation {seeds}{single}"

    @property
    def failures(self) -> int:
        """How many runs failed."""
        return sum(entry.failed for entry in self.entries.values())

    def _progress(self) -> str:
        cells = self.grid.cells
        counts = Counter(outcome(cell, self.metric) for cell in cells)
        words = [f"{counts['done']} of {len(cells)} runs done"]
        words += [f"{counts[status]} {STATUS_WORDS[status]}" for status in _NOT_DONE if counts[status]]
        return ", ".join(words) + "."


def tabulate(cells: Iterable[Cell], metric: Metric = "final_accuracy", *, marks: bool = True) -> list[Table]:
    """Return one table per setting.

    Parameters
    ----------
    cells
        Of one or several results.
    metric
        The number of each run's summary that is shown. Attack success is shown of attacks with a goal alone.
    marks
        Whether the best of each row, and the best of the others, are marked.

    Raises
    ------
    StateError
        If no run has such a number.
    """
    if metric == "attack_success":
        cells = list(cells)
        with_goal = {cell.config["attack"] for cell in cells if cell.measured(metric) is not None}
        cells = [cell for cell in cells if cell.config["attack"] in with_goal and cell.num_attackers]
        if not cells:
            raise StateError("no finished run has an attack with a goal, such as the backdoor")
    return [_table(grid, metric, marks) for grid in arrange(cells)]


def _table(grid: Grid, metric: Metric, marked: bool) -> Table:
    entries: dict[tuple[Row, Column], TableEntry] = {}
    for row in grid.rows:
        plain = {
            column: entry_of(
                grid.at(row, column),
                metric,
                None if metric == "attack_success" else grid.paper_accuracy(row, column),
            )
            for column in grid.columns
        }
        columns = competing(grid) if marked and (metric == "attack_success" or not has_goal(grid, row)) else []
        run = _is_run(plain[column] for column in columns)
        fair = fair_values(grid, row, columns, metric) if run else {}
        marks = _marks(fair, lowest_first=metric == "attack_success")
        for column, entry in plain.items():
            mark, mean = marks.get(column, ""), statistics.fmean(fair[column]) if marks and column in fair else None
            entries[row, column] = replace(entry, mark=mark, marked_by=_unless_shown(mean, entry.mean))
    return Table(grid, metric, entries, marked)


def _unless_shown(mean: float | None, other: float | None) -> float | None:
    """Return a mean that reads differently from another one."""
    same = mean is None or other is None or shown(mean) == shown(other)
    return None if same else mean


def competing(grid: Grid) -> list[Column]:
    """Return the columns that are marked: all of them, FedAvg too, if any of them is a defense."""
    return list(grid.columns) if any(column.ranked for column in grid.columns) else []


def has_goal(grid: Grid, row: Row) -> bool:
    """Whether the attack of a row has a goal of its own, such as a backdoor."""
    cells = [cell for column in grid.columns for cell in grid.at(row, column)]
    return any(cell.num_attackers and cell.measured("attack_success") is not None for cell in cells)


def fair_means(grid: Grid, row: Row, columns: Sequence[Column], metric: Metric) -> dict[Column, float]:
    """Return the means of :func:`fair_values`."""
    return {column: statistics.fmean(values) for column, values in fair_values(grid, row, columns, metric).items()}


def fair_values(grid: Grid, row: Row, columns: Sequence[Column], metric: Metric) -> dict[Column, list[float]]:
    """Return the numbers of those of a row that have any, for the seeds that all of them have.

    Seeds differ by more than defenses do: the mean of three seeds and the figure of one do not compare. Where no seed
    is common to all, each has the numbers of its own.
    """
    by_seed = {
        column: {
            int(cell.config["seed"]): value
            for cell in grid.at(row, column)
            if (value := cell.measured(metric)) is not None
        }
        for column in columns
    }
    by_seed = {column: values for column, values in by_seed.items() if values}
    common = set.intersection(*map(set, by_seed.values())) if by_seed else set()
    return {
        column: [value for seed, value in values.items() if seed in common or not common]
        for column, values in by_seed.items()
    }


def outcome(cell: Cell, metric: Metric = "final_accuracy") -> Status:
    """Return the status of a run; one that ended without a number has failed."""
    return "failed" if cell.status == "done" and cell.measured(metric) is None else cell.status


def entry_of(cells: Sequence[Cell], metric: Metric, known: float | None = None) -> TableEntry:
    """Return the entry of cells that differ by their seed, with the paper's figure if it is known."""
    if not cells:
        return TableEntry("unplanned", paper=known)
    values = [value for value in (cell.measured(metric) for cell in cells) if value is not None]
    failed = sum(outcome(cell, metric) == "failed" for cell in cells)
    status: Status = "missing"
    for better in ("running", "failed"):
        status = better if any(cell.status == better for cell in cells) else status
    if not values:
        begun = max(
            ((cell.rounds_done, cell.config["rounds"]) for cell in cells if cell.status == "running"), default=None
        )
        return TableEntry("failed" if failed else status, planned=len(cells), failed=failed, paper=known, begun=begun)
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return TableEntry("done", statistics.fmean(values), deviation, len(values), len(cells), failed, known)


def _is_run(entries: Iterable[TableEntry]) -> bool:
    """Whether every planned one has ended: before that, the best so far may not be the best."""
    return not any(entry.status in ("running", "missing") for entry in entries)


def _marks(values: Mapping[Column, Sequence[float]], *, lowest_first: bool = False) -> dict[Column, Mark]:
    """Mark the best, all that tie with it, and the best of the others; equal texts have equal marks.

    Two tie if their means differ by no more than the larger one of their standard deviations over seeds.
    """
    if len(values) < 2:
        return {}
    read = {column: shown(statistics.fmean(own)) for column, own in values.items()}
    spread = {column: statistics.stdev(own) if len(own) > 1 else 0.0 for column, own in values.items()}
    choose = min if lowest_first else max
    best = choose(read, key=lambda column: read[column])
    ties = {column for column in read if abs(read[column] - read[best]) <= max(spread[column], spread[best])}
    others = [read[column] for column in read if column not in ties]
    second = choose(others) if others else None
    return {column: "best" if column in ties else "second" if value == second else "" for column, value in read.items()}


def shown(value: float) -> float:
    """Return a number as it is shown; halves as the format has them, so that ties are those that a reader sees."""
    return float(f"{value:.{_DECIMALS}f}")


def entry_text(entry: TableEntry, counts: Collection[int]) -> str:
    """Return an entry in plain words: ``97.12 ± 0.10 [97.20] (2)``.

    The mean by which it is marked is in square brackets, if it is another one; then the number of seeds, if they differ
    within the table.
    """
    return value_text(entry) + ("" if entry.mean is None else marked_text(entry) + seeds_text(entry, counts))


def value_text(entry: TableEntry) -> str:
    """Return an entry's mean and deviation, ``97.12 ± 0.10``, or its status."""
    if entry.mean is None:
        return {"missing": "—", "unplanned": "", "running": begun_text(entry)}.get(entry.status, entry.status)
    text = f"{entry.mean:.{_DECIMALS}f}"
    return text if entry.deviation is None else f"{text} ± {entry.deviation:.{_DECIMALS}f}"


def marked_text(entry: TableEntry) -> str:
    """Return the mean that an entry is marked by in square brackets, if it is another than that which is shown."""
    return "" if entry.marked_by is None else f" [{entry.marked_by:.{_DECIMALS}f}]"


def begun_text(entry: TableEntry) -> str:
    """Return how far a run got that is not done: ``begun (12 of 40 rounds)``."""
    return "begun ({} of {} rounds)".format(*entry.begun) if entry.begun else "begun"


BEGUN_NOTE = "begun: stopped, or still at work, before the last round"
FAILED_NOTE = "failed: ended by an error, or without a number, as when the model is not finite any more"


def seeds_text(entry: TableEntry, counts: Collection[int]) -> str:
    """Return the number of seeds in brackets, if a reader needs it: some are missing, or others have more."""
    several = {count for count in counts if count > 1}
    if entry.seeds == entry.planned and (entry.seeds == 1 or len(several) <= 1):
        return ""
    seeds = f"{entry.seeds}" if entry.seeds == entry.planned else f"{entry.seeds} of {entry.planned}"
    return f" ({seeds}, {entry.failed} failed)" if entry.failed else f" ({seeds})"


def difference_text(entry: TableEntry) -> str:
    """Return the paper's figure and the difference, ``97.82 −0.70``; the figure alone if there is no difference yet."""
    if entry.paper is None or not entry.planned:
        return ""
    text = f"{entry.paper:.{_DECIMALS}f}"
    return text if entry.difference is None else f"{text} {signed(entry.difference)}"


def signed(value: float) -> str:
    """Return a difference with its sign, and a true minus.

    Examples
    --------
    >>> signed(-0.704), signed(1.5), signed(-0.001)
    ('−0.70', '+1.50', '±0.00')
    """
    text = f"{abs(value):.{_DECIMALS}f}"
    return f"±{text}" if float(text) == 0 else f"{'−' if value < 0 else '+'}{text}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
