"""Tables as Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Callable, Mapping, Sequence

from mabrfl.experiments.layout import Column, Row
from mabrfl.experiments.tables import (
    Entry,
    Ranking,
    Table,
    compared_columns,
    difference_text,
    entry_text,
    rankings,
    signed,
)

_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "_": r"\_",
    "%": r"\%",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "—": "---",
    "±": r"$\pm$",
    "−": "$-$",
}


def markdown(tables: Sequence[Table], *, compare: bool = True, ranks: bool = False) -> str:
    """Return tables in Markdown, as GitHub and others show them; best in bold, second best in italics.

    Parameters
    ----------
    tables
        What to show, one after the other.
    compare
        Whether the paper's figure and the difference stand below ours.
    ranks
        Whether a table of ranks, ours and the paper's, follows each.
    """
    parts = []
    for table in tables:
        parts.append(_markdown_table(table, compare and table.compares))
        if ranks and (found := rankings(table)):
            parts.append(_markdown_ranks(table, found))
    return "\n".join(parts)


def _markdown_table(table: Table, compare: bool) -> str:
    grid = table.grid
    head = ["Attackers", "Attack", *(_cell(column.label) for column in grid.columns)]
    lines = [head, ["--:", ":--", *("--:" for _ in grid.columns)]]
    for row, share in with_shares(grid.rows):
        entries = [_markdown_entry(table, table.at(row, column), compare) for column in grid.columns]
        lines.append([share, _cell(row.label), *entries])
    notes = " ".join([*table.notes(compare=compare), legend(compare)])
    return f"**{_cell(grid.setting.title)}**\n\n{_rows(lines)}\n{_cell(notes)}\n"


def legend(compare: bool) -> str:
    """Return how to read a table, in a sentence or two."""
    below = " Below ours: the paper's figure and the difference in points." if compare else ""
    return (
        "Bold: best of the row; italics: second best; FedAvg, the baseline, is not ranked."
        f"{below} A dash: not run yet; empty: not part of the experiment."
    )


def _markdown_entry(table: Table, entry: Entry, compare: bool) -> str:
    around = {"best": "**", "second": "*", "": ""}[entry.mark]
    text = f"{around}{entry_text(entry, table.seed_counts)}{around}"
    below = difference_text(entry) if compare else ""
    return f"{text}<br>{below}" if below else text


def _markdown_ranks(table: Table, found: Sequence[Ranking]) -> str:
    columns = compared_columns(table)
    head = ["Attackers", "Attack", *(_cell(column.label) for column in columns), "pairs in the paper's order"]
    lines = [head, ["--:", ":--", *("--:" for _ in head[2:])]]
    for ranking, share in zip(found, (share for _, share in with_shares([one.row for one in found])), strict=True):
        cells = [rank_text(ranking, column) for column in columns]
        lines.append([share, _cell(ranking.row.label), *cells, f"{ranking.alike} of {ranking.pairs}"])
    alike, pairs = sum(one.alike for one in found), sum(one.pairs for one in found)
    note = (
        f"Rank of each defense in its row, and the paper's in brackets; {alike} of {pairs} pairs in the paper's order."
    )
    return f"**{_cell(table.grid.setting.title)}: ranks**\n\n{_rows(lines)}\n{note}\n"


def rank_text(ranking: Ranking, column: Column) -> str:
    """Return ``1 (2)``: first with us, second in the paper; nothing if either does not have it."""
    return f"{ranking.ours[column]} ({ranking.papers[column]})" if column in ranking.ours else ""


def with_shares(rows: Sequence[Row]) -> list[tuple[Row, str]]:
    """Return each row with its share of attackers, written only where it changes."""
    told, last = [], None
    for row in rows:
        told.append((row, row.share if row.percent != last else ""))
        last = row.percent
    return told


def _rows(lines: Sequence[Sequence[str]]) -> str:
    """Return the lines of a table, with columns that also line up as plain text; the second line says to which side."""
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    return "".join("| " + " | ".join(map(_padded, line, widths, lines[1])) + " |\n" for line in lines)


def _padded(cell: str, width: int, side: str) -> str:
    if cell == side:
        return cell[0] + "-" * (width - 2) + cell[-1]
    return cell.rjust(width) if side.endswith(":") else cell.ljust(width)


def _cell(text: str) -> str:
    """Escape what Markdown would take for markup."""
    return re.sub(r"([\\`*_\[\]|])", r"\\\1", html.escape(" ".join(text.split()), quote=False))


def latex(tables: Sequence[Table], *, compare: bool = True, ranks: bool = False) -> str:
    r"""Return tables in LaTeX, with ``booktabs``; best in bold, second best underlined.

    See :func:`markdown` for the parameters.
    """
    parts = ["% \\usepackage{booktabs}\n"]
    for table in tables:
        parts.append(_latex_table(table, compare and table.compares))
        if ranks and (found := rankings(table)):
            parts.append(_latex_ranks(table, found))
    return "\n".join(parts)


def _latex_table(table: Table, compare: bool) -> str:
    grid = table.grid
    lines = [
        _latex_line(["Attackers", "Attack", *(escape_latex(column.label) for column in grid.columns)]),
        r"\midrule",
    ]
    for row, share in with_shares(grid.rows):
        if share and row != grid.rows[0]:
            lines.append(r"\addlinespace")
        entries = [_latex_entry(table, table.at(row, column)) for column in grid.columns]
        lines.append(_latex_line([escape_latex(share), escape_latex(row.label), *entries]))
        if compare:
            below = [difference_text(table.at(row, column)) for column in grid.columns]
            lines.append(_latex_line(["", r"\scriptsize paper", *(_latex_small(text) for text in below)]))
    notes = legend(compare).replace("italics", "underlined")
    caption = escape_latex(" ".join([f"{grid.setting.title}.", *table.notes(compare=compare), notes]))
    return _latex_float("rl" + "r" * len(grid.columns), lines, caption)


def _latex_entry(table: Table, entry: Entry) -> str:
    text = escape_latex(entry_text(entry, table.seed_counts))
    command = {"best": r"\textbf", "second": r"\underline", "": ""}[entry.mark]
    return f"{command}{{{text}}}" if command else text


def _latex_small(text: str) -> str:
    return rf"\scriptsize {escape_latex(text)}" if text else ""


def _latex_ranks(table: Table, found: Sequence[Ranking]) -> str:
    columns = compared_columns(table)
    head = ["Attackers", "Attack", *(escape_latex(column.label) for column in columns), "pairs alike"]
    lines = [_latex_line(head), r"\midrule"]
    for ranking, share in zip(found, (share for _, share in with_shares([one.row for one in found])), strict=True):
        cells = [rank_text(ranking, column) for column in columns]
        told = [escape_latex(share), escape_latex(ranking.row.label), *cells, f"{ranking.alike} of {ranking.pairs}"]
        lines.append(_latex_line(told))
    caption = f"{table.grid.setting.title}: rank of each defense in its row, and the paper's in brackets."
    return _latex_float("rl" + "r" * (len(columns) + 1), lines, escape_latex(caption))


def _latex_float(columns: str, lines: Sequence[str], caption: str) -> str:
    body = "\n".join(lines)
    return (
        "\\begin{table*}\n\\centering\n\\setlength{\\tabcolsep}{4pt}\n"
        f"\\begin{{tabular}}{{{columns}}}\n\\toprule\n{body}\n\\bottomrule\n\\end{{tabular}}\n"
        f"\\caption{{{caption}}}\n\\end{{table*}}\n"
    )


def _latex_line(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def escape_latex(text: str) -> str:
    r"""Return text in which LaTeX sees no commands.

    Examples
    --------
    >>> print(escape_latex("30% of a_b"))
    30\% of a\_b
    """
    return "".join(_LATEX.get(character, character) for character in " ".join(text.split()))


_FIELDS = (
    *("dataset", "model", "rounds", "clients", "attackers_percent", "attack", "attack_variant"),
    *("defense", "preset", "selector", "defense_variant", "metric", "status", "mean", "std", "seeds", "seeds_planned"),
    *("seeds_failed", "mark", "paper", "difference"),
)


def as_csv(tables: Sequence[Table], *, compare: bool = True, ranks: bool = False) -> str:
    """Return tables as CSV: a line per place, in the order of the table, numbers unrounded.

    See :func:`markdown` for the parameters; with ``ranks`` there are two more columns.
    """
    fields = [name for name in _FIELDS if compare or name not in ("paper", "difference")]
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


def _csv_line(table: Table, row: Row, column: Column, entry: Entry) -> dict[str, object]:
    setting = table.grid.setting
    difference = None if entry.difference is None else signed(entry.difference).replace("−", "-").replace("±", "")
    return {
        "dataset": setting.dataset,
        "model": setting.model,
        "rounds": setting.rounds,
        "clients": setting.clients,
        "attackers_percent": f"{row.percent:g}",
        "attack": row.attack,
        "attack_variant": row.variant,
        "defense": column.defense,
        "preset": column.preset,
        "selector": column.selector,
        "defense_variant": column.variant,
        "metric": table.metric,
        "status": entry.status,
        "mean": entry.mean,
        "std": entry.deviation,
        "seeds": entry.seeds,
        "seeds_planned": entry.planned,
        "seeds_failed": entry.failed,
        "mark": entry.mark,
        "paper": entry.paper,
        "difference": difference,
    }


def _csv_ranks(ranking: Ranking | None, column: Column) -> dict[str, object]:
    if ranking is None or column not in ranking.ours:
        return {}
    return {"rank": ranking.ours[column], "paper_rank": ranking.papers[column]}


FORMATS: Mapping[str, Callable[..., str]] = {"markdown": markdown, "latex": latex, "csv": as_csv}
"""By the name that the command line has for them."""
