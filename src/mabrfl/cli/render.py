"""``mabrfl render``: the tables and figures of packed results, beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text


def render(
    packed: Annotated[list[Path], typer.Argument(metavar="PACKED...", help="Files of mabrfl pack.")],
    all_figures: Annotated[
        bool, typer.Option("--all", help="Draw every figure that the results have, not only those in the folder.")
    ] = False,
) -> None:
    """Write the tables and figures of packed results into a folder beside them.

    PACKED: files of mabrfl pack, NAME.json.gz; the files made of each go into the folder NAME.

    Tables with ranks as Markdown, LaTeX and CSV, and the table of detection as Markdown and CSV.

    Figures that are in the folder are drawn again, as SVG with the paper's values; with --all, every figure.

    The same results give the same bytes each time.
    """
    from mabrfl.reports.rendering import write_rendered

    for path in packed:
        written, others = write_rendered(path, all_figures=all_figures)
        for file in written:
            typer.echo(str(file))
        for file in others:
            note = f"note: {file} is not made of {path} (any more); remove it if it was"
            Console(stderr=True).print(Text(note, style="yellow"), soft_wrap=True)
