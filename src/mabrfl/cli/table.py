"""``mabrfl table``: the paper's Table 1 from results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mabrfl.cli.results import Paths, cells_of, one_of, put, read


def table(
    results: Paths,
    *,
    format_: Annotated[str, typer.Option("--format", metavar="FORMAT", help="markdown, latex or csv.")] = "markdown",
    metric: Annotated[
        str, typer.Option(help="final_accuracy, or mean_last10: the mean of the last ten rounds.")
    ] = "final_accuracy",
    compare: Annotated[
        bool, typer.Option("--compare/--no-compare", help="The paper's own figures beside ours, with the difference.")
    ] = True,
    ranks: Annotated[
        bool,
        typer.Option("--ranks", help="Also the ranks in each row beside the paper's, and the differences by defense."),
    ] = False,
    out: Annotated[Path | None, typer.Option(help="File to write (default: standard output).")] = None,
) -> None:
    """Show results in the layout of the paper's Table 1.

    RESULTS: a sweep's folder, a packed file, or the folder of a run.

    Mean and deviation over seeds, the best two of a row marked, the paper's figures beside ours.
    """
    from mabrfl.experiments.table_formats import FORMATS
    from mabrfl.experiments.tables import METRICS, tabulate

    writer = FORMATS[one_of("--format", format_, list(FORMATS))]
    one_of("--metric", metric, list(METRICS))
    tables = tabulate(cells_of(read(results)), metric)  # type: ignore[arg-type] # just checked
    put(writer(tables, compare=compare, ranks=ranks), out)
