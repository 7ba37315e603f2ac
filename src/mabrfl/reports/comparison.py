"""Our tables beside the paper's: the order of the defenses in each row, and the differences in points."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from mabrfl.reports.labels import Column, Row
from mabrfl.reports.tables import Table, fair_means, shown


@dataclass(frozen=True)
class Ranking:
    """One row's order of the defenses, ours and the paper's, among those that both have.

    Attributes
    ----------
    ours, papers
        The rank of each column, from 1; equal figures have equal ranks.
    alike
        How many of the ``pairs`` of columns are in the same order in both.
    tau
        Kendall's rank correlation (tau-b, which allows for ties): 1 for the same order, -1 for the reverse; None if
        either has nothing but ties.
    """

    row: Row
    ours: Mapping[Column, int]
    papers: Mapping[Column, int]
    alike: int
    pairs: int
    tau: float | None


def rankings(table: Table) -> list[Ranking]:
    """Compare the order of the defenses with the paper's, row by row; MAB-RFL by its first preset alone."""
    return [ranking for row in table.grid.rows if (ranking := _ranking(table, row)).pairs]


def _ranking(table: Table, row: Row) -> Ranking:
    entries = {column: table.at(row, column) for column in compared_columns(table)}
    papers = {
        column: shown(entry.paper)
        for column, entry in entries.items()
        if entry.mean is not None and entry.paper is not None
    }
    ours = {column: shown(mean) for column, mean in fair_means(table.grid, row, list(papers), table.metric).items()}
    pairs = list(combinations(ours, 2))
    orders = [(_order(ours[a], ours[b]), _order(papers[a], papers[b])) for a, b in pairs]
    alike = sum(first == second for first, second in orders)
    tau = _tau(list(ours.values()), [papers[column] for column in ours])
    return Ranking(row, _ranks(ours), _ranks(papers), alike, len(pairs), tau)


def _tau(ours: Sequence[float], papers: Sequence[float]) -> float | None:
    """Return Kendall's tau-b; None if it is not defined: fewer than two figures, or all of them equal."""
    if min(len(set(ours)), len(set(papers))) < 2:
        return None
    from scipy.stats import kendalltau  # noqa: PLC0415 (half a second that most tables do not need)

    return float(kendalltau(ours, papers).statistic)


def compared_columns(table: Table) -> list[Column]:
    """Return the columns whose order is compared with the paper's: ranked, in the paper, MAB-RFL once."""
    columns: list[Column] = []
    for column in table.grid.columns:
        again = column.entry.presets and any(other.entry.presets for other in columns)
        if column.ranked and not again and any(table.at(row, column).paper is not None for row in table.grid.rows):
            columns.append(column)
    return columns


def _ranks(values: Mapping[Column, float]) -> dict[Column, int]:
    return {column: 1 + sum(other > value for other in values.values()) for column, value in values.items()}


def _order(first: float, second: float) -> int:
    return (first > second) - (first < second)


@dataclass(frozen=True)
class Agreement:
    """How near a column is to the paper's, over the rows that both have.

    Attributes
    ----------
    column, rows
        Which, and over how many rows.
    mean_difference, mean_distance
        Of our accuracy minus the paper's, in points, with and without its sign.
    largest_difference, worst_row
        The one furthest from zero, and where it is.
    """

    column: Column
    rows: int
    mean_difference: float
    mean_distance: float
    largest_difference: float
    worst_row: Row


def agreements(table: Table) -> list[Agreement]:
    """Return, for each column that the paper has, the mean difference and the one that is furthest from zero."""
    listed = []
    for column in table.grid.columns:
        differences = {row: table.at(row, column).difference for row in table.grid.rows}
        known = {row: value for row, value in differences.items() if value is not None and math.isfinite(value)}
        if known:
            worst = max(known, key=lambda row: abs(known[row]))
            mean, distance = statistics.fmean(known.values()), statistics.fmean(map(abs, known.values()))
            listed.append(Agreement(column, len(known), mean, distance, known[worst], worst))
    return listed
