"""Scores of the arena, worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mabrfl.arena.arena_records import Records
from mabrfl.arena.contest import falls
from mabrfl.arena.leaderboard import counts, measure_text, opening, place_text, shortcomings
from mabrfl.arena.scenarios import Scenario, named
from mabrfl.arena.scoring import Measure, Score, baseline, better, scores

from .conftest import column


def by_label(records: Records) -> dict[str, Score]:
    return {score.label: score for score in scores(records)}


def test_a_score_is_the_loss_against_clean_fedavg_by_seed(records: Records) -> None:
    assert baseline(records) == {("digits", 1): 90.0, ("digits", 2): 90.0}
    score = by_label(records)["median"]
    # Seed 1 loses 2 and 6 points to IPM, seed 2 loses 4 at 10 % to IPM and 8 at 30 % to the backdoor.
    assert score.worst == {0.1: Measure.of([2.0, 4.0]), 0.3: Measure.of([6.0, 8.0])}
    assert score.mean == {0.1: Measure.of([1.0, 2.0]), 0.3: Measure.of([3.0, 4.0])}
    assert score.overall_worst == Measure.of([4.0, 6.0])
    assert score.overall_mean == Measure.of([2.0, 3.0])
    assert score.hardest == {0.1: ("digits", "ipm"), 0.3: ("digits", "backdoor")}
    assert (score.clean, score.success) == (Measure.of([0.0, 0.0]), Measure.of([20.0, 20.0]))
    assert (score.rejected, score.milliseconds) == (Measure.of([5.0, 5.0]), Measure.of([2.0, 2.0]))
    assert (score.done, score.total, score.seeds) == (10, 10, (1, 2))


def test_only_complete_seeds_count_and_without_one_there_is_no_place(records: Records) -> None:
    krum = by_label(records)["krum"]
    assert (krum.seeds, krum.done, krum.total) == ((1,), 6, 10)
    assert krum.overall_worst == Measure(0.0, None, 1)
    column = records.columns[2]
    cut = {one: run for one, run in column.runs.items() if one != Scenario(1, "digits", 0.1, "ipm")}
    without = by_label(records.with_columns([replace(column, runs=cut)]))["krum"]
    assert (without.place, without.done, without.overall_worst) == (None, 5, None)


def test_a_failed_run_is_not_done_and_a_model_that_is_not_finite_has_lost_everything(records: Records) -> None:
    column = records.columns[1]
    place = Scenario(1, "digits", 0.1, "ipm")
    failed = replace(column, runs={**column.runs, place: replace(column.runs[place], accuracy=None, error="no luck")})
    assert by_label(records.with_columns([failed]))["median"].seeds == (2,)
    burst = replace(column, runs={**column.runs, place: replace(column.runs[place], accuracy=None)})
    assert by_label(records.with_columns([burst]))["median"].worst[0.1].mean == pytest.approx((90 + 4) / 2)


def test_places_count_who_is_better_by_more_than_chance(records: Records, tier) -> None:
    assert [(score.label, place_text(score)) for score in scores(records)] == [
        ("krum", "1"),
        ("median", "2"),
        ("fedavg", "3"),
    ]
    # 5 ± 1 against 5.5: within a point.
    near = {(seed, share, "ipm"): 5.5 for seed in tier.seeds for share in tier.shares}
    more = records.with_columns([column(tier, named("defense", "dnc"), near)])
    assert [place_text(score) for score in scores(more)] == ["1", "2=", "2=", "4"]


def test_a_difference_within_two_standard_errors_is_a_tie() -> None:
    wide, narrow = Measure(10.0, 6.0, 4), Measure(15.0, 0.0, 4)
    assert not better(wide, narrow), "two standard errors are 6 points"
    assert better(Measure(10.0, 2.0, 4), narrow)
    assert not better(Measure(10.0, None, 1), Measure(11.0, None, 1)), "a point is a tie"
    assert measure_text(Measure(-0.04, 0.02, 3)) == "0.0 ± 0.0"


def test_the_page_says_first_where_an_entry_is_not_the_best_and_why(records: Records) -> None:
    known, shares = scores(records), records.tier.shares
    lost = shortcomings(known, shares, "median")
    assert lost[0] == (
        "worst case over the shares: 5.0 ± 1.4 points, and one defense has less; the least has `krum` with 0.0 points"
    )
    lines = opening(records, known, "median")
    assert lines[0] == "`median`, our own entry, has place 2 of 3."
    assert lines[-1] == (
        "- at 30 % it loses most, 7.0 ± 1.4 points, to `backdoor` on digits, where it rejected 5 % of the honest "
        "updates and none of the attackers'"
    )
    assert shortcomings(known, shares, "krum") == []
    cut = records.with_columns([replace(records.columns[2], runs={})])
    assert opening(cut, scores(cut), "median")[0] == (
        "`median`, our own entry, has place 1 of 2; 1 other has no place yet."
    )
    label = records.columns[2].label
    assert opening(cut, scores(cut), label) == [f"`{label}` has no place: its runs are not complete."]
    assert opening(records, known) == []  # there is no such entry


def test_an_attack_fells_those_who_lose_more_than_ten_points(records: Records) -> None:
    found = falls(records, "ipm")
    assert [(fall.defense, fall.falls) for fall in found] == [("fedavg", True), ("median", False), ("krum", False)]
    assert found[1].losses == {0.1: 3.0, 0.3: 3.0}
    assert falls(records, "backdoor")[0].success == 20.0
    assert falls(records, "lie") == []


def test_missing_runs_are_counted(records: Records) -> None:
    assert "seeds 1, 2 of 1, 2. 26 of 30 runs are done; what is missing is shown as missing." in counts(records)
