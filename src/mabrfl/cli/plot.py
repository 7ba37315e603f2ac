"""``mabrfl plot``: figures from results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
import typer

from mabrfl.cli.results import Paths, cells_of, one_of, read

if TYPE_CHECKING:
    from mabrfl.reports.drawing import Ending

NAMES = ("sampling", "similarity", "attackers", "accuracy", "detection", "selection", "reputation", "isolation", "all")
_ENDINGS: dict[str, tuple[Ending, ...]] = {"png": ("png",), "svg": ("svg",), "both": ("png", "svg")}


def plot(
    results: Paths,
    *,
    figure: Annotated[
        list[str] | None,
        typer.Option(metavar="FIGURE", help=f"{', '.join(NAMES[:-1])}, or all (the default); repeatable."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the pictures; made if need be.")] = Path("figures"),
    format_: Annotated[str, typer.Option("--format", metavar="FORMAT", help="png, svg or both.")] = "both",
    compare: Annotated[
        bool,
        typer.Option("--compare/--no-compare", help="The paper's own values as faint lines, where it has some."),
    ] = False,
) -> None:
    """Draw results: the paper's figures, and more.

    RESULTS: a sweep's folder, a packed file, the folder of a run, or a folder of these.

    Fig. 1a is sampling, Fig. 1b similarity, Figs. 3 to 5 attackers; the rest goes over the rounds.
    """
    endings = _ENDINGS[one_of("--format", format_, list(_ENDINGS))]
    names = [one_of("--figure", name, NAMES) for name in dict.fromkeys(figure or ["all"])]
    if out.exists() and not out.is_dir():
        raise click.UsageError(f"--out: {str(out)!r} is a file; a folder is needed")
    from mabrfl.reports.figures import draw, save_figures

    cells = cells_of(read(results))
    drawn = {stem: picture for name in names for stem, picture in draw(cells, name, compare=compare).items()}
    for path in save_figures(drawn, out, endings):
        typer.echo(str(path))
