"""One run into one folder, in as many sittings as it takes, with the same result as in one.

A sitting begins where the newest usable checkpoint is, or at the start. All randomness is named by seed, purpose,
round and client, so that nothing but :meth:`~mabrfl.simulation.simulator.Simulation.state_dict` has to be remembered.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mabrfl.catalog import check_code, code_of
from mabrfl.config import ResolvedConfig, RunConfig, config_hash, dump_toml, resolve
from mabrfl.errors import StateError
from mabrfl.recording import (
    Checkpoint,
    RoundRecord,
    RunFolder,
    load_checkpoint,
    manifest,
    read_rounds,
    remove_checkpoints,
    summarize,
)
from mabrfl.recording.folder import MANIFEST, ROUNDS
from mabrfl.runs.finished import Finished, claim, finished_run, is_same_run, quoted, read_manifest

if TYPE_CHECKING:
    from mabrfl.simulation.simulator import Simulation

Build = Callable[[ResolvedConfig], "Simulation"]
OnRecord = Callable[[RoundRecord], None]
OnStart = Callable[[int, Sequence[str]], None]


def run_cell(
    config: RunConfig,
    path: Path | str,
    *,
    checkpoint_every: int = 1,
    on_start: OnStart | None = None,
    on_record: OnRecord | None = None,
    build: Build | None = None,
    arguments: Sequence[str] | None = None,
) -> Finished:
    """Run a configuration into a folder; go on if it was begun there, do nothing if it was finished there.

    However often it is interrupted in between (``kill -9`` included), the result is the same to the bit: weights,
    reputation, and records but for the seconds. The weights' SHA-256 is in the summary.

    Parameters
    ----------
    config
        The run.
    path
        Its folder: missing, empty, or that of the same run.
    checkpoint_every
        Rounds between checkpoints; 0 for none, and then an interrupted run starts again.
    on_start
        Called before the first round of this sitting, with the round it goes on after (0 at the start) and the notes
        on that: a refused checkpoint, say.
    on_record
        Called after each round.
    build
        Turns the configuration into a simulation.
    arguments
        The command line, for the record.

    Raises
    ------
    StateError
        If the folder has a run of another configuration; the message names the settings that differ.
    OutputError
        If the folder cannot be written, or another process is running there.

    Examples
    --------
    >>> import tempfile
    >>> tiny = RunConfig(rounds=2, workers=1)
    >>> with tempfile.TemporaryDirectory() as place:
    ...     first, again = run_cell(tiny, Path(place) / "a"), run_cell(tiny, Path(place) / "a")
    >>> first.summary["weights_sha256"] == again.summary["weights_sha256"]
    True
    """
    run, path = resolve(config), Path(path)
    begun = is_same_run(path, run)
    if begun and (done := finished_run(path, run)):
        return done
    simulation = (build or _build)(run)
    # Workers are forked by now: a worker that outlives its parent for a moment must not hold on to the folder.
    with simulation, claim(path, begun=begun) as folder:
        if begun and (done := finished_run(path, run)):
            return done
        sitting = Sitting(folder, simulation, run, arguments=arguments)
        if on_start is not None:
            on_start(len(sitting.records), sitting.notes)
        sitting.run(checkpoint_every=checkpoint_every, on_record=on_record)
        return sitting.finish()


class Sitting:
    """One sitting of a run, from where the last one ended.

    Parameters
    ----------
    folder
        Claimed for this run.
    simulation
        Not run yet.
    config
        The run.
    arguments
        The command line, for the record.

    Attributes
    ----------
    records
        Of all rounds so far, those of earlier sittings included.
    notes
        What the user should know about how the run goes on.
    """

    def __init__(
        self,
        folder: RunFolder,
        simulation: Simulation,
        config: ResolvedConfig,
        *,
        arguments: Sequence[str] | None = None,
    ) -> None:
        self.folder, self.simulation, self.config = folder, simulation, config
        self.records: list[RoundRecord] = []
        self.notes: list[str] = []
        self._hash = config_hash(config)
        self._seconds_before = 0.0
        now = manifest(
            seed=config.seed,
            config_hash=self._hash,
            data_fingerprint=simulation.dataset.fingerprint(),
            arguments=sys.argv[1:] if arguments is None else arguments,
            code=code_of(config.model_dump(mode="json")),
        )
        self._begin(now, read_manifest(folder.path))
        self._since = time.perf_counter()

    @property
    def complete(self) -> bool:
        """Whether all rounds are done."""
        return len(self.records) == self.config.rounds

    def run(self, *, checkpoint_every: int = 1, on_record: OnRecord | None = None) -> None:
        """Run the rounds that are left; each is recorded before the next one begins."""
        for record in self.simulation.run():
            self.folder.append(record)
            self.records.append(record)
            if checkpoint_every and record.round % checkpoint_every == 0 and not self.complete:
                self._save(record.round)
            if on_record is not None:
                on_record(record)

    def finish(self) -> Finished:
        """Write the summary of the rounds so far; if that is all of them, the run is finished."""
        summary = summarize(self.records, self.config, self._seconds, not self.complete)
        summary["weights_sha256"] = weights_sha256(self.simulation)
        self.folder.finish(summary, complete=self.complete)
        return Finished(self.config, self.folder.path, self.records, summary, self.notes)

    @property
    def _seconds(self) -> float:
        return self._seconds_before + time.perf_counter() - self._since

    def _save(self, number: int) -> None:
        state = {"simulation": self.simulation.state_dict(), "seconds": self._seconds}
        try:
            self.folder.checkpoint(state, round=number, config_hash=self._hash)
        except StateError as error:
            raise StateError(f"{error} (--checkpoint-every 0 does without checkpoints)") from error

    def _begin(self, now: dict[str, Any], before: dict[str, Any]) -> None:
        """Go on after the newest checkpoint that fits, or start; rounds of two states of a user's code never mix."""
        changed = check_code(self.config.model_dump(mode="json"), before.get("code")).changed
        if changed:
            self.notes.append(f"the code of {quoted(changed)} has changed since: starting again with round 1")
            remove_checkpoints(self.folder.checkpoints)
        found = load_checkpoint(self.folder.checkpoints, config_hash=self._hash)
        initial = self.simulation.state_dict() if found is not None and found.state is not None else None
        while found is not None:
            self.notes += found.notes
            if found.state is None:
                break
            try:
                self._restore(found, now, before)
            except StateError as error:
                self.notes.append(f"checkpoint of round {found.round} refused: {error}")
                found = load_checkpoint(self.folder.checkpoints, config_hash=self._hash, before=found.round)
            else:
                return
        if initial is not None:
            self.simulation.load_state_dict(initial)
        self.folder.rewind()
        self.folder.start(config=dump_toml(self.config), manifest=now)
        if (before or self.notes) and not changed:
            self.notes.append("no usable checkpoint: starting again with round 1")

    def _restore(self, found: Checkpoint, now: dict[str, Any], before: dict[str, Any]) -> None:
        if "data_fingerprint" not in before:
            raise StateError(f"{MANIFEST} is damaged or gone, and nothing else says which data the run had")
        if now["data_fingerprint"] != before["data_fingerprint"]:
            raise StateError(
                f"the data is another: expected {before['data_fingerprint']}, got {now['data_fingerprint']}"
            )
        state = found.state or {}
        try:
            number, mark, seconds = int(state["simulation"]["round"]), state["rounds"], float(state["seconds"])
            if not 0 < number == found.round <= self.config.rounds:
                raise StateError(f"expected the state after round {found.round} of {self.config.rounds}, got {number}")
            self.simulation.load_state_dict(state["simulation"])
            self.folder.rewind(mark)
            records = list(read_rounds(self.folder.path).records)
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(f"it is not a checkpoint of a run: {error!r}") from error
        if [record.round for record in records] != list(range(1, number + 1)):
            raise StateError(f"{ROUNDS}: expected rounds 1 to {number}, got {len(records)} others")
        self.records, self._seconds_before = records, seconds
        sittings = [*before.get("resumed", []), _sitting(now, number)]
        self.folder.write_manifest({**before, "ended": None, "resumed": sittings})
        changed = [name for name, version in now["versions"].items() if before.get("versions", {}).get(name) != version]
        if changed:
            self.notes.append(f"other versions than at the start, the result may differ in the last bits: {changed}")


def weights_sha256(simulation: Simulation) -> str:
    """Return the SHA-256 (hex) of the global model's weights, followed by its buffers if it has any."""
    model = simulation.model
    return hashlib.sha256(model.weights.tobytes() + model.buffers.tobytes()).hexdigest()


def _build(config: ResolvedConfig) -> Simulation:
    from mabrfl.simulation.simulator import build_simulation  # noqa: PLC0415 (torch: seconds that planning a sweep need not wait for)

    return build_simulation(config)


def _sitting(now: dict[str, Any], number: int) -> dict[str, Any]:
    at = datetime.now(UTC).isoformat(timespec="seconds")
    return {"at": at, "after_round": number, "versions": now["versions"], "source": now["source"]}
