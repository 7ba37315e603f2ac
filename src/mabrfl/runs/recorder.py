"""The observer that writes the folder of a run, and the way back from the folder to the run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from mabrfl.catalog import check_code, code_of
from mabrfl.config import config_hash, dump_toml
from mabrfl.errors import StateError
from mabrfl.recording import (
    Checkpoint,
    RoundRecord,
    RunFolder,
    load_checkpoint,
    manifest,
    read_rounds,
    remove_checkpoints,
)
from mabrfl.recording.encoding import MALFORMED
from mabrfl.recording.folder import MANIFEST, ROUNDS
from mabrfl.runs.finished import quoted, read_manifest
from mabrfl.runs.observers import Observer, RunResult

if TYPE_CHECKING:
    from mabrfl.runs.session import RunSession


class Recorder(Observer):
    """Writes a run into its folder: each round before the next one begins, checkpoints, and the summary.

    Its errors stop the run: a round that cannot be recorded must not be followed by another.

    Parameters
    ----------
    folder
        Claimed for this run.
    session
        Of the run; not started yet.
    checkpoint_every
        Rounds between checkpoints; 0 for none.
    arguments
        The command line, for the manifest.
    save_model
        Whether to write the final model.
    """

    def __init__(
        self,
        folder: RunFolder,
        session: RunSession,
        *,
        checkpoint_every: int = 1,
        arguments: Sequence[str] | None = None,
        save_model: bool = False,
    ) -> None:
        self._folder, self._session, self._every = folder, session, checkpoint_every
        self._save_model = save_model
        self._hash = config_hash(session.config)
        self._arguments = sys.argv[1:] if arguments is None else arguments

    def resume(self) -> None:
        """Put the session after the newest checkpoint that fits, or at the start of the run.

        Rounds that two states of a user's own code made are never mixed.
        """
        session, folder = self._session, self._folder
        now = manifest(
            seed=session.config.seed,
            config_hash=self._hash,
            data_fingerprint=session.simulation.dataset.fingerprint(),
            arguments=self._arguments,
            code=code_of(session.config.model_dump(mode="json")),
        )
        before = read_manifest(folder.path)
        changed = check_code(session.config.model_dump(mode="json"), before.get("code")).changed
        if changed:
            session.notes.append(f"the code of {quoted(changed)} has changed since: starting again with round 1")
            remove_checkpoints(folder.checkpoints)
        checkpoint = load_checkpoint(folder.checkpoints, config_hash=self._hash)
        initial = session.simulation.state_dict() if checkpoint is not None and checkpoint.state is not None else None
        while checkpoint is not None:
            session.notes += checkpoint.notes
            if checkpoint.state is None:
                break
            try:
                self._restore(checkpoint, now, before)
            except StateError as error:
                session.notes.append(f"checkpoint of round {checkpoint.round} refused: {error}")
                checkpoint = load_checkpoint(folder.checkpoints, config_hash=self._hash, before=checkpoint.round)
            else:
                return
        if initial is not None:
            session.simulation.load_state_dict(initial)
        folder.rewind()
        folder.start(config=dump_toml(session.config), manifest=now)
        if (before or session.notes) and not changed:
            session.notes.append("no usable checkpoint: starting again with round 1")

    def round_done(self, record: RoundRecord) -> None:
        """Write the round, and a checkpoint if it is time for one."""
        self._folder.append(record)
        if self._every and record.round % self._every == 0 and not self._session.complete:
            state = {"simulation": self._session.simulation.state_dict(), "seconds": self._session.seconds}
            try:
                self._folder.checkpoint(state, round=record.round, config_hash=self._hash)
            except StateError as error:
                raise StateError(f"{error} (--checkpoint-every 0 does without checkpoints)") from error

    def finished(self, result: RunResult) -> None:
        """Write the model, if asked to, and the summary; the run is finished then."""
        if self._save_model:
            self._folder.save_model(self._session.simulation.module_state())
        self._folder.finish(result.summary)

    def failed(self, error: BaseException) -> None:  # noqa: ARG002 (the summary does not have it)
        """Write the summary of the rounds so far, which says that the run was interrupted."""
        self._folder.finish(self._session.summary(), complete=self._session.complete)

    def _restore(self, checkpoint: Checkpoint, now: dict[str, Any], before: dict[str, Any]) -> None:
        session, folder = self._session, self._folder
        if "data_fingerprint" not in before:
            raise StateError(f"{MANIFEST} is damaged or gone, and nothing else says which data the run had")
        if now["data_fingerprint"] != before["data_fingerprint"]:
            raise StateError(
                f"the data is another: expected {before['data_fingerprint']}, got {now['data_fingerprint']}"
            )
        state, rounds = checkpoint.state or {}, session.config.rounds
        try:
            number, mark, seconds = int(state["simulation"]["round"]), state["rounds"], float(state["seconds"])
            if not 0 < number == checkpoint.round <= rounds:
                raise StateError(f"expected the state after round {checkpoint.round} of {rounds}, got {number}")
            session.simulation.load_state_dict(state["simulation"])
            folder.rewind(mark)
            records = list(read_rounds(folder.path).records)
        except MALFORMED as error:
            raise StateError(f"it is not a checkpoint of a run: {error!r}") from error
        if [record.round for record in records] != list(range(1, number + 1)):
            raise StateError(f"{ROUNDS}: expected rounds 1 to {number}, got {len(records)} others")
        session.records, session.seconds_before = records, seconds
        at = datetime.now(UTC).isoformat(timespec="seconds")
        resumed = {"at": at, "after_round": number, "versions": now["versions"], "source": now["source"]}
        earlier, versions = before.get("resumed"), before.get("versions")
        earlier, versions = (
            (earlier if isinstance(earlier, list) else []),
            (versions if isinstance(versions, dict) else {}),
        )
        folder.write_manifest({**before, "ended": None, "resumed": [*earlier, resumed]})
        changed = [name for name, version in now["versions"].items() if versions.get(name) != version]
        if changed:
            session.notes.append(f"other versions than at the start, the result may differ in the last bits: {changed}")
