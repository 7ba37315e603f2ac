"""The ``mabrfl`` command: its sub-commands, and how mistakes and interruptions end it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from typing import Annotated

import click
import typer
from rich.console import Console
from rich.text import Text

from mabrfl._version import __version__
from mabrfl.cli import audit, data, demo, listing, pack, plot, report_page, run, sweep, table
from mabrfl.cli.once import OnceCommand
from mabrfl.cli.stopping import Stopped, stop_on_sigterm
from mabrfl.errors import MabRflError

INTERRUPTED = 130
BROKEN_PIPE = 1

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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; a user's mistake is one line on stderr.

    Codes: 0 done; 1 standard output was closed; 2 wrong usage; 3 to 9 the kinds of :mod:`mabrfl.errors`;
    130 Ctrl-C; 143 terminated.
    """
    _prepare()
    try:
        with stop_on_sigterm():
            code = typer.main.get_command(app).main(
                args=None if arguments is None else list(arguments), prog_name="mabrfl", standalone_mode=False
            )
            sys.stdout.flush()
    except (click.ClickException, MabRflError) as error:
        return _failed(error)
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except Stopped as stopped:
        return stopped.exit_code
    except BrokenPipeError:
        # Whatever is still in the buffer has nowhere to go; without this the interpreter complains at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    return code if isinstance(code, int) else 0


def _prepare() -> None:
    """Let users' own modules in the current folder be found, and odd terminals be written to."""
    sys.path.append(os.getcwd())
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _failed(error: click.ClickException | MabRflError) -> int:
    message = error.format_message() if isinstance(error, click.ClickException) else str(error)
    # Older versions of click have no such class, and print the help by themselves.
    if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):
        typer.echo(message, err=True)
        return error.exit_code
    # Click and typer both add their suggestion.
    line = re.sub(r"(Did you mean [^?]+\?)( \1)+", r"\1", " ".join(message.split()))
    Console(stderr=True).print(Text(f"error: {line}", style="red"), soft_wrap=True)
    return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
