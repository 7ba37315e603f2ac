"""One self-contained HTML page of results: summary, tables, figures, and where every number comes from.

The page needs nothing from anywhere: its style is inside, pictures are data, there are no scripts, and its own
content security policy forbids all else. All text is escaped (see :mod:`mabrfl.reports.markup`).
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import resources

from mabrfl._version import __version__
from mabrfl.errors import StateError
from mabrfl.reports import paper_table as paper
from mabrfl.reports.ablation import ablation_table, has_ablation
from mabrfl.reports.ablation_formats import ablation_text
from mabrfl.reports.arrangement import slug
from mabrfl.reports.comparison import Agreement, agreements, rankings
from mabrfl.reports.detection import detection_table, has_detection
from mabrfl.reports.detection_formats import detection_text
from mabrfl.reports.drawing import render
from mabrfl.reports.figures import CAPTIONS, FIGURES, draw
from mabrfl.reports.markup import Markup, element, join, trusted
from mabrfl.reports.page_parts import (
    html_agreements,
    html_ranks,
    html_runs,
    html_table,
    html_text_table,
    html_tiles,
    html_unfinished,
)
from mabrfl.reports.table_formats import legend
from mabrfl.reports.tables import Metric, Table, tabulate
from mabrfl.sweeps.results import Results
from mabrfl.sweeps.stale import notes_on_results


@dataclass
class _Page:
    """Sections in order, and the table of contents that follows from them."""

    contents: list[Markup] = field(default_factory=list)
    body: list[Markup] = field(default_factory=list)
    _taken: set[str] = field(default_factory=set)

    def heading(self, text: str, *, inner: bool = False) -> None:
        """Begin a section, or one within."""
        anchor = self.anchor(slug(text) or "section")
        self.body.append(element("h3" if inner else "h2", text, id=anchor))
        link = element("a", text, href=f"#{anchor}")
        self.contents.append(element("li", link, class_="inner" if inner else None))

    def anchor(self, stem: str) -> str:
        """Return an id that nothing else on the page has."""
        anchor, number = stem, 2
        while anchor in self._taken:
            anchor, number = f"{stem}-{number}", number + 1
        self._taken.add(anchor)
        return anchor

    def add(self, *parts: Markup) -> None:
        """Go on in the section."""
        self.body.extend(part for part in parts if part)


def report(
    results: Sequence[Results],
    *,
    metric: Metric = "final_accuracy",
    title: str = "",
    progress: Callable[[str], None] | None = None,
) -> str:
    """Return the page.

    Parameters
    ----------
    results
        What to report on; each has its own tables and figures.
    metric
        Of the tables.
    title
        Of the page; the names of the results by default.
    progress
        Told what is being made, if given: figures take seconds.

    Raises
    ------
    StateError
        If there is not one run in the results.
    """
    if not any(one.cells for one in results):
        raise StateError("nothing to report: the results have no runs")
    title = title or ", ".join(dict.fromkeys(one.name for one in results))
    page = _Page()
    page.heading("Summary")
    page.add(html_tiles(results), *(element("p", note, class_="note") for note in notes_on_results(results)))
    tables = [tabulate(one.cells, metric) for one in results]
    page.add(html_agreements(_agreements(results, tables)))
    for one, made in zip(results, tables, strict=True):
        page.heading(one.name or "Results")
        # As in rendering.py: of an ablation, pairs say more than a column or a line per variant.
        pairs = has_ablation(one.cells)
        if not pairs:
            _add_tables(page, made)
        _add_conditions(page, one, metric)
        if not pairs:
            _add_figures(page, one, progress)
    _add_unfinished(page, results)
    _add_runs(page, results)
    _add_sources(page, results)
    return _document(page, title)


def _agreements(results: Sequence[Results], tables: Sequence[Sequence[Table]]) -> dict[str, list[Agreement]]:
    found: dict[str, list[Agreement]] = {}
    for one, made in zip(results, tables, strict=True):
        for table in made:
            title = table.grid.setting.title
            found.setdefault(f"{one.name}: {title}" if len(results) > 1 else title, []).extend(agreements(table))
    return {title: some for title, some in found.items() if some}


def _add_tables(page: _Page, tables: Sequence[Table]) -> None:
    for table in tables:
        page.heading(table.grid.setting.title, inner=True)
        read = legend(table, compare=table.compares, best="Shaded", second="underlined")
        page.add(html_table(table), element("p", " ".join([*table.notes(), read]), class_="note"))
        found = rankings(table)
        if found:
            page.add(html_ranks(table, found))


def _add_conditions(page: _Page, results: Results, metric: Metric) -> None:
    """Add what each part of a defense is worth, and who was detected."""
    if has_ablation(results.cells):
        page.heading("Ablation", inner=True)
        page.add(html_text_table(ablation_text(ablation_table(results.cells, metric))))
    if has_detection(results.cells):
        page.heading("Detection", inner=True)
        page.add(html_text_table(detection_text(detection_table(results.cells, metric))))


def _add_figures(page: _Page, results: Results, progress: Callable[[str], None] | None) -> None:
    for name in FIGURES:
        if progress is not None:
            progress(f"{results.name}: figure '{name}'")
        try:
            drawn = draw(results.cells, name, compare=True)
        except StateError:
            # These results do not have what this figure takes; the next one may.
            continue
        title, caption = CAPTIONS[name]
        page.heading(title, inner=True)
        page.add(element("p", caption, class_="note"))
        for stem, figure in drawn.items():
            picture = base64.b64encode(render(figure, "svg")).decode("ascii")
            shown = str(figure.get_suptitle())
            image = element("img", src=f"data:image/svg+xml;base64,{picture}", alt=f"{title}: {shown}", loading="lazy")
            box = element("div", image, class_="picture", tabindex="0", role="region", aria_label=shown)
            page.add(element("figure", box, element("figcaption", shown), id=page.anchor(f"figure-{stem}")))


def _add_unfinished(page: _Page, results: Sequence[Results]) -> None:
    page.heading("Failed, begun and missing runs")
    page.add(html_unfinished(results))


def _add_runs(page: _Page, results: Sequence[Results]) -> None:
    page.heading("Every run: configuration and origin")
    page.add(*html_runs(results))


def _add_sources(page: _Page, results: Sequence[Results]) -> None:
    page.heading("Sources")
    source = paper.source()
    page.add(
        element(
            "p",
            f"The paper: {source['authors']}. {source['title']}. {source['venue']}, doi:{source['doi']}. "
            f"Its figures are from {source['table']}. It is silent on {source['silent_on']}.",
        )
    )
    page.add(*(element("p", _reading(**reading)) for reading in paper.readings()))
    for one in results:
        if one.sweep:
            said = element("summary", f"The sweep file of {one.name}")
            page.add(element("details", said, element("pre", one.sweep)))


def _reading(*, dataset: str, attackers: int, attack: str, defense: str, printed: str, read_as: float) -> str:
    return f"For {dataset}, {attackers}% {attack}, {defense} it prints “{printed}”, which is read as {read_as}."


def _document(page: _Page, title: str) -> str:
    style = (resources.files("mabrfl.reports") / "data" / "report.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode("utf-8")).digest()).decode("ascii")
    policy = f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    head = join(
        [
            element("meta", charset="utf-8"),
            element("meta", http_equiv="Content-Security-Policy", content=policy),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("meta", name="color-scheme", content="light dark"),
            element("title", title),
            element("style", trusted(style)),
        ]
    )
    lede = "Robust federated learning under attack: what was run, what came of it, and how it compares with the paper."
    contents = element("nav", element("ul", page.contents), aria_label="Contents")
    header = element("header", element("h1", title), element("p", lede, class_="lede"), contents)
    footer = element(
        "footer", f"Made by mabrfl {__version__} from recorded runs; every number can be traced to one above."
    )
    body = join([header, element("main", page.body), footer])
    return "<!DOCTYPE html>\n" + element("html", element("head", head), element("body", body), lang="en") + "\n"
