"""``mabrfl report``: one page of results that needs nothing else."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.status import Status

from mabrfl.cli.results import Paths, one_of, put, read, tell_stale


def report(
    results: Paths,
    *,
    out: Annotated[Path, typer.Option(help="File to write.")] = Path("report.html"),
    metric: Annotated[
        str, typer.Option(help="Of the tables: final_accuracy, or mean_last10, the mean of the last ten rounds.")
    ] = "final_accuracy",
    title: Annotated[str, typer.Option(help="Of the page (default: the names of the results).")] = "",
) -> None:
    """Write results as one HTML file that needs no network.

    RESULTS: a sweep's folder, a packed file, the folder of a run, or a folder of these; each has its own section.

    Tables, figures, configurations and manifests of every run, and the runs that failed or are missing.
    """
    from mabrfl.reports.tables import METRICS

    one_of("--metric", metric, list(METRICS))
    console = Console(stderr=True)
    loaded = read(results)
    tell_stale(loaded)
    from mabrfl.reports.page import report as make

    with console.status("drawing ...") if console.is_terminal else nullcontext() as status:
        progress = status.update if isinstance(status, Status) else None
        page = make(loaded, metric=metric, title=title, progress=progress)  # type: ignore[arg-type] # just checked
    put(page, out)
    typer.echo(str(out))
