"""The folder in which a strategy keeps what must survive: model, beliefs, momenta, round, audit.

``config.json`` says whose it is, ``checkpoint/`` has the newest two states (see :mod:`mabrfl.recording.checkpoint`),
``evaluation.json`` the evaluation of the last round, which comes after its state is saved, and ``audit.jsonl`` every
decision. One process at a time.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

from mabrfl.errors import OutputError, StateError
from mabrfl.flower.describing import differences
from mabrfl.flower.rows import now
from mabrfl.recording.atomic import remove_leftovers, replace_file, sync_folder, write_atomically
from mabrfl.recording.audit import AUDIT, AuditLog
from mabrfl.recording.checkpoint import load_checkpoint, save_checkpoint
from mabrfl.recording.encoding import canonical_json, decode, encode, parse_strictly
from mabrfl.recording.folder import CHECKPOINTS, explained, lock, shown

CONFIG, EVALUATION, LOCK = "config.json", "evaluation.json", "lock"

PATIENCE = 10.0
"""Seconds to wait for a folder whose last process was killed a moment ago."""

_MOST = 8
"""How many settings that differ are named."""

log = logging.getLogger("flwr")


def hash_of(config: Mapping[str, Any]) -> str:
    """Return the SHA-256 (hex) of a configuration."""
    return hashlib.sha256(canonical_json(config)).hexdigest()


class StateFolder:
    """A strategy's folder, claimed for this process. Make it with :meth:`claim`.

    Attributes
    ----------
    state
        The newest state that was found; None in a new folder.
    round
        The last finished round.
    evaluation
        What was saved last by :meth:`save_evaluation`; empty if there is nothing, or it is damaged.
    audit
        Open behind everything that was ever written to it.
    """

    def __init__(self, path: Path, config_hash: str, claimed: IO[Any]) -> None:
        self.path = path
        self.config_hash = config_hash
        self._claimed = claimed
        self.state, self.round = self._load()
        self.evaluation = self._load_evaluation()
        self.audit = AuditLog.open(path / AUDIT, None if self.state is None else self.state["audit"])
        try:
            self._go_back()
        except BaseException:
            self.audit.close()
            raise

    @classmethod
    def claim(cls, path: Path | str, config: Mapping[str, Any], patience: float = PATIENCE) -> StateFolder:
        """Open the folder for this process alone, make it if need be, and load the newest state.

        Raises
        ------
        OutputError
            If it cannot be written to, or another run is using it.
        StateError
            If it belongs to another configuration (both hashes are named), or everything in it is damaged.
        """
        path = Path(path).absolute()
        with explained(path):
            path.mkdir(parents=True, exist_ok=True)
            claimed = (path / LOCK).open("a")
        try:
            _wait_for(claimed, path, patience)
            with explained(path):
                remove_leftovers(path, (CONFIG, EVALUATION))
                remove_leftovers(path / CHECKPOINTS, ("round",))
            _check_config(path, config)
            return cls(path, hash_of(config), claimed)
        except BaseException:
            claimed.close()
            raise

    def _load(self) -> tuple[dict[str, Any] | None, int]:
        found = load_checkpoint(self.path / CHECKPOINTS, config_hash=self.config_hash)
        if found is None:
            return None, 0
        if found.state is None:
            raise StateError(f"no state in {shown(self.path)} can be used: {'; '.join(found.notes)}")
        for note in found.notes:
            log.warning("%s; going on from round %d", note, found.round)
        return found.state, found.round

    def _load_evaluation(self) -> dict[str, Any]:
        """Return what was saved; without it the last round is evaluated again, which is no harm."""
        file = self.path / EVALUATION
        if not file.exists():
            return {}
        try:
            document = parse_strictly(file.read_bytes())
            if not isinstance(document, dict) or document != _sealed(document.get("state"), self.config_hash):
                raise StateError("something else has changed it")
            found = decode(document["state"], {})
        except (OSError, StateError) as error:
            log.warning("%s cannot be used: %s; the last round is evaluated again", shown(file), error)
            return {}
        return found if isinstance(found, dict) else {}

    def _go_back(self) -> None:
        """Have the audit say so if it tells more than the state knows; refuse to begin anew where rounds were lost."""
        told, checkpoints = self.audit.told, self.path / CHECKPOINTS
        if self.state is None:
            # Killed before its first state was whole, a run has told of round 1 and no other.
            lost = max(told.saved, told.finished - 1 if checkpoints.is_dir() else told.finished)
            if lost > 0:
                raise StateError(
                    f"{shown(self.path / AUDIT)} tells of {max(told.saved, told.finished)} rounds, but there is no "
                    f"state of them in {shown(checkpoints)}. Nothing was changed. Put that folder back from a copy; "
                    "or, to begin again with round 1 and no reputations, give another state_dir or move this one away"
                )
            with explained(self.path):
                checkpoints.mkdir(exist_ok=True)
                sync_folder(self.path)
        undone = self.audit.go_back(self.round, now())
        if undone:
            log.warning("the audit has %d rows of a round that is begun again; they stay, marked as undone", undone)

    def save_evaluation(self, newest: Mapping[str, Any]) -> None:
        """Replace what is known about the evaluation of the last round; its state is saved by then."""
        document = _sealed(encode(dict(newest))[0], self.config_hash)
        with explained(self.path):
            replace_file(self.path / EVALUATION, [canonical_json(document)])
            sync_folder(self.path)

    def save(self, state: Mapping[str, Any], rows: Iterable[Mapping[str, Any]], *, round: int) -> None:
        """Add a round's rows to the audit, then its state, which says where in the audit it belongs."""
        for row in rows:
            self.audit.append(row)
        mark = self.audit.mark()
        with explained(self.path):
            save_checkpoint(
                self.path / CHECKPOINTS, {**state, "audit": mark}, round=round, config_hash=self.config_hash
            )

    def close(self) -> None:
        """Let go of the folder."""
        self.audit.close()
        self._claimed.close()


def _sealed(state: Any, config_hash: str) -> dict[str, Any]:
    document = {"config_hash": config_hash, "state": state}
    return {**document, "checksum": hash_of(document)}


def _wait_for(claimed: IO[Any], path: Path, patience: float) -> None:
    deadline = time.monotonic() + patience
    while not lock(claimed):
        if time.monotonic() >= deadline:
            raise OutputError(f"state folder {shown(path)} is in use by another run")
        time.sleep(0.05)


def _check_config(path: Path, config: Mapping[str, Any]) -> None:
    """Note whose folder it is, or refuse one that is another's."""
    file = path / CONFIG
    if not file.exists():
        with explained(path):
            write_atomically(file, json.dumps(config, indent=2, sort_keys=True) + "\n")
            sync_folder(path)
        return
    try:
        theirs = parse_strictly(file.read_bytes())
    except OSError as error:
        raise StateError(f"cannot read {shown(file)}: {error.strerror}") from error
    if not isinstance(theirs, dict):
        raise StateError(f"{shown(file)} is no configuration of a strategy")
    if hash_of(theirs) != hash_of(config):
        changed = list(differences(theirs, parse_strictly(canonical_json(config))))
        raise StateError(
            f"state folder {shown(path)} belongs to another configuration: its hash is {hash_of(theirs)}, "
            f"of this one {hash_of(config)}; they differ in {', '.join(changed[:_MOST])}"
        )
