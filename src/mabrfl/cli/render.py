"""``mabrfl render``: every table and figure of packed results, beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text


def render(
    packed: Annotated[list[Path], typer.Argument(metavar="PACKED...", help="Files of mabrfl pack.")],
) -> None:
    """Write every table and figure of packed results into a folder beside them.

    PACKED: files of mabrfl pack, NAME.json.gz; what is made of each goes into the folder NAME.

    Tables with ranks as Markdown, LaTeX and CSV, who was detected as Markdown and CSV, all figures as SVG with the
    paper's values; the same bytes each time.
    """
    from mabrfl.reports.rendering import write_rendered

    for path in packed:
        written, others = write_rendered(path)
        for file in written:
            typer.echo(str(file))
        for file in others:
            note = f"note: {file} is not made of {path} (any more); remove it if it was"
            Console(stderr=True).print(Text(note, style="yellow"), soft_wrap=True)
