"""``mabrfl list``: every name, with one line each."""

from __future__ import annotations

from typing import Annotated

import click
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mabrfl import catalog
from mabrfl.errors import suggest

_PARTITIONS = [
    ("dominant-label", "The paper's: a share q of each client's data has the client's dominant label."),
    ("iid", "Every client draws from all data with equal probability."),
    ("dirichlet", "Each client's label proportions are drawn from a Dirichlet distribution."),
]
_KINDS = (*catalog.KINDS, "preaggregators", "partitions", "observers")


def listing(
    kind: Annotated[str | None, typer.Argument(help=f"Only these: {', '.join(_KINDS)}.")] = None,
) -> None:
    """Show the defenses, pre-aggregators, selectors, attacks, models, data sets, presets and observers, a line each."""
    console = Console()
    for chosen in _KINDS if kind is None else (_known(kind),):
        lines = _lines(chosen) or [("none", "No installed package has an entry point in mabrfl.observers.")]
        width = max(len(name) for name, _ in lines)
        console.print(Text(chosen, style="bold"))
        for name, line in lines:
            _print(console, name, line, width)
        console.print()
    if kind is None:
        hint = "Your own: write module:Name wherever a name is asked for, or register an entry point in mabrfl.<kind>."
        console.print(Text(hint, style="dim"), soft_wrap=not console.is_terminal)


def _known(kind: str) -> str:
    plural = kind if kind in _KINDS else f"{kind}s"
    if plural not in _KINDS:
        raise click.UsageError(f"unknown kind '{kind}'{suggest(kind, _KINDS)}")
    return plural


def _lines(kind: str) -> list[tuple[str, str]]:
    return _PARTITIONS if kind == "partitions" else catalog.describe(kind)  # type: ignore[arg-type]


def _print(console: Console, name: str, line: str, width: int) -> None:
    if not console.is_terminal:
        # In a pipe each name has one line, however long.
        console.print(Text(f"  {name:{width}}  {line}"), soft_wrap=True)
        return
    row = Table.grid(padding=(0, 2))
    row.add_column(width=width + 2, no_wrap=True)
    row.add_column()
    row.add_row(Text(f"  {name}", style="cyan"), Text(line))
    console.print(row)
