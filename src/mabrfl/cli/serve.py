"""``mabrfl serve STATE``: metrics, health and the live page of a federation over HTTP, for this machine."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mabrfl.errors import ConfigError, StateError

if TYPE_CHECKING:
    from mabrfl.live.local_server import Answer, LocalServer, Route

_LEAST_TOKEN = 16


def serve(
    place: Annotated[Path, typer.Argument(metavar="STATE", help="A strategy's state_dir.")],
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 for any that is free.")] = 9464,
    token_file: Annotated[
        Path | None, typer.Option(help="A file with a token, which requests must send: Authorization: Bearer TOKEN.")
    ] = None,
    max_age: Annotated[
        float, typer.Option(min=1, help="/healthz fails if the last round is older than this many seconds.")
    ] = 3600.0,
) -> None:
    """Serve the metrics of a Flower strategy for Prometheus, its health, and a live page.

    /metrics is for Prometheus, /healthz answers 200 or 503, /status is the status as JSON. The page needs a token:
    that of --token-file, or one that is made now and printed. Any other address than this machine's own needs
    --token-file, and should be behind a proxy with TLS.
    """
    with make_server(place, host, port, _token(token_file), max_age) as server:
        typer.echo(f"{server.address}/metrics")
        shown = "TOKEN" if token_file is not None else server.token.decode()
        typer.echo(f"{server.address}/?token={shown}")
        server.serve_forever()


def make_server(place: Path, host: str, port: int, token: str | None, max_age: float) -> LocalServer:
    """Return the server. Without a token, metrics, health and status need none, and the page gets one of its own.

    Raises
    ------
    StateError
        If the folder is not that of a strategy.
    ConfigError
        If other machines could reach it without a token.
    """
    from mabrfl.live.federation_view import FederationView
    from mabrfl.live.local_server import LOOPBACK, LocalServer
    from mabrfl.live.routes import routes_of

    if not (place / "config.json").exists():
        raise StateError(f"{str(place)!r} is not the state_dir of a strategy: it has no config.json")
    if host not in LOOPBACK and token is None:
        raise ConfigError(f"--host {host} can be reached from other machines: it needs --token-file")
    folder = place.absolute()
    page, monitors = routes_of(FederationView(folder)), _monitors(folder, max_age)
    if token is None:
        return LocalServer(host, port, page, secrets.token_urlsafe(24), without_token=monitors)
    # A proxy in front of it may have any name.
    return LocalServer(host, port, {**page, **monitors}, token, any_name=True)


def _token(file: Path | None) -> str | None:
    from mabrfl.recording.files import read_bytes

    if file is None:
        return None
    token = read_bytes(file).decode("ascii", "replace").strip()
    if len(token) < _LEAST_TOKEN or not token.isprintable() or " " in token:
        raise ConfigError(f"{str(file)!r} must have a token of at least {_LEAST_TOKEN} characters without spaces")
    return token


def _monitors(folder: Path, max_age: float) -> dict[str, Route]:
    """Return the routes for programs."""
    from mabrfl.live.local_server import JSON, Answer
    from mabrfl.recording import status as recorded
    from mabrfl.recording.metrics import CONTENT_TYPE, prometheus_text

    def metrics(_: Mapping[str, str]) -> Answer:
        status, running = recorded.read_status(folder), recorded.strategy_is_running(folder)
        return Answer(prometheus_text(status, now=time.time(), running=running), CONTENT_TYPE)

    def status(_: Mapping[str, str]) -> Answer:
        found, running = recorded.read_status(folder), recorded.strategy_is_running(folder)
        age = None if found is None else time.time() - found.time
        document = {"running": running, "age": age, "status": found and found.model_dump(mode="json")}
        return Answer(json.dumps(document) + "\n", JSON)

    def health(_: Mapping[str, str]) -> Answer:
        found = recorded.read_status(folder)
        if not recorded.strategy_is_running(folder):
            return Answer("no strategy is running\n", code=503)
        age = 0.0 if found is None else time.time() - found.time
        if age > max_age:
            return Answer(f"the last round was finished {age:.0f} s ago\n", code=503)
        return Answer("ok\n")

    return {"/metrics": metrics, "/status": status, "/healthz": health}
