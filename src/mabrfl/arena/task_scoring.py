"""Scores by task, for a tier of which perhaps only a part is ever run.

A defense has a figure for a task and a share of attackers as soon as all runs there are done with one seed. It has a
place on a task only if all runs of the task are done with one seed. Nothing is computed from a part of the attacks, and
two defenses are compared on the seeds that both have.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from mabrfl.arena.arena_records import DefenseColumn, Records, part_of
from mabrfl.arena.scenarios import Scenario, Tier
from mabrfl.arena.scoring import SMALLEST, Baseline, Measure, Score, baseline, better, loss_of, scores


@dataclass(frozen=True)
class TaskScore:
    """What is known of one defense on one task.

    Attributes
    ----------
    score
        Its scores on this task. Without a place, it has figures only for shares with all runs of a seed.
    done
        By share, how many runs are finished.
    total
        How many there are at each share, with all seeds of the tier.
    by_seed
        Its scores with each seed alone.
    """

    score: Score
    done: Mapping[float, int]
    total: int
    by_seed: Mapping[int, Score]

    @property
    def label(self) -> str:
        """The name of the defense."""
        return self.score.label


def of_task(records: Records, task: str) -> Records:
    """Return the runs of one task."""
    return part_of(records, records.tier.with_tasks([task]))


def task_scores(records: Records) -> list[TaskScore]:
    """Return the score of every column that has a finished run, from records of a single task; the best first."""
    tier = records.tier
    alone = {seed: _filled(part_of(records, tier.with_seeds([seed]))) for seed in tier.seeds}
    clean = baseline(records)
    found = []
    for label, score in _filled(records).items():
        losses = losses_of(_column(records, label), clean)
        done = {share: sum(one.share == share for one in losses) for share in tier.shares}
        by_seed = {seed: known[label] for seed, known in alone.items()}
        total = len(tier.tasks) * len(tier.attacks) * len(tier.seeds)
        found += [TaskScore(score, done, total, by_seed)] if losses else []
    return sorted(_with_places(found), key=_order)


def _order(one: TaskScore) -> tuple[float, float, int, str]:
    mean = one.score.overall_mean
    return one.score.place or math.inf, math.inf if mean is None else mean.mean, -one.score.done, one.label


def _filled(records: Records) -> dict[str, Score]:
    """Return the scores of all columns with the figures of shares that are complete, also if the task is not."""
    tier, clean = records.tier, baseline(records)
    filled = {}
    for score in scores(records):
        losses = losses_of(_column(records, score.label), clean)
        filled[score.label] = replace(
            score,
            total=len(list(tier.scenarios())),
            worst=_by_share(losses, tier, max),
            mean=_by_share(losses, tier, fmean),
            clean=_figure(losses, tier, 0.0, fmean),
        )
    return filled


def _column(records: Records, label: str) -> DefenseColumn:
    column = records.column(label)
    assert column is not None  # it is the label of a column
    return column


def paired(of: Callable[[Score], Measure | None], one: TaskScore, other: TaskScore) -> tuple[Measure, Measure] | None:
    """Return a figure of two defenses over those seeds with which both have it; None if there is no such seed."""
    both = [(of(one.by_seed[seed]), of(other.by_seed[seed])) for seed in one.by_seed]
    known = [(first.mean, second.mean) for first, second in both if first is not None and second is not None]
    if not known:
        return None
    ours, theirs = zip(*known, strict=True)
    return Measure.of(ours), Measure.of(theirs)


def _with_places(known: Sequence[TaskScore]) -> list[TaskScore]:
    placed = [one for one in known if one.score.place is not None]
    places = {one.label: 1 + sum(_is_better(other, one) for other in placed) for one in placed}
    shared = list(places.values())
    return [
        replace(one, score=replace(one.score, place=places[one.label], tied=shared.count(places[one.label]) > 1))
        if one.label in places
        else one
        for one in known
    ]


def _is_better(one: TaskScore, other: TaskScore) -> bool:
    pair = paired(lambda score: score.overall_worst, one, other)
    return pair is not None and better(*pair)


def losses_of(column: DefenseColumn, clean: Baseline) -> dict[Scenario, float]:
    """Return how many points each finished run lost."""
    losses = {one: loss_of(run, one, clean) for one, run in column.runs.items()}
    return {one: loss for one, loss in losses.items() if loss is not None}


def _by_share(
    losses: Mapping[Scenario, float], tier: Tier, combine: Callable[[list[float]], float]
) -> dict[float, Measure]:
    found = {share: _figure(losses, tier, share, combine) for share in tier.shares}
    return {share: measure for share, measure in found.items() if measure is not None}


def _figure(
    losses: Mapping[Scenario, float], tier: Tier, share: float, combine: Callable[[list[float]], float]
) -> Measure | None:
    """Return a figure over the seeds that have all runs at a share; None if there is no such seed."""
    runs = {seed: [one for one in tier.scenarios() if (one.seed, one.share) == (seed, share)] for seed in tier.seeds}
    complete = [[losses[one] for one in some] for some in runs.values() if all(one in losses for one in some)]
    return Measure.of([combine(some) for some in complete]) if complete else None


@dataclass(frozen=True)
class Duels:
    """A defense run by run against the best of all others in the same scenario.

    Attributes
    ----------
    met
        How many scenarios another defense has run too.
    lost
        Those in which another one loses less by more than a point: the scenario, the own loss, the other's label and
        loss. The largest difference comes first.
    """

    met: int
    lost: Sequence[tuple[Scenario, float, str, float]]


def duels(records: Records, label: str) -> Duels:
    """Return where a defense stands in the single runs that others have too, complete or not."""
    clean = baseline(records)
    losses = {column.label: losses_of(column, clean) for column in records.columns}
    ours = losses.pop(label, {})
    met, lost = 0, []
    for one, own in ours.items():
        others = [(some[one], other) for other, some in losses.items() if one in some]
        if others:
            met += 1
            least, other = min(others)
            lost += [(one, own, other, least)] if own - least > SMALLEST else []
    return Duels(met, sorted(lost, key=lambda one: (one[3] - one[1], one[0].attack, one[0].share, one[0].seed)))
