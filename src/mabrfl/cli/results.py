"""What the commands on results share: their arguments, and where text goes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
import typer

from mabrfl.errors import suggest

if TYPE_CHECKING:
    from mabrfl.sweeps.results import Cell, Results

RESULTS_HELP = (
    "A sweep's folder, a packed file (mabrfl pack), the folder of a run, or a folder of these; "
    "several are taken together."
)
Paths = Annotated[list[Path], typer.Argument(metavar="RESULTS...", help=RESULTS_HELP)]


def read(paths: Sequence[Path]) -> list[Results]:
    """Read results; a run that several have is taken once."""
    from mabrfl.sweeps.results import load_all

    return load_all(list(paths))


def tell_stale(results: Sequence[Results]) -> None:
    """Say on standard error which finished cells were made with other code of the user's own than that of today."""
    from mabrfl.sweeps.stale import notes_on_results

    for note in notes_on_results(results):
        typer.secho(f"note: {note}", fg="yellow", err=True)


def cells_of(results: Sequence[Results]) -> list[Cell]:
    """Return all cells of several results."""
    return [cell for one in results for cell in one.cells]


def one_of(option: str, value: str, known: Sequence[str]) -> str:
    """Return a value that is known, or end with the nearest one.

    Raises
    ------
    click.UsageError
        If it is not.
    """
    if value not in known:
        raise click.UsageError(f"{option}: unknown '{value}'{suggest(value, known)}")
    return value


def put(text: str, out: Path | None) -> None:
    """Write text to a file, replaced as a whole, or to standard output."""
    from mabrfl.recording.files import write_whole

    if out is None:
        typer.echo(text, nl=False)
    else:
        write_whole(out, text.encode("utf-8", "replace"))
