"""Scores of the arena: pure functions of its records.

A run *loses* the accuracy of clean FedAvg (same task and seed, nobody attacking) minus its own, in percentage points. A
model that is no longer finite has an accuracy of 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from mabrfl.arena.arena_records import DefenseColumn, Records, Run
from mabrfl.arena.scenarios import BASELINE, NOBODY, Scenario

SMALLEST = 1.0
"""Differences of scores up to this many points are ties, however small the deviations over seeds are."""
ERRORS = 2.0
"""Differences up to this many standard errors are ties."""


@dataclass(frozen=True)
class Measure:
    """A number for each seed: their mean, their deviation (None with one seed) and how many there are."""

    mean: float
    deviation: float | None
    seeds: int

    @staticmethod
    def of(values: Sequence[float]) -> Measure:
        """Return the measure of one value per seed.

        Examples
        --------
        >>> Measure.of([1.0, 3.0])
        Measure(mean=2.0, deviation=1.4142135623730951, seeds=2)
        """
        return Measure(fmean(values), stdev(values) if len(values) > 1 else None, len(values))


@dataclass(frozen=True)
class Score:
    """What the arena says about one defense.

    Attributes
    ----------
    label
        The defense.
    done, total
        Runs that are finished, and all of the seeds that any defense has runs of.
    seeds
        The seeds with every run finished. Only these count; without any there are no scores and no place.
    place, tied
        1 + the number of defenses that are better by more than chance, and whether others have the same place.
    worst
        By share: the largest loss over all tasks and attacks.
    mean
        By share: the mean loss.
    overall_worst, overall_mean
        The means of these over the shares. The first decides the place.
    hardest
        By share: the task and the attack with the largest loss, over the means of the seeds.
    success, worst_success
        How far attacks with a goal of their own reached it, in percent: the mean and the largest over tasks and
        shares; None if no attack has a goal.
    clean
        Points lost with nobody attacking.
    rejected
        How many percent of the honest updates were rejected, over all attacked runs.
    milliseconds
        Of the defense in a round.
    """

    label: str
    done: int
    total: int
    seeds: tuple[int, ...] = ()
    place: int | None = None
    tied: bool = False
    worst: Mapping[float, Measure] | None = None
    mean: Mapping[float, Measure] | None = None
    overall_worst: Measure | None = None
    overall_mean: Measure | None = None
    hardest: Mapping[float, tuple[str, str]] | None = None
    success: Measure | None = None
    worst_success: Measure | None = None
    clean: Measure | None = None
    rejected: Measure | None = None
    milliseconds: Measure | None = None


Baseline = Mapping[tuple[str, int], float]
"""The accuracy of clean FedAvg, by task and seed."""


def baseline(records: Records) -> dict[tuple[str, int], float]:
    """Return the accuracy of clean FedAvg, by task and seed, as far as it is known."""
    column = records.column(BASELINE)
    runs = {} if column is None else column.runs
    clean = {one: run for one, run in runs.items() if one.attack == NOBODY and run.error is None}
    return {(one.task, one.seed): run.accuracy or 0.0 for one, run in clean.items()}


def loss_of(run: Run, scenario: Scenario, clean: Baseline) -> float | None:
    """Return how many points a run lost; None if it failed, or there is nothing to compare it with."""
    before = clean.get((scenario.task, scenario.seed))
    return None if before is None or run.error is not None else before - (run.accuracy or 0.0)


def scores(records: Records) -> list[Score]:
    """Return the score of every column: by place, the mean loss within a place, and those without a place last."""
    clean = baseline(records)
    known = [_score(column, records, clean) for column in records.columns]
    placed = [_placed(one, known) for one in known]
    return sorted(placed, key=lambda one: (one.place or math.inf, _mean(one.overall_mean), -one.done, one.label))


def _mean(measure: Measure | None) -> float:
    return math.inf if measure is None else measure.mean


def _score(column: DefenseColumn, records: Records, clean: Baseline) -> Score:
    tier, seeds = records.tier, set(records.seeds())
    wanted = [one for one in tier.scenarios() if one.seed in seeds]
    losses = {one: loss_of(run, one, clean) for one, run in column.runs.items() if one.seed in seeds}
    done = {one: loss for one, loss in losses.items() if loss is not None}
    complete = tuple(seed for seed in tier.seeds if seed in seeds and _has_all(done, wanted, seed))
    if not complete:
        return Score(column.label, len(done), len(wanted))
    counted = {one: loss for one, loss in done.items() if one.seed in complete}
    attacked = {one: loss for one, loss in counted.items() if one.attack != NOBODY}
    runs = {one: column.runs[one] for one in counted}

    def by_seed(values: Mapping[Scenario, float | None], combine: Callable[[list[float]], float]) -> Measure | None:
        each = [[value for one, value in values.items() if one.seed == seed and value is not None] for seed in complete]
        return Measure.of([combine(some) for some in each]) if all(each) else None

    def at(share: float, combine: Callable[[list[float]], float]) -> Measure:
        found = by_seed({one: loss for one, loss in attacked.items() if one.share == share}, combine)
        assert found is not None  # the seeds are complete
        return found

    success = {one: run.success for one, run in runs.items() if one.attack != NOBODY}
    return Score(
        column.label,
        len(done),
        len(wanted),
        seeds=complete,
        worst={share: at(share, max) for share in tier.shares},
        mean={share: at(share, fmean) for share in tier.shares},
        overall_worst=_over_shares(attacked, complete, tier.shares, max),
        overall_mean=_over_shares(attacked, complete, tier.shares, fmean),
        hardest={share: _hardest(attacked, share) for share in tier.shares},
        success=by_seed(success, fmean),
        worst_success=by_seed(success, max),
        clean=by_seed({one: loss for one, loss in counted.items() if one.attack == NOBODY}, fmean),
        rejected=by_seed({one: run.rejected for one, run in runs.items() if one.attack != NOBODY}, fmean),
        milliseconds=by_seed({one: run.milliseconds for one, run in runs.items()}, fmean),
    )


def _has_all(done: Mapping[Scenario, float], wanted: Iterable[Scenario], seed: int) -> bool:
    return all(one in done for one in wanted if one.seed == seed)


def _over_shares(
    losses: Mapping[Scenario, float],
    seeds: Iterable[int],
    shares: Iterable[float],
    combine: Callable[[list[float]], float],
) -> Measure:
    def of(seed: int, share: float) -> float:
        return combine([loss for one, loss in losses.items() if (one.seed, one.share) == (seed, share)])

    some = tuple(shares)
    return Measure.of([fmean(of(seed, share) for share in some) for seed in seeds])


def _hardest(losses: Mapping[Scenario, float], share: float) -> tuple[str, str]:
    means = mean_over_seeds({one: loss for one, loss in losses.items() if one.share == share})
    task, _, attack = max(means, key=lambda place: (means[place], place))
    return task, attack


def mean_over_seeds(values: Mapping[Scenario, float]) -> dict[tuple[str, float, str], float]:
    """Return the mean over the seeds, by task, share and attack."""
    groups: dict[tuple[str, float, str], list[float]] = {}
    for one, value in values.items():
        groups.setdefault((one.task, one.share, one.attack), []).append(value)
    return {place: fmean(some) for place, some in groups.items()}


def margin(one: Measure, other: Measure) -> float:
    """Return up to which difference two measures are tied: a point, or two standard errors of the difference.

    Examples
    --------
    >>> margin(Measure(5.0, None, 1), Measure(7.0, None, 1)), margin(Measure(5.0, 3.0, 9), Measure(7.0, 4.0, 16))
    (1.0, 2.8284271247461903)
    """
    variance = sum((each.deviation or 0.0) ** 2 / each.seeds for each in (one, other))
    return max(SMALLEST, ERRORS * math.sqrt(variance))


def better(one: Measure, other: Measure) -> bool:
    """Whether the first has lost less, by more than chance."""
    return one.mean < other.mean - margin(one, other)


def _placed(one: Score, known: Sequence[Score]) -> Score:
    if one.overall_worst is None:
        return one
    place = _place(one.overall_worst, known)
    same = sum(each.overall_worst is not None and _place(each.overall_worst, known) == place for each in known)
    return Score(**{**one.__dict__, "place": place, "tied": same > 1})


def _place(measure: Measure, known: Iterable[Score]) -> int:
    return 1 + sum(each.overall_worst is not None and better(each.overall_worst, measure) for each in known)
