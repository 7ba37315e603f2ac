"""What is committed under ``results/`` is what ``make results`` makes of the packed files there.

That is ``mabrfl render results/NAME.json.gz`` for each, which writes into ``results/NAME/`` what
:mod:`mabrfl.reports.rendering` lists; the packed files themselves come from ``mabrfl pack``. Written by hand are the
page of all results, ``docs/results.md``, and the ``README.md`` of each folder; what they say is checked here, too.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import matplotlib as mpl
import pytest

from mabrfl.reports.rendering import BY_HAND, PICTURE, folder_beside, rendered
from mabrfl.reports.table_formats import FIELDS
from mabrfl.reports.tables import tabulate
from mabrfl.sweeps.results import PACKED_ENDING, Cell, Results, load_results
from mabrfl.sweeps.sweep_file import load_sweep

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
PACKED = sorted(RESULTS.glob(f"*{PACKED_ENDING}"))
EXPERIMENTS = sorted((ROOT / "experiments").glob("*.toml"))
PAGE = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
DETAILS = sorted(RESULTS.glob(f"*/{BY_HAND}"))
PAGES_OF_RESULTS = (ROOT / "docs" / "results.md", *DETAILS)
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *DETAILS)

pytestmark = pytest.mark.skipif(
    not PACKED, reason="NOTHING IS CHECKED: there are no results/*.json.gz in this checkout yet"
)


@cache
def loaded(packed: Path) -> Results:
    return load_results(packed)


def in_one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def links(page: Path) -> list[str]:
    return re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8"))


def drawn_alike() -> bool:
    """Whether this Matplotlib is the one that the committed pictures are drawn by."""
    pinned = re.search(r"^matplotlib==(\S+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert pinned is not None
    return mpl.__version__ == pinned[1]


@pytest.mark.parametrize("packed", PACKED, ids=lambda path: path.name)
def test_the_committed_tables_and_figures_are_what_the_command_gives(packed: Path) -> None:
    there = {path.name: path.read_bytes() for path in folder_beside(packed).iterdir() if path.name != BY_HAND}
    if not drawn_alike():
        there = {name: data for name, data in there.items() if not name.endswith(PICTURE)}
    made = dict(rendered(loaded(packed), {name.removesuffix(PICTURE) for name in there if name.endswith(PICTURE)}))
    assert sorted(there) == sorted(made), f"run: mabrfl render results/{packed.name}"
    assert [name for name in made if there[name] != made[name]] == [], f"run: mabrfl render results/{packed.name}"
    if not drawn_alike():
        pytest.skip(f"PICTURES ARE NOT CHECKED: they are not committed as Matplotlib {mpl.__version__} draws them")


def test_the_committed_figures_are_those_that_a_page_shows_and_at_most_40() -> None:
    shown = {(page.parent / link).resolve() for page in PAGES for link in links(page) if link.endswith(PICTURE)}
    committed = set(RESULTS.glob(f"*/*{PICTURE}"))
    assert {path for path in shown if RESULTS in path.parents} == committed
    assert len(committed) <= 40


@pytest.mark.slow
@pytest.mark.parametrize("packed", PACKED, ids=lambda path: path.name)
def test_every_figure_of_the_committed_results_can_be_drawn_and_is_well_formed(packed: Path) -> None:
    figures = {name: data for name, data in rendered(loaded(packed)) if name.endswith(PICTURE)}
    assert {path.name for path in folder_beside(packed).glob(f"*{PICTURE}")} <= set(figures)
    for data in figures.values():
        assert ElementTree.fromstring(data).tag.endswith("svg")


@pytest.mark.parametrize("packed", PACKED, ids=lambda path: path.name)
def test_committed_results_are_those_of_an_experiment_file(packed: Path) -> None:
    sweep = load_sweep(ROOT / "experiments" / f"{folder_beside(packed).name}.toml")
    cells = loaded(packed).cells
    assert any(cell.status == "done" for cell in cells)
    # What is planned and not run is there, too: tables show it as missing.
    again = "go on with the sweep (--from this file) and pack it again"
    assert {cell.key for cell in cells} == {cell.key for cell in sweep.cells}, again


def test_no_folder_is_left_of_results_that_are_gone() -> None:
    assert {path for path in RESULTS.iterdir() if path.is_dir()} == {folder_beside(packed) for packed in PACKED}


def test_the_results_are_on_one_page_with_three_pictures() -> None:
    assert len(PAGE.splitlines()) <= 130
    assert len(re.findall(rf"!\[.+\]\(\S+\{PICTURE}\)", PAGE)) == 3


@pytest.mark.parametrize("packed", PACKED, ids=lambda path: path.name)
def test_results_have_a_page_that_links_their_tables_and_says_how_many_runs_are_done(packed: Path) -> None:
    folder = folder_beside(packed)
    page = folder / BY_HAND
    assert f"../results/{folder.name}/{BY_HAND}" in links(ROOT / "docs" / "results.md")
    tables = {path.name for path in folder.iterdir() if path.name != BY_HAND and path.suffix != PICTURE}
    assert tables - set(links(page)) == set()
    done, planned = loaded(packed).count("done"), len(loaded(packed).cells)
    told = f"All {planned} runs are done" if done == planned else f"{done} of {planned} runs are done"
    assert told in in_one_line(page.read_text(encoding="utf-8")), f"{folder.name}/{BY_HAND} does not say: {told}"


def test_the_page_of_results_says_how_many_runs_of_each_experiment_are_done() -> None:
    done = {folder_beside(packed).name: loaded(packed).count("done") for packed in PACKED}
    row = re.compile(r"^\| \[([\w-]+)\]\(\.\./experiments/\1\.toml\) \|.*\| (\d+ of \d+) \| .+ \|$", re.MULTILINE)
    assert dict(row.findall(PAGE)) == {
        path.stem: f"{done.get(path.stem, 0)} of {len(load_sweep(path).cells)}" for path in EXPERIMENTS
    }


FROM_ROUNDS = "## Where the thresholds come from"
"""From here on a page has numbers of rounds, which are no accuracies."""
ALIKE = ("dataset", "model", "clients", "rounds", "seed", "partition", "training")
"""Settings of a run and of FedAvg without attackers beside it."""


def beside_clean(cells: Iterable[Cell]) -> Iterator[float]:
    """The accuracy of each run less that of FedAvg without attackers, under the same conditions."""
    done = [cell for cell in cells if cell.measured("final_accuracy") is not None]
    of = {cell.key: str([cell.config.get(name) for name in ALIKE]) for cell in done}
    clean = {of[cell.key]: cell for cell in done if cell.config["defense"] == "fedavg" and not cell.num_attackers}
    for cell in done:
        if of[cell.key] in clean:
            yield cell.measured("final_accuracy") - clean[of[cell.key]].measured("final_accuracy")


def test_accuracies_in_the_tables_of_the_pages_are_those_of_a_run_or_of_the_paper() -> None:
    accuracies: list[float | None] = []
    differences: list[float | None] = []
    for cells in (loaded(packed).cells for packed in PACKED):
        entries = [entry for table in tabulate(cells) for entry in table.entries.values()]
        accuracies += [cell.measured("final_accuracy") for cell in cells]
        accuracies += [value for entry in entries for value in (entry.mean, entry.paper)]
        differences += [*(entry.difference for entry in entries), *beside_clean(cells)]
    known = {f"{value:.2f}" for value in accuracies if value is not None}
    known |= {f"{value:+.2f}" for value in differences if value is not None}
    texts = (page.read_text(encoding="utf-8").partition(FROM_ROUNDS)[0] for page in PAGES_OF_RESULTS)
    lines = [line for text in texts for line in text.splitlines()]
    rows = [line for line in lines if line.startswith("|") and not re.search(r"\d of \d", line)]
    told = {number for line in rows for number in re.findall(r"(?<!step of )(?<![\d.])[+-]?\d+\.\d\d\b", line)}
    assert len(told) > 50
    assert told - known == set()


@pytest.mark.parametrize("packed", PACKED, ids=lambda path: path.name)
def test_no_two_lines_of_a_committed_csv_are_called_the_same(packed: Path) -> None:
    if not (folder_beside(packed) / "table.csv").is_file():
        pytest.skip("an ablation has a table of its own")
    names = FIELDS[: FIELDS.index("metric")]
    with (folder_beside(packed) / "table.csv").open(encoding="utf-8", newline="") as file:
        places = [tuple(line[name] for name in names) for line in csv.DictReader(file)]
    assert places
    assert len(set(places)) == len(places)


def headings(text: str) -> set[str]:
    """The anchors of a page, as GitHub makes them."""
    told = (re.sub(r"[^\w\- ]", "", line.lower()) for line in re.findall(r"^#+ +(.+)$", text, flags=re.MULTILINE))
    return {line.strip().replace(" ", "-") for line in told}


@pytest.mark.parametrize("page", PAGES_OF_RESULTS, ids=lambda page: f"{page.parent.name}/{page.name}")
def test_every_link_of_a_page_of_results_leads_somewhere(page: Path) -> None:
    dead = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if "://" not in link and not (
            target.exists() and (not anchor or anchor in headings(target.read_text(encoding="utf-8")))
        ):
            dead.append(link)
    assert dead == []


def test_the_ranks_of_the_laptops_table_are_rendered_cell_by_cell() -> None:
    table = (RESULTS / "table1-mnist-laptop" / "table.md").read_text(encoding="utf-8")
    ranks = table.partition(": ranks**\n\n")[2].partition("\n\n")[0]
    assert ranks.startswith("| Attackers | Attack |")
    assert "48%" in ranks


@pytest.mark.parametrize("packed", PACKED, ids=lambda path: path.name)
def test_no_committed_run_was_made_with_uncommitted_changes(packed: Path) -> None:
    sources = {cell.key: cell.manifest.get("source", {}) for cell in loaded(packed).cells if cell.status != "missing"}
    assert [key[:16] for key, source in sources.items() if source.get("dirty") is not False] == []
    assert [key[:16] for key, source in sources.items() if not source.get("commit")] == []
