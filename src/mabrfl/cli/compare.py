"""``mabrfl compare``: runs or sweeps side by side."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mabrfl.cli.results import load_one, one_of, put

if TYPE_CHECKING:
    from mabrfl.reports.side_by_side import Match, SideBySide


def compare(
    results: Annotated[list[Path], typer.Argument(metavar="A B...", help="Two or more runs, sweeps or packed files.")],
    metric: Annotated[
        str, typer.Option(help="Of sweeps: the number that is compared, e.g. final_accuracy or attack_success.")
    ] = "final_accuracy",
    out: Annotated[
        Path | None, typer.Option(help="Draw the accuracy over the rounds into this file: .png, .svg or .pdf.")
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the comparison as CSV.")] = False,
) -> None:
    """Compare runs or sweeps: what differs in their settings and in their outcome.

    Runs are compared if they agree in all settings but those that differ between A, B, ... as a whole. Values are means
    over seeds with their deviation; the last columns are the differences from A.
    """
    from mabrfl.reports.side_by_side import MEASURES, MOST_PANELS, curves_figure, side_by_side

    one_of("--metric", metric, list(MEASURES))
    if len(results) < 2:
        raise click.UsageError("compare needs at least two results: mabrfl compare A B")
    ending = "" if out is None else one_of("--out", out.suffix.removeprefix("."), ("png", "svg", "pdf"))
    compared = side_by_side([(name, load_one(path).cells) for name, path in _named(results)])
    alone = len(compared.matches) == 1
    lines = _outcome_of_one(compared.matches[0]) if alone else _outcomes(compared, metric)
    head = [
        "" if alone else f"{MEASURES[metric][0]}",
        *compared.names,
        *(f"{name} - A" for name in _letters(results)[1:]),
    ]
    if as_csv:
        put(_csv([head, *lines]), None)
    else:
        console = Console()
        if not console.is_terminal:
            console = Console(width=_WIDE)
        for part in _settings(compared):
            console.print(part)
        console.print(_table(head, lines))
    if out is not None:
        from mabrfl.recording.files import write_whole
        from mabrfl.reports.drawing import render

        write_whole(out, render(curves_figure(compared), ending))  # type: ignore[arg-type] # just checked
        typer.echo(str(out))
        if len(compared.matches) > MOST_PANELS:
            typer.secho(f"note: the first {MOST_PANELS} of {len(compared.matches)} are drawn", fg="yellow", err=True)


_WIDE = 10_000


def _letters(results: list[Path]) -> list[str]:
    return [chr(ord("A") + number) if number < 26 else str(number) for number in range(len(results))]


def _named(results: list[Path]) -> list[tuple[str, Path]]:
    return [(f"{letter}: {path.name or path}", path) for letter, path in zip(_letters(results), results, strict=True)]


def _settings(compared: SideBySide) -> Iterator[Table | Text]:
    """Yield the settings that differ, without options that one side does not have: another name says that already."""
    from mabrfl.reports.side_by_side import NOT_SET

    if not compared.differences:
        yield Text("No setting differs between them as a whole.")
        return
    shown = {
        key: values for key, values in compared.differences.items() if not ("_options." in key and NOT_SET in values)
    }
    yield _table(["setting", *compared.names], [[key, *values] for key, values in shown.items()])
    if left := len(compared.differences) - len(shown):
        yield Text(f"{left} options that one of them does not have are not shown; config.toml has them.")


def _outcome_of_one(match: Match) -> list[list[str]]:
    from mabrfl.reports.side_by_side import MEASURES

    rows = [(MEASURES[measure][0], match.values(measure)) for measure in MEASURES]
    return [_row(name, values) for name, values in rows if any(value is not None for value in values)]


def _outcomes(compared: SideBySide, metric: str) -> list[list[str]]:
    return [_row(match.label, match.values(metric)) for match in compared.matches]


def _row(name: str, values: list[tuple[float, float | None] | None]) -> list[str]:
    shown = ["-" if value is None else _number(*value) for value in values]
    first = values[0]
    differences = ["-" if value is None or first is None else f"{value[0] - first[0]:+.2f}" for value in values[1:]]
    return [name, *shown, *differences]


def _number(mean: float, deviation: float | None) -> str:
    return f"{mean:.2f}" if deviation is None else f"{mean:.2f} ± {deviation:.2f}"


def _table(head: list[str], lines: list[list[str]]) -> Table:
    table = Table(header_style="bold")
    for k, name in enumerate(head):
        table.add_column(Text(name), justify="left" if k == 0 else "right", overflow="fold")
    for line in lines:
        table.add_row(*map(Text, line))
    return table


def _csv(lines: list[list[str]]) -> str:
    import csv
    import io

    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()
