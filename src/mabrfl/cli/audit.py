"""``mabrfl audit``: check and read the audit that a strategy writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mabrfl.cli.once import OnceCommand
from mabrfl.errors import ConfigError, StateError

app = typer.Typer(name="audit", help="Check and read the audit of a Flower strategy.", no_args_is_help=True)

Place = Annotated[Path, typer.Argument(metavar="STATE", help="A strategy's state_dir, or the file audit.jsonl itself.")]

_STYLES = {"accepted": "green", "rejected": "red", "quarantined": "yellow", "missing": "dim", "unjudged": "dim"}
_SHORT = 16


@app.command(cls=OnceCommand)
def verify(
    place: Place,
    head: Annotated[str | None, typer.Option(help="A hash printed earlier: its line must still be there.")] = None,
) -> None:
    """Check that no line was changed, removed, inserted or moved.

    Prints the hash of the last line. Note it elsewhere, and ask for it with --head later: whoever can write to the
    folder can also rewrite the whole audit, but not so that it has the hash you noted.
    """
    from mabrfl.recording.audit import verify as check
    from mabrfl.recording.checkpoint import newest_document
    from mabrfl.recording.folder import CHECKPOINTS

    file = _file(place)
    report = check(file, head=head)
    if report.problem is not None:
        raise StateError(f"{file}: {report.problem} ({report.rows} lines before it are good)")
    saved = newest_document(file.parent / CHECKPOINTS)
    mark = saved["state"].get("audit", {}) if saved is not None else {}
    if mark.get("rows", 0) > report.rows:
        raise StateError(f"{file}: has {report.rows} lines, but the saved state knows of {mark['rows']}")
    if mark and check(file, stop=mark["rows"]).head != mark["sha256"]:
        raise StateError(f"{file}: line {mark['rows']} is not the one that the saved state knows")
    typer.echo(f"{report.rows} lines, unbroken; last hash {report.head}")


@app.command(cls=OnceCommand)
def show(
    place: Place,
    client: Annotated[str | None, typer.Option(help="Only this client; the beginning of its id is enough.")] = None,
    round_number: Annotated[int | None, typer.Option("--round", min=1, help="Only this round.")] = None,
    format_: Annotated[str, typer.Option("--format", metavar="FORMAT", help="table or jsonl.")] = "table",
) -> None:
    """Show who was believed and who was not, on what evidence, and what it did to their reputation."""
    import json

    if format_ not in ("table", "jsonl"):
        raise ConfigError(f"--format must be table or jsonl; got '{format_}'")
    rows = list(_chosen(_file(place), client, round_number))
    if format_ == "jsonl":
        for row in rows:
            typer.echo(json.dumps(row, ensure_ascii=True))
        return
    table = Table(header_style="bold")
    for column in ("round", "client", "verdict", "reason", "evidence", "B, M before", "after"):
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*_cells(row))
    Console().print(table)


def _file(place: Path) -> Path:
    from mabrfl.recording.audit import AUDIT

    return place / AUDIT if place.is_dir() else place


def _chosen(file: Path, client: str | None, round_number: int | None) -> Iterator[dict[str, Any]]:
    from mabrfl.recording.audit import read_audit

    for row in read_audit(file):
        if row.get("kind") != "reply" or (round_number is not None and row.get("round") != round_number):
            continue
        name = str(row.get("client"))
        if client is None or name.startswith((client, f"key:{client}", f"node:{client}")):
            yield row


def _cells(row: dict[str, Any]) -> list[Text]:
    from mabrfl.recording.audit import safe_text

    name = "unknown" if row.get("client") is None else str(row["client"]).removeprefix("key:")
    evidence = row.get("evidence") or {}
    told = row.get("detail") or ", ".join(f"{key} {_number(value)}" for key, value in evidence.items())
    beliefs = [row.get("reputation_before"), row.get("reputation_after")]
    cells = [row.get("round"), name[:_SHORT], row.get("verdict"), row.get("reason"), told]
    cells += ["" if pair is None else ", ".join(map(_number, pair)) for pair in beliefs]
    return [Text(safe_text(cell), style=_STYLES.get(str(row.get("verdict")), "")) for cell in cells]


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
