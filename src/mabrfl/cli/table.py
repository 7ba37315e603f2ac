"""``mabrfl table``: results as the paper's Table 1, as a table of detection, or as an ablation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import click
import typer

from mabrfl.cli.results import Paths, cells_of, one_of, put, read, tell_stale
from mabrfl.errors import StateError


def table(
    results: Paths,
    *,
    format_: Annotated[str, typer.Option("--format", metavar="FORMAT", help="markdown, latex or csv.")] = "markdown",
    metric: Annotated[
        str, typer.Option(help="final_accuracy, or mean_last10: the mean of the last ten rounds.")
    ] = "final_accuracy",
    compare: Annotated[
        bool, typer.Option("--compare/--no-compare", help="The paper's own figures below ours, with the difference.")
    ] = True,
    ranks: Annotated[
        bool,
        typer.Option("--ranks", help="Also the ranks in each row beside the paper's, and the differences by defense."),
    ] = False,
    detection: Annotated[
        bool,
        typer.Option(
            "--detection",
            help="Instead: precision, recall, isolation, selection and accuracy vs. clean FedAvg, by condition.",
        ),
    ] = False,
    ablation: Annotated[
        bool,
        typer.Option("--ablation", help="Instead: a defense without each of its parts in turn, beside the whole."),
    ] = False,
    out: Annotated[Path | None, typer.Option(help="File to write (default: standard output).")] = None,
) -> None:
    """Show results in the layout of the paper's Table 1.

    RESULTS: a sweep's folder, a packed file, the folder of a run, or a folder of these.

    Mean and deviation over seeds, and the best two of a row marked once all of it is run.

    Runs made as the paper's were have the paper's figure below; 'hardened' is a method of its own and has none.

    With --detection: a row per attack, defense and condition, with the shares of clients rejected and selected.

    With --ablation: a row per part that is left out and attack, for sweeps with an axis called 'ablation'.
    """
    from mabrfl.reports.ablation import ABLATION_FORMATS, ablation_table
    from mabrfl.reports.detection import detection_table
    from mabrfl.reports.detection_formats import DETECTION_FORMATS
    from mabrfl.reports.table_formats import FORMATS
    from mabrfl.reports.tables import METRICS, tabulate

    writer = FORMATS[one_of("--format", format_, list(FORMATS))]
    one_of("--metric", metric, list(METRICS))
    asked = [
        name for name, given in (("--ranks", ranks), ("--detection", detection), ("--ablation", ablation)) if given
    ]
    if len(asked) > 1:
        raise click.UsageError(f"{' and '.join(asked)} do not go together: they are different tables")
    loaded = read(results)
    cells = cells_of(loaded)
    if not cells:
        raise StateError("nothing to show: the results have no runs")
    tell_stale(loaded)
    if ablation:
        put(ABLATION_FORMATS[format_](ablation_table(cells, metric)), out)  # type: ignore[arg-type] # just checked
    elif detection:
        put(DETECTION_FORMATS[format_](detection_table(cells, metric)), out)  # type: ignore[arg-type] # just checked
    else:
        put(writer(tabulate(cells, metric), compare=compare, ranks=ranks), out)  # type: ignore[arg-type] # as above
