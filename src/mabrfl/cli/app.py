"""The ``mabrfl`` command and its sub-commands; the code of a sub-command is imported when it is called."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated

import click
import typer
from typer.core import TyperGroup

from mabrfl._version import __version__
from mabrfl.cli.once import OnceCommand
from mabrfl.cli.stopping import importing

COMMANDS = {
    "run": ("run:run", "Run a federation, show it live, and record it."),
    "sweep": ("sweep:sweep", "Run every cell of a sweep that is not done yet."),
    "arena": ("arena:arena", "Say where a defense stands among all others, or which defenses fall to an attack."),
    "table": ("results:table", "Show results in the layout of the paper's Table 1."),
    "compare": ("compare:compare", "Compare runs or sweeps: what differs in their settings and in their outcome."),
    "plot": ("results:plot", "Draw results: the paper's figures, and more."),
    "report": ("results:report", "Write results as one HTML file that needs no network."),
    "pack": ("results:pack", "Pack results into one small file for table, plot and report."),
    "render": ("results:render", "Write the tables and figures of packed results into a folder beside them."),
    "explain": (
        "explain:explain",
        "Say why clients were rejected, accepted or not invited, in sentences with the numbers.",
    ),
    "watch": ("watch:watch", "Follow a run, a sweep or a Flower federation on a live page in the browser."),
    "demo": (
        "demo:demo",
        "Show MAB-RFL against FedAvg: embedded data, no network, 30 % attackers, well under 90 seconds.",
    ),
    "list": (
        "listing:listing",
        "Show every name that a run can use, with one line each; or one name, with its options.",
    ),
    "audit": ("audit:app", "Check and read the audit of a Flower strategy."),
    "federation": ("federation:app", "Show the clients of a Flower strategy; ban, forgive, pin and rename them."),
    "serve": ("serve:serve", "Serve the metrics of a Flower strategy for Prometheus, its health, and a live page."),
    "data": ("data:app", "List, fetch and check the data sets."),
}
"""Each sub-command: its function or group in ``mabrfl.cli``, and its line in ``mabrfl --help``."""


class LazyGroup(TyperGroup):
    """A group that knows the name and the help line of its commands, and imports a command when it is called."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the arguments name, imported."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command and load_command(str(command.name)), rest


def load_command(name: str) -> click.Command:
    """Import a sub-command and return it."""
    module, _, attribute = COMMANDS[name][0].partition(":")
    with importing():
        target = getattr(import_module(f"mabrfl.cli.{module}"), attribute)
    if isinstance(target, typer.Typer):
        return typer.main.get_group(target)
    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    single.command(name, cls=OnceCommand)(target)
    return typer.main.get_command(single)


app = typer.Typer(
    name="mabrfl",
    cls=LazyGroup,
    help="Robust federated learning with adaptive client selection (MAB-RFL): run it, attack it, compare it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _name, (_, _line) in COMMANDS.items():
    app.command(_name, help=_line)(lambda: None)


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
