"""Tables as Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence

from mabrfl.reports.comparison import Agreement, Ranking, agreements, compared_columns, rankings
from mabrfl.reports.labels import Column, Row
from mabrfl.reports.tables import (
    BEGUN_NOTE,
    FAILED_NOTE,
    Table,
    TableEntry,
    competing,
    difference_text,
    entry_text,
    signed,
)
from mabrfl.reports.text_tables import (
    escape_latex,
    latex_document,
    latex_line,
    latex_table,
    markdown_rows,
    markdown_text,
    with_shares,
)


def markdown(tables: Sequence[Table], *, compare: bool = True, ranks: bool = False) -> str:
    """Return tables in Markdown, as GitHub and others show them; best in bold, second best in italics.

    Parameters
    ----------
    tables
        What to show, one after the other.
    compare
        Whether the paper's figure and the difference stand below ours.
    ranks
        Whether a table of ranks, ours and the paper's, follows each, and one of the differences by defense.
    """
    parts = []
    for table in tables:
        parts.append(_markdown_table(table, compare and table.compares))
        if ranks and (ranked := rankings(table)):
            parts.append(_markdown_ranks(table, ranked))
        if ranks and (near := agreements(table)):
            parts.append(_markdown_differences(table, near))
    return "\n".join(parts)


def _markdown_table(table: Table, compare: bool) -> str:
    grid = table.grid
    head = ["Attackers", "Attack", *(markdown_text(column.label) for column in grid.columns)]
    lines = [head, ["--:", ":--", *("--:" for _ in grid.columns)]]
    for row, share in with_shares(grid.rows):
        entries = [_markdown_entry(table, table.at(row, column), compare) for column in grid.columns]
        lines.append([share, markdown_text(row.label), *entries])
    notes = " ".join([*table.notes(compare=compare), legend(table, compare=compare)]).rstrip()
    return f"**{markdown_text(grid.setting.title)}**\n\n{markdown_rows(lines)}\n{markdown_text(notes)}\n"


def legend(table: Table, *, compare: bool, best: str = "Bold", second: str = "italics") -> str:
    """Return how to read a table, in a few sentences.

    Parameters
    ----------
    table
        The table; words that do not occur in it are not explained.
    compare
        Whether the paper's figures are in it.
    best, second
        How the best of a row and the second best look.
    """
    tied = ", and what differs from it by a standard deviation or less" if max(table.seed_counts, default=0) > 1 else ""
    several = len(competing(table.grid)) > 1 and table.marked
    parts = [f"{best}: best of the row{tied}; {second}: best of the others"] if several else []
    if parts and table.unmarked_rows:
        parts.append("no marks in a row that is not complete yet")
    if parts and table.rows_with_a_goal:
        names = ", ".join(dict.fromkeys(row.label for row in table.rows_with_a_goal))
        parts.append(f"no marks for {names}, which has a goal beside the accuracy: see the attack success")
    if parts and table.seeds_differ:
        parts.append(
            "where the columns of a row have different seeds, by those that all of them have: "
            "the mean over these is in square brackets, if it is another one"
        )
    sentences = ["; ".join(parts)] if parts else []
    sentences += ["Below ours: the paper's figure and the difference in points"] if compare else []
    words = [note for note, there in _words(table).items() if there]
    sentences += ["; ".join([words[0][0].upper() + words[0][1:], *words[1:]])] if words else []
    return ". ".join(sentences) + ("." if sentences else "")


def _words(table: Table) -> dict[str, bool]:
    """Return the words that may stand in place of a number, and whether they do."""
    found = [entry for entry in table.entries.values() if entry.mean is None]
    return {
        "a dash: not run yet": any(entry.status == "missing" for entry in found),
        BEGUN_NOTE: any(entry.status == "running" for entry in found),
        FAILED_NOTE: bool(table.failures),
        "empty: not part of the experiment": any(entry.status == "unplanned" for entry in found),
    }


def _markdown_entry(table: Table, entry: TableEntry, compare: bool) -> str:
    around = {"best": "**", "second": "*", "": ""}[entry.mark]
    text = f"{around}{entry_text(entry, table.seed_counts)}{around}"
    below = difference_text(entry) if compare else ""
    return f"{text}<br>{below}" if below else text


def _markdown_ranks(table: Table, ranked: Sequence[Ranking]) -> str:
    columns = compared_columns(table)
    names = [markdown_text(column.label) for column in columns]
    head = ["Attackers", "Attack", *names, "pairs in the paper's order", "Kendall's τ"]
    lines = [head, ["--:", ":--", *("--:" for _ in head[2:])]]
    for ranking, (row, share) in zip(ranked, with_shares([one.row for one in ranked]), strict=True):
        cells = [rank_text(ranking, column) for column in columns]
        lines.append(
            [share, markdown_text(row.label), *cells, f"{ranking.alike} of {ranking.pairs}", tau_text(ranking)]
        )
    title = markdown_text(table.grid.setting.title)
    return f"**{title}: ranks**\n\n{markdown_rows(lines)}\n{ranks_note(table, ranked)}\n"


def ranks_note(table: Table, ranked: Sequence[Ranking]) -> str:
    """Return how to read ranks, and how many pairs agree over all rows."""
    seeds = ", by the seeds that all of these have" if table.seeds_differ else ""
    alike, pairs = sum(one.alike for one in ranked), sum(one.pairs for one in ranked)
    return (
        f"Rank of each defense in its row, and the paper's in brackets, among those that both have{seeds}; τ is 1 for "
        f"the paper's order and −1 for its reverse. {alike} of {pairs} pairs are in the paper's order."
    )


def _markdown_differences(table: Table, near: Sequence[Agreement]) -> str:
    lines = [DIFFERENCES_HEAD, [":--", *("--:" for _ in DIFFERENCES_HEAD[1:-1]), ":--"]]
    lines += [[markdown_text(cell) for cell in difference_cells(one)] for one in near]
    title = markdown_text(table.grid.setting.title)
    return f"**{title}: differences**\n\n{markdown_rows(lines)}\n{DIFFERENCES_NOTE}\n"


DIFFERENCES_HEAD = ["Defense", "rows", "mean difference", "mean absolute difference", "largest difference", "where"]
DIFFERENCES_NOTE = "Our accuracy minus the paper's, in points, over the rows that both have."


def difference_cells(one: Agreement) -> list[str]:
    """Return how near a column is to the paper's, as the cells of a line."""
    numbers = [signed(one.mean_difference), f"{one.mean_distance:.2f}", signed(one.largest_difference)]
    return [one.column.label, str(one.rows), *numbers, one.worst_row.place]


def tau_text(ranking: Ranking) -> str:
    """Return Kendall's tau with its sign; a dash if there is none."""
    return "—" if ranking.tau is None else signed(ranking.tau)


def rank_text(ranking: Ranking, column: Column) -> str:
    """Return ``1 (2)``: first with us, second in the paper; nothing if either does not have it."""
    return f"{ranking.ours[column]} ({ranking.papers[column]})" if column in ranking.ours else ""


def latex(tables: Sequence[Table], *, compare: bool = True, ranks: bool = False) -> str:
    """Return tables in LaTeX; best in bold, second best underlined. A comment says which packages they need.

    See :func:`markdown` for the parameters.
    """
    parts = []
    for table in tables:
        parts.append(_latex_table(table, compare and table.compares))
        if ranks and (ranked := rankings(table)):
            parts.append(_latex_ranks(table, ranked))
        if ranks and (near := agreements(table)):
            parts.append(_latex_differences(table, near))
    return latex_document(parts)


def _latex_table(table: Table, compare: bool) -> str:
    grid, lines = table.grid, []
    for row, share in with_shares(grid.rows):
        if share and row != grid.rows[0]:
            lines.append(r"\addlinespace")
        entries = [_latex_entry(table, table.at(row, column)) for column in grid.columns]
        below = [difference_text(table.at(row, column)) if compare else "" for column in grid.columns]
        lines.append(latex_line([escape_latex(share), escape_latex(row.label), *entries], together=any(below)))
        if any(below):
            lines.append(latex_line(["", r"\scriptsize paper", *(_latex_small(text) for text in below)]))
    notes = legend(table, compare=compare, second="underlined")
    caption = escape_latex(" ".join([f"{grid.setting.title}.", *table.notes(compare=compare), notes]))
    head = ["Attackers", "Attack", *(column.label for column in grid.columns)]
    return latex_table("rl" + "r" * len(grid.columns), head, lines, caption)


def _latex_entry(table: Table, entry: TableEntry) -> str:
    text = escape_latex(entry_text(entry, table.seed_counts))
    command = {"best": r"\textbf", "second": r"\underline", "": ""}[entry.mark]
    return f"{command}{{{text}}}" if command else text


def _latex_small(text: str) -> str:
    return rf"\scriptsize {escape_latex(text)}" if text else ""


def _latex_ranks(table: Table, ranked: Sequence[Ranking]) -> str:
    columns = compared_columns(table)
    head = ["Attackers", "Attack", *(column.label for column in columns), "same order", "Kendall's τ"]
    lines = []
    for ranking, (row, share) in zip(ranked, with_shares([one.row for one in ranked]), strict=True):
        cells = [rank_text(ranking, column) for column in columns]
        cells += [f"{ranking.alike} of {ranking.pairs}", escape_latex(tau_text(ranking))]
        lines.append(latex_line([escape_latex(share), escape_latex(row.label), *cells]))
    caption = escape_latex(f"{table.grid.setting.title}. {ranks_note(table, ranked)}")
    return latex_table("rl" + "r" * (len(columns) + 2), head, lines, caption)


def _latex_differences(table: Table, near: Sequence[Agreement]) -> str:
    lines = [latex_line([escape_latex(cell) for cell in difference_cells(one)]) for one in near]
    return latex_table(
        "lrrrrl", DIFFERENCES_HEAD, lines, escape_latex(f"{table.grid.setting.title}. {DIFFERENCES_NOTE}")
    )


FIELDS = (
    *("dataset", "model", "rounds", "clients", "setting_variant", "attackers_percent", "attack", "attack_variant"),
    *("defense", "preset", "selector", "defense_variant", "metric", "status", "mean", "std", "seeds", "seeds_planned"),
    *("seeds_failed", "mark", "marked_by", "paper", "difference"),
)
"""Of a CSV; those up to ``metric`` say which line it is."""


def as_csv(tables: Sequence[Table], *, compare: bool = True, ranks: bool = False) -> str:
    """Return tables as CSV: a line per place, in the order of the table, means unrounded.

    The names of the settings and their variants are different in every line. See :func:`markdown` for the parameters;
    with ``ranks`` there are two more columns.
    """
    fields = [name for name in FIELDS if compare or name not in ("paper", "difference")]
    fields += ["rank", "paper_rank"] if ranks else []
    text = io.StringIO()
    writer = csv.DictWriter(text, fields, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for table in tables:
        ranked = {ranking.row: ranking for ranking in rankings(table)} if ranks else {}
        for (row, column), entry in table.entries.items():
            if entry.status != "unplanned":
                writer.writerow(_csv_line(table, row, column, entry) | _csv_ranks(ranked.get(row), column))
    return text.getvalue()


def _csv_line(table: Table, row: Row, column: Column, entry: TableEntry) -> dict[str, object]:
    setting = table.grid.setting
    difference = None if entry.mean is None or entry.paper is None else round(entry.mean - entry.paper, 6)
    return {
        "dataset": setting.dataset,
        "model": setting.model,
        "rounds": setting.rounds,
        "clients": setting.clients,
        "setting_variant": setting.variant,
        "attackers_percent": f"{row.percent:g}",
        "attack": row.attack,
        "attack_variant": ", ".join(part for part in (row.sweep_label, row.variant) if part),
        "defense": column.defense,
        "preset": column.preset,
        "selector": column.selector,
        "defense_variant": ", ".join(
            part for part in (column.before, column.sweep_label, column.sampling, column.variant) if part
        ),
        "metric": table.metric,
        "status": entry.state,
        "mean": entry.mean,
        "std": entry.deviation,
        "seeds": entry.seeds,
        "seeds_planned": entry.planned,
        "seeds_failed": entry.failed,
        "mark": entry.mark,
        "marked_by": entry.marked_by,
        "paper": entry.paper,
        "difference": difference,
    }


def _csv_ranks(ranking: Ranking | None, column: Column) -> dict[str, object]:
    if ranking is None or column not in ranking.ours:
        return {}
    return {"rank": ranking.ours[column], "paper_rank": ranking.papers[column]}


FORMATS: Mapping[str, Callable[..., str]] = {"markdown": markdown, "latex": latex, "csv": as_csv}
"""By the name that the command line has for them."""
