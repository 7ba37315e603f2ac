"""Scores by task, from runs that are not complete."""

from __future__ import annotations

from dataclasses import replace

from mabrfl.arena.arena_records import Records
from mabrfl.arena.scenarios import NOBODY, Scenario
from mabrfl.arena.scoring import Measure
from mabrfl.arena.task_board import task_opening
from mabrfl.arena.task_scoring import duels, of_task, task_scores

from .conftest import column


def test_a_figure_at_a_share_needs_all_runs_of_a_seed_there_and_a_place_all_of_the_task(larger: Records) -> None:
    first, ours = task_scores(larger)
    assert (first.label, first.score.place, first.score.seeds) == ("fedavg", 1, (1, 2))
    assert (ours.label, ours.score.place, ours.score.overall_worst) == ("mab-rfl hardened", None, None)
    assert ours.score.worst == {0.1: Measure(3.0, None, 1)}
    assert ours.score.mean == {0.1: Measure(1.5, None, 1)}
    assert ours.score.clean == Measure(0.0, None, 1)
    assert (ours.done, ours.total) == ({0.1: 2, 0.3: 2}, 4)
    assert (ours.score.done, ours.score.total) == (5, 10)


def test_one_more_missing_run_takes_the_figure_away(larger: Records) -> None:
    ours = larger.columns[1]
    cut = {one: run for one, run in ours.runs.items() if one != Scenario(1, "digits", 0.1, "backdoor")}
    score = task_scores(larger.with_columns([replace(ours, runs=cut)]))[1].score
    assert score.worst == {}
    assert score.mean == {}


def test_single_runs_are_compared_with_the_best_of_the_others(larger: Records) -> None:
    found = duels(larger, "mab-rfl hardened")
    assert found.met == 5
    assert found.lost == [(Scenario(1, "digits", 0.1, "ipm"), 3.0, "fedavg", 1.5)]
    assert duels(larger, "krum").met == 0


def test_a_task_begins_with_where_our_own_entry_is_not_the_best(larger: Records) -> None:
    lines = task_opening(larger, task_scores(larger))
    assert lines == [
        "`mab-rfl hardened` has no place on digits yet: 5 of 10 runs are done.",
        "It is not the best in 1 of the 3 figures that others have too:",
        # FedAvg loses 80 points with seed 2, which the other one has not run.
        "- worst case at 10 %: 3.0 points, and one defense has less; the least has `fedavg` with 1.5 points",
        "Run by run: in 1 of the 5 scenarios that others have run too, another defense loses less by more than 1 "
        "point. The largest difference is under `ipm` at 10 %, seed 1: it loses 3.0 points, and `fedavg` 1.5.",
    ]
    ours = larger.columns[1]
    place = Scenario(1, "digits", 0.0, NOBODY)
    worse = replace(ours, runs={**ours.runs, place: replace(ours.runs[place], accuracy=85.0)})
    changed = larger.with_columns([worse])
    assert task_opening(changed, task_scores(changed))[3] == (
        "- loss with nobody attacking: 5.0 points, and one defense has less; the least has `fedavg` with 0.0 points"
    )
    nothing = replace(larger, columns=larger.columns[:1])
    assert task_opening(nothing, task_scores(nothing)) == ["`mab-rfl hardened` has no run on digits yet."]


def test_places_are_compared_on_the_seeds_that_both_have(larger: Records, tier) -> None:
    # With seed 1 FedAvg loses less; with seed 2, which the other has not run, it loses 80 points.
    first = {(1, share, "ipm"): 10.0 for share in tier.shares}
    second = {(2, share, "ipm"): 80.0 for share in tier.shares}
    ours = column(larger.tier, larger.columns[1].entrant, {(1, share, "ipm"): 20.0 for share in tier.shares})
    half = replace(ours, runs={one: run for one, run in ours.runs.items() if one.seed == 1})
    fedavg = column(larger.tier, larger.columns[0].entrant, {**first, **second})
    known = task_scores(replace(larger, columns=(half, fedavg)))
    assert [(one.label, one.score.place, one.score.seeds) for one in known] == [
        ("fedavg", 1, (1, 2)),
        ("mab-rfl hardened", 2, (1,)),
    ]
    assert known[0].score.overall_worst.mean == 45.0, "the figure shown has all of its seeds"


def test_complete_defenses_have_places_on_the_task(larger: Records) -> None:
    both = larger.with_columns([replace(larger.columns[0], entrant=larger.columns[1].entrant)])
    lines = task_opening(both, task_scores(both))
    assert lines[0] == "`mab-rfl hardened`, our own entry, has place 1= of 2 on digits."
    assert lines[-3] == "What it loses most to:"
    assert of_task(both, "digits") == both
