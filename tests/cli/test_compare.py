"""``mabrfl compare``, and the options of ``table`` and ``plot`` for papers."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from matplotlib.text import Text

from mabrfl.reports.drawing import for_paper
from mabrfl.reports.figures import draw
from mabrfl.reports.side_by_side import side_by_side
from mabrfl.reports.tables import tabulate
from mabrfl.sweeps.results import load_results
from result_folders import make_cell, run_config, write_run, write_sweep


def backdoor(success: float, **settings: Any) -> Any:
    cell = make_cell(90.0, attack="backdoor", attackers=3, **settings)
    assert cell.summary is not None
    return cell.model_copy(update={"summary": {**cell.summary, "attack_success": success}})


def test_two_runs_are_compared_by_what_differs_and_by_their_numbers(mabrfl: Callable[..., Any], tmp_path: Path) -> None:
    write_run(tmp_path / "one", run_config(defense="krum"), 90.0)
    write_run(tmp_path / "two", run_config(defense="median", seed=1), 84.5)
    done = mabrfl("compare", "one", "two", "--out", "curves.pdf")
    assert (done.code, done.err) == (0, "")
    words = " ".join(done.out.split())
    assert "│ defense │ krum │ median │" in words
    assert "│ seed │ 0 │ 1 │" in words
    assert "defense_options" not in words, "krum's options, which median does not have, are said by its name"
    assert "options that one of them does not have are not shown; config.toml has them." in words
    assert "│ final accuracy (%) │ 90.00 │ 84.50 │ -5.50 │" in words
    assert (tmp_path / "curves.pdf").read_bytes().startswith(b"%PDF")


def test_sweeps_are_matched_by_the_settings_in_which_they_do_not_differ(
    mabrfl: Callable[..., Any], tmp_path: Path
) -> None:
    for name, rounds, gain in (("one", 4, 0.0), ("two", 5, 1.0)):
        runs = [({"defense": defense, "rounds": rounds}, 80.0 + gain) for defense in ("krum", "median")]
        write_sweep(tmp_path / name, [*runs, ({"defense": "faba", "rounds": rounds}, None)])
    rows = list(csv.reader(io.StringIO(mabrfl("compare", "one", "two", "--csv").out)))
    assert rows == [
        ["final accuracy (%)", "A: one", "B: two", "B - A"],
        ["defense=krum", "80.00", "81.00", "+1.00"],
        ["defense=median", "80.00", "81.00", "+1.00"],
    ]


def test_what_cannot_be_compared_is_one_line(mabrfl: Callable[..., Any], tmp_path: Path) -> None:
    write_sweep(tmp_path / "open", [({"defense": "krum"}, None)])
    write_run(tmp_path / "one", run_config(defense="krum"), 90.0)
    for arguments, message in {
        ("one",): "at least two results",
        ("one", "open"): "B: open has no finished run to compare",
        ("one", "one", "--metric", "acuracy"): "--metric: unknown 'acuracy'",
        ("one", "one", "--out", "curves.gif"): "--out: unknown 'gif'",
    }.items():
        done = mabrfl("compare", *arguments)
        assert done.code in (2, 5)
        assert message in done.err
        assert done.err.count("\n") == 1


def test_the_mean_and_deviation_are_over_the_seeds_of_a_match() -> None:
    ours = [make_cell(final, seed=seed, defense="krum") for seed, final in enumerate((80.0, 84.0))]
    (match,) = side_by_side([("A", ours), ("B", [make_cell(70.0, defense="krum")])]).matches
    (mean, deviation), other = match.values("final_accuracy")  # type: ignore[misc]
    assert (mean, round(deviation or 0, 3), other) == (82.0, 2.828, (70.0, None))


def test_attack_success_is_a_table_of_attacks_with_a_goal_in_which_the_lowest_is_best() -> None:
    cells = [backdoor(91.5, defense="krum"), backdoor(12.0, defense="median"), make_cell(95.0, defense="krum")]
    (table,) = tabulate(cells, "attack_success")
    entries = {column.label: table.at(table.grid.rows[0], column) for column in table.grid.columns}
    assert len(table.grid.rows) == 1
    assert (entries["Median"].mean, entries["Median"].mark, entries["Median"].paper) == (12.0, "best", None)
    assert (entries["Krum"].mean, entries["Krum"].mark) == (91.5, "second")
    (plain,) = tabulate(cells[:2], "attack_success", marks=False)
    assert {entry.mark for entry in plain.entries.values()} == {""}


def test_tables_without_marks_and_of_attacks_without_a_goal(mabrfl: Callable[..., Any], tmp_path: Path) -> None:
    write_sweep(tmp_path / "s", [({"defense": name}, 90.0) for name in ("krum", "median")])
    marked, plain = mabrfl("table", "s").out, mabrfl("table", "s", "--no-marks").out
    assert "**90.00**" in marked
    assert "Bold" in marked
    assert "**90.00**" not in plain
    assert "Bold" not in plain
    refused = mabrfl("table", "s", "--metric", "attack_success")
    assert (refused.code, "an attack with a goal" in refused.err) == (5, True)


def test_a_figure_for_a_paper_is_a_pdf_of_this_width_without_a_title(
    mabrfl: Callable[..., Any], tmp_path: Path
) -> None:
    write_sweep(tmp_path / "s", [({"defense": name}, 90.0) for name in ("krum", "median")])
    arguments = ("plot", "s", "--figure", "accuracy", "--format")
    assert mabrfl(*arguments, "pdf", "--width", "3.5", "--no-title", "--out", "figures").code == 0
    (picture,) = (tmp_path / "figures").iterdir()
    first = picture.read_bytes()
    assert first.startswith(b"%PDF")
    assert b"/MediaBox [ 0 0 252 " in first, "3.5 inches are 252 points"
    assert mabrfl(*arguments, "pdf", "--width", "3.5", "--no-title", "--out", "again").code == 0
    assert next((tmp_path / "again").iterdir()).read_bytes() == first
    titles = {}
    for more in ((), ("--no-title",)):
        mabrfl(*arguments, "svg", *more, "--out", "svg")
        titles[more] = next((tmp_path / "svg").iterdir()).read_text().count("<!-- ")
    assert titles[("--no-title",)] < titles[()]


def test_a_figure_for_a_paper_has_the_font_and_the_size_that_are_asked_for(
    mabrfl: Callable[..., Any], tmp_path: Path
) -> None:
    write_sweep(tmp_path / "s", [({"defense": name}, 90.0) for name in ("krum", "median")])
    arguments = ("plot", "s", "--figure", "accuracy", "--format", "pdf", "--out", "figures")
    assert mabrfl(*arguments, "--font", "serif", "--font-size", "7").code == 0
    (picture,) = (tmp_path / "figures").iterdir()
    assert b"+DejaVuSerif" in picture.read_bytes()
    assert b"+DejaVuSans" not in picture.read_bytes()
    refused = mabrfl(*arguments, "--font", "Tiems")
    assert (refused.code, "no font 'Tiems' is installed" in refused.err) == (3, True)
    cells = load_results(tmp_path / "s").cells
    for figure in draw(cells, "accuracy").values():
        for_paper(figure, font_size=6.5)
        figure.draw_without_rendering()
        assert {text.get_fontsize() for text in figure.findobj(Text) if text.get_text()} == {6.5}


@pytest.mark.parametrize(("width", "size"), [(3.3, None), (3.3, 11.0), (7.0, 8.0), (2.0, 10.0)])
def test_the_legend_below_a_figure_has_as_many_columns_as_fit(tmp_path: Path, width: float, size: float | None) -> None:
    names = ("krum", "median", "fedavg", "mab-rfl", "faba", "dnc")
    write_sweep(tmp_path / "s", [({"defense": name}, 90.0) for name in names])
    (figure,) = draw(load_results(tmp_path / "s").cells, "accuracy").values()
    for_paper(figure, width=width, font_size=size)
    figure.draw_without_rendering()
    (legend,) = figure.legends
    box = legend.get_window_extent().transformed(figure.dpi_scale_trans.inverted())
    assert (box.x0 >= 0, box.x1 <= width) == (True, True)
    assert (width < 3 or size == 11.0) or legend._ncols > 1


def test_accuracy_by_class_and_the_confusion_matrix_are_a_table(mabrfl: Callable[..., Any], tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path / "s", [({"defense": "krum"}, 90.0), ({"defense": "median"}, "running")])
    text = mabrfl("table", "s", "--classes").out
    assert text.startswith("**MNIST, Krum, no attack, seed 0: by class**")
    assert [line.split() for line in text.splitlines() if line.startswith("|")][2:] == [
        ["|", "0", "|", "100.00", "|", "5", "|", "5", "|", "0", "|"],
        ["|", "1", "|", "75.00", "|", "4", "|", "1", "|", "3", "|"],
    ]
    assert "after round 4 by class of the test set. To the right: how many of its examples" in text
    lines = list(csv.DictReader(io.StringIO(mabrfl("table", "s", "--classes", "--format", "csv").out)))
    assert [(line["class"], line["accuracy"], line["predicted_0"]) for line in lines] == [
        ("0", "100.0", "5"),
        ("1", "75.0", "1"),
    ]
    assert r"\begin{tabular}" in mabrfl("table", "s", "--classes", "--format", "latex").out
    # Records of earlier versions have the accuracies alone.
    for file in sweep.rglob("rounds.jsonl"):
        file.write_text(file.read_text().replace('"confusion":[[5,0],[1,3]],', ""))
    assert "examples" not in mabrfl("table", "s", "--classes").out
    assert mabrfl("pack", "s", "p.json.gz").code == 0
    refused = mabrfl("table", "p.json.gz", "--classes")
    assert (refused.code, "packed results do not" in refused.err) == (5, True)
    assert mabrfl("table", "s", "--classes", "--ranks").code == 2
