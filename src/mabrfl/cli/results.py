"""The commands on results: ``mabrfl table``, ``plot``, ``report``, ``pack`` and ``render``."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
import typer
from rich.console import Console
from rich.status import Status
from rich.text import Text

from mabrfl.cli.completion import one_of_these
from mabrfl.errors import StateError, suggest

if TYPE_CHECKING:
    from mabrfl.reports.drawing import Ending
    from mabrfl.sweeps.results import Cell, Results

FIGURE_NAMES = (
    *(
        "sampling",
        "similarity",
        "attackers",
        "accuracy",
        "success",
        "seeds",
        "detection",
        "selection",
        "reputation",
        "isolation",
    ),
    "all",
)
_ENDINGS: dict[str, tuple[Ending, ...]] = {
    "png": ("png",),
    "svg": ("svg",),
    "pdf": ("pdf",),
    "both": ("png", "svg"),
    "all": ("png", "svg", "pdf"),
}
RESULTS_HELP = (
    "A sweep's folder, a packed file (mabrfl pack), the folder of a run, or a folder of these; "
    "several are taken together."
)
Paths = Annotated[list[Path], typer.Argument(metavar="RESULTS...", help=RESULTS_HELP)]


def read(paths: Sequence[Path]) -> list[Results]:
    """Read results; a run that several have is taken once."""
    from mabrfl.sweeps.results import load_all

    return load_all(list(paths))


def load_one(path: Path) -> Results:
    """Read one of several results that stand beside each other, and say what is wrong with it."""
    from mabrfl.sweeps.results import load_results

    results = load_results(path)
    show_notes([results])
    return results


def show_notes(results: Sequence[Results]) -> None:
    """Say on standard error which cells are damaged, and which were made with other code of the user's own."""
    from mabrfl.sweeps.results import DAMAGED
    from mabrfl.sweeps.stale import notes_on_results

    errors = [cell.error for cell in cells_of(results) if cell.error and cell.error.get("kind") == DAMAGED]
    damaged = [f"left out: {error['error']}; delete that folder to run it again" for error in errors]
    for note in (*damaged, *notes_on_results(results)):
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


def table(
    results: Paths,
    *,
    format_: Annotated[str, typer.Option("--format", metavar="FORMAT", help="markdown, latex or csv.")] = "markdown",
    metric: Annotated[
        str,
        typer.Option(
            help="final_accuracy, mean_last10 (the mean of the last ten rounds), or attack_success (of a backdoor)."
        ),
    ] = "final_accuracy",
    marks: Annotated[
        bool,
        typer.Option("--marks/--no-marks", help="Mark the best of each row, its ties, and the best of the others."),
    ] = True,
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
    classes: Annotated[
        bool,
        typer.Option(
            "--classes", help="Instead: accuracy by class and the confusion matrix of each run's final model."
        ),
    ] = False,
    per_run: Annotated[
        bool,
        typer.Option("--per-run", help="Instead: a line per run with all settings and numbers; with --format csv."),
    ] = False,
    out: Annotated[Path | None, typer.Option(help="File to write (default: standard output).")] = None,
) -> None:
    """Show results in the layout of the paper's Table 1.

    RESULTS: a sweep's folder, a packed file, the folder of a run, or a folder of these.

    Mean and deviation over seeds, and the best two of a row marked once all of it is run.

    Runs made as the paper's were have the paper's figure below; 'hardened' is a method of its own and has none.

    With --detection: a row per attack, defense and condition, with the shares of clients rejected and selected.

    With --ablation: a row per part that is left out and attack, for sweeps with an axis called 'ablation'.

    With --classes: a table per run, from its folder.
    """
    from mabrfl.reports.ablation import ABLATION_FORMATS, ablation_table
    from mabrfl.reports.detection import detection_table
    from mabrfl.reports.detection_formats import DETECTION_FORMATS
    from mabrfl.reports.table_formats import FORMATS
    from mabrfl.reports.tables import METRICS, tabulate
    from mabrfl.sweeps.rows import run_rows

    writer = FORMATS[one_of("--format", format_, list(FORMATS))]
    one_of("--metric", metric, list(METRICS))
    if metric == "attack_success" and (detection or ablation or classes):
        raise click.UsageError("--metric attack_success is for the plain table; --detection has a column of it")
    asked = [
        name
        for name, given in (
            ("--ranks", ranks),
            ("--detection", detection),
            ("--ablation", ablation),
            ("--classes", classes),
            ("--per-run", per_run),
        )
        if given
    ]
    if len(asked) > 1:
        raise click.UsageError(f"{' and '.join(asked)} do not go together: they are different tables")
    if per_run and format_ != "csv":
        raise click.UsageError("--per-run has too many columns for a page; write --format csv --per-run")
    loaded = read(results)
    cells = cells_of(loaded)
    if not cells:
        raise StateError("nothing to show: the results have no runs")
    show_notes(loaded)
    if classes:
        put(_by_class(cells, format_), out)
    elif per_run:
        put(run_rows(cells).csv(), out)
    elif ablation:
        put(ABLATION_FORMATS[format_](ablation_table(cells, metric)), out)  # type: ignore[arg-type] # just checked
    elif detection:
        put(DETECTION_FORMATS[format_](detection_table(cells, metric)), out)  # type: ignore[arg-type] # just checked
    else:
        put(writer(tabulate(cells, metric, marks=marks), compare=compare, ranks=ranks), out)  # type: ignore[arg-type] # as above


def _by_class(cells: Sequence[Cell], format_: str) -> str:
    from mabrfl.reports.class_tables import class_rows, class_tables

    if format_ == "csv":
        return class_rows(cells).csv()
    return "\n".join(table.latex() if format_ == "latex" else table.markdown() for table in class_tables(cells))


def plot(
    results: Paths,
    *,
    figure: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIGURE",
            autocompletion=one_of_these(FIGURE_NAMES),
            help=f"{', '.join(FIGURE_NAMES[:-1])}, or all (the default); repeatable.",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the pictures; made if need be.")] = Path("figures"),
    format_: Annotated[
        str, typer.Option("--format", metavar="FORMAT", help="png, svg, pdf, both (png and svg) or all.")
    ] = "both",
    width: Annotated[
        float | None,
        typer.Option(min=1.5, max=40.0, help="In inches, e.g. 3.3 for a column; the legend is below the panels then."),
    ] = None,
    font: Annotated[
        str | None,
        typer.Option(help="Of all letters: serif, sans-serif, monospace, or the name of an installed font."),
    ] = None,
    font_size: Annotated[float | None, typer.Option(min=3.0, max=40.0, help="Of all letters, in points.")] = None,
    no_title: Annotated[bool, typer.Option("--no-title", help="Leave the title to the caption of your paper.")] = False,
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
    names = [one_of("--figure", name, FIGURE_NAMES) for name in dict.fromkeys(figure or ["all"])]
    if out.exists() and not out.is_dir():
        raise click.UsageError(f"--out: {str(out)!r} is a file; a folder is needed")
    from mabrfl.reports.drawing import for_paper
    from mabrfl.reports.figures import draw, save_figures

    loaded = read(results)
    show_notes(loaded)
    cells = cells_of(loaded)
    drawn = {stem: picture for name in names for stem, picture in draw(cells, name, compare=compare).items()}
    for picture in drawn.values():
        for_paper(picture, width=width, title=not no_title, font=font, font_size=font_size)
    for path in save_figures(drawn, out, endings):
        typer.echo(str(path))


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

    one_of("--metric", metric, [name for name in METRICS if name != "attack_success"])
    console = Console(stderr=True)
    loaded = read(results)
    show_notes(loaded)
    from mabrfl.reports.page import report as make

    with console.status("drawing ...") if console.is_terminal else nullcontext() as status:
        progress = status.update if isinstance(status, Status) else None
        page = make(loaded, metric=metric, title=title, progress=progress)  # type: ignore[arg-type] # just checked
    put(page, out)
    typer.echo(str(out))


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
