"""``mabrfl audit``: check and read the audit that a strategy writes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mabrfl.cli.once import OnceCommand
from mabrfl.errors import ConfigError, StateError

if TYPE_CHECKING:
    from mabrfl.recording.audit import AuditReport

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
    # The state first: a run that is going on adds to the audit before it saves the state that knows of it.
    saved = newest_document(file.parent / CHECKPOINTS)
    mark = saved["state"].get("audit", {}) if saved is not None else {}
    report = check(file, head=head)
    running = bool(report.torn) and _running(file.parent)
    if running:
        report = check(file, head=head, stop=report.rows)
    if report.problem is not None:
        raise StateError(f"{file}: {report.problem} ({report.rows} lines before it are good){_after_a_crash(report)}")
    if mark.get("rows", 0) > report.rows:
        raise StateError(f"{file}: has {report.rows} lines, but the saved state knows of {mark['rows']}")
    if mark and check(file, stop=mark["rows"]).head != mark["sha256"]:
        raise StateError(f"{file}: line {mark['rows']} is not the one that the saved state knows")
    notes = "; the run is writing the next one" if running else ""
    if report.told.undone:
        times = "once" if report.told.returns == 1 else f"{report.told.returns} times"
        notes += f"; the run went back to a saved state {times}, which undid {len(report.told.undone)} of them"
    typer.echo(f"{report.rows} lines, unbroken{notes}; last hash {report.head}")


@app.command(cls=OnceCommand)
def show(
    place: Place,
    client: Annotated[
        str | None, typer.Option(help="Only this client. Of the hash of a key the beginning is enough.")
    ] = None,
    round_number: Annotated[int | None, typer.Option("--round", min=1, help="Only this round.")] = None,
    format_: Annotated[str, typer.Option("--format", metavar="FORMAT", help="table or jsonl.")] = "table",
    all_: Annotated[
        bool, typer.Option("--all", help="Also what was undone when the run went back to a saved state.")
    ] = False,
) -> None:
    """Show who was believed and who was not, on what evidence, and what it did to their reputation."""
    import json

    if format_ not in ("table", "jsonl"):
        raise ConfigError(f"--format must be table or jsonl; got '{format_}'")
    rows, problem = _read(_file(place))
    wanted = [row for row in rows if round_number is None or row.get("round") == round_number]
    wanted = wanted if client is None else _of_client(wanted, client)
    shown = [row for row in wanted if all_ or not row.get("undone")]
    if format_ == "jsonl":
        for row in shown:
            typer.echo(json.dumps(row, ensure_ascii=True))
    else:
        Console().print(_table(shown))
    if len(shown) < len(wanted):
        hidden = len(wanted) - len(shown)
        typer.echo(f"{hidden} rows more were undone when the run went back to a saved state; see --all", err=True)
    if problem is not None and not _being_written(_file(place)):
        raise problem


def _being_written(file: Path) -> bool:
    """Say whether the last line is only half there because a run is writing it."""
    from mabrfl.recording.audit import verify as check

    return bool(check(file).torn) and _running(file.parent)


def _file(place: Path) -> Path:
    from mabrfl.recording.audit import AUDIT

    return place / AUDIT if place.is_dir() else place


def _running(folder: Path) -> bool:
    """Say whether a strategy is at work in the folder."""
    from mabrfl.recording.folder import lock

    try:
        with (folder / "lock").open("rb") as file:
            return not lock(file)
    except OSError:
        return False


def _after_a_crash(report: AuditReport) -> str:
    return ". The run was killed while it wrote; when it goes on, it says so in the audit" if report.torn else ""


def _read(file: Path) -> tuple[list[dict[str, Any]], StateError | None]:
    """Return the rows about replies, with ``undone`` in those that no longer stand, and what is wrong after them."""
    from mabrfl.recording.audit import AuditHistory, read_audit

    told, rows, problem = AuditHistory(), [], None
    try:
        for row in read_audit(file):
            told.take(row)
            if row.get("kind") == "reply":
                rows.append(row)
    except StateError as error:
        problem = error
    return [{**row, "undone": True} if row["seq"] in told.undone else row for row in rows], problem


def _of_client(rows: list[dict[str, Any]], client: str) -> list[dict[str, Any]]:
    """Return the rows of the client of this very name, or else of those whose key's hash begins so."""
    from mabrfl.recording.audit import safe_text

    wanted = safe_text(client)
    names = {wanted, f"node:{wanted}", f"key:{wanted}"}
    exact = [row for row in rows if str(row.get("client")) in names]
    begins = f"key:{wanted.removeprefix('key:')}"
    return exact or [row for row in rows if str(row.get("client")).startswith(begins)]


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(header_style="bold")
    for column in ("round", "client", "verdict", "reason", "evidence", "B, M before", "after"):
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*_cells(row))
    return table


def _cells(row: dict[str, Any]) -> list[Text]:
    from mabrfl.recording.audit import safe_text

    name = "unknown" if row.get("client") is None else str(row["client"]).removeprefix("key:")
    evidence = row.get("evidence") or {}
    told = row.get("detail") or ", ".join(f"{key} {_number(value)}" for key, value in evidence.items())
    beliefs = [row.get("reputation_before"), row.get("reputation_after")]
    verdict = f"{row.get('verdict')} (undone)" if row.get("undone") else row.get("verdict")
    cells = [row.get("round"), name[:_SHORT], verdict, row.get("reason"), told]
    cells += ["" if pair is None else ", ".join(map(_number, pair)) for pair in beliefs]
    return [Text(safe_text(cell), style=_STYLES.get(str(row.get("verdict")), "")) for cell in cells]


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
