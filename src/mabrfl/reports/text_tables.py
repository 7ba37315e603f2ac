"""Tables as text, in Markdown and LaTeX.

A LaTeX table is a float over the width of a page of two columns, in small type, with long heads in several lines. A
wide one is scaled down (``graphicx``). One longer than a page is a ``longtable``, on its side (``pdflscape``) if it is
wide as well. Long words go on in the next line (``array``). A comment says which packages a table needs.
"""

from __future__ import annotations

import html
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from mabrfl.reports.labels import Row

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
    '"': "''",
    "—": "---",
    "±": r"$\pm$",
    "−": "$-$",
    "τ": r"$\tau$",
    # After the end of a line these would be an option of it.
    "[": "{[}",
    "*": "{*}",
    "“": "``",
    "”": "''",
}
_PACKAGES = {
    r"\toprule": "booktabs",
    r"\arraybackslash": "array",
    r"\resizebox": "graphicx",
    r"\begin{longtable}": "longtable",
    r"\begin{landscape}": "pdflscape",
}
_MOST_LINES = 45
"""Of a float; with a caption, more do not fit on a page."""
_WIDTH, _ON_ITS_SIDE = 500.0, 650.0
"""Points across a page, and along it."""
_SIZES = {"footnotesize": 3.9, "scriptsize": 3.6, "tiny": 3.0}
"""Points that a character takes, a little more than measured on average."""
_WIDEST_WORDS = 20
"""Characters of a column of words; longer ones go on in the next line."""
_GAP = 4.0
"""Points on either side of a column."""
_SHORTEST_HEAD = 10
"""Characters; a head that is not longer is not broken, however narrow its column is."""


@dataclass(frozen=True)
class TextTable:
    """A table of words and numbers, before any markup.

    Attributes
    ----------
    title
        Its title.
    head
        The names of its columns.
    sides
        A letter per column, as in LaTeX: words stand to the left (``l``), numbers to the right (``r``).
    rows
        As many texts each as ``head`` has.
    note
        The text below it.
    names
        How many columns, from the first, name the row; an empty first one is that of the row above.
    """

    title: str
    head: Sequence[str]
    sides: str
    rows: Sequence[Sequence[str]]
    note: str
    names: int = 1

    def row_names(self) -> list[tuple[str, ...]]:
        """Return the names of each row, complete."""
        names: list[tuple[str, ...]] = []
        for row in self.rows:
            above = names[-1] if names else ("",) * self.names
            names.append((row[0] or above[0], *row[1 : self.names]))
        return names

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
    shares, last = [], None
    for row in rows:
        shares.append((row, row.share if row.percent != last else ""))
        last = row.percent
    return shares


def markdown_rows(lines: Sequence[Sequence[str]]) -> str:
    """Return the lines of a table, with columns that also line up as plain text; the second line says to which side."""
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    return "".join("| " + " | ".join(map(_padded, line, widths, lines[1])) + " |\n" for line in lines)


def _padded(cell: str, width: int, side: str) -> str:
    if cell == side:
        return cell[0] + "-" * (width - 2) + cell[-1]
    return cell.rjust(width) if side.endswith(":") else cell.ljust(width)


def markdown_text(text: str) -> str:
    """Return text in which Markdown sees no markup."""
    return re.sub(r"([\\`*_\[\]|])", r"\\\1", html.escape(" ".join(text.split()), quote=False))


def escape_latex(text: str) -> str:
    r"""Return text in which LaTeX sees no commands.

    Examples
    --------
    >>> print(escape_latex("30% of a_b"))
    30\% of a\_b
    """
    return "".join(_LATEX.get(character, character) for character in " ".join(text.split()))


def latex_line(cells: Sequence[str], *, together: bool = False) -> str:
    """Return the cells of one line; with ``together``, no page ends after it."""
    return " & ".join(cells) + (r" \\*" if together else r" \\")


def latex_document(parts: Sequence[str]) -> str:
    """Return tables one after the other, with the packages they need in a comment at the top."""
    text = "\n".join(parts)
    needed = [f"% \\usepackage{{{name}}}\n" for sign, name in _PACKAGES.items() if sign in text]
    if r"\begin{longtable}" in text:
        needed.append("% A longtable goes over pages of one column: in a paper of two, say \\onecolumn before it.\n")
    return "".join(needed) + "\n" + text


def latex_table(sides: str, head: Sequence[str], lines: Sequence[str], caption: str) -> str:
    """Return a table, as a float or, if it is long, over several pages.

    Parameters
    ----------
    sides
        A letter per column: words stand to the left (``l``), numbers to the right (``r``).
    head
        The names of the columns, not escaped.
    lines
        See :func:`latex_line`; rules may stand between them.
    caption
        Escaped.
    """
    longest = _widths(len(sides), lines)
    widths = [min(width, _WIDEST_WORDS) if side == "l" else width for side, width in zip(sides, longest, strict=True)]
    names = [_broken(name, max(width, _SHORTEST_HEAD)) for name, width in zip(head, widths, strict=True)]
    lengths = [max(width, *map(len, name)) for width, name in zip(widths, names, strict=True)]
    top = latex_line([_stacked(name, side) for name, side in zip(names, sides, strict=True)])
    long = sum(line.rstrip("*").endswith(r"\\") for line in lines) > _MOST_LINES
    size, turned = _fitting(lengths) if long else ("footnotesize", False)
    columns = "".join(
        side if width == full else rf">{{\raggedright\arraybackslash}}p{{{_SIZES[size] * length:.0f}pt}}"
        for side, width, full, length in zip(sides, widths, longest, lengths, strict=True)
    )
    if not long:
        return _float(columns, top, lines, caption, wide=_points(lengths, size) > _WIDTH)
    table = _long(columns, top, lines, caption, size)
    return f"\\begin{{landscape}}\n{table}\\end{{landscape}}\n" if turned else table


def _fitting(lengths: Sequence[int]) -> tuple[str, bool]:
    """Return the largest type in which a long table fits, and whether it has to lie on its side for that."""
    for size in ("footnotesize", "scriptsize"):
        if _points(lengths, size) <= _WIDTH:
            return size, False
    return next((size for size in _SIZES if _points(lengths, size) <= _ON_ITS_SIDE), "tiny"), True


def _float(columns: str, top: str, lines: Sequence[str], caption: str, *, wide: bool) -> str:
    body = "\n".join([r"\toprule", top, r"\midrule", *lines, r"\bottomrule"])
    table = f"\\begin{{tabular}}{{{columns}}}\n{body}\n\\end{{tabular}}"
    if wide:
        table = f"\\resizebox{{\\textwidth}}{{!}}{{%\n{table}%\n}}"
    return (
        "\\begin{table*}\n\\centering\n\\footnotesize\n\\setlength{\\tabcolsep}{4pt}\n"
        f"{table}\n\\caption{{{caption}}}\n\\end{{table*}}\n"
    )


def _long(columns: str, top: str, lines: Sequence[str], caption: str, size: str) -> str:
    head = f"\\toprule\n{top}\n\\midrule\n"
    body = "\n".join(lines)
    return (
        f"\\begingroup\n\\{size}\n\\setlength{{\\tabcolsep}}{{4pt}}\n\\setlength{{\\LTcapwidth}}{{\\linewidth}}\n"
        f"\\begin{{longtable}}{{{columns}}}\n\\caption{{{caption}}}\\\\\n{head}\\endfirsthead\n{head}\\endhead\n"
        f"\\bottomrule\n\\endfoot\n{body}\n\\end{{longtable}}\n\\endgroup\n"
    )


def _widths(columns: int, lines: Sequence[str]) -> list[int]:
    """Return the characters of the widest cell of each column."""
    rows = [re.split(r"(?<!\\)&", line) for line in lines]
    return [
        max((len(_visible(row[place])) for row in rows if len(row) == columns), default=0) for place in range(columns)
    ]


def _visible(cell: str) -> str:
    """Return roughly the text that a reader sees of a cell."""
    plain = re.sub(r"\\(textbf|underline|scriptsize)\b|\\\\\*?$", "", cell.strip())
    return re.sub(r"[{}$]|\\(?=\W)", "", re.sub(r"\\[a-zA-Z]+(\{\})?", "x", plain)).strip()


def _broken(name: str, width: int) -> list[str]:
    """Return a head in as many lines as it takes to be about as narrow as its column."""
    return textwrap.wrap(" ".join(name.split()), width, break_long_words=False, break_on_hyphens=False) or [""]


def _stacked(name: Sequence[str], side: str) -> str:
    shown = r"\\ ".join(escape_latex(line) for line in name)
    return shown if len(name) == 1 else rf"\shortstack[{side}]{{{shown}}}"


def _points(lengths: Sequence[int], size: str) -> float:
    return sum(lengths) * _SIZES[size] + 2 * _GAP * len(lengths)
