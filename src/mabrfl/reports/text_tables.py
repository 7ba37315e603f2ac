"""Tables as text: what Markdown and LaTeX have in common, and their markup escaped."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass

from mabrfl.reports.labels import Row
from mabrfl.reports.latex_tables import escape_latex, latex_document, latex_line, latex_table


@dataclass(frozen=True)
class TextTable:
    """A table of words and numbers, before any markup.

    Attributes
    ----------
    title
        What it is.
    head
        The names of its columns.
    sides
        A letter per column, as in LaTeX: words stand to the left (``l``), numbers to the right (``r``).
    rows
        As many texts each as ``head`` has.
    note
        What a reader must know.
    names
        How many columns, from the first, say what a row is of; if the first is empty it is that of the row above.
    """

    title: str
    head: Sequence[str]
    sides: str
    rows: Sequence[Sequence[str]]
    note: str
    names: int = 1

    def row_names(self) -> list[tuple[str, ...]]:
        """Return what each row is of, with what is not repeated filled in."""
        told: list[tuple[str, ...]] = []
        for row in self.rows:
            above = told[-1] if told else ("",) * self.names
            told.append((row[0] or above[0], *row[1 : self.names]))
        return told

    def markdown(self) -> str:
        """Return the table in Markdown."""
        sides = [{"l": ":--", "r": "--:"}[side] for side in self.sides]
        lines = [self.head, sides, *([markdown_text(cell) for cell in row] for row in self.rows)]
        return f"**{markdown_text(self.title)}**\n\n{markdown_rows(lines)}\n{markdown_text(self.note)}\n"

    def latex(self) -> str:
        """Return the table in LaTeX."""
        lines = [latex_line([escape_latex(cell) for cell in row]) for row in self.rows]
        caption = escape_latex(f"{self.title}. {self.note}")
        return latex_document([latex_table(self.sides, self.head, lines, caption)])


def with_shares(rows: Sequence[Row]) -> list[tuple[Row, str]]:
    """Return each row with its share of attackers, written only where it changes."""
    told, last = [], None
    for row in rows:
        told.append((row, row.share if row.percent != last else ""))
        last = row.percent
    return told


def markdown_rows(lines: Sequence[Sequence[str]]) -> str:
    """Return the lines of a table, with columns that also line up as plain text; the second line says to which side."""
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    return "".join("| " + " | ".join(map(_padded, line, widths, lines[1])) + " |\n" for line in lines)


def _padded(cell: str, width: int, side: str) -> str:
    if cell == side:
        return cell[0] + "-" * (width - 2) + cell[-1]
    return cell.rjust(width) if side.endswith(":") else cell.ljust(width)


def markdown_text(text: str) -> str:
    """Escape what Markdown would take for markup."""
    return re.sub(r"([\\`*_\[\]|])", r"\\\1", html.escape(" ".join(text.split()), quote=False))
