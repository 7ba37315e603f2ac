"""The configuration that a folder of states belongs to: its versions, and what an operator accepts.

``config.json`` has the version of the folder's format, the configuration, and the hashes of the configurations that it
had before an operator accepted a change. In version 1 the file was the configuration itself.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mabrfl._version import __version__
from mabrfl.errors import StateError
from mabrfl.flower.describing import MISSING, differences
from mabrfl.recording.atomic import sync_folder, write_atomically
from mabrfl.recording.encoding import canonical_json, parse_strictly
from mabrfl.recording.files import read_bytes
from mabrfl.recording.folder import explained, shown

CONFIG = "config.json"
VERSION = 2

FIXED = "model"
"""A setting whose change cannot be accepted: the saved model is of no use for another one."""

_MOST = 8
"""The largest number of settings that an error names."""


def hash_of(config: Mapping[str, Any]) -> str:
    """Return the SHA-256 (hex) of a configuration."""
    return hashlib.sha256(canonical_json(config)).hexdigest()


@dataclass(frozen=True)
class StateConfig:
    """The configuration of a folder.

    Attributes
    ----------
    config
        The present one, as plain values.
    earlier
        The hashes of those that it had before; states with them can be used.
    changes
        The settings in which the last of those differs: the place, the value before, and the value now.
    """

    config: Mapping[str, Any]
    earlier: tuple[str, ...] = ()
    changes: tuple[tuple[str, str, str], ...] = ()

    @property
    def hash(self) -> str:
        """The hash of the present configuration."""
        return hash_of(self.config)

    def write(self, folder: Path) -> None:
        """Write the file, if it is not there yet with this content."""
        document = {"version": VERSION, "package": __version__, "config": self.config, "earlier": list(self.earlier)}
        text = json.dumps(document, indent=2, sort_keys=True) + "\n"
        if (folder / CONFIG).exists() and read_bytes(folder / CONFIG) == text.encode():
            return
        with explained(folder):
            write_atomically(folder / CONFIG, text)
            sync_folder(folder)


def compare(folder: Path, config: Mapping[str, Any], *, accept: bool) -> StateConfig:
    """Return the configuration for a folder that is new, has the same one, or has one whose changes are accepted.

    Raises
    ------
    StateError
        If the folder has another configuration; the error names both hashes, and the settings that differ.
    """
    file = folder / CONFIG
    if not file.exists():
        return StateConfig(config)
    saved = _read(file)
    before, now = saved.hash, hash_of(config)
    if before == now:
        return StateConfig(config, saved.earlier)
    found = list(differences(saved.config, parse_strictly(canonical_json(config))))
    changes = tuple((place, _shown(old), _shown(new)) for place, old, new in found)
    fixed = any(place.partition(".")[0] == FIXED for place, _, _ in changes)
    if accept and not fixed:
        return StateConfig(config, tuple(dict.fromkeys((*saved.earlier, before))), changes)
    named = [f"{place} ({old} before, {new} now)" for place, old, new in changes[:_MOST]]
    more = f" and {len(changes) - _MOST} more" if len(changes) > _MOST else ""
    way = (
        "a state of another model cannot be used"
        if fixed
        else "accept_changes=True goes on with the new settings and keeps the reputations"
    )
    raise StateError(
        f"state folder {shown(folder)} belongs to another configuration: its hash is {before}, "
        f"of this one {now}; they differ in {', '.join(named)}{more}; {way}"
    )


def _shown(value: Any) -> str:
    text = "none" if value is MISSING else json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _read(file: Path) -> StateConfig:
    data = read_bytes(file)
    try:
        document = parse_strictly(data)
    except StateError as error:
        raise StateError(f"{shown(file)} is {error}") from error
    if not isinstance(document, dict):
        raise StateError(f"{shown(file)} is no configuration of a strategy")
    if "version" not in document:
        return StateConfig(document)
    if document["version"] != VERSION:
        raise StateError(
            f"{shown(file)} is in version {document['version']!r:.20}, written by mabrfl "
            f"{document.get('package')!r:.20}; this is {__version__}, which reads versions 1 and {VERSION}"
        )
    config, earlier = document.get("config"), document.get("earlier")
    if not isinstance(config, dict) or not isinstance(earlier, list) or not all(isinstance(e, str) for e in earlier):
        raise StateError(f"{shown(file)} is no configuration of a strategy")
    return StateConfig(config, tuple(earlier))
