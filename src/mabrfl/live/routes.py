"""The live page and its data, as the routes of a server."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import threading
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Protocol

from mabrfl.errors import ConfigError, StateError
from mabrfl.live.federation_view import FederationView
from mabrfl.live.local_server import JSON, Answer, Route
from mabrfl.live.run_view import RunView
from mabrfl.live.sweep_view import SweepView
from mabrfl.recording.audit import AUDIT
from mabrfl.recording.folder import CONFIG, ROUNDS, shown
from mabrfl.recording.ownership import PLAN
from mabrfl.recording.record import plain
from mabrfl.recording.status import STATUS

_MOST_NAMED = 5


class View(Protocol):
    """What the page can follow."""

    folder: Path

    def stamp(self) -> tuple[Any, ...]:
        """Return a value that changes when the document may have."""

    def document(self) -> dict[str, Any]:
        """Return what the page shows, as JSON."""


def view_of(folder: Path) -> RunView | SweepView | FederationView:
    """Return the view of a folder.

    Raises
    ------
    StateError
        If it is neither that of a run, nor of a sweep, nor of a Flower strategy.
    """
    if not os.path.exists(folder):
        raise StateError(f"there is no folder {shown(folder)}")
    if not os.path.isdir(folder):
        raise StateError(f"{shown(folder)} is a file; the folder of a run or a sweep is needed")
    for view, names in _MARKS.items():
        if any((folder / name).is_file() for name in names):
            return view(folder.resolve())  # type: ignore[no-any-return]
    below = [shown(entry) for entry in sorted(folder.iterdir()) if entry.is_dir() and _is_watchable(entry)]
    more = f", and {len(below) - _MOST_NAMED} more" if len(below) > _MOST_NAMED else ""
    hint = f"; there are {', '.join(below[:_MOST_NAMED])}{more}" if below else ""
    raise StateError(f"{shown(folder)} is not the folder of a run, of a sweep or of a Flower strategy{hint}")


_MARKS: Mapping[Any, tuple[str, ...]] = {
    SweepView: (PLAN,),
    RunView: (CONFIG, ROUNDS),
    FederationView: (AUDIT, STATUS),
}


def _is_watchable(folder: Path) -> bool:
    return any((folder / name).is_file() for names in _MARKS.values() for name in names)


def routes_of(view: RunView | SweepView | FederationView) -> dict[str, Route]:
    """Return the routes of the page: itself, its data, and the story of a client."""
    kept = _Kept()

    def chosen(fields: Mapping[str, str]) -> RunView | SweepView | FederationView:
        return view.run(fields["cell"]) if "cell" in fields and isinstance(view, SweepView) else view

    def live(fields: Mapping[str, str]) -> Answer:
        with kept.lock:
            return Answer(kept.content(chosen(fields)), JSON)

    def story(fields: Mapping[str, str]) -> Answer:
        with kept.lock:
            one = chosen(fields)
            if isinstance(one, SweepView):
                raise ConfigError("a story needs the cell of a sweep")
            return Answer(encoded(one.story(fields.get("client", ""), fields.get("round", ""))), JSON)

    return {"/": lambda _: page(), "/live": live, "/story": story}


class _Kept:
    """The last document of each view; it is made again when the files have changed."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._last: dict[Path, tuple[Any, bytes]] = {}

    def content(self, view: View) -> bytes:
        stamp = view.stamp()
        if view.folder not in self._last or self._last[view.folder][0] != stamp:
            self._last[view.folder] = stamp, encoded(view.document())
        return self._last[view.folder][1]


def encoded(document: Mapping[str, Any]) -> bytes:
    """Return a document as strict JSON; NaN and infinities become null."""
    return json.dumps(plain(document), allow_nan=False, separators=(",", ":")).encode("ascii")


@cache
def page() -> Answer:
    """Return the page. Its policy allows its own style and script, known by their hashes, and nothing else."""
    text = resources.files("mabrfl.live").joinpath("data/live.html").read_text(encoding="utf-8")
    style, script = (_hash(text, tag) for tag in ("style", "script"))
    policy = (
        f"default-src 'none'; script-src {script}; style-src {style}; img-src data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    )
    return Answer(text, "text/html; charset=utf-8", headers={"Content-Security-Policy": policy})


def _hash(text: str, tag: str) -> str:
    (content,) = re.findall(f"<{tag}>(.*?)</{tag}>", text, flags=re.DOTALL)
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
