"""The table of an ablation: what is held against what, and its numbers worked by hand."""

from __future__ import annotations

import csv
import io
import re
from typing import Any

import pytest

from mabrfl.errors import StateError
from mabrfl.reports.ablation import ABLATION_FORMATS, ablation_csv, ablation_table, ablation_text, has_ablation
from mabrfl.sweeps.results import Cell
from result_folders import make_cell

LIE: dict[str, Any] = {"attack": "lie", "attackers": 0.3}
LF: dict[str, Any] = {"attack": "label-flip", "attackers": 0.3}


def whole(final: float | None = 90.0, **settings: Any) -> Cell:
    return make_cell(final, axes={"ablation": "all of it"}, preset="hardened", defense="mab-rfl", **settings)


def without(what: str, final: float | None, status: str = "done", **settings: Any) -> Cell:
    told = {"panel": {"panel_rounds": 0}, "votes": {"claims": 0.0}}[what]
    axes = {"ablation": f"no {what}"}
    return make_cell(final, status, axes, preset="hardened", defense="mab-rfl", defense_options=told, **settings)


def shown(cells: list[Cell]) -> list[dict[str, str]]:
    table = ablation_text(ablation_table(cells))
    return [dict(zip(table.head, row, strict=True)) for row in table.rows]


def test_a_part_is_held_against_the_whole_under_the_same_attack() -> None:
    cells = [whole(90.0, **LIE), whole(80.0, **LF), without("panel", 70.0, **LF), without("panel", 85.0, **LIE)]
    rows = shown([*cells, without("votes", 81.5, **LF)])
    # As in the other tables: half of the attackers' updates are rejected, 1 of 28 honest ones, no attacker is selected
    # in the end.
    assert rows[0] == {
        "Without": "no panel",
        "Attackers": "30%",
        "Attack": "LF",
        "accuracy": "70.00 (80.00)",
        "difference": "−10.00",
        "recall": "50.0 (50.0)",
        "honest rejected": "3.57 (3.57)",
        "attackers selected": "0.0 (0.0)",
    }
    told = [(row["Without"], row["Attack"], row["accuracy"], row["difference"]) for row in rows[1:]]
    assert told == [("", "LIE", "85.00 (90.00)", "−5.00"), ("no votes", "LF", "81.50 (80.00)", "+1.50")]


def test_differences_are_taken_seed_by_seed() -> None:
    cells = [whole(final, seed=seed, **LIE) for seed, final in enumerate((90.0, 80.0, 70.0))]
    cells += [without("panel", final, seed=seed, **LIE) for seed, final in enumerate((89.0, 77.0))]
    (row,) = shown(cells)
    assert row["difference"] == "−2.00 ± 1.41"  # of −1 and −3; the third seed has no pair
    assert row["accuracy"] == "83.00 ± 8.49 (2) (80.00 ± 10.00 (3))"


def test_a_run_that_is_there_twice_is_one_seed_of_the_whole_and_of_the_part() -> None:
    shares: list[dict[str, Any]] = [{"attack": "lie", "attackers": attackers} for attackers in (3, 0.3)]
    cells = [*(whole(90.0, **share) for share in shares), *(without("panel", 80.0, **share) for share in shares)]
    # The same run of another sweep, which is no ablation, comes first.
    other = make_cell(90.0, preset="hardened", defense="mab-rfl", **LIE)
    for found in (cells, [other, *cells]):
        (row,) = shown(found)
        assert (row["accuracy"], row["difference"]) == ("80.00 (90.00)", "−10.00")
    assert "2 of 2 runs done." in ABLATION_FORMATS["markdown"](ablation_table(cells))


@pytest.mark.parametrize("other", [{"rounds": 5}, {"clients": 20}, {"training": {"epochs": 1}}, {"seed": 1}])
def test_nothing_but_the_defense_may_differ_between_the_two(other: dict[str, Any]) -> None:
    (row,) = shown([whole(90.0, **LIE), without("panel", 70.0, **{**LIE, **other})])
    assert (row["accuracy"], row["difference"]) == ("70.00", "—")


def test_what_is_not_run_yet_is_said() -> None:
    cells = [whole(90.0, **LIE), without("panel", None, "missing", **LIE)]
    (row,) = shown(cells)
    assert (row["accuracy"], row["difference"], row["recall"]) == ("missing (90.00)", "—", "— (50.0)")
    text = ABLATION_FORMATS["markdown"](ablation_table(cells))
    assert "1 of 2 runs done, 1 missing." in text
    assert "the same of the whole (all of it)" in text


def test_results_in_which_nothing_is_left_out_are_no_ablation() -> None:
    for cells in ([], [make_cell()], [whole()], [whole(), whole(seed=1)]):
        assert not has_ablation(cells)
        with pytest.raises(StateError, match="needs an axis 'ablation' with two points or more"):
            ablation_table(cells)


def test_csv_has_every_number_unrounded_and_the_success_of_attacks_that_have_a_goal() -> None:
    backdoor: dict[str, Any] = {"attack": "backdoor", "attackers": 0.3}
    cells = [whole(90.0, **backdoor), without("panel", 90.0 - 1 / 3, **backdoor)]
    cells = [
        cell.model_copy(update={"summary": {**cell.summary, "attack_success": number}})
        for cell, number in zip(cells, (12.5, 99.0), strict=True)
        if cell.summary is not None
    ]
    (line,) = csv.DictReader(io.StringIO(ablation_csv(ablation_table(cells))))
    assert float(line["difference_mean"]) == pytest.approx(-1 / 3)
    assert (line["whole"], line["without"], line["attack"]) == ("all of it", "no panel", "backdoor")
    assert (line["attack_success"], line["attack_success_whole"]) == ("99.0", "12.5")
    assert float(line["accuracy_whole"]) == 90.0
    assert shown(cells)[0]["attack success"] == "99.0 (12.5)"


def test_latex_has_as_many_columns_as_it_says() -> None:
    cells = [whole(90.0, **LIE), without("panel", 70.0, **LIE)]
    text = ABLATION_FORMATS["latex"](ablation_table(cells))
    (found,) = re.findall(r"\\begin\{tabular\}\{(\w+)\}(.*?)\\end\{tabular\}", text, flags=re.DOTALL)
    body = [line for line in found[1].splitlines() if line.endswith(r"\\")]
    assert len(body) == 2
    assert {len(re.findall(r"(?<!\\)&", line)) + 1 for line in body} == {len(found[0])}
