from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from mabrfl.reports.arrangement import arrange, conditions
from mabrfl.reports.comparison import agreements, rankings
from mabrfl.reports.labels import Column, Row
from mabrfl.reports.table_formats import as_csv, latex, markdown
from mabrfl.reports.tables import Table, TableEntry, tabulate
from mabrfl.reports.text_tables import TextTable, escape_latex
from mabrfl.sweeps.results import Cell
from result_folders import LAPTOP, make_cell

LIE: dict[str, Any] = {"attack": "lie", "attackers": 0.3}
compared_cell = partial(make_cell, **LAPTOP)


def entries(cells: list[Cell], percent: float = 30) -> dict[str, TableEntry]:
    (table,) = tabulate(cells)
    return {column.label: entry for (row, column), entry in table.entries.items() if row.percent == percent}


def only(cells: list[Cell], **options: Any) -> Table:
    (table,) = tabulate(cells, **options)
    return table


def body(text: str) -> list[list[str]]:
    """The lines of the first Markdown table, without head."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]


def test_mean_and_sample_deviation_are_over_the_seeds() -> None:
    cells = [make_cell(value, defense="krum", seed=seed, **LIE) for seed, value in enumerate((90.0, 92.0, 97.0))]
    entry = entries(cells)["Krum"]
    # Mean 93; squared deviations 9 + 1 + 16 = 26, over n - 1 = 2 is 13, and its root 3.6056.
    assert (entry.mean, entry.seeds, entry.planned) == (93.0, 3, 3)
    assert entry.deviation == pytest.approx(3.605551)
    assert "93.00 ± 3.61" in markdown([only(cells)])
    assert "over 3 seeds" in markdown([only(cells)])


def test_a_run_whose_attackers_are_a_share_here_and_a_number_there_is_one_seed() -> None:
    twice = [make_cell(97.07, defense="krum", attack="lie", attackers=attackers) for attackers in (0.3, 3)]
    entry = entries(twice)["Krum"]
    assert (entry.mean, entry.deviation, entry.seeds, entry.planned) == (97.07, None, 1, 1)
    text = markdown([only(twice)])
    assert "one seed." in text
    assert "1 of 1 runs done." in text


def test_of_two_cells_of_one_seed_the_finished_one_counts_then_the_one_with_more_rounds() -> None:
    def begun(attackers: float, rounds: int) -> Cell:
        cell = make_cell(90.0, defense="krum", attack="lie", attackers=attackers)
        series = {name: values[:rounds] for name, values in cell.series.items()}
        return cell.model_copy(update={"status": "running", "summary": None, "series": series})

    failed = make_cell(status="failed", defense="krum", attack="lie", attackers=3)
    done = make_cell(90.0, defense="krum", attack="lie", attackers=3)
    for cells in ([begun(0.3, 3), done], [done, begun(0.3, 3)]):
        assert body(markdown([only(cells)]))[0][2] == "90.00"
    for cells in ([begun(0.3, 3), begun(3, 2)], [begun(0.3, 2), begun(3, 3)], [failed, begun(0.3, 3)]):
        assert body(markdown([only(cells)]))[0][2] == "begun (3 of 4 rounds)"
    assert body(markdown([only([make_cell(status="missing", defense="krum", **LIE), failed])]))[0][2] == "failed"


def test_a_single_seed_has_no_deviation() -> None:
    entry = entries([make_cell(90.0, defense="krum", **LIE)])["Krum"]
    assert (entry.mean, entry.deviation) == (90.0, None)
    text = markdown([only([make_cell(90.0, defense="krum", **LIE)])])
    assert "±" not in body(text)[0][2]
    assert "one seed." in text


def test_the_number_of_seeds_is_said_where_it_differs() -> None:
    cells = [make_cell(90.0 + seed, defense="krum", seed=seed, **LIE) for seed in range(2)]
    cells += [make_cell(90.0 + seed, defense="median", seed=seed, **LIE) for seed in range(3)]
    cells += [make_cell(95.0, defense="faba", **LIE)]
    text = markdown([only(cells)], compare=False)
    assert body(text)[0][2:] == ["**95.00**", "*90.50 ± 0.71 [90.00] (2)*", "*91.00 ± 1.00 [90.00] (3)*"]
    assert "the number of seeds in brackets; one seed where there is no ±" in text


def test_the_best_and_the_best_of_the_others_are_marked_and_fedavg_may_be_it() -> None:
    cells = [
        make_cell(80.0, defense="krum", **LIE),
        make_cell(90.0, defense="median", **LIE),
        make_cell(97.0, defense="mab-rfl", **LIE),
        make_cell(99.0, defense="fedavg", **LIE),
    ]
    marks = {label: entry.mark for label, entry in entries(cells).items()}
    assert marks == {"Krum": "", "Median": "", "MAB-RFL paper": "second", "FedAvg": "best"}


def test_what_differs_by_a_standard_deviation_or_less_is_a_tie() -> None:
    """Means 94.44 and 94.31 with deviations of 2.36 and 2.16 are no order; 90 is another matter."""
    values = {"krum": (92.08, 96.80), "median": (92.15, 96.47), "faba": (90.0, 90.0), "dnc": (85.0, 85.0)}
    cells = [
        make_cell(value, defense=name, seed=seed, **LIE)
        for name, own in values.items()
        for seed, value in enumerate(own)
    ]
    marks = {label: entry.mark for label, entry in entries(cells).items()}
    assert marks == {"Krum": "best", "Median": "best", "FABA": "second", "DnC": ""}
    text = markdown([only(cells)])
    assert "Bold: best of the row, and what differs from it by a standard deviation or less; italics:" in text
    assert "standard deviation or less" not in markdown([only([cell for cell in cells if cell.config["seed"] == 0])])


def with_success(cell: Cell, success: float) -> Cell:
    return cell.model_copy(update={"summary": {**cell.summary, "attack_success": success}})


def test_an_attack_with_a_goal_is_not_marked_by_accuracy() -> None:
    backdoor = {**LIE, "attack": "backdoor"}
    cells = [
        with_success(make_cell(95.0, defense="median", **backdoor), 91.5),
        with_success(make_cell(94.0, defense="krum", **backdoor), 3.0),
    ]
    table = only(cells)
    assert {entry.mark for entry in table.entries.values()} == {""}
    assert "no marks for backdoor, which has a goal beside the accuracy: see the attack success" in markdown([table])
    (by_success,) = tabulate(cells, "attack_success")
    marks = {column.label: by_success.at(by_success.grid.rows[0], column).mark for column in by_success.grid.columns}
    assert marks == {"Median": "second", "Krum": "best"}


def test_the_legend_explains_only_what_is_in_the_table() -> None:
    done = [make_cell(97.0, defense="krum", **LIE), make_cell(96.0, defense="median", **LIE)]
    assert markdown([only(done)]).endswith("Bold: best of the row; italics: best of the others.\n")
    missing = make_cell(status="missing", defense="faba", **LIE)
    assert markdown([only([*done, missing])]).endswith("A dash: not run yet.\n")
    elsewhere = make_cell(90.0, defense="dnc")
    assert markdown([only([*done, elsewhere])]).endswith("Empty: not part of the experiment.\n")


def test_fedavg_is_the_baseline_with_any_selector() -> None:
    assert not any(Column("fedavg", "paper", name).ranked for name in ("all", "uniform", "acs"))
    assert Column("krum", "paper", "acs").ranked
    cells = [make_cell(90.0, defense="fedavg", selector=selector, **LIE) for selector in ("all", "uniform", "acs")]
    text = markdown([only(cells)])
    assert "**" not in body(text)[0][4]
    assert "best of the row" not in text
    ours = [make_cell(97.0, defense="mab-rfl", **LIE)]
    others = [*ours, make_cell(90.0, defense="krum", **LIE)]
    assert "best of the row" in markdown([only([*cells, *others])])


def sampled(way: str, selector: str, final: float = 90.0, **settings: Any) -> Cell:
    return make_cell(final, axes={"sampling": way}, defense="fedavg", selector=selector, **{**LIE, **settings})


def test_columns_of_a_sweep_over_ways_of_sampling_have_their_names_and_no_marks() -> None:
    oracle = {"selector_options": {"num_selected": 3, "num_attackers": 3}}
    cells = [
        sampled("random A", "uniform", 80.0),
        sampled("random B", "uniform", 95.0, attack="silent"),
        sampled("rational", "honest-only", 97.0, **oracle),
    ]
    table = only(cells)
    assert [column.label for column in table.grid.columns] == [
        "FedAvg, random A",
        "FedAvg, random B",
        "FedAvg, rational",
    ]
    assert body(markdown([table])) == [["30%", "LIE", "80.00", "", "97.00"], ["", "Silent", "", "95.00", ""]]
    assert "best of the row" not in markdown([table])
    lines = csv.DictReader(io.StringIO(as_csv([table])))
    assert [line["defense_variant"] for line in lines] == ["random A", "rational", "random B"]


def test_a_way_of_sampling_with_two_selectors_is_two_columns_that_say_so() -> None:
    table = only([sampled("at random", "uniform"), sampled("at random", "all"), sampled("by merit", "acs")])
    assert [column.label for column in table.grid.columns] == [
        "FedAvg, at random + all",
        "FedAvg, at random + uniform",
        "FedAvg, by merit",
    ]


def test_what_reads_the_same_is_marked_the_same() -> None:
    cells = [
        make_cell(97.001, defense="krum", **LIE),
        make_cell(97.004, defense="median", **LIE),
        make_cell(96.0, defense="faba", **LIE),
        make_cell(95.0, defense="dnc", **LIE),
    ]
    marks = {label: entry.mark for label, entry in entries(cells).items()}
    assert marks == {"Krum": "best", "Median": "best", "FABA": "second", "DnC": ""}


def test_a_row_with_one_figure_has_no_best() -> None:
    cells = [make_cell(97.0, defense="krum", **LIE), make_cell(status="missing", defense="median", **LIE)]
    assert {entry.mark for entry in entries(cells).values()} == {""}


def test_a_row_that_is_not_complete_yet_has_no_best_and_the_table_says_so() -> None:
    lie = [make_cell(97.0, defense="krum", **LIE), make_cell(96.0, defense="median", **LIE)]
    told = "no marks in a row that is not complete yet"
    assert [entry.mark for entry in entries(lie).values()] == ["best", "second"]
    assert told not in markdown([only(lie)])
    for status in ("missing", "running"):
        cells = [*lie, make_cell(status=status, defense="faba", **LIE)]
        assert {entry.mark for entry in entries(cells).values()} == {""}
        assert told in markdown([only(cells)])
    # A failed run is over, and what is not planned is not waited for.
    cells = [*lie, make_cell(status="failed", defense="faba", **LIE), make_cell(90.0, defense="dnc")]
    assert [entry.mark for entry in entries(cells).values()] == ["", "", "best", "second"]
    assert told not in markdown([only(cells)])


def test_the_papers_figure_and_the_difference_stand_below_ours() -> None:
    cells = [compared_cell(96.0, defense="mab-rfl", **LIE), compared_cell(80.5, defense="krum", **LIE)]
    assert body(markdown([only(cells)])) == [["30%", "LIE", "*80.50*<br>79.73 +0.77", "**96.00**<br>97.05 −1.05"]]
    assert body(markdown([only(cells)], compare=False)) == [["30%", "LIE", "*80.50*", "**96.00**"]]
    assert "Table 1" not in markdown([only(cells)], compare=False)
    assert entries(cells)["Krum"].difference == pytest.approx(0.77)


def test_a_defense_with_another_selector_is_a_column_of_its_own_without_a_figure_of_the_paper() -> None:
    cells = [compared_cell(80.0, defense="krum", **LIE), compared_cell(90.0, defense="krum", selector="acs", **LIE)]
    found = entries(cells)
    assert {label: entry.paper for label, entry in found.items()} == {"Krum": 79.73, "Krum + ACS": None}


def test_a_defense_has_the_name_that_the_sweep_gives_it_with_these_options() -> None:
    strict: dict[str, Any] = {"defense": "mab-rfl", "preset": "paper", "defense_options": {"c_max": 0.5}}
    cells = [
        make_cell(90.0, defense="mab-rfl", preset="paper", axes={"defense": "mab-rfl"}, **LIE),
        make_cell(91.0, axes={"defense": "ours, strict"}, **strict),
        make_cell(92.0, axes={"defense": "ours, strict"}, **strict, **LIE),
        make_cell(93.0, defense="krum", axes={"defense": "Krum"}, **LIE),
    ]
    (grid,) = arrange(cells)
    assert [column.label for column in grid.columns] == ["Krum", "MAB-RFL paper", "ours, strict"]
    # What the name does not stand for is said; where a run has another name, or none, the options are.
    slower = make_cell(88.0, axes={"defense": "ours, strict"}, assumed_malicious=9, **strict, **LIE)
    (grid,) = arrange([*cells, slower])
    assert "ours, strict, assumed_malicious=9" in [column.label for column in grid.columns]
    for other in ({}, {"defense": "mab-rfl"}, {"defense": "ours, stern"}):
        (grid,) = arrange([*cells, make_cell(87.0, axes=other, seed=5, **strict, **LIE)])
        assert "MAB-RFL paper, c_max=0.5" in [column.label for column in grid.columns]


def test_a_name_that_stands_for_one_selector_is_used_as_it_is() -> None:
    chosen = make_cell(90.0, defense="dnc", selector="acs", axes={"defense": "DnC, chosen"}, **LIE)
    plain = make_cell(90.0, defense="dnc", axes={"defense": "DnC, all"}, **LIE)
    (grid,) = arrange([chosen, plain])
    assert [column.label for column in grid.columns] == ["DnC, all", "DnC, chosen"]
    assert {one.column.label for one in conditions([chosen, plain])} == {"DnC, all", "DnC, chosen"}
    both = [make_cell(90.0, defense="dnc", selector=name, axes={"defense": "mine"}, **LIE) for name in ("acs", "all")]
    assert [column.label for column in arrange(both)[0].columns] == ["mine", "mine + ACS"]


def test_missing_failed_running_and_unplanned_look_different() -> None:
    cells = [
        compared_cell(90.0, defense="krum"),
        compared_cell(status="missing", defense="krum", **LIE),
        compared_cell(status="failed", defense="median", **LIE),
        compared_cell(status="running", defense="faba", **LIE),
    ]
    text = markdown([only(cells)], compare=False)
    assert body(text) == [["0%", "—", "", "90.00", ""], ["30%", "LIE", "begun (0 of 40 rounds)", "—", "failed"]]
    assert "1 of 4 runs done, 1 failed, 1 begun." in text
    assert "begun: stopped, or still at work, before the last round" in text
    # FABA, Krum, Median is the paper's order of columns.
    assert "—<br>79.73" in markdown([only(cells)])


def test_of_several_begun_runs_the_one_that_got_furthest_is_told() -> None:
    cells = [make_cell(status="missing", defense="krum", seed=9, **LIE)]
    for seed, rounds in enumerate((2, 3, 1)):
        begun = make_cell(90.0, defense="krum", seed=seed, **LIE)
        series = {name: values[:rounds] for name, values in begun.series.items()}
        cells.append(begun.model_copy(update={"status": "running", "summary": None, "series": series}))
    assert body(markdown([only(cells)]))[0][2] == "begun (3 of 4 rounds)"
    (line,) = csv.DictReader(io.StringIO(as_csv([only(cells)])))
    assert line["status"] == "begun"


def test_a_place_with_some_seeds_done_says_which_are_not() -> None:
    cells = [
        make_cell(90.0, defense="krum", **LIE),
        make_cell(status="failed", defense="krum", seed=1, **LIE),
        make_cell(status="missing", defense="krum", seed=2, **LIE),
    ]
    assert body(markdown([only(cells)], compare=False))[0][2] == "90.00 (1 of 3, 1 failed)"


def test_a_run_that_ended_without_a_number_has_failed() -> None:
    entry = entries([make_cell(None, defense="krum", **LIE)])["Krum"]
    assert (entry.status, entry.failed, entry.mean) == ("failed", 1, None)


def test_a_run_that_ended_without_a_number_is_not_done_in_any_sentence_and_the_legend_says_what_failed_means() -> None:
    cells = [make_cell(final, defense="krum", seed=seed, **LIE) for seed, final in enumerate((90.0, 92.0, None))]
    text = markdown([only(cells)])
    assert "(2 of 3, 1 failed)" in body(text)[0][2]
    assert "2 of 3 runs done, 1 failed." in text
    assert "Failed: ended by an error, or without a number" in text
    assert "failed" not in markdown([only(cells[:2])])


def test_where_nothing_is_done_the_caption_names_no_number_of_seeds() -> None:
    text = markdown([only([make_cell(status="missing", defense="krum", seed=seed, **LIE) for seed in range(3)])])
    assert "Accuracy (%) of the final model. 0 of 3 runs done." in text


def test_another_metric_gives_its_own_numbers() -> None:
    cells = [make_cell(90.0, defense="krum", **LIE)]
    # Four rounds at 60, 70, 80 and 90.
    assert body(markdown([only(cells, metric="mean_last10")], compare=False))[0][2] == "75.00"


def test_rows_and_columns_come_in_the_papers_order() -> None:
    defenses = ("fedavg", "mab-rfl", "median", "trimmed-mean", "krum", "faba", "dnc", "centered-clip")
    attacks = ("min-max", "label-flip", "lie", "agrt")
    cells = [make_cell(90.0, defense=defense) for defense in defenses]
    cells += [make_cell(90.0, defense="mab-rfl", preset="reference", attack=name, attackers=0.3) for name in attacks]
    (grid,) = arrange(cells)
    assert [column.label for column in grid.columns] == [
        *("CC", "DnC", "FABA", "Krum", "Median", "Trimmed mean", "MAB-RFL paper", "MAB-RFL reference", "FedAvg")
    ]
    assert [(row.share, row.label) for row in grid.rows] == [
        ("0%", "—"),
        ("30%", "AGRT"),
        ("30%", "LIE"),
        ("30%", "LF"),
        ("30%", "Min-Max"),
    ]


def test_options_that_differ_make_columns_and_attack_options_make_rows() -> None:
    cells = [make_cell(90.0, defense="mab-rfl", defense_options={"alpha": alpha}, **LIE) for alpha in (-0.1, -0.5)] + [
        make_cell(80.0, defense="mab-rfl", attack="lie", attackers=0.3, attack_options={"ddof": 1})
    ]
    (grid,) = arrange(cells)
    assert [column.label for column in grid.columns] == ["MAB-RFL paper, alpha=-0.1", "MAB-RFL paper, alpha=-0.5"]
    assert [row.label for row in grid.rows] == ["LIE, ddof=0", "LIE, ddof=1"]


def test_an_attack_is_called_what_the_sweep_calls_it_at_every_share_of_attackers() -> None:
    bounded = {"attack": "agr-krum", "attack_options": {"gamma_init": 0.75}}
    plain = [make_cell(90.0, defense="krum", attack="agr-krum", attackers=share) for share in (0.1, 0.3)]
    told = make_cell(80.0, defense="krum", attackers=0.3, axes={"attack": "AGRT, bounded"}, **bounded)
    elsewhere = make_cell(70.0, defense="krum", attackers=0.1, **bounded)
    aliased = make_cell(60.0, defense="krum", attack="label-flip", attackers=0.3, axes={"attack": "LF"})
    (grid,) = arrange([*plain, elsewhere, told, aliased])
    assert [(row.share, row.label) for row in grid.rows] == [
        ("10%", "AGRT"),
        ("10%", "AGRT, bounded"),
        ("30%", "AGRT"),
        ("30%", "AGRT, bounded"),
        ("30%", "LF"),
    ]
    lines = csv.DictReader(io.StringIO(as_csv(tabulate([*plain, told]))))
    assert {(line["attackers_percent"], line["attack_variant"]): line["mean"] for line in lines} == {
        ("10", ""): "90.0",
        ("30", ""): "90.0",
        ("30", "AGRT, bounded"): "80.0",
    }


def test_marks_and_ranks_go_by_the_seeds_that_all_have_and_the_legend_says_so() -> None:
    """Krum is better with the one seed that both have; the mean over all its seeds would be worse."""
    seeds = {0: 97.0, 1: 90.0, 2: 90.0}
    cells = [compared_cell(value, defense="krum", seed=seed, **LIE) for seed, value in seeds.items()]
    table = only([*cells, compared_cell(96.0, defense="mab-rfl", seed=0, **LIE)])
    marks = {column.label: table.at(table.grid.rows[0], column).mark for column in table.grid.columns}
    assert marks == {"Krum": "best", "MAB-RFL paper": "second"}
    (ranking,) = rankings(table)
    assert {column.label: rank for column, rank in ranking.ours.items()} == {"Krum": 1, "MAB-RFL paper": 2}
    text = markdown([table], ranks=True)
    assert (
        "best of the others; where the columns of a row have different seeds, by those that all of them have:" in text
    )
    # What decides is beside what reads as if it were worse; MAB-RFL's one seed needs no second figure.
    assert "**92.33 ± 4.04 [97.00]**" in text
    assert "*96.00*" in text
    (krum, ours) = csv.DictReader(io.StringIO(as_csv([table])))
    assert (krum["mark"], krum["marked_by"], ours["mark"], ours["marked_by"]) == ("best", "97.0", "second", "")
    assert "among those that both have, by the seeds that all of these have;" in text
    assert "by the seeds" not in markdown([only(cells)], ranks=True)
    nothing_in_common = [*cells[1:], compared_cell(96.0, defense="mab-rfl", seed=0, **LIE)]
    assert markdown([only(nothing_in_common)], compare=False).count("**96.00**") == 1


def test_where_several_options_differ_only_the_unusual_ones_are_named() -> None:
    options = [{}, {}, {"alpha": -0.5}, {"history": 0.5}, {"alpha": -0.5, "history": 0.5}]
    cells = [
        make_cell(90.0, defense="mab-rfl", defense_options=told, seed=seed, **LIE) for seed, told in enumerate(options)
    ]
    (grid,) = arrange(cells)
    names = ["", ", alpha=-0.5", ", history=0.5", ", history=0.5, alpha=-0.5"]
    assert [column.label for column in grid.columns] == [f"MAB-RFL paper{name}" for name in names]


def test_the_bound_a_rule_is_told_follows_the_share_and_makes_no_column_unless_it_is_set() -> None:
    shares = [make_cell(90.0, defense="krum", attack="lie", attackers=share) for share in (0.1, 0.3)]
    (grid,) = arrange(shares)
    assert [column.label for column in grid.columns] == ["Krum"]
    (grid,) = arrange([*shares, make_cell(90.0, defense="krum", assumed_malicious=4, **LIE)])
    assert [column.label for column in grid.columns] == ["Krum, assumed_malicious=4", "Krum, assumed_malicious=true"]


@pytest.mark.parametrize(
    "other",
    [{"rounds": 5}, {"model": "mnist-cnn"}, {"dataset": "fashion-mnist"}, {"clients": 20}, {"training": {"epochs": 1}}],
)
def test_another_setting_is_another_table(other: dict[str, Any]) -> None:
    tables = tabulate([make_cell(90.0, defense="krum"), make_cell(91.0, defense="krum", **other)])
    assert [table.at(table.grid.rows[0], table.grid.columns[0]).mean for table in tables] == [90.0, 91.0]
    assert len({table.grid.setting.title for table in tables}) == 2


def test_of_settings_with_one_title_all_but_the_most_frequent_say_what_is_different() -> None:
    others = [{"training": {"optimizer": "sgd"}}, {"partition": {"kind": "dirichlet", "concentration": 0.1}}]
    cells = [
        make_cell(90.0, **others[0]),
        *(make_cell(90.0, seed=seed) for seed in (0, 1)),
        make_cell(90.0, **others[1]),
    ]
    titles = [grid.setting.title for grid in arrange(cells)]
    assert titles[1] == "MNIST, mnist-cnn-small, 4 rounds"
    assert titles[0].startswith(titles[1] + ", sgd")
    assert titles[2] == titles[1] + ", dirichlet, concentration = 0.1"


def test_the_preset_reference_is_in_the_same_table_although_its_conditions_differ() -> None:
    cells = [make_cell(90.0, defense="mab-rfl", preset=preset, **LIE) for preset in ("paper", "reference")]
    assert len(arrange(cells)) == 1


def test_another_defense_is_one_column_whether_it_was_run_with_the_new_default_or_with_the_papers_conditions() -> None:
    cells = [
        make_cell(90.0, defense="krum", preset=preset, seed=seed) for seed, preset in enumerate(("paper", "hardened"))
    ]
    assert [column.label for column in only(cells).grid.columns] == ["Krum"]
    assert [column.label for column in only([make_cell(90.0, defense="krum", preset="reference")]).grid.columns] == [
        "Krum reference"
    ]


def test_the_caption_says_what_was_run() -> None:
    text = " ".join(only([compared_cell(90.0, defense="krum")]).notes())
    assert "50 clients with 10 to 500 examples each, dominant labels (q = 0.5), 3 local epochs of adam" in text
    assert "(CNN, 100 rounds, seeds not stated)" in text


def test_ranks_are_compared_pair_by_pair_with_the_papers() -> None:
    # The paper at 30 % LIE: DnC 97.23, MAB-RFL 97.05, Median 93.68, Krum 79.73.
    ours = {"dnc": 96.0, "mab-rfl": 97.0, "median": 96.0, "krum": 80.0}
    cells = [compared_cell(value, defense=defense, **LIE) for defense, value in ours.items()]
    cells += [
        compared_cell(98.0, defense="mab-rfl", preset="reference", **LIE),
        compared_cell(10.0, defense="fedavg", **LIE),
    ]
    (ranking,) = rankings(only(cells))
    assert {column.label: (ranking.ours[column], ranking.papers[column]) for column in ranking.ours} == {
        "DnC": (2, 1),
        "Krum": (4, 4),
        "Median": (2, 3),
        "MAB-RFL paper": (1, 2),
    }
    # Of six pairs, DnC - MAB-RFL is turned round and DnC - Median is a tie with us.
    assert (ranking.alike, ranking.pairs) == (4, 6)
    text = markdown([only(cells)], ranks=True)
    assert "2 (1)" in text
    assert "4 of 6 pairs are in the paper's order" in text
    # Kendall's tau-b by hand: 4 pairs alike, 1 opposite, 1 tied with us: (4 - 1) / sqrt(5 * 6).
    assert ranking.tau == pytest.approx(3 / 30**0.5)
    assert re.search(r"\| +4 of 6 \| +\+0\.55 \|", text)


def test_tau_is_1_for_the_papers_order_and_minus_1_for_its_reverse_and_none_for_ties() -> None:
    def tau(**ours: float) -> float | None:
        (ranking,) = rankings(only([compared_cell(value, defense=name, **LIE) for name, value in ours.items()]))
        return ranking.tau

    assert tau(dnc=97.0, median=93.0, krum=80.0) == 1
    assert tau(dnc=80.0, median=93.0, krum=97.0) == -1
    assert tau(dnc=50.0, median=50.0, krum=50.0) is None


def test_differences_by_defense_follow_the_ranks() -> None:
    cells = [compared_cell(95.56, defense="krum"), compared_cell(78.73, defense="krum", **LIE)]
    text = markdown([only(cells)], ranks=True)
    (line,) = [line for line in text.splitlines() if line.startswith("| Krum")]
    assert [cell.strip() for cell in line.split("|")[1:-1]] == ["Krum", "2", "−0.50", "0.50", "−1.00", "30% LIE"]
    assert r"Krum & 2 & $-$0.50 & 0.50 & $-$1.00 & 30\% LIE \\" in latex([only(cells)], ranks=True)
    assert "Krum & 2" not in latex([only(cells)])


def test_agreement_is_the_mean_and_the_largest_difference() -> None:
    cells = [compared_cell(95.56, defense="krum"), compared_cell(80.73, defense="krum", **LIE)]
    (found,) = agreements(only(cells))
    assert (found.rows, found.worst_row.share) == (2, "30%")
    assert found.mean_difference == pytest.approx(0.5)
    assert found.largest_difference == pytest.approx(1.0)


HOSTILE = "a|b_c*d`<script>$&%#{}~^\\"


def hostile_cell() -> Cell:
    cell = make_cell(90.0, defense="krum")
    return cell.model_copy(update={"config": {**cell.config, "model": HOSTILE, "defense": HOSTILE}})


def test_markdown_shows_odd_names_as_they_are() -> None:
    text = markdown(tabulate([hostile_cell()]))
    assert "<script>" not in text
    (head, *_) = [line for line in text.splitlines() if line.startswith("|")]
    assert len(re.split(r"(?<!\\)\|", head)) == 5
    assert r"a\|b\_c\*d\`&lt;script&gt;$&amp;%#{}~^\\" in head


def test_latex_is_balanced_and_escaped() -> None:
    cells = [hostile_cell(), compared_cell(90.0, defense="krum", **LIE), compared_cell(95.0, defense="mab-rfl", **LIE)]
    text = latex(tabulate(cells), ranks=True)
    plain = re.sub(r"\\[{}\\]", "", re.sub(r"%.*", "", text.replace(r"\%", "")))
    depth = 0
    for character in plain:
        depth += {"{": 1, "}": -1}.get(character, 0)
        assert depth >= 0
    assert depth == 0
    # Two settings; the second one has ranks and differences.
    assert re.findall(r"\\begin\{(\w+\*?)\}", text) == ["table*", "tabular"] * 4
    assert len(re.findall(r"\\end\{", text)) == 8
    assert not re.findall(r"(?<!\\)[_#%](?!.*usepackage)", text.partition("\n")[2])
    assert text.count("$") - text.count(r"\$") == 2 * (text.count(r"$\pm$") + text.count("$-$") + text.count(r"$\tau$"))
    for tabular in re.findall(r"\\begin\{tabular\}\{(\w+)\}(.*?)\\end\{tabular\}", text, flags=re.DOTALL):
        lines = [line for line in tabular[1].splitlines() if line.endswith(r"\\")]
        assert {len(re.findall(r"(?<!\\)&", line)) + 1 for line in lines} == {len(tabular[0])}


def test_latex_marks_best_in_bold_and_second_underlined_with_the_paper_below() -> None:
    cells = [compared_cell(80.0, defense="krum", **LIE), compared_cell(96.0, defense="mab-rfl", **LIE)]
    text = latex([only(cells)])
    assert r"30\% & LIE & \underline{80.00} & \textbf{96.00} \\" in text
    assert r"\scriptsize 79.73 +0.27 & \scriptsize 97.05 $-$1.05 \\" in text


def test_latex_has_a_line_of_the_papers_only_where_the_paper_has_a_figure() -> None:
    cells = [compared_cell(80.0, defense="krum"), compared_cell(70.0, defense="krum", attack="ipm", attackers=0.3)]
    assert latex([only(cells)]).count(r"\scriptsize paper") == 1


def long_latex(columns: int, lines: int, words: str = "LIE") -> str:
    table = TextTable("t", ["Attack", *["accuracy"] * columns], "l" + "r" * columns, [], "n")
    return replace(table, rows=[[words, *["97.00 ± 0.10"] * columns]] * lines).latex()


def test_latex_that_fits_is_a_float_in_small_type_and_what_is_wide_is_scaled_down() -> None:
    narrow, wide = long_latex(4, 20), long_latex(12, 20)
    for text in (narrow, wide):
        assert re.findall(r"\\begin\{(\w+\*?)\}", text) == ["table*", "tabular"]
        assert "\n\\footnotesize\n" in text
    assert narrow.startswith("% \\usepackage{booktabs}\n\n")
    assert r"\resizebox{\textwidth}{!}{%" in wide
    assert wide.startswith("% \\usepackage{booktabs}\n% \\usepackage{graphicx}\n\n")
    assert "resizebox" not in narrow


def test_latex_longer_than_a_page_is_a_longtable_with_its_head_on_every_page_and_on_its_side_if_wide() -> None:
    assert "longtable" not in long_latex(4, 45)
    upright, turned = long_latex(4, 46), long_latex(10, 46)
    assert re.findall(r"\\begin\{(\w+)\}", upright) == ["longtable"]
    assert re.findall(r"\\begin\{(\w+)\}", turned) == ["landscape", "longtable"]
    for text in (upright, turned):
        assert text.count("Attack & accuracy") == 2
        assert text.index("\\endfirsthead") < text.index("\\endhead") < text.index("\\endfoot") < text.index("97.00")
        assert text.startswith("% \\usepackage{booktabs}\n% \\usepackage{longtable}\n")
        assert text.count("{") == text.count("}")
    assert "% \\usepackage{pdflscape}\n" in turned
    assert "pdflscape" not in upright


def test_long_heads_and_words_in_latex_go_on_in_the_next_line() -> None:
    text = TextTable("t", ["Attack", "honest rejected"], "lr", [["an attack of many words, told at length", "0"]], "n")
    assert r"Attack & \shortstack[r]{honest\\ rejected} \\" in text.latex()
    assert r"\begin{tabular}{>{\raggedright\arraybackslash}p{78pt}r}" in text.latex()
    assert "% \\usepackage{array}\n" in text.latex()


def test_no_word_of_a_table_becomes_an_option_of_the_end_of_a_line() -> None:
    text = TextTable("t", ["a", "seventeen [b] *c"], "lr", [["[1cm]", "0"], ["*", "1"]], "n").latex()
    assert not re.search(r"\\\\\*?\s*[\[*]", text)


def test_latex_knows_the_quotes_of_every_font_encoding() -> None:
    assert escape_latex('kind="iid" “so”') == "kind=''iid'' ``so''"


def test_latex_escapes_every_special_character() -> None:
    assert escape_latex("50% of a_b & {c} $d #e ~f ^g \\h") == (
        r"50\% of a\_b \& \{c\} \$d \#e \textasciitilde{}f \textasciicircum{}g \textbackslash{}h"
    )


def test_csv_has_a_line_per_planned_place_with_unrounded_numbers() -> None:
    cells = [compared_cell(value, defense="krum", seed=seed, **LIE) for seed, value in enumerate((90.0, 91.0001))]
    cells += [compared_cell(status="missing", defense="mab-rfl", **LIE), compared_cell(97.0, defense="mab-rfl")]
    lines = list(csv.DictReader(io.StringIO(as_csv([only(cells)], ranks=True))))
    assert [(line["attackers_percent"], line["defense"], line["status"]) for line in lines] == [
        ("0", "mab-rfl", "done"),
        ("30", "krum", "done"),
        ("30", "mab-rfl", "missing"),
    ]
    krum = lines[1]
    assert float(krum["mean"]) == 90.50005
    assert float(krum["std"]) == pytest.approx(0.70717749)
    assert (krum["seeds"], krum["paper"]) == ("2", "79.73")
    assert krum["difference"] == "10.77005"
    assert (lines[2]["mean"], lines[2]["difference"], lines[2]["paper"]) == ("", "", "97.05")
    assert "paper" not in as_csv([only(cells)], compare=False).splitlines()[0].split(",")


def test_what_is_not_of_the_package_is_called_by_its_name_alone() -> None:
    assert Column("my.module:Shield", "paper", "my.module:Chooser").label == "Shield + Chooser"
    assert Row(30, "my.module:Silent").label == "Silent"


def test_labels_have_no_control_characters() -> None:
    assert "\n" not in Column("a\nb", "paper", "all").label
    assert "\x1b" not in Row(10, "a\x1b[31m").label
