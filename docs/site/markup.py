"""Small pieces of Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    r"""Return a table.

    Examples
    --------
    >>> print(table(["a"], [["x|y"]]), end="")
    | a |
    | --- |
    | x\|y |
    """
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(_cell(cell) for cell in line) + " |\n" for line in lines)


def code(text: object) -> str:
    """Return text as code; nothing if there is none."""
    return f"`{text}`" if str(text) else ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
