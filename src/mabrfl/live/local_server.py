"""A small HTTP server for one person's browser and for monitors: a token, GET and HEAD alone, nothing to write."""

from __future__ import annotations

import hashlib
import hmac
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl

from mabrfl.errors import ConfigError, MabRflError, OutputError

LOOPBACK = ("127.0.0.1", "::1", "localhost")
TEXT, JSON = "text/plain; charset=utf-8", "application/json"

_SECONDS = 10.0
_MOST_FIELDS = 8
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}


@dataclass(frozen=True)
class Answer:
    """What a route returns."""

    content: str | bytes
    kind: str = TEXT
    code: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


Route = Callable[[Mapping[str, str]], Answer]
"""Answers a request, given the fields of its query."""


class LocalServer(ThreadingHTTPServer):
    """Answers the routes that it is given, and no others; no path ever becomes the name of a file.

    Parameters
    ----------
    host, port
        Where to listen; port 0 stands for any that is free.
    routes
        By path. A request needs the token: in the header ``Authorization: Bearer TOKEN``, or as ``?token=TOKEN``.
    token
        The token.
    without_token
        Routes that are answered without one.
    any_name
        Whether to answer requests for any host name. If not, only those for ``host``, and for all names of this
        machine if it is one: a web page elsewhere whose name is made to lead here is refused.

    Raises
    ------
    OutputError
        If it cannot listen there.
    """

    daemon_threads = True

    def __init__(
        self,
        host: str,
        port: int,
        routes: Mapping[str, Route],
        token: str,
        *,
        without_token: Mapping[str, Route] | None = None,
        any_name: bool = False,
    ) -> None:
        self.routes, self.without_token, self.token = dict(routes), dict(without_token or {}), token.encode()
        self.names = None if any_name else {host.lower(), *(LOOPBACK if host in LOOPBACK else ())}
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._host = host
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            hint = "; --port 0 takes any that is free" if port else ""
            raise OutputError(f"cannot listen on {host}, port {port}: {error.strerror}{hint}") from error

    @property
    def address(self) -> str:
        """The address of the server, without a path."""
        return f"http://{f'[{self._host}]' if ':' in self._host else self._host}:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: LocalServer
    timeout = _SECONDS
    server_version, sys_version = "mabrfl", ""

    def do_GET(self) -> None:
        self._answer(self._content())

    do_HEAD = do_GET  # noqa: N815 (the name in the library)

    def _content(self) -> Answer:
        host = self.headers.get("Host", "").lower()
        name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
        if self.server.names is not None and name.strip("[]") not in self.server.names:
            return Answer("unknown host\n", code=403)
        path, _, query = self.path.partition("?")
        try:
            fields = dict(parse_qsl(query, max_num_fields=_MOST_FIELDS))
        except ValueError:
            return Answer("too many fields\n", code=400)
        route = self.server.without_token.get(path)
        if route is None:
            if not self._has_token(fields):
                return Answer("a token is needed\n", code=401, headers={"WWW-Authenticate": "Bearer"})
            route = self.server.routes.get(path)
        if route is None:
            return Answer("not found\n", code=404)
        try:
            return route(fields)
        except MabRflError as error:
            return Answer(f"{error}\n", code=404 if isinstance(error, ConfigError) else 503)

    def _has_token(self, fields: Mapping[str, str]) -> bool:
        header = self.headers.get("Authorization", "")
        sent = header.removeprefix("Bearer ") if header else fields.get("token", "")
        return hmac.compare_digest(sent.encode("utf-8", "replace"), self.server.token)

    def _answer(self, answer: Answer) -> None:
        content = answer.content if isinstance(answer.content, bytes) else answer.content.encode("utf-8", "replace")
        tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        code = 304 if answer.code == 200 and self.headers.get("If-None-Match") == tag else answer.code
        self.send_response(code)
        fields = {"Content-Type": answer.kind, "Content-Length": str(len(content)), "ETag": tag}
        for name, value in {**({"ETag": tag} if code == 304 else fields), **_HEADERS, **answer.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD" and code != 304:
            self.wfile.write(content)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """Refuse a request that is malformed, or has another method, in one line of plain text."""
        self.close_connection = True
        self.headers = getattr(self, "headers", None) or {}  # type: ignore[assignment] # the line may be malformed
        self._answer(Answer("refused\n", code=code))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the name in the library)
        """Log nothing: a request every few seconds is no news."""
