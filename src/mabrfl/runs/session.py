"""One run into one folder, in as many sessions as it takes, with the same result as in one.

A session begins after the newest usable checkpoint, or at the start. All randomness is named by seed, purpose, round
and client, so that nothing but :meth:`~mabrfl.simulation.simulator.Simulation.state_dict` has to be remembered.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mabrfl.catalog import named_failures
from mabrfl.config import ResolvedConfig, RunConfig, config_hash, resolve
from mabrfl.errors import OutputError, StateError
from mabrfl.recording import RoundRecord, RunFolder, summarize
from mabrfl.recording.folder import shown
from mabrfl.recording.ownership import MODEL
from mabrfl.runs.finished import changed_code, claim, finished_run, finished_summary, is_same_run, quoted
from mabrfl.runs.observers import (
    Notify,
    Observer,
    ObserverGroup,
    RunResult,
    RunStart,
    build_observers,
    report_on_stderr,
)
from mabrfl.runs.recorder import Recorder

if TYPE_CHECKING:
    from mabrfl.simulation.simulator import Simulation

Build = Callable[[ResolvedConfig], "Simulation"]


def run(
    config: RunConfig,
    path: Path | str | None = None,
    *,
    observers: Iterable[Any] = (),
    resume: bool | None = None,
    force: bool = False,
    checkpoint_every: int = 1,
    arguments: Sequence[str] | None = None,
    build: Build | None = None,
    essential: Sequence[Observer] = (),
    report: Notify = report_on_stderr,
    save_model: bool = False,
) -> RunResult:
    """Run a configuration into a folder; go on if it was begun there, do nothing if it was finished there.

    However often it is interrupted in between (``kill -9`` included), the result is the same to the bit: weights,
    reputation, and records but for the seconds. The weights' SHA-256 is in the summary. The folder is checked first and
    made last: a mistake in it costs no time, and a run that cannot start leaves no folder behind.

    Parameters
    ----------
    config
        The run.
    path
        Its folder: missing, empty, or that of the same run. None: nothing is recorded.
    observers
        Watch the run: objects, classes or names, see :class:`~mabrfl.runs.observers.Observer`.
    resume
        True: there must be a run to go on with. False: there must be none. None: either will do.
    force
        Replace the run that is in the folder.
    checkpoint_every
        Rounds between checkpoints; 0 for none, and then an interrupted run starts again.
    arguments
        The command line, for the manifest.
    build
        Turns the configuration into a simulation.
    essential
        Observers whose errors stop the run.
    report
        Called with the report on an observer that failed.
    save_model
        Write the final model into the folder: ``model.safetensors``, for ``load_state_dict`` of the model's module.

    Raises
    ------
    StateError
        If the folder has a run of another configuration; the message names the settings that differ. If ``resume`` is
        True and the user's own code has changed since that run began.
    OutputError
        If the folder cannot be written, or another process is running there.
    OwnCodeError
        If a rule, selector, attack, model or data set of the user's own raises an error; its cause is that error.

    Examples
    --------
    >>> import tempfile
    >>> tiny = RunConfig(rounds=2, workers=1)
    >>> with tempfile.TemporaryDirectory() as place:
    ...     first, again = run(tiny, Path(place) / "a"), run(tiny, Path(place) / "a")
    >>> first.summary["weights_sha256"] == again.summary["weights_sha256"]
    True
    """
    resolved, reports = resolve(config), list[str]()

    def note(message: str) -> None:
        reports.append(message)
        report(message)

    folder = None if path is None else Path(path)
    begun = folder is not None and _is_begun(folder, resolved, resume=resume, force=force)
    if folder is not None and begun and (result := finished_run(folder, resolved)):
        if save_model and not (folder / MODEL).is_file():
            raise StateError(
                f"the run in {shown(folder)} is finished, and its model was not saved; --force runs it again"
            )
        return result
    others = build_observers(observers, note)
    with ExitStack() as stack:
        stack.enter_context(named_failures(resolved.model_dump(mode="json")))
        simulation = stack.enter_context((build or _build)(resolved))
        session = RunSession(simulation, resolved, folder, reports)
        if folder is None:
            return session.run(ObserverGroup(essential, others, note))
        # Workers are forked by now: a worker that outlives its parent for a moment must not hold on to the folder.
        claimed = stack.enter_context(claim(folder, begun=begun, force=force))
        if begun and (result := finished_run(folder, resolved)):
            return result
        recorder = Recorder(
            claimed, session, checkpoint_every=checkpoint_every, arguments=arguments, save_model=save_model
        )
        recorder.resume()
        return session.run(ObserverGroup([recorder, *essential], others, note))


def simulate(config: RunConfig, *, observers: Iterable[Any] = ()) -> list[RoundRecord]:
    """Run a configuration from the first round to the last, record nothing, and return the rounds.

    Parameters
    ----------
    config
        The run.
    observers
        Watch the run, see :class:`~mabrfl.runs.observers.Observer`.

    Examples
    --------
    >>> records = simulate(RunConfig(dataset="digits", rounds=2, workers=1))
    >>> [record.round for record in records]
    [1, 2]
    """
    return run(config, observers=observers).records


def _is_begun(path: Path, config: ResolvedConfig, *, resume: bool | None, force: bool) -> bool:
    """Whether there is a run to go on with in a folder; if there is none, a new one can be started there."""
    begun = resume is not False and not force and is_same_run(path, config)
    if resume and not begun:
        raise OutputError(f"there is no run to resume in {shown(path)}; leave out --resume to start one")
    if resume and finished_summary(path, config_hash(config)) is None and (changed := changed_code(path, config)):
        raise StateError(
            f"the code of {quoted(changed)} has changed since the run in {shown(path)} began, so that it cannot be "
            "resumed; start again with --force in place of --resume, or choose another folder with --out"
        )
    if not begun:
        RunFolder.check(path, force=force)
    return begun


class RunSession:
    """One session of a run, from where the last one ended.

    Parameters
    ----------
    simulation
        Not run yet.
    config
        The run.
    path
        Its folder, if it is recorded.
    reports
        Reports on observers that failed; more may come while the run goes on.

    Attributes
    ----------
    notes
        Messages for the user about the start.
    records
        Of all rounds so far, those of earlier sessions included.
    seconds_before
        How long the earlier sessions took.
    """

    def __init__(
        self, simulation: Simulation, config: ResolvedConfig, path: Path | None = None, reports: Sequence[str] = ()
    ) -> None:
        self.simulation, self.config, self.path, self._reports = simulation, config, path, reports
        self.notes: list[str] = []
        self.records: list[RoundRecord] = []
        self.seconds_before = 0.0
        self._since = time.perf_counter()

    @property
    def complete(self) -> bool:
        """Whether all rounds are done."""
        return len(self.records) == self.config.rounds

    @property
    def seconds(self) -> float:
        """How long the run took so far."""
        return self.seconds_before + time.perf_counter() - self._since

    def run(self, observers: ObserverGroup) -> RunResult:
        """Run the rounds that are left; the observers are called after each."""
        self._since = time.perf_counter()
        try:
            observers.call("started", RunStart(self.config, self.path, len(self.records), tuple(self.notes)))
            for record in self.simulation.run():
                self.records.append(record)
                observers.call("round_done", record)
        except BaseException as error:
            observers.call("failed", error)
            raise
        result = RunResult(self.config, self.path, self.records, self.summary(), [*self.notes, *self._reports])
        observers.call("finished", result)
        result.notes = [*self.notes, *self._reports]
        return result

    def summary(self) -> dict[str, Any]:
        """Return the summary of the rounds so far."""
        summary = summarize(self.records, self.config, self.seconds, not self.complete)
        return {**summary, "weights_sha256": weights_sha256(self.simulation)}


def weights_sha256(simulation: Simulation) -> str:
    """Return the SHA-256 (hex) of the global model's weights, followed by its buffers if it has any."""
    model = simulation.model
    return hashlib.sha256(model.weights.tobytes() + model.buffers.tobytes()).hexdigest()


def _build(config: ResolvedConfig) -> Simulation:
    from mabrfl.simulation.simulator import build_simulation  # noqa: PLC0415 (torch: seconds that planning a sweep need not wait for)

    return build_simulation(config)
