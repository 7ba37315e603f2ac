"""Requests of an operator to a running strategy: one small file each, which it takes up before its next round.

``mabrfl federation STATE ban ...`` writes such a file. The strategy applies it, writes a row with the reason and the
operator's name into the audit, and removes the file when a state that includes it is saved.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

from mabrfl.errors import StateError
from mabrfl.recording.atomic import replace_file, sync_folder
from mabrfl.recording.encoding import MALFORMED, canonical_json, parse_strictly
from mabrfl.recording.files import read_bytes
from mabrfl.recording.folder import explained, shown
from mabrfl.rng import ClientId
from mabrfl.updates import as_client_id

REQUESTS = "requests"
"""The folder in ``state_dir``."""
Action = Literal["ban", "forgive", "pin", "unpin", "rename"]
LONGEST_TEXT = 200


@dataclass(frozen=True)
class OperatorRequest:
    """What an operator wants.

    Attributes
    ----------
    action
        ``ban``: the client is not invited. ``forgive``: the ban ends, and its reputation is that of a new client.
        ``pin``: it is invited to every round, and judged as all others; ``unpin`` ends that. ``rename``: its
        reputation, ban and pin go to another identity.
    client
        Whom it is about.
    reason, by
        Why, and the name of the person.
    to
        The new identity of ``rename``.
    time
        When it was made, for people.
    name
        The name of its file; unique.
    """

    action: Action
    client: ClientId
    reason: str
    by: str
    to: ClientId | None = None
    time: str = ""
    name: str = ""


def write_request(folder: Path, request: OperatorRequest) -> Path:
    """Write a request into a strategy's ``state_dir``; it is on the disk when this returns.

    Raises
    ------
    StateError
        If a text is missing or too long.
    OutputError
        If it cannot be written.
    """
    for name in ("reason", "by"):
        text = getattr(request, name)
        if not text.strip() or len(text) > LONGEST_TEXT:
            raise StateError(f"{name} must be a text of 1 to {LONGEST_TEXT} characters; got {len(text)}")
    document = asdict(request) | {"time": datetime.now(UTC).isoformat(timespec="milliseconds")}
    del document["name"]
    place = folder / REQUESTS
    with explained(folder):
        place.mkdir(exist_ok=True)
        file = place / f"{time.time_ns():020d}-{secrets.token_hex(4)}.json"
        replace_file(file, [canonical_json(document)])
        sync_folder(place)
    return file


def read_requests(folder: Path) -> tuple[list[OperatorRequest], list[str]]:
    """Return the requests in a strategy's folder, oldest first, and one note for each file that is none."""
    requests, notes = [], []
    place = folder / REQUESTS
    try:
        files = sorted(file for file in place.iterdir() if file.suffix == ".json" and not file.name.startswith("."))
    except FileNotFoundError:
        return [], []
    except OSError as error:
        return [], [f"cannot read {shown(place)}: {error.strerror}"]
    for file in files:
        try:
            requests.append(_request(parse_strictly(read_bytes(file)), file.name))
        except (StateError, *MALFORMED) as error:
            notes.append(f"{shown(file)} is not a request: {error}")
    return requests, notes


def remove_requests(folder: Path, names: list[str]) -> None:
    """Remove requests that a saved state includes."""
    for name in names:
        (folder / REQUESTS / name).unlink(missing_ok=True)


def _request(document: Any, name: str) -> OperatorRequest:
    expected = {"action", "client", "reason", "by", "to", "time"}
    if not isinstance(document, dict) or set(document) != expected:
        raise StateError(f"expected the keys {sorted(expected)}")
    if document["action"] not in get_args(Action):
        raise StateError(f"unknown action {document['action']!r:.40}")
    for key in ("reason", "by", "time"):
        if not isinstance(document[key], str) or len(document[key]) > LONGEST_TEXT:
            raise StateError(f"{key} must be a text of at most {LONGEST_TEXT} characters")
    to = None if document["to"] is None else as_client_id(document["to"])
    if (to is None) == (document["action"] == "rename"):
        raise StateError("only rename has a new identity, and needs one")
    return OperatorRequest(**{**document, "client": as_client_id(document["client"]), "to": to, "name": name})
