from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from mabrfl.errors import StateError
from mabrfl.reports.page import report
from mabrfl.sweeps.results import Results, load_results
from result_folders import LAPTOP, make_cell, run_config, write_run

LIE: dict[str, Any] = {"attack": "lie", "attackers": 0.3}
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>&"
VOID = {"meta", "img", "br"}


class Page(HTMLParser):
    """What a browser makes of a page: its elements, ids, text; and whether every element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.said: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.said.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.said).split())


def results() -> Results:
    cells = [
        make_cell(97.0, defense="mab-rfl", **LAPTOP),
        make_cell(96.0, defense="mab-rfl", **LIE, **LAPTOP),
        make_cell(70.0, defense="krum", **LIE, **LAPTOP),
        make_cell(status="failed", defense="median", **LIE, **LAPTOP),
        make_cell(status="running", defense="faba", **LIE, **LAPTOP),
        make_cell(status="missing", defense="dnc", **LIE, **LAPTOP),
    ]
    return Results(name="small", sweep="# Fixed: everything\n", cells=cells)


@pytest.fixture(scope="module")
def html() -> str:
    return report([results()])


@pytest.fixture(scope="module")
def page(html: str) -> Page:
    return Page(html)


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the figures, which take most of the time."""
    monkeypatch.setattr("mabrfl.reports.page.FIGURES", {})


def test_the_page_is_well_formed_and_its_links_lead_somewhere(page: Page) -> None:
    assert page.open == []
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(set(ids)) == len(ids)
    links = [attributes["href"] or "" for attributes in page.all("a")]
    assert len(links) > 5
    assert all(link.startswith("#") and link[1:] in ids for link in links)


def test_the_page_needs_nothing_from_anywhere(html: str, page: Page) -> None:
    for _, attributes in page.elements:
        for name in ("src", "href", "srcset", "action", "data", "background"):
            value = attributes.get(name)
            assert value is None or value.startswith(("#", "data:image/svg+xml;base64,")), value
    assert not page.all("script")
    assert not page.all("link")
    assert not page.all("iframe")
    style = re.search(r"<style>(.*?)</style>", html, flags=re.DOTALL)
    assert style is not None
    assert "url(" not in style[1]
    assert "@import" not in style[1]
    assert not re.search(r"https?:", re.sub(r"base64,[\w+/=]+", "", html))


def test_the_policy_allows_its_own_style_and_pictures_and_nothing_else(html: str, page: Page) -> None:
    (policy,) = (entry["content"] for entry in page.all("meta") if entry.get("http-equiv") == "Content-Security-Policy")
    style = re.search(r"<style>(.*?)</style>", html, flags=re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert policy == (
        f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    assert not [attributes for _, attributes in page.elements if "style" in attributes]
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]


def test_summary_tables_figures_and_lists_are_there(page: Page) -> None:
    for said in (
        "3 runs done",
        "1 run failed",
        "MNIST, mnist-cnn-small, 40 rounds",
        "96.00 97.05 −1.05",
        "Ranks beside the paper's",
        "WorkerError: the worker died",
        "begun (0 of 40 rounds)",
        "1 run begun",
        "# Fixed: everything",
        "which is read as 95.61",
        "commit: 0123456789ab",
        'dataset = "mnist"',
    ):
        assert said in page.text, said
    assert len(page.all("img")) >= 6
    assert all(image["alt"] for image in page.all("img"))
    # Six runs, the ranks, the sweep file.
    assert len(page.all("details")) == 8


def test_wide_tables_scroll_inside_boxes_that_the_keyboard_reaches(html: str, page: Page) -> None:
    boxes = [attributes for attributes in page.all("div") if attributes.get("class") == "scroll"]
    assert len(boxes) == len(page.all("table"))
    assert all(box["tabindex"] == "0" and box["aria-label"] for box in boxes)
    assert {"width=device-width, initial-scale=1", "light dark"} <= {entry.get("content") for entry in page.all("meta")}
    assert "prefers-color-scheme: dark" in html


def test_what_a_row_of_any_table_is_of_stays_in_sight_while_the_rest_scrolls(html: str) -> None:
    tables = re.findall(r"<table>(.*?)</table>", html, flags=re.DOTALL)
    rows = [row for table in tables for row in re.findall(r"<tr[^>]*>(.*?)</tr>", table, flags=re.DOTALL)]
    loose = [row for row in rows if 'class="stay' not in row and "colspan" not in row]
    # Only the list of unfinished runs, which does not scroll, has none.
    assert len(loose) == 1 + 3
    assert "Unfinished runs" in html
    assert "position: sticky" in html


@pytest.mark.usefixtures("no_figures")
def test_names_of_rows_in_an_ablation_are_complete_although_the_text_does_not_repeat_them() -> None:
    told: dict[str, Any] = {"defense": "mab-rfl", "preset": "hardened"}
    cells = [
        make_cell(final, axes={"ablation": label}, attack=attack, attackers=0.3, defense_options=options, **told)
        for final, label, options in ((90.0, "all of it", {}), (80.0, "no panel", {"panel_rounds": 0}))
        for attack in ("lie", "label-flip")
    ]
    page = Page(report([Results(name="parts", cells=cells)]))
    assert page.text.count("no panel 30% LIE 80.00 (90.00)") == 1
    assert page.text.count("no panel 30% LF 80.00 (90.00)") == 1
    assert page.text.count("Without, Attackers, Attack") == 1


def test_the_best_of_a_row_is_marked_once_every_defense_is_run(page: Page) -> None:
    def marks(page: Page) -> list[int]:
        classes = [attributes.get("class") for attributes in page.all("td")]
        return [classes.count("best"), classes.count("second")]

    assert marks(page) == [0, 0]
    finished = [cell for cell in results().cells if cell.status in ("done", "failed")]
    made = Page(report([Results(name="small", cells=finished)]))
    assert marks(made) == [1, 1]
    assert "Shaded: best of the row; underlined: best of the others" in made.text


def test_the_same_results_give_the_same_page(html: str) -> None:
    assert report([results()]) == html


def test_no_text_of_the_results_becomes_markup() -> None:
    cell = make_cell(90.0, defense="krum", **LIE)
    config = {**cell.config, "model": HOSTILE, "defense": HOSTILE, "attack": HOSTILE, "dataset": HOSTILE}
    config["attack_options"] = {HOSTILE: HOSTILE}
    manifest = {"versions": {"mabrfl": HOSTILE}, "machine": HOSTILE, "cpu_count": HOSTILE, "started": HOSTILE}
    told = {"config": config, "manifest": manifest, "events": {HOSTILE: 1}, "axes": {"sampling": HOSTILE}}
    bad = cell.model_copy(update=told)
    failed = make_cell(status="failed").model_copy(update={"error": {"error": HOSTILE, "kind": HOSTILE}})
    page = Page(report([Results(name=HOSTILE, sweep=HOSTILE, cells=[bad, failed])], title=HOSTILE))
    assert page.open == []
    assert not page.all("script")
    assert all(str(image["src"]).startswith("data:") for image in page.all("img"))
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    assert page.text.count("<script>alert(1)</script>") > 5


@pytest.mark.usefixtures("no_figures")
def test_several_results_have_a_section_each() -> None:
    one = Results(name="one", cells=[make_cell(90.0)])
    two = Results(name="two", cells=[make_cell(status="missing", seed=1)])
    page = Page(report([one, two]))
    assert {"one", "two"} <= {str(attributes.get("id")) for attributes in page.all("h2")}
    assert page.text.count("MNIST, mnist-cnn-small, 4 rounds") > 2


@pytest.mark.usefixtures("no_figures")
def test_a_run_that_is_there_twice_is_counted_and_listed_once() -> None:
    cells = [make_cell(90.0, defense="krum", attack="lie", attackers=attackers) for attackers in (0.3, 3)]
    page = Page(report([Results(name="twice", cells=cells)]))
    assert "1 run done" in page.text
    assert len(page.all("details")) == 1


def test_results_of_one_setting_share_no_id_on_the_page() -> None:
    parts = [Results(name=name, cells=[make_cell(90.0, seed=seed)]) for seed, name in enumerate(("one", "two"))]
    page = Page(report(parts))
    ids = [str(attributes["id"]) for _, attributes in page.elements if "id" in attributes]
    assert "figure-accuracy-mnist-mnist-cnn-small-4-rounds-2" in ids
    assert sorted(set(ids)) == sorted(ids)


def test_results_without_runs_are_no_report() -> None:
    with pytest.raises(StateError, match="the results have no runs"):
        report([Results(name="x", cells=[])])


@pytest.mark.usefixtures("no_figures")
def test_a_run_that_ended_without_an_accuracy_is_among_those_that_failed() -> None:
    text = Page(report([Results(name="x", cells=[make_cell(None), make_cell(90.0, seed=1)])])).text
    assert "1 run failed" in text
    assert "1 run done" in text
    assert "ended without an accuracy" in text


@pytest.mark.usefixtures("no_figures")
def test_a_sweep_that_is_not_compared_with_the_paper_has_nothing_of_the_paper_among_its_sources() -> None:
    text = Page(report([Results(name="own", sweep="# Mine\n", cells=[make_cell(90.0)])])).text
    assert "The sweep file of own" in text
    assert "The paper:" not in text
    assert "which is read as" not in text
    assert "the runs and their results." in text
    assert "Sources" not in Page(report([Results(name="own", cells=[make_cell(90.0)])])).text


@pytest.mark.usefixtures("no_figures")
def test_the_time_of_computing_is_in_a_unit_that_suits_it() -> None:
    assert "1 min of computing in the finished runs" in Page(report([Results(name="x", cells=[make_cell(90.0)])])).text


@pytest.mark.usefixtures("no_figures")
def test_everything_done_says_so() -> None:
    assert "None: every planned run is done." in Page(report([Results(name="x", cells=[make_cell(90.0)])])).text


def test_a_single_run_has_the_story_of_each_client(tmp_path: Path) -> None:
    config = run_config(attack="lie", attackers=3)
    write_run(tmp_path / "run", config, 90.0)
    html = report([load_results(tmp_path / "run")])
    assert "Every client in every round" in html
    assert html.count('id="figure-clients"') == 1
    assert "Why each client was accepted or rejected" in html
    assert "Client 9, in truth an attacker, was invited in 2 of 4 rounds, accepted in 1 and rejected in 1" in html
    assert "<b>round 2</b>: Rejected as a sybil" in html
