"""The parts of the report page: tiles, tables, lists of runs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tomli_w

from mabrfl.config.toml import one_line
from mabrfl.reports.arrangement import Grid, arrange
from mabrfl.reports.comparison import Agreement, Ranking, compared_columns
from mabrfl.reports.labels import Column, Row
from mabrfl.reports.markup import Markup, element, join
from mabrfl.reports.naming import STATUS_WORDS
from mabrfl.reports.table_formats import DIFFERENCES_NOTE, rank_text, ranks_note, tau_text
from mabrfl.reports.tables import (
    Table,
    TableEntry,
    difference_text,
    entry_text,
    marked_text,
    outcome,
    seeds_text,
    signed,
)
from mabrfl.reports.text_tables import TextTable
from mabrfl.sweeps.results import STATUSES, Cell, Results

_NOTABLE = 1.0
"""Points from the paper's figure from which a difference is coloured."""


def html_tiles(results: Sequence[Results]) -> Markup:
    """Return the whole in a few numbers."""
    cells = [cell for one in results for grid in arrange(one.cells) for cell in grid.cells]
    counts = Counter(map(outcome, cells))
    words = {status: f"{'run' if counts[status] == 1 else 'runs'} {STATUS_WORDS[status]}" for status in STATUSES}
    tiles = [(str(counts[status]), words[status]) for status in STATUSES if counts[status] or status == "done"]
    seconds = sum(cell.measured("seconds") or 0.0 for cell in cells)
    tiles.append((f"{seconds / 3600:.1f} h", "of computing in the finished runs"))
    seeds = len({cell.config["seed"] for cell in cells})
    tiles.append((str(seeds), "seed" if seeds == 1 else "different seeds"))
    listed = [element("li", element("b", number), element("span", what)) for number, what in tiles]
    return join([element("ul", listed, class_="tiles"), _origins(cells)])


def _origins(cells: Sequence[Cell]) -> Markup:
    """Say with what and when the runs were made, each different answer once."""
    said = {
        "mabrfl": {_text(cell.manifest.get("versions", {}), "mabrfl") for cell in cells},
        "commit": {_commit(cell.manifest.get("source")) for cell in cells},
        "torch": {_text(cell.manifest.get("versions", {}), "torch") for cell in cells},
        "Python": {_text(cell.manifest.get("versions", {}), "python") for cell in cells},
        "machine": {_machine(cell.manifest) for cell in cells},
    }
    days = sorted({_text(cell.manifest, "started")[:10] for cell in cells} - {""})
    parts = [f"{name}: {', '.join(sorted(values - {''}))}" for name, values in said.items() if values - {""}]
    parts += [f"run on {days[0]}" if len(days) == 1 else f"run from {days[0]} to {days[-1]}"] if days else []
    return element("p", "; ".join(parts) + ".", class_="note") if parts else Markup()


def _text(holder: Any, key: str) -> str:
    return one_line(str(holder.get(key) or "")) if isinstance(holder, dict) else ""


def _commit(source: Any) -> str:
    commit = _text(source, "commit")[:12]
    return f"{commit} with changes" if commit and source.get("dirty") else commit


def _machine(manifest: dict[str, Any]) -> str:
    cores = _text(manifest, "cpu_count")
    return f"{_text(manifest, 'machine')} with {cores} cores" if cores else ""


def html_agreements(found: Mapping[str, Sequence[Agreement]]) -> Markup:
    """Return how near each column is to the paper's, by the title of the setting."""
    lines = []
    for title, some in found.items():
        lines.append(element("tr", element("th", title, colspan="6", class_="left group", scope="rowgroup")))
        for one in some:
            head = element("th", one.column.label, class_="stay", scope="row")
            where = element("td", one.worst_row.place, class_="left")
            distance = f"{one.mean_distance:.2f}"
            numbers = (str(one.rows), _signed(one.mean_difference), distance, _signed(one.largest_difference))
            lines.append(element("tr", head, [element("td", number) for number in numbers], where))
    if not lines:
        return Markup()
    names = ["Defense", "rows", "mean difference", "mean distance", "largest difference", "where"]
    sides = ["stay", None, None, None, None, "left"]
    return join(
        [element("p", DIFFERENCES_NOTE, class_="note"), _scrolling(names, lines, "Nearness to the paper", sides)]
    )


def html_table(table: Table) -> Markup:
    """Return a table in the layout of the paper's Table 1."""
    grid = table.grid
    lines = []
    last = None
    for row in grid.rows:
        head = element("th", element("span", row.share, class_="share"), " ", row.label, class_="stay", scope="row")
        cells = [_entry(table, table.at(row, column)) for column in grid.columns]
        lines.append(element("tr", head, cells, class_="again" if row.percent == last else None))
        last = row.percent
    return _scrolling(["Attack", *(column.label for column in grid.columns)], lines, grid.setting.title)


def _entry(table: Table, entry: TableEntry) -> Markup:
    seeds = seeds_text(entry, table.seed_counts) if entry.mean is not None else ""
    marked = marked_text(entry)
    text = entry_text(entry, table.seed_counts).removesuffix(marked + seeds)
    kind = "ours" if entry.mean is not None else entry.status
    parts = [element("span", text, class_=kind)]
    if marked:
        parts.append(element("span", marked, class_="by"))
    if seeds:
        parts.append(element("span", seeds, class_="seeds"))
    below = difference_text(entry)
    if below:
        figure, _, difference = below.partition(" ")
        shown = [_signed(entry.difference)] if difference and entry.difference is not None else []
        parts.append(element("span", figure, " ", shown, class_="paper"))
    return element("td", parts, class_=entry.mark or None)


def _signed(value: float) -> Markup:
    colour = "down" if value <= -_NOTABLE else "up" if value >= _NOTABLE else None
    return element("span", signed(value), class_=colour)


def html_text_table(table: TextTable) -> Markup:
    """Return a table of words and numbers, with its note; what a row is of stays in sight while the rest scrolls."""
    sides = ["left" if side == "l" else None for side in table.sides[table.names :]]
    kinds = ["share" if side == "r" else None for side in table.sides[: table.names]]
    lines, last = [], ""
    for row, told in zip(table.rows, table.row_names(), strict=True):
        spans = [element("span", name, class_=kind) for name, kind in zip(told, kinds, strict=True) if name]
        cells = [element("td", cell, class_=side) for cell, side in zip(row[table.names :], sides, strict=True)]
        again = "again" if told[0] == last else None
        lines.append(
            element(
                "tr", element("th", join(spans, between=" "), class_="stay names", scope="row"), cells, class_=again
            )
        )
        last = told[0]
    head = [", ".join(table.head[: table.names]), *table.head[table.names :]]
    scrolling = _scrolling(head, lines, table.title, ["stay names", *sides])
    return join([scrolling, element("p", table.note, class_="note")])


def html_ranks(table: Table, found: Sequence[Ranking]) -> Markup:
    """Return the order of the defenses beside the paper's, folded away."""
    columns = compared_columns(table)
    lines = []
    for one in found:
        head = element(
            "th", element("span", one.row.share, class_="share"), " ", one.row.label, class_="stay", scope="row"
        )
        cells = [element("td", rank_text(one, column)) for column in columns]
        cells += [element("td", text) for text in (f"{one.alike} of {one.pairs}", tau_text(one))]
        lines.append(element("tr", head, cells))
    alike, pairs = sum(one.alike for one in found), sum(one.pairs for one in found)
    said = f"Ranks beside the paper's: {alike} of {pairs} pairs of defenses are in the paper's order"
    names = ["Attack", *(column.label for column in columns), "pairs alike", "Kendall's τ"]
    note = element("p", ranks_note(table, found), class_="note")
    return element("details", element("summary", said), _scrolling(names, lines, "Ranks"), note)


def html_unfinished(results: Sequence[Results]) -> Markup:
    """Return every run that is planned and not done, with the reason if it failed."""
    lines = []
    for place, cell in _placed(results):
        state = outcome(cell)
        if state != "done":
            why = _text(cell.error, "error") if cell.status != "done" else "ended without an accuracy"
            kind = _text(cell.error, "kind")
            if cell.status == "running":
                why = f"{cell.rounds_done} of {cell.config['rounds']} rounds"
            became = element("td", STATUS_WORDS[state], class_=f"left {state}")
            reason = element("td", f"{kind}: {why}" if kind and why else why, class_="left wide")
            lines.append(element("tr", element("td", place, class_="left wide"), became, reason))
    if not lines:
        return element("p", "None: every planned run is done.")
    return _scrolling(["Run", "state", ""], lines, "Unfinished runs", ["left", "left", "left"])


def html_runs(results: Sequence[Results]) -> list[Markup]:
    """Return a fold for every run, with its configuration, its summary and where it comes from."""
    return [_run(place, cell) for place, cell in _placed(results)]


def _run(place: str, cell: Cell) -> Markup:
    accuracy = cell.measured("final_accuracy")
    shown = STATUS_WORDS[outcome(cell)] if accuracy is None else f"{accuracy:.2f} %"
    colour = "seeds" if accuracy is not None else f"seeds {outcome(cell)}"
    said = element("summary", place, " ", element("span", shown, class_=colour))
    origin = {"key": cell.key, **cell.manifest}
    facts: dict[str, Any] = {"summary": cell.summary, "events": cell.events or None, "error": cell.error}
    halves = [
        element("div", element("h4", "configuration"), element("pre", _toml(cell.config))),
        element("div", element("h4", "origin"), element("pre", _json(origin)), *_facts(facts)),
    ]
    return element("details", said, element("div", halves, class_="halves"))


def _facts(facts: dict[str, Any]) -> list[Markup]:
    return [
        join([element("h4", name), element("pre", _json(value))]) for name, value in facts.items() if value is not None
    ]


def _placed(results: Sequence[Results]) -> Iterable[tuple[str, Cell]]:
    """Yield every cell with its place in words, in the order of the tables."""
    for one in results:
        for grid in arrange(one.cells):
            for row in grid.rows:
                for column in grid.columns:
                    yield from ((_place(grid, row, column, cell), cell) for cell in grid.at(row, column))


def _place(grid: Grid, row: Row, column: Column, cell: Cell) -> str:
    attack = f"{row.share} {row.label}" if row.percent else "no attack"
    return f"{grid.setting.title}: {column.label}, {attack}, seed {cell.config['seed']}"


def _scrolling(
    head: Sequence[str], lines: Sequence[Markup], label: str, sides: Sequence[str | None] | None = None
) -> Markup:
    """Return a table in a box of its own, which scrolls if the page is narrower."""
    chosen = sides or ["stay", *(None for _ in head[1:])]
    names = [element("th", name, class_=side, scope="col") for name, side in zip(head, chosen, strict=True)]
    table = element("table", element("thead", element("tr", names)), element("tbody", lines))
    return element("div", table, class_="scroll", tabindex="0", role="region", aria_label=label)


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)


def _toml(config: dict[str, Any]) -> str:
    """Return a configuration as TOML, as far as TOML can say it; what it cannot is JSON."""
    try:
        return tomli_w.dumps({key: value for key, value in config.items() if value is not None})
    except TypeError:
        return _json(config)
