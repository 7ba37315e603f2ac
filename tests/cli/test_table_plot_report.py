from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mabrfl.cli import results as results_commands
from mabrfl.reports.figures import ALL, FIGURES
from result_folders import LAPTOP, small_sweep, write_sweep

USAGE, STATE, OUTPUT = 2, 5, 6


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    return write_sweep(tmp_path / "small", small_sweep())


def test_table_prints_markdown_with_the_paper_beside_it(mabrfl: Callable[..., Any], tmp_path: Path) -> None:
    write_sweep(tmp_path / "small", small_sweep(**LAPTOP))
    done = mabrfl("table", "small")
    assert done.code == 0
    assert done.err == ""
    lines = done.out.splitlines()
    assert lines[0] == "**MNIST, mnist-cnn-small, 40 rounds**"
    (row,) = [line for line in lines if "LIE" in line]
    cells = [cell.strip() for cell in row.split("|")[1:-1]]
    assert cells == [
        "30%",
        "LIE",
        "—<br>93.63",
        "80.00 (1 of 2, 1 failed)<br>79.73 +0.27",
        "begun (2 of 40 rounds)<br>93.68",
        "96.50 ± 0.71<br>97.05 −0.55",
        "",
    ]


@pytest.mark.usefixtures("sweep")
def test_packed_results_give_the_same_table_as_their_folder(mabrfl: Callable[..., Any], tmp_path: Path) -> None:
    packed = mabrfl("pack", "small", "results/small.json.gz")
    assert packed.code == 0
    size = f"{(tmp_path / 'results' / 'small.json.gz').stat().st_size:,}"
    assert packed.out == (f"results/small.json.gz: 9 runs (6 done, 1 failed, 1 begun, 1 missing), {size} bytes\n")
    for options in ([], ["--ranks"], ["--format", "latex"], ["--metric", "mean_last10", "--no-compare"]):
        assert mabrfl("table", "results/small.json.gz", *options).out == mabrfl("table", "small", *options).out


def test_table_per_run_has_a_line_for_each_run(mabrfl: Callable[..., Any], tmp_path: Path) -> None:
    write_sweep(tmp_path / "s", [({"defense": "krum", "seed": seed}, 90.0 + seed) for seed in (0, 1)])
    lines = mabrfl("table", "s", "--format", "csv", "--per-run").out.splitlines()
    assert (len(lines), lines[0].startswith("key,dataset,model,defense")) == (3, True)
    refused = mabrfl("table", "s", "--per-run")
    assert (refused.code, "write --format csv --per-run" in refused.err) == (2, True)


@pytest.mark.usefixtures("sweep")
def test_table_goes_into_a_file_as_a_whole(mabrfl: Callable[..., Any], tmp_path: Path) -> None:
    done = mabrfl("table", "small", "--format", "csv", "--out", "new/table.csv")
    assert (done.code, done.out) == (0, "")
    text = (tmp_path / "new" / "table.csv").read_text(encoding="utf-8")
    assert [line["defense"] for line in csv.DictReader(io.StringIO(text))][:3] == ["krum", "mab-rfl", "fedavg"]
    assert os.listdir(tmp_path / "new") == ["table.csv"]


@pytest.mark.usefixtures("sweep")
def test_table_of_detection_has_a_row_per_condition_from_folder_and_packed_file_alike(
    mabrfl: Callable[..., Any],
) -> None:
    done = mabrfl("table", "small", "--detection")
    assert (done.code, done.err) == (0, "")
    (row,) = [line for line in done.out.splitlines() if "LIE" in line and "MAB-RFL" in line]
    # Over two seeds, of which one has a clean run at 98; 3 of 4 rejections are right, half of the attackers are caught.
    cells = [cell.strip() for cell in row.split("|")[1:-1]]
    assert cells[3:7] == ["96.50 ± 0.71", "−2.00 (1 of 2)", "75.0 ± 0.0", "50.0 ± 0.0"]
    assert mabrfl("pack", "small", "small.json.gz").code == 0
    for options in ([], ["--format", "csv"], ["--format", "latex"], ["--metric", "mean_last10"]):
        told = ["--detection", *options]
        assert mabrfl("table", "small.json.gz", *told).out == mabrfl("table", "small", *told).out != ""


def test_results_given_twice_are_taken_once_and_more_seeds_are_added(
    mabrfl: Callable[..., Any], tmp_path: Path
) -> None:
    write_sweep(tmp_path / "a", [({"defense": "krum", "seed": 0}, 80.0), ({"defense": "krum", "seed": 1}, 82.0)])
    write_sweep(tmp_path / "b", [({"defense": "krum", "seed": 1}, 82.0), ({"defense": "krum", "seed": 2}, 84.0)])
    assert "82.00 ± 2.00" in mabrfl("table", "a", "b", "a", "--no-compare").out


@pytest.mark.usefixtures("sweep")
def test_plot_writes_the_pictures_asked_for_and_names_them(mabrfl: Callable[..., Any], tmp_path: Path) -> None:
    done = mabrfl("plot", "small", "--figure", "isolation", "--figure", "accuracy", "--format", "svg", "--out", "p")
    assert done.code == 0
    names = ["isolation-mnist-mnist-cnn-small-4-rounds-lie.svg", "accuracy-mnist-mnist-cnn-small-4-rounds.svg"]
    assert done.out.split() == [f"p/{name}" for name in names]
    assert sorted(os.listdir(tmp_path / "p")) == sorted(names)


@pytest.mark.usefixtures("sweep")
def test_report_writes_one_page(mabrfl: Callable[..., Any], tmp_path: Path) -> None:
    done = mabrfl("report", "small", "--out", "page.html", "--title", "My <results>")
    assert (done.code, done.out) == (0, "page.html\n")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>")
    assert "<title>My &lt;results&gt;</title>" in text


def test_the_command_line_knows_every_figure() -> None:
    assert (*FIGURES, ALL) == results_commands.FIGURE_NAMES


MISTAKES: dict[str, tuple[list[str], int, str]] = {
    "no results": (["table"], USAGE, "Missing argument"),
    "results that are not there": (["table", "nowhere"], STATE, "there are no results at 'nowhere'"),
    "a folder without results": (["plot", "empty"], STATE, "holds no results"),
    "a table of no runs": (["table", "none"], STATE, "the results have no runs"),
    "a table of no runs into a file": (["table", "none", "--out", "x.md"], STATE, "the results have no runs"),
    "a report on no runs": (["report", "none"], STATE, "the results have no runs"),
    "a file that is none": (["report", "file"], STATE, "is not a packed results file, or is damaged"),
    "an unknown format": (["table", "small", "--format", "html"], USAGE, "--format: unknown 'html'; known: csv"),
    "an unknown metric": (["table", "small", "--metric", "accuracy"], USAGE, "did you mean 'final_accuracy'"),
    "ranks of detection": (["table", "small", "--detection", "--ranks"], USAGE, "--ranks and --detection do not go"),
    "an ablation of none": (["table", "small", "--ablation"], STATE, "nothing is left out in these results"),
    "an unknown figure": (["plot", "small", "--figure", "sampler"], USAGE, "did you mean 'sampling'?"),
    "an unknown picture": (["plot", "small", "--format", "gif"], USAGE, "--format: unknown 'gif'"),
    "a figure that cannot be": (["plot", "small", "--figure", "sampling"], STATE, "needs runs that are done"),
    "pictures into a file": (["plot", "small", "--out", "file"], USAGE, "--out: 'file' is a file"),
    "a table into a folder": (["table", "small", "--out", "small"], OUTPUT, "cannot write 'small'"),
    "a page below a file": (["report", "small", "--out", "file/x.html"], OUTPUT, "cannot write 'file/x.html'"),
    "packing over a file": (["pack", "small", "file"], OUTPUT, "exists and is not a packed results file"),
    "packing nothing": (["pack", "nowhere", "x.json.gz"], STATE, "there are no results"),
    "an option twice": (["table", "small", "--format", "csv", "--format", "latex"], USAGE, "was given 2 times"),
}


@pytest.mark.parametrize(("arguments", "code", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_one_line_on_stderr_and_changes_nothing(
    mabrfl: Callable[..., Any], tmp_path: Path, arguments: list[str], code: int, message: str
) -> None:
    write_sweep(tmp_path / "small", [({"defense": "krum"}, 80.0)])
    (tmp_path / "file").write_text("mine")
    (tmp_path / "empty").mkdir()
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "cells.json").write_text("[]")
    done = mabrfl(*arguments)
    assert (done.code, done.out) == (code, "")
    assert message in done.err
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1
    assert sorted(os.listdir(tmp_path)) == ["empty", "file", "none", "small"]
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.usefixtures("sweep")
def test_render_writes_tables_and_figures_beside_the_packed_file_and_again_the_same(
    mabrfl: Callable[..., Any], tmp_path: Path
) -> None:
    assert mabrfl("pack", "small", "results/small.json.gz").code == 0
    done = mabrfl("render", "results/small.json.gz", "--all")
    assert (done.code, done.err) == (0, "")
    there = {path.name: path.read_bytes() for path in (tmp_path / "results" / "small").iterdir()}
    assert sorted(done.out.split()) == sorted(f"results/small/{name}" for name in there)
    assert {"table.md", "table.tex", "table.csv", "detection.md", "detection.csv"} < set(there)
    assert there["table.md"].decode() == mabrfl("table", "small", "--ranks").out
    assert there["detection.md"].decode() == mabrfl("table", "small", "--detection").out
    assert there["detection.csv"].decode() == mabrfl("table", "small", "--detection", "--format", "csv").out
    assert mabrfl("plot", "small", "--compare", "--format", "svg", "--out", "p").code == 0
    pictures = {path.name: path.read_bytes() for path in (tmp_path / "p").iterdir()}
    assert {name: data for name, data in there.items() if name.endswith(".svg")} == pictures
    (tmp_path / "results" / "small" / "older.svg").write_text("")
    (tmp_path / "results" / "small" / "README.md").write_text("by hand")
    again = mabrfl("render", "results/small.json.gz")
    assert "results/small/older.svg is not made of results/small.json.gz" in again.err
    assert "README.md" not in again.err
    assert {name: (tmp_path / "results" / "small" / name).read_bytes() for name in there} == there


@pytest.mark.usefixtures("sweep")
def test_render_draws_again_only_the_figures_that_are_in_the_folder(mabrfl: Callable[..., Any], tmp_path: Path) -> None:
    assert mabrfl("pack", "small", "small2.json.gz").code == 0
    folder = tmp_path / "small2"
    assert ".svg" not in mabrfl("render", "small2.json.gz").out
    kept = folder / "accuracy-mnist-mnist-cnn-small-4-rounds.svg"
    kept.write_text("")
    assert [name for name in mabrfl("render", "small2.json.gz").out.split() if name.endswith(".svg")] == [
        f"small2/{kept.name}"
    ]
    assert kept.read_text().startswith("<?xml")


def test_render_wants_packed_files_by_their_name(mabrfl: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("mine")
    refused = mabrfl("render", "letter.txt")
    assert (refused.code, refused.err) == (3, "error: packed results are called NAME.json.gz; got 'letter.txt'\n")
    assert os.listdir(tmp_path) == ["letter.txt"]


def test_render_of_a_sweep_that_has_not_begun_has_its_tables(mabrfl: Callable[..., Any], tmp_path: Path) -> None:
    write_sweep(tmp_path / "s", [({"defense": "krum"}, None)])
    assert mabrfl("pack", "s", "s.json.gz").code == 0
    assert mabrfl("render", "s.json.gz").out.split() == ["s/table.md", "s/table.tex", "s/table.csv"]


def test_an_ablation_has_its_own_table_and_is_rendered_to_that(mabrfl: Callable[..., Any], tmp_path: Path) -> None:
    lie = {"preset": "hardened", "attack": "lie", "attackers": 0.3}
    write_sweep(tmp_path / "parts", [(lie, 90.0), ({**lie, "defense_options": {"panel_rounds": 0}}, 85.0)])
    plan = json.loads((tmp_path / "parts" / "cells.json").read_text())
    for cell, label in zip(plan, ("all of it", "no panel"), strict=True):
        cell["axes"] = {"ablation": label}
    (tmp_path / "parts" / "cells.json").write_text(json.dumps(plan))
    shown = mabrfl("table", "parts", "--ablation")
    assert (shown.code, shown.err) == (0, "")
    (row,) = [line for line in shown.out.splitlines() if "no panel" in line]
    assert "85.00 (90.00)" in row
    assert mabrfl("pack", "parts", "parts.json.gz").code == 0
    names = mabrfl("render", "parts.json.gz").out.split()
    assert names == [f"parts/{name}" for name in ("detection.md", "detection.csv")] + [
        f"parts/ablation.{ending}" for ending in ("md", "tex", "csv")
    ]
    assert (tmp_path / "parts" / "ablation.md").read_text(encoding="utf-8") == shown.out
    assert mabrfl("report", "parts.json.gz", "--out", "page.html").code == 0
    assert "85.00 (90.00)" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_render_has_a_table_of_detection_where_anybody_attacks_or_mab_rfl_runs(
    mabrfl: Callable[..., Any], tmp_path: Path
) -> None:
    runs = {
        "attacked": {"defense": "krum", "attack": "lie", "attackers": 0.3},
        "ours": {},
        "neither": {"defense": "krum"},
    }
    for name, settings in runs.items():
        write_sweep(tmp_path / name, [(settings, None)])
        assert mabrfl("pack", name, f"{name}.json.gz").code == 0
        names = mabrfl("render", f"{name}.json.gz").out.split()
        assert (f"{name}/detection.md" in names) is (f"{name}/detection.csv" in names) is (name != "neither")
