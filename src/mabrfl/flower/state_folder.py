"""The folder of a strategy's state: model, reputations, momenta, round, audit.

``config.json`` has the configuration, ``checkpoint/`` the newest two states (see :mod:`mabrfl.recording.checkpoint`),
``evaluation.json`` the evaluation of the last round, which follows after its state is saved, and ``audit.jsonl`` every
decision. One process at a time uses it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from mabrfl.errors import OutputError, StateError
from mabrfl.flower.heads import HeadRecord
from mabrfl.flower.state_config import CONFIG, StateConfig, compare, hash_of
from mabrfl.recording.atomic import remove_leftovers, replace_file, sync_folder
from mabrfl.recording.audit import AUDIT, AuditLog, checked_mark
from mabrfl.recording.checkpoint import load_checkpoint, save_checkpoint
from mabrfl.recording.encoding import canonical_json, decode, encode, parse_strictly
from mabrfl.recording.files import read_bytes
from mabrfl.recording.folder import CHECKPOINTS, explained, lock, shown
from mabrfl.recording.regular import open_lock
from mabrfl.recording.status import LOCK, STATUS

Restore = Callable[[Mapping[str, Any], bool], None]

EVALUATION = "evaluation.json"

PATIENCE = 10.0
"""Seconds to wait for a folder whose last process was killed a moment ago."""

log = logging.getLogger("flwr")


def now() -> str:
    """Return the time, for people."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@dataclass(frozen=True)
class AuditKeeping:
    """How the audit is kept: the size at which a new file begins, and the place where its last hash is recorded."""

    max_bytes: int | None = None
    heads: HeadRecord | None = None

    def recorded(self) -> str | None:
        """Return the hash that must be in the audit."""
        return None if self.heads is None else self.heads.recorded()


class StateFolder:
    """A strategy's folder, claimed for this process. Make it with :meth:`claim`.

    Attributes
    ----------
    round
        The last finished round; 0 in a new folder.
    evaluation
        The last evaluation of :meth:`save_evaluation`; empty if there is none, or it is damaged.
    audit
        The audit, open for appending.
    """

    def __init__(
        self, path: Path, config: StateConfig, claimed: IO[Any], restore: Restore, keeping: AuditKeeping
    ) -> None:
        self.path = path
        self._keeping = keeping
        self.config = config
        self.config_hash = config.hash
        self._claimed = claimed
        mark, self.round = self._load(restore)
        self.evaluation = self._load_evaluation()
        self.audit = AuditLog.open(path / AUDIT, mark, head=keeping.recorded())
        try:
            self._go_back()
        except BaseException:
            self.audit.close()
            raise

    @classmethod
    def claim(
        cls,
        path: Path | str,
        config: Mapping[str, Any],
        restore: Restore,
        *,
        accept_changes: bool = False,
        keeping: AuditKeeping | None = None,
        patience: float = PATIENCE,
    ) -> StateFolder:
        """Create the folder if it does not exist, lock it for this process, and load the newest state.

        Parameters
        ----------
        path, config
            The folder, and the configuration of the strategy.
        restore
            Takes over a state that was read, or raises StateError; then the state before it is tried. It is also
            told whether the state was saved with another configuration.
        accept_changes
            Whether the configuration may differ from that of the folder.
        keeping
            How the audit is kept.
        patience
            Seconds to wait for another process to release the folder.

        Raises
        ------
        OutputError
            If it cannot be written to, or another run uses it.
        StateError
            If it belongs to another configuration (the error names both hashes), or no state in it can be used.
        """
        path = Path(path).absolute()
        with explained(path):
            path.mkdir(parents=True, exist_ok=True)
            claimed = open_lock(path / LOCK)
        try:
            _wait_for(claimed, path, patience)
            with explained(path):
                remove_leftovers(path, (CONFIG, EVALUATION, STATUS))
                remove_leftovers(path / CHECKPOINTS, ("round",))
            folder = cls(
                path, compare(path, config, accept=accept_changes), claimed, restore, keeping or AuditKeeping()
            )
            try:
                folder.config.write(path)
            except BaseException:
                folder.audit.close()
                raise
            return folder
        except BaseException:
            claimed.close()
            raise

    def _load(self, restore: Restore) -> tuple[dict[str, Any] | None, int]:
        """Restore the newest state; return its position in the audit, and its round. Nothing else of it is kept."""
        notes: list[str] = []
        before = None
        while checkpoint := load_checkpoint(
            self.path / CHECKPOINTS, config_hash=self.config_hash, before=before, earlier=self.config.earlier
        ):
            notes += checkpoint.notes
            if checkpoint.state is None:
                break
            try:
                checked_mark(checkpoint.state.get("audit"))
                restore(checkpoint.state, checkpoint.config_hash != self.config_hash)
            except StateError as error:
                notes.append(f"checkpoint of round {checkpoint.round} refused: {error}")
                before = checkpoint.round
                continue
            for note in notes:
                log.warning("%s; going on from round %d", note, checkpoint.round)
            return checkpoint.state["audit"], checkpoint.round
        if notes:
            raise StateError(f"no state in {shown(self.path)} can be used: {'; '.join(notes)}")
        return None, 0

    def _load_evaluation(self) -> dict[str, Any]:
        """Return the saved evaluation; without it the last round is evaluated again, which does no harm."""
        file = self.path / EVALUATION
        if not file.exists():
            return {}
        try:
            document = parse_strictly(read_bytes(file))
            if not isinstance(document, dict) or not self._is_ours(document):
                raise StateError("something else has changed it")
            evaluation = decode(document["state"], {})
        except (StateError, RecursionError) as error:
            log.warning("%s cannot be used: %s; the last round is evaluated again", shown(file), error)
            return {}
        return evaluation if isinstance(evaluation, dict) else {}

    def _is_ours(self, document: Mapping[str, Any]) -> bool:
        known = (self.config_hash, *self.config.earlier)
        return any(document == _sealed(document.get("state"), config_hash) for config_hash in known)

    def _go_back(self) -> None:
        """Mark the rows of the audit that are newer than the state; refuse to start again where rounds were lost."""
        rounds, checkpoints = self.audit.history, self.path / CHECKPOINTS
        if not self.round:
            # A run that was killed before its first state was complete has rows of round 1 only.
            lost = max(rounds.saved, rounds.finished - 1 if checkpoints.is_dir() else rounds.finished)
            if lost > 0:
                raise StateError(
                    f"{shown(self.path / AUDIT)} has {max(rounds.saved, rounds.finished)} rounds, but "
                    f"{shown(checkpoints)} has no state of them. Nothing was changed. Restore that folder "
                    "from a copy; or, to start again with round 1 and no reputations, use another state_dir or move "
                    "this one away"
                )
            with explained(self.path):
                checkpoints.mkdir(exist_ok=True)
                sync_folder(self.path)
        undone = self.audit.go_back(self.round, now())
        if undone:
            log.warning("the audit has %d rows of a round that is run again; they stay, marked as undone", undone)

    def save_evaluation(self, newest: Mapping[str, Any]) -> None:
        """Replace the saved evaluation; the state of its round was saved before."""
        document = _sealed(encode(dict(newest))[0], self.config_hash)
        with explained(self.path):
            replace_file(self.path / EVALUATION, [canonical_json(document)])
            sync_folder(self.path)

    def save(self, state: Mapping[str, Any], rows: Iterable[Mapping[str, Any]], *, round: int) -> bool:
        """Append a round's rows to the audit, then save its state with the position in the audit.

        Returns
        -------
        bool
            False if the last hash of the audit should have been recorded, and was not.
        """
        for row in rows:
            self.audit.append(row)
        mark = self.audit.mark()
        if self._keeping.max_bytes is not None:
            self.audit.rotate(self._keeping.max_bytes)
        with explained(self.path):
            save_checkpoint(
                self.path / CHECKPOINTS, {**state, "audit": mark}, round=round, config_hash=self.config_hash
            )
        return self._keeping.heads is None or self._keeping.heads.record(mark["sha256"])

    def close(self) -> None:
        """Close the audit and unlock the folder."""
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
