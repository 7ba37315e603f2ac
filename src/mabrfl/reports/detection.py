"""Attackers and honest clients under a defense, in numbers: one row per condition, averaged over seeds."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from mabrfl.catalog import display_entry
from mabrfl.errors import StateError
from mabrfl.recording.evaluation import ratio
from mabrfl.reports.arrangement import Condition, TableSetting, conditions, setting_of
from mabrfl.reports.curves import isolation_rounds
from mabrfl.reports.naming import STATUS_WORDS
from mabrfl.reports.tables import BEGUN_NOTE, FAILED_NOTE, Metric, TableEntry, entry_of, outcome
from mabrfl.sweeps.grouping import settings_of
from mabrfl.sweeps.results import STATUSES, Cell

_CLEAN = ("fedavg", "all")
"""Defense and selector of the runs without attackers that others are compared with."""


@dataclass(frozen=True)
class Average:
    """A number over seeds: its mean, the deviation of a sample (n - 1; None for one seed), and how many have it."""

    mean: float
    deviation: float | None
    seeds: int


@dataclass(frozen=True)
class Isolation:
    """When attackers are out for good, over all of them in all seeds; infinity stands for never.

    Attributes
    ----------
    median
        Of the rounds after which each is out; infinite if half of them or more never are.
    never, attackers
        How many never are, of how many; one that changes its id is counted under each.
    """

    median: float
    never: int
    attackers: int


@dataclass(frozen=True)
class DetectionRow:
    """One condition.

    Attributes
    ----------
    condition
        Which one.
    accuracy
        As in the other tables.
    difference
        Accuracy minus that of clean FedAvg, in points, seed by seed; None if no seed has both.
    is_clean
        Whether others are compared with this condition.
    rates
        By the names of :data:`RATES`, from 0 to 1; None where no run has one.
    attack_success
        In percent, after the last round; None if the attack has no goal.
    isolated, shut_out
        When attackers were selected, and accepted, for the last time; None without attackers.
    """

    condition: Condition
    accuracy: TableEntry
    difference: Average | None
    is_clean: bool
    rates: Mapping[str, Average | None]
    attack_success: Average | None
    isolated: Isolation | None
    shut_out: Isolation | None


@dataclass(frozen=True)
class DetectionTable:
    """All conditions of some results."""

    setting: TableSetting
    """That of most runs."""
    metric: Metric
    rows: tuple[DetectionRow, ...]
    cells: tuple[Cell, ...] = field(repr=False)

    @property
    def seed_counts(self) -> set[int]:
        """How many seeds the means are over."""
        return {row.accuracy.seeds for row in self.rows if row.accuracy.seeds}

    @property
    def legend(self) -> str:
        """The words in place of numbers, in a sentence."""
        failed = [FAILED_NOTE] if any(row.accuracy.failed for row in self.rows) else []
        return "; ".join(["A dash: there is no such number", "missing: not run yet", BEGUN_NOTE, *failed])

    @property
    def progress(self) -> str:
        """How many of the runs are done, in words."""
        counts = Counter(outcome(cell, self.metric) for cell in self.cells)
        others = [f"{counts[status]} {STATUS_WORDS[status]}" for status in STATUSES[1:] if counts[status]]
        return ", ".join([f"{counts['done']} of {len(self.cells)} runs done", *others])


def has_detection(cells: Iterable[Cell]) -> bool:
    """Whether there are attackers, or a defense that would reject clients without them: MAB-RFL."""
    return any(cell.num_attackers or display_entry("defenses", cell.config["defense"]).presets for cell in cells)


def detection_table(cells: Sequence[Cell], metric: Metric = "final_accuracy") -> DetectionTable:
    """Return one row per condition.

    Parameters
    ----------
    cells
        Of one or several results, at least one. Clean FedAvg is looked for among them: all clients
        selected and no attackers, with the data set, model, clients, rounds, training, partition and seed of the run
        that is compared with it.
    metric
        The accuracy that is shown.

    Raises
    ------
    StateError
        If there are no cells.
    """
    if not cells:
        raise StateError("the results have no runs, and so no conditions")
    clean = {_conditions_of(cell): value for cell in reversed(cells) if (value := _clean(cell, metric)) is not None}
    usual = Counter(setting_of(cell) for cell in cells).most_common(1)[0][0]
    rows = tuple(_row(condition, metric, clean) for condition in conditions(cells))
    kept = {id(cell) for row in rows for cell in row.condition.cells}
    return DetectionTable(usual, metric, rows, tuple(cell for cell in cells if id(cell) in kept))


def _row(condition: Condition, metric: Metric, clean: Mapping[tuple[object, ...], float]) -> DetectionRow:
    done = [cell for cell in condition.cells if cell.status == "done"]
    return DetectionRow(
        condition=condition,
        accuracy=entry_of(condition.cells, metric),
        difference=average(_difference(cell, metric, clean) for cell in done),
        is_clean=_is_clean(condition.cells[0]),
        rates={name: average(measure(cell) for cell in done) for name, measure in RATES.items()},
        attack_success=average(cell.measured("attack_success") for cell in done),
        isolated=_isolation(done, "last_selected"),
        shut_out=_isolation(done, "last_accepted"),
    )


def average(values: Iterable[float | None]) -> Average | None:
    """Return mean and deviation of the values that are known; None if none is."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    return Average(statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None, len(known))


def _isolation(cells: Sequence[Cell], last: str) -> Isolation | None:
    rounds = isolation_rounds(cells, last)
    if not rounds:
        return None
    return Isolation(statistics.median(rounds), rounds.count(float("inf")), len(rounds))


def _difference(cell: Cell, metric: Metric, clean: Mapping[tuple[object, ...], float]) -> float | None:
    value, other = cell.measured(metric), clean.get(_conditions_of(cell))
    return None if value is None or other is None else value - other


def _is_clean(cell: Cell) -> bool:
    return (cell.config["defense"], cell.config["selector"]) == _CLEAN and not cell.num_attackers


def _clean(cell: Cell, metric: Metric) -> float | None:
    return cell.measured(metric) if _is_clean(cell) else None


def _conditions_of(cell: Cell) -> tuple[object, ...]:
    """Return the settings that runs share if they differ by attackers and defense alone."""
    settings = settings_of(cell)
    shared = [key for key in sorted(settings) if key.startswith(("training.", "partition."))]
    return cell.config["seed"], *((key, settings[key]) for key in ("dataset", "model", "rounds", "clients", *shared))


def _precision(cell: Cell) -> float | None:
    # Without attackers it would be 0 as soon as one client is rejected, and say nothing about how many are.
    return cell.measured("detection_precision") if cell.num_attackers else None


def _selected(who: str) -> Callable[[Cell], float | None]:
    """Return a measure: the share of one side's clients that is selected in a round of the last third."""

    def measure(cell: Cell) -> float | None:
        everybody, malicious = (cell.series.get(name, []) for name in ("selected", "selected_malicious"))
        start = 2 * len(everybody) // 3
        counts = [(int(both or 0), int(bad or 0)) for both, bad in zip(everybody, malicious, strict=False)][start:]
        honest = int(cell.config["clients"]) - cell.num_attackers
        if who == "honest":
            return ratio(sum(both - bad for both, bad in counts), len(counts) * honest)
        return ratio(sum(bad for _, bad in counts), len(counts) * cell.num_attackers)

    return measure


def _summarized(name: str) -> Callable[[Cell], float | None]:
    return lambda cell: cell.measured(name)


RATES: Mapping[str, Callable[[Cell], float | None]] = {
    "detection_precision": _precision,
    "detection_recall": _summarized("detection_recall"),
    "honest_rejected_rate": _summarized("honest_rejected_rate"),
    "selection_rate_honest": _summarized("selection_rate_honest"),
    "selection_rate_malicious": _summarized("selection_rate_malicious"),
    "selection_rate_honest_last_third": _selected("honest"),
    "selection_rate_malicious_last_third": _selected("malicious"),
}
"""Shares, measured run by run: those of ``summary.json``, and the selection at the end."""
