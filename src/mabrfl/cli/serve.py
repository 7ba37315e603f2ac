"""``mabrfl serve STATE``: metrics and the health of a federation over HTTP, for monitors on this machine."""

from __future__ import annotations

import hmac
import json
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated, Any

import typer

from mabrfl.errors import ConfigError, OutputError, StateError

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_SECONDS = 10.0
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
    """Serve the metrics of a Flower strategy for Prometheus, and its health.

    /metrics is for Prometheus, /healthz answers 200 or 503, /status is the status as JSON. Any other address than this
    machine's own needs a token, and should be behind a proxy with TLS.
    """
    if not (place / "config.json").exists():
        raise StateError(f"{str(place)!r} is not the state_dir of a strategy: it has no config.json")
    if host not in _LOOPBACK and token_file is None:
        raise ConfigError(f"--host {host} can be reached from other machines: it needs --token-file")
    try:
        server = _Server((host, port), place.absolute(), _token(token_file), max_age)
    except OSError as error:
        raise OutputError(f"cannot listen on {host}:{port}: {error.strerror}") from error
    with server:
        typer.echo(f"http://{host}:{server.server_port}/metrics")
        server.serve_forever()


def _token(file: Path | None) -> str | None:
    from mabrfl.recording.files import read_bytes

    if file is None:
        return None
    token = read_bytes(file).decode("ascii", "replace").strip()
    if len(token) < _LEAST_TOKEN or not token.isprintable() or " " in token:
        raise ConfigError(f"{str(file)!r} must have a token of at least {_LEAST_TOKEN} characters without spaces")
    return token


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], folder: Path, token: str | None, max_age: float) -> None:
        super().__init__(address, _Handler)
        self.folder, self.token, self.max_age = folder, token, max_age
        self.names = {address[0], *(_LOOPBACK if address[0] in _LOOPBACK else ())}


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _SECONDS
    server_version, sys_version = "mabrfl", ""

    def do_GET(self) -> None:
        refused = self._refused()
        if refused is not None:
            self._answer(*refused)
            return
        try:
            self._answer(*self._content(self.path.partition("?")[0]))
        except StateError as error:
            self._answer(503, f"{error}\n")

    do_HEAD = do_GET  # noqa: N815 (as above)

    def _refused(self) -> tuple[int, str] | None:
        """Refuse names that a web page could use to reach this server through a browser, and wrong tokens."""
        host = self.headers.get("Host", "").rsplit(":", 1)[0].strip("[]")
        if host not in self.server.names and self.server.token is None:
            return 403, "unknown host\n"
        sent = self.headers.get("Authorization", "").removeprefix("Bearer ").encode("utf-8", "replace")
        if self.server.token is not None and not hmac.compare_digest(sent, self.server.token.encode()):
            return 401, "a token is needed\n"
        return None

    def _content(self, path: str) -> tuple[int, str, str] | tuple[int, str]:
        from mabrfl.recording.metrics import CONTENT_TYPE, prometheus_text
        from mabrfl.recording.status import read_status, strategy_is_running

        folder = self.server.folder
        if path not in ("/metrics", "/healthz", "/status"):
            return 404, "there are /metrics, /healthz and /status\n"
        status, running = read_status(folder), strategy_is_running(folder)
        if path == "/metrics":
            return 200, prometheus_text(status, now=time.time(), running=running), CONTENT_TYPE
        age = None if status is None else time.time() - status.time
        if path == "/status":
            document = {"running": running, "age": age, "status": status and status.model_dump(mode="json")}
            return 200, json.dumps(document) + "\n", "application/json"
        if not running:
            return 503, "no strategy is running\n"
        if age is not None and age > self.server.max_age:
            return 503, f"the last round was finished {age:.0f} s ago\n"
        return 200, "ok\n"

    def _answer(self, code: int, text: str, kind: str = "text/plain; charset=utf-8") -> None:
        data = text.encode("utf-8", "replace")
        self.send_response(code)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(data))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            *([("WWW-Authenticate", "Bearer")] if code == 401 else []),
        ):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the name in the library)
        """Log nothing: a scrape every few seconds is no news."""
