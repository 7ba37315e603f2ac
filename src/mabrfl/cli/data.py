"""``mabrfl data``: list, fetch and check the data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mabrfl import catalog
from mabrfl.cli.completion import names_of
from mabrfl.cli.once import OnceCommand
from mabrfl.errors import DatasetError
from mabrfl.simulation import data

app = typer.Typer(name="data", help="List, fetch and check the data sets.", no_args_is_help=True)

_GOOD = dict.fromkeys(("embedded", "official", "unverified"), "green")
_STYLES = {**_GOOD, "differs": "yellow", "broken": "red", "missing": "dim"}


@app.command("list", cls=OnceCommand)
def list_datasets() -> None:
    """Show every data set, and its folder on this machine."""
    table = _table("data set", "what it is", "where")
    for name in data.DATASETS:
        folder = data.locate(name)
        embedded = data.is_embedded(name)
        where = "embedded" if embedded else str(folder or f"not here; mabrfl data fetch {name}")
        description = catalog.entry("datasets", name).line
        table.add_row(name, description, Text(where, style="dim" if not (folder or embedded) else "green"))
    Console().print(table)


@app.command(cls=OnceCommand)
def fetch(
    name: Annotated[
        str, typer.Argument(help="The data set, see: mabrfl data list.", autocompletion=names_of("datasets"))
    ],
    force: Annotated[bool, typer.Option("--force", help="Fetch it again even if a good copy is there.")] = False,
    into: Annotated[
        Path | None, typer.Option(help="Data folder to put it in, as FOLDER/NAME (default: the user's cache).")
    ] = None,
) -> None:
    """Get a data set and verify it; does nothing if a usable copy is already there."""
    folder = data.fetch(name, force=force, into=into)
    first = data.locate(name)
    where = "embedded, nothing to fetch" if folder is None else str(folder)
    Console().print(Text.assemble((name, "bold"), ": ", (where, "green")), soft_wrap=True)
    if first != folder:
        note = f"note: {first} comes first in the search" if first else f"note: set MABRFL_DATA to {into} to use it"
        Console(stderr=True).print(Text(note, style="yellow"), soft_wrap=True)


@app.command(cls=OnceCommand)
def check(
    names: Annotated[list[str] | None, typer.Argument(help="Data sets to check (default: all).")] = None,
) -> None:
    """Verify the files of data sets: structure, and SHA-256 against the official files."""
    reports = [data.check(name) for name in names or data.DATASETS]
    table = _table("data set", "status", "details", "where")
    for report in reports:
        status = Text(report.status, style=_STYLES[report.status])
        table.add_row(report.name, status, Text(report.detail), Text(str(report.folder or "")))
    Console().print(table)
    # A data set that is missing is an error only if the user named it.
    bad = [report.name for report in reports if report.status == "broken" or (names and not report.usable)]
    if bad:
        raise DatasetError(f"not usable: {', '.join(bad)}")


def _table(*columns: str) -> Table:
    table = Table(header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
