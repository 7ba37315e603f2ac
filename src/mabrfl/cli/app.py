"""The ``mabrfl`` command's sub-commands."""

from __future__ import annotations

from typing import Annotated

import typer

from mabrfl._version import __version__
from mabrfl.cli import audit, data, demo, listing, pack, plot, render, run, sweep, table
from mabrfl.cli import report as report_page
from mabrfl.cli.once import OnceCommand

app = typer.Typer(
    name="mabrfl",
    help="Robust federated learning with adaptive client selection (MAB-RFL): run it, attack it, compare it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run", cls=OnceCommand)(run.run)
app.command("sweep", cls=OnceCommand)(sweep.sweep)
app.command("table", cls=OnceCommand)(table.table)
app.command("plot", cls=OnceCommand)(plot.plot)
app.command("report", cls=OnceCommand)(report_page.report)
app.command("pack", cls=OnceCommand)(pack.pack)
app.command("render", cls=OnceCommand)(render.render)
app.command("demo", cls=OnceCommand)(demo.demo)
app.command("list", cls=OnceCommand)(listing.listing)
app.add_typer(audit.app, name="audit")
app.add_typer(data.app, name="data")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"mabrfl {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Robust federated learning with adaptive client selection (MAB-RFL): run it, attack it, compare it."""
