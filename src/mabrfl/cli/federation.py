"""``mabrfl federation STATE``: the clients of a strategy, and an operator's decisions about them."""

from __future__ import annotations

import getpass
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mabrfl.cli.once import OnceCommand
from mabrfl.errors import ConfigError, StateError

if TYPE_CHECKING:
    from mabrfl.recording.requests import Action
    from mabrfl.recording.status import ClientStatus, FederationStatus
    from mabrfl.rng import ClientId

app = typer.Typer(name="federation", no_args_is_help=True)

Client = Annotated[
    str, typer.Argument(metavar="CLIENT", help="Its identity. For the hash of a key, its beginning is enough.")
]
Reason = Annotated[str, typer.Option(help="Why; it is written into the audit.")]
By = Annotated[str | None, typer.Option(help="Your name; it is written into the audit. Your login if left out.")]

_FULL = re.compile(r"key:[0-9a-f]{64}|node:\d+")
_WIDEST = 10_000


@app.callback()
def state(
    context: typer.Context,
    place: Annotated[Path, typer.Argument(metavar="STATE", help="A strategy's state_dir.")],
) -> None:
    """Show the clients of a Flower strategy; ban, forgive, pin and rename them.

    Decisions take effect before the next round of a running server, without a restart, or when it is started again. The
    audit gets a row for each, with its reason and your name.
    """
    if not (place / "config.json").exists():
        raise StateError(f"{str(place)!r} is not the state_dir of a strategy: it has no config.json")
    context.obj = place


@app.command("list", cls=OnceCommand)
def list_(
    context: typer.Context,
    format_: Annotated[str, typer.Option("--format", metavar="FORMAT", help="table or json.")] = "table",
) -> None:
    """Show every client: its reputation, the last verdict on it, and decisions about it."""
    import json

    from mabrfl.recording.requests import read_requests
    from mabrfl.recording.status import read_status

    if format_ not in ("table", "json"):
        raise ConfigError(f"--format must be table or json; got '{format_}'")
    status = read_status(context.obj)
    requests, notes = read_requests(context.obj)
    if format_ == "json":
        waiting = [{"action": each.action, "client": each.client, "by": each.by} for each in requests]
        document = None if status is None else status.model_dump(mode="json")
        typer.echo(json.dumps({"status": document, "waiting": waiting}, ensure_ascii=True))
    elif status is None:
        typer.echo("no round has been finished since this version of mabrfl was installed")
    else:
        typer.echo(f"after round {status.round}")
        (Console() if Console().is_terminal else Console(width=_WIDEST)).print(_table(status))
    if format_ == "table":
        for each in requests:
            typer.echo(f"waiting for the next round: {each.action} {each.client} (by {each.by!r})")
    for note in notes:
        typer.echo(note, err=True)


@app.command(cls=OnceCommand)
def ban(context: typer.Context, client: Client, reason: Reason, by: By = None) -> None:
    """Do not invite a client any more, neither to train nor to evaluate."""
    _ask(context.obj, "ban", client, reason=reason, by=by)


@app.command(cls=OnceCommand)
def forgive(context: typer.Context, client: Client, reason: Reason, by: By = None) -> None:
    """End a ban, and give the client the reputation of one that joins now."""
    _ask(context.obj, "forgive", client, reason=reason, by=by)


@app.command(cls=OnceCommand)
def pin(
    context: typer.Context,
    client: Client,
    reason: Reason,
    by: By = None,
    off: Annotated[bool, typer.Option("--off", help="End it.")] = False,
) -> None:
    """Invite a client to every round, whatever its reputation; it is judged as all others."""
    _ask(context.obj, "unpin" if off else "pin", client, reason=reason, by=by)


@app.command(cls=OnceCommand)
def rename(
    context: typer.Context,
    client: Client,
    to: Annotated[str, typer.Argument(metavar="NEW", help="Its new identity, in full.")],
    reason: Reason,
    by: By = None,
) -> None:
    """Give a client's reputation, ban and pin to another identity, such as its new key."""
    _ask(context.obj, "rename", client, reason=reason, by=by, to=to)


def _ask(folder: Path, action: Action, client: str, *, reason: str, by: str | None, to: str | None = None) -> None:
    from mabrfl.recording.requests import OperatorRequest, write_request
    from mabrfl.recording.status import read_status

    status = read_status(folder)
    known = [] if status is None else status.clients
    identity = _identity(client, known)
    new = None if to is None else _identity(to, known)
    if new is not None and new == identity:
        raise ConfigError(f"{identity} has this identity already")
    write_request(folder, OperatorRequest(action, identity, reason, by or _login(), new))
    typer.echo(f"{action} {identity}{'' if new is None else f' to {new}'}: takes effect before the next round")


def _identity(wanted: str, known: list[ClientStatus]) -> ClientId:
    """Return the identity that a user means: complete, or the beginning of the hash of a known key."""
    exact = [each.id for each in known if wanted in (str(each.id), str(each.id).partition(":")[2])]
    begins = [each.id for each in known if str(each.id).startswith(f"key:{wanted.removeprefix('key:')}")]
    found = exact or begins
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigError(f"'{wanted}' fits {len(found)} clients: {', '.join(str(each)[:24] for each in found[:5])}")
    if _FULL.fullmatch(wanted):
        return wanted
    raise ConfigError(
        f"no client '{wanted}' is known; for one that has not taken part yet, give the full identity, "
        "'key:' and the SHA-256 of its public key"
    )


def _login() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError) as error:
        raise ConfigError("your login has no name; give yours with --by") from error


def _table(status: FederationStatus) -> Table:
    from mabrfl.recording.audit import safe_text

    table = Table(header_style="bold")
    for column in ("client", "trust", "B", "M", "last round", "last verdict", "decision"):
        table.add_column(column, overflow="fold")
    for each in sorted(status.clients, key=lambda each: (each.trust is None, each.trust)):
        decision = "banned" if each.banned else "pinned" if each.pinned else ""
        verdict = each.verdict if each.verdict in (each.reason, "") else f"{each.verdict} ({each.reason})"
        style = "red" if each.banned else ""
        cells = [each.id, _number(each.trust), _number(each.benign), _number(each.malicious), each.round or ""]
        table.add_row(*(Text(safe_text(cell), style=style) for cell in (*cells, verdict, decision)))
    return table


def _number(value: Any) -> str:
    return "" if value is None else f"{value:.3g}"
