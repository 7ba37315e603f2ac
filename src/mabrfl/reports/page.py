"""One self-contained HTML page of results: summary, tables, figures, and the origin of every number.

The page loads nothing: its style is inside, pictures are data, there are no scripts, and its content security policy
forbids all else. The template is ``data/report.html``, the style sheet ``data/report.css``. Jinja2 escapes all text.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import tomli_w

from mabrfl._version import __version__
from mabrfl.config.toml import one_line
from mabrfl.errors import StateError, extra_needed
from mabrfl.recording.folder import ROUNDS
from mabrfl.recording.stories import story_of_run
from mabrfl.reports import paper_table as paper
from mabrfl.reports import table_formats as formats
from mabrfl.reports import tables as texts
from mabrfl.reports.ablation import ablation_table, ablation_text, has_ablation
from mabrfl.reports.arrangement import arrange, slug
from mabrfl.reports.comparison import Agreement, agreements, compared_columns, rankings
from mabrfl.reports.detection import detection_table, has_detection
from mabrfl.reports.detection_formats import detection_text
from mabrfl.reports.drawing import render
from mabrfl.reports.figures import CAPTIONS, FIGURES, draw
from mabrfl.reports.naming import STATUS_WORDS, attack_name, dataset_name, defense_name
from mabrfl.reports.run_pictures import clients_figure
from mabrfl.reports.tables import Metric, Table, outcome, tabulate
from mabrfl.sweeps.results import STATUSES, Cell, Results
from mabrfl.sweeps.stale import notes_on_results

with extra_needed("the report"):
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class _Section:
    """A heading, and the content below it: ``kind`` names the macro of the template that shows it."""

    title: str
    anchor: str
    kind: str = ""
    content: Any = None
    inner: bool = False


class _Page:
    """Sections in order, each with an id that nothing else on the page has."""

    def __init__(self) -> None:
        self.sections: list[_Section] = []
        self._taken: set[str] = set()

    def add(self, title: str, kind: str = "", content: Any = None, *, inner: bool = False) -> None:
        """Add a section, or one within the last."""
        self.sections.append(_Section(title, self.anchor(slug(title) or "section"), kind, content, inner))

    def anchor(self, stem: str) -> str:
        """Return an id that is not taken, and take it."""
        anchor, number = stem, 2
        while anchor in self._taken:
            anchor, number = f"{stem}-{number}", number + 1
        self._taken.add(anchor)
        return anchor


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
        Results to show; each has its own tables and figures.
    metric
        Of the tables.
    title
        Of the page; the names of the results by default.
    progress
        Called with a line before each figure, if given: figures take seconds.

    Raises
    ------
    StateError
        If the results have no runs.
    """
    if not any(one.cells for one in results):
        raise StateError("nothing to report: the results have no runs")
    tables = [tabulate(one.cells, metric) for one in results]
    cells = list(_named_cells(results))
    page = _Page()
    page.add("Summary", "summary", _summary(results, tables))
    for one, made in zip(results, tables, strict=True):
        page.add(one.name or "Results")
        # As in rendering.py: for an ablation, pairs say more than a column or a line per variant.
        pairs = has_ablation(one.cells)
        if not pairs:
            _add_tables(page, made)
        _add_conditions(page, one, metric)
        if not pairs:
            _add_figures(page, one, progress)
        _add_stories(page, one)
    page.add("Failed, begun and missing runs", "unfinished", [_unfinished(*run) for run in cells if _is_open(run[1])])
    page.add("Every run: configuration and origin", "runs", [_run(*run) for run in cells])
    sources = _sources(results, [table for made in tables for table in made])
    if any(sources.values()):
        page.add("Sources", "sources", sources)
    compared = any(table.compares for made in tables for table in made)
    return _rendered(page, title or ", ".join(dict.fromkeys(one.name for one in results)), compared)


def _summary(results: Sequence[Results], tables: Sequence[Sequence[Table]]) -> dict[str, Any]:
    cells = [cell for one in results for grid in arrange(one.cells) for cell in grid.cells]
    counts = Counter(map(outcome, cells))
    words = {status: f"{'run' if counts[status] == 1 else 'runs'} {STATUS_WORDS[status]}" for status in STATUSES}
    tiles = [(str(counts[status]), words[status]) for status in STATUSES if counts[status] or status == "done"]
    seconds = sum(cell.measured("seconds") or 0.0 for cell in cells)
    tiles.append((_duration(seconds), "of computing in the finished runs"))
    seeds = len({cell.config["seed"] for cell in cells})
    tiles.append((str(seeds), "seed" if seeds == 1 else "different seeds"))
    near: dict[str, list[Agreement]] = {}
    for one, made in zip(results, tables, strict=True):
        for table in made:
            title = table.grid.setting.title
            near.setdefault(f"{one.name}: {title}" if len(results) > 1 else title, []).extend(agreements(table))
    return {
        "tiles": tiles,
        "origins": _origins(cells),
        "notes": notes_on_results(results),
        "agreements": {title: some for title, some in near.items() if some},
    }


def _duration(seconds: float) -> str:
    """Return a time in the unit that suits it.

    Examples
    --------
    >>> _duration(0.44), _duration(42.4), _duration(600), _duration(9000)
    ('0.4 s', '42 s', '10 min', '2.5 h')
    """
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 3570 else f"{seconds / 3600:.1f} h"


def _origins(cells: Sequence[Cell]) -> str:
    """Return the versions, machines and days of the runs in a sentence, each once."""
    values = {
        "mabrfl": {_text(cell.manifest.get("versions", {}), "mabrfl") for cell in cells},
        "commit": {_commit(cell.manifest.get("source")) for cell in cells},
        "torch": {_text(cell.manifest.get("versions", {}), "torch") for cell in cells},
        "Python": {_text(cell.manifest.get("versions", {}), "python") for cell in cells},
        "machine": {_machine(cell.manifest) for cell in cells},
    }
    days = sorted({_text(cell.manifest, "started")[:10] for cell in cells} - {""})
    parts = [f"{name}: {', '.join(sorted(some - {''}))}" for name, some in values.items() if some - {""}]
    parts += [f"run on {days[0]}" if len(days) == 1 else f"run from {days[0]} to {days[-1]}"] if days else []
    return "; ".join(parts) + "." if parts else ""


def _text(holder: Any, key: str) -> str:
    return one_line(str(holder.get(key) or "")) if isinstance(holder, dict) else ""


def _commit(source: Any) -> str:
    commit = _text(source, "commit")[:12]
    return f"{commit} with changes" if commit and source.get("dirty") else commit


def _machine(manifest: dict[str, Any]) -> str:
    cores = _text(manifest, "cpu_count")
    return f"{_text(manifest, 'machine')} with {cores} cores" if cores else ""


def _add_tables(page: _Page, tables: Sequence[Table]) -> None:
    for table in tables:
        ranks = rankings(table)
        legend = formats.legend(table, compare=table.compares, best="Shaded", second="underlined")
        content = {
            "table": table,
            "note": " ".join([*table.notes(), legend]),
            "rankings": ranks,
            "compared": compared_columns(table),
            "ranks_note": formats.ranks_note(table, ranks),
        }
        page.add(table.grid.setting.title, "table", content, inner=True)


def _add_conditions(page: _Page, results: Results, metric: Metric) -> None:
    """Add the table of the ablation and that of detection."""
    if has_ablation(results.cells):
        page.add("Ablation", "text_table", ablation_text(ablation_table(results.cells, metric)), inner=True)
    if has_detection(results.cells):
        page.add("Detection", "text_table", detection_text(detection_table(results.cells, metric)), inner=True)


def _add_figures(page: _Page, results: Results, progress: Callable[[str], None] | None) -> None:
    for name in FIGURES:
        if progress is not None:
            progress(f"{results.name}: figure '{name}'")
        try:
            drawn = draw(results.cells, name, compare=True)
        except StateError:
            # These results lack something that the figure needs.
            continue
        title, caption = CAPTIONS[name]
        _add_pictures(page, title, caption, drawn)


def _add_pictures(page: _Page, title: str, caption: str, drawn: Mapping[str, Figure]) -> None:
    pictures = [
        {
            "anchor": page.anchor(f"figure-{stem}"),
            "title": str(figure.get_suptitle()),
            "svg": base64.b64encode(render(figure, "svg")).decode("ascii"),
        }
        for stem, figure in drawn.items()
    ]
    page.add(title, "figures", {"title": title, "caption": caption, "pictures": pictures}, inner=True)


def _add_stories(page: _Page, results: Results) -> None:
    """Add the map of clients and the story of each, if the results are a single run whose verdicts are at hand."""
    folders = [cell.folder for cell in results.cells if cell.folder is not None and cell.series]
    if len(results.cells) != 1 or not folders or not (folders[0] / ROUNDS).is_file():
        return
    story = story_of_run(folders[0])
    attackers = {client for record in story.records for client in record.attackers}
    map_of_clients = clients_figure(story.records, attackers, 0, title=results.name)
    caption = "Not selected, accepted, or rejected and why. Who attacks is the truth, which the defense does not know."
    _add_pictures(page, "Every client in every round", caption, {"clients": map_of_clients})
    content = [{"summary": story.summary(client), "chapters": story.chapters(client)} for client in story.clients]
    page.add("Why each client was accepted or rejected", "stories", content, inner=True)


def _named_cells(results: Sequence[Results]) -> Iterator[tuple[str, Cell]]:
    """Yield every cell with its name, in the order of the tables."""
    for one in results:
        for grid in arrange(one.cells):
            for row in grid.rows:
                for column in grid.columns:
                    for cell in grid.at(row, column):
                        name = f"{grid.setting.title}: {column.label}, {row.place}, seed {cell.config['seed']}"
                        yield name, cell


def _is_open(cell: Cell) -> bool:
    return outcome(cell) != "done"


def _unfinished(name: str, cell: Cell) -> dict[str, str]:
    status = outcome(cell)
    reason, kind = _text(cell.error, "error"), _text(cell.error, "kind")
    if cell.status == "done":
        reason = "ended without an accuracy"
    elif cell.status == "running":
        reason = f"{cell.rounds_done} of {cell.config['rounds']} rounds"
    reason = f"{kind}: {reason}" if kind and reason else reason
    return {"name": name, "status": status, "state": STATUS_WORDS[status], "reason": reason}


def _run(name: str, cell: Cell) -> dict[str, Any]:
    status = outcome(cell)
    facts: dict[str, Any] = {"origin": {"key": cell.key, **cell.manifest}, "summary": cell.summary}
    facts |= {"events": cell.events or None, "error": cell.error}
    return {
        "name": name,
        "status": status,
        "state": STATUS_WORDS[status],
        "accuracy": cell.measured("final_accuracy"),
        "config": _toml(cell.config),
        "facts": {title: _json(value) for title, value in facts.items() if value is not None},
    }


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)


def _toml(config: Mapping[str, Any]) -> str:
    """Return a configuration as TOML; as JSON if TOML cannot express it."""
    try:
        return tomli_w.dumps({key: value for key, value in config.items() if value is not None})
    except TypeError:
        return _json(config)


def _sources(results: Sequence[Results], tables: Sequence[Table]) -> dict[str, Any]:
    """Return the sweep files and, if any table is compared with the paper, the paper and how its figures are read."""
    compared = {table.grid.setting.dataset for table in tables if table.compares}
    source, paragraphs = paper.source(), []
    if compared:
        paragraphs.append(
            f"The paper: {source['authors']}. {source['title']}. {source['venue']}, doi:{source['doi']}. "
            f"Its figures are from {source['table']}. It does not state {source['silent_on']}."
        )
    paragraphs += [_reading(**reading) for reading in paper.readings() if reading["dataset"] in compared]
    return {"paragraphs": paragraphs, "sweeps": [(one.name, one.sweep) for one in results if one.sweep]}


def _reading(*, dataset: str, attackers: int, attack: str, defense: str, printed: str, read_as: float) -> str:
    place = f"{dataset_name(dataset)}, {attackers}% {attack_name(attack)}, {defense_name(defense)}"
    return f"For {place} it prints “{printed}”, which is read as {read_as}."


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("mabrfl.reports", "data"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "signed": texts.signed,
        "value_text": texts.value_text,
        "marked_text": texts.marked_text,
        "seeds_text": texts.seeds_text,
        "rank_text": formats.rank_text,
        "tau_text": formats.tau_text,
    }
    environment.globals |= {
        "differences_head": formats.DIFFERENCES_HEAD,
        "differences_note": formats.DIFFERENCES_NOTE,
        "version": __version__,
    }
    return environment


def _rendered(page: _Page, title: str, compared: bool) -> str:
    style = (resources.files("mabrfl.reports") / "data" / "report.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode("utf-8")).digest()).decode("ascii")
    policy = f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    template = _environment().get_template("report.html")
    given = {"title": title, "compared": compared, "style": style, "policy": policy, "sections": page.sections}
    return template.render(given).strip() + "\n"
