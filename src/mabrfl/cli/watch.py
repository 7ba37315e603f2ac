"""``mabrfl watch``: a page that follows a run, a sweep or a Flower federation while it goes."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated

import typer


def watch(
    place: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="The folder of a run or a sweep, or a Flower strategy's state_dir."),
    ],
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 for any that is free.")] = 0,
) -> None:
    """Follow a run, a sweep or a Flower federation on a live page in the browser.

    Open the address that it prints. The page is for this machine alone, loads nothing from elsewhere and changes
    nothing. End it with Ctrl-C: the run does not notice.
    """
    from mabrfl.live.local_server import LocalServer
    from mabrfl.live.routes import routes_of, view_of

    token = secrets.token_urlsafe(24)
    with LocalServer("127.0.0.1", port, routes_of(view_of(place)), token) as server:
        typer.echo(f"{server.address}/?token={token}")
        server.serve_forever()
