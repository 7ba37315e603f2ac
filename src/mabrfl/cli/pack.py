"""``mabrfl pack``: results in one small file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mabrfl.cli.results import RESULTS_HELP


def pack(
    results: Annotated[Path, typer.Argument(metavar="RESULTS", help=RESULTS_HELP.partition(";")[0] + ".")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Packed file to write, e.g. results/NAME.json.gz.")],
    force: Annotated[
        bool, typer.Option("--force", help="Replace a packed file even if finished runs are lost with it.")
    ] = False,
) -> None:
    """Pack results into one small file for table, plot and report.

    RESULTS: a sweep's folder, the folder of a run, or a folder of these. FILE: for instance results/NAME.json.gz.

    Settings, summaries, origins, one number per quantity and round; no weights.
    """
    from mabrfl.reports.naming import STATUS_WORDS
    from mabrfl.sweeps.packing import pack as write
    from mabrfl.sweeps.results import STATUSES

    packed = write(results, file, force=force)
    counts = ", ".join(f"{packed.count(status)} {STATUS_WORDS[status]}" for status in STATUSES if packed.count(status))
    typer.echo(f"{file}: {len(packed.cells)} runs ({counts}), {file.stat().st_size:,} bytes")
