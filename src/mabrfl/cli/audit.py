"""``mabrfl audit``: check and read the audit that a strategy writes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from mabrfl.cli.once import OnceCommand
from mabrfl.errors import ConfigError, StateError

if TYPE_CHECKING:
    from mabrfl.recording.audit import AuditReport

app = typer.Typer(name="audit", help="Check and read the audit of a Flower strategy.", no_args_is_help=True)

Place = Annotated[Path, typer.Argument(metavar="STATE", help="A strategy's state_dir, or the file audit.jsonl itself.")]

_STYLES = {"accepted": "green", "rejected": "red", "quarantined": "yellow", "missing": "dim", "unjudged": "dim"}
_SHORT, _LONGEST = 16, 2000
_WIDEST = 10_000


@app.command(cls=OnceCommand)
def verify(
    place: Place,
    head: Annotated[str | None, typer.Option(help="A hash printed earlier: its line must still be there.")] = None,
) -> None:
    """Check that no line was changed, removed, inserted or moved.

    Prints the hash of the last line. Note it elsewhere, and check it with --head later: a program that can write to
    the folder can also rewrite the whole audit, but then the hash is another one.
    """
    from mabrfl.recording.audit import verify as check
    from mabrfl.recording.checkpoint import newest_document
    from mabrfl.recording.folder import CHECKPOINTS
    from mabrfl.recording.status import strategy_is_running

    file = _file(place)
    # Read the state first: a running strategy adds to the audit before it saves the state that refers to it.
    saved = newest_document(file.parent / CHECKPOINTS)
    mark = None if saved is None else _mark(saved["state"])
    report = check(file, head=head, mark=mark)
    running = bool(report.torn) and strategy_is_running(file.parent)
    if running:
        report = check(file, head=head, stop=report.rows, mark=mark)
    if report.problem is not None:
        raise StateError(f"{file}: {report.problem} ({report.rows} lines before it are good){_after_a_crash(report)}")
    notes = "; the run is writing the next one" if running else ""
    if report.history.undone:
        times = "once" if report.history.returns == 1 else f"{report.history.returns} times"
        notes += f"; the run went back to a saved state {times}, which undid {len(report.history.undone)} of them"
    typer.echo(f"{report.rows} lines, unbroken{notes}; last hash {report.head}")


@app.command(cls=OnceCommand)
def show(
    place: Place,
    client: Annotated[
        str | None, typer.Option(help="Only this client. For the hash of a key, its beginning is enough.")
    ] = None,
    round_number: Annotated[int | None, typer.Option("--round", min=1, help="Only this round.")] = None,
    format_: Annotated[str, typer.Option("--format", metavar="FORMAT", help="table or jsonl.")] = "table",
    all_: Annotated[
        bool, typer.Option("--all", help="Also rows that were undone when the run went back to a saved state.")
    ] = False,
) -> None:
    """Show the verdict on each client, why it was given, and the reputation before and after.

    With --format jsonl: the rows as they are in the audit, with all evidence. See also mabrfl explain.
    """
    import json

    if format_ not in ("table", "jsonl"):
        raise ConfigError(f"--format must be table or jsonl; got '{format_}'")
    file = _file(place)
    rows, facts, problem = _read(file)
    wanted = [row for row in rows if round_number is None or row.get("round") == round_number]
    wanted = wanted if client is None else _of_client(wanted, client)
    shown = [row for row in wanted if all_ or not row.get("undone")]
    if format_ == "jsonl":
        for row in shown:
            typer.echo(json.dumps(row, ensure_ascii=True))
    else:
        console = Console()
        if console.is_terminal:
            for row in shown:
                console.print(*_paragraph(row, facts), sep="\n")
        else:
            Console(width=_WIDEST).print(_table(shown, facts))  # each row is one line
    if len(shown) < len(wanted):
        hidden = len(wanted) - len(shown)
        typer.echo(f"{hidden} rows more were undone when the run went back to a saved state; see --all", err=True)
    if problem is not None and not _being_written(file):
        raise problem


def _being_written(file: Path) -> bool:
    """Whether the last line is incomplete because a run is writing it."""
    from mabrfl.recording.audit import verify as check
    from mabrfl.recording.status import strategy_is_running

    return bool(check(file).torn) and strategy_is_running(file.parent)


def _file(place: Path) -> Path:
    from mabrfl.recording.audit import AUDIT
    from mabrfl.recording.folder import ROUNDS, shown

    file = place / AUDIT if place.is_dir() else place
    if not file.is_file() and (place / ROUNDS).is_file():
        raise StateError(f"{shown(place)} is the folder of a run, which has no audit; try: mabrfl explain {place}")
    if not file.is_file():
        raise StateError(f"there is no audit at {shown(file)}")
    return file


def _mark(state: Any) -> Any:
    """Return what a saved state knows of its audit; None if it is a state of something else."""
    from mabrfl.recording.audit import checked_mark

    return checked_mark(state["audit"]) if isinstance(state, dict) and "audit" in state else None


def _after_a_crash(report: AuditReport) -> str:
    return ". The run was killed while it wrote; when it goes on, it says so in the audit" if report.torn else ""


def _read(file: Path) -> tuple[list[dict[str, Any]], dict[Any, Any], StateError | None]:
    """Return the rows of replies and decisions, the facts of the rounds, and the problem after them, if any.

    Rows that are undone have ``undone``. The facts of a round that was run again are those of the last time.
    """
    from mabrfl.recording.audit import AuditHistory, read_audit

    history, rows, facts, problem = AuditHistory(), [], {}, None
    try:
        for row in read_audit(file):
            history.take(row)
            if row.get("kind") in ("reply", "decision"):
                rows.append(row)
            elif row.get("kind") == "round" and isinstance(row.get("round"), int):
                facts[row.get("round")] = row.get("facts", {})
    except StateError as error:
        problem = error
    return [{**row, "undone": True} if row["seq"] in history.undone else row for row in rows], facts, problem


def _of_client(rows: list[dict[str, Any]], client: str) -> list[dict[str, Any]]:
    """Return the rows of the client with exactly this name; if there are none, those whose key hash begins with it."""
    from mabrfl.recording.audit import safe_text

    wanted = safe_text(client)
    names = {wanted, f"node:{wanted}", f"key:{wanted}"}
    exact = [row for row in rows if str(row.get("client")) in names]
    begins = f"key:{wanted.removeprefix('key:')}"
    return exact or [row for row in rows if str(row.get("client")).startswith(begins)]


def _table(rows: list[dict[str, Any]], facts: Mapping[Any, Any]) -> Table:
    table = Table(header_style="bold")
    for column in ("round", "client", "verdict", "why", "B, M before", "after"):
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*_cells(row, facts))
    return table


def _paragraph(row: dict[str, Any], facts: Mapping[Any, Any]) -> tuple[Text, Padding]:
    """Return a row for a terminal of any width: who and what, and below it why."""
    number, name, verdict, why, before, after = _cells(row, facts)
    head = Text.assemble("round ", number, "  ", name, "  ", verdict)
    if before.plain or after.plain:
        head.append(f"  B, M: {before.plain or 'unknown'} -> {after.plain or 'unknown'}")
    return head, Padding(Text(why.plain), (0, 0, 0, 2))


def _cells(row: dict[str, Any], facts: Mapping[Any, Any]) -> list[Text]:
    from mabrfl.recording.audit import safe_text
    from mabrfl.recording.audit_records import verdict_of

    name = "unknown" if row.get("client") is None else str(row["client"]).removeprefix("key:")
    number = row.get("round")
    judged, context = verdict_of(row), facts.get(number) if isinstance(number, int) else {}
    why = row.get("reason") if judged is None else judged.explain(context if isinstance(context, dict) else {})
    beliefs = [row.get("reputation_before"), row.get("reputation_after")]
    verdict = row.get("verdict")
    if row.get("kind") == "decision":
        verdict, why = row.get("action"), f"decided by {row.get('by')}: {row.get('reason')}"
    verdict = f"{verdict} (undone)" if row.get("undone") else verdict
    cells = [row.get("round"), name[:_SHORT], verdict, why]
    beliefs = [pair if isinstance(pair, list) or pair is None else [pair] for pair in beliefs]
    cells += ["" if pair is None else ", ".join(map(_number, pair)) for pair in beliefs]
    return [Text(safe_text(cell, _LONGEST), style=_STYLES.get(str(row.get("verdict")), "")) for cell in cells]


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
