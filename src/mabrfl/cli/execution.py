"""One run from the command line: its display, its notes and its pictures."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from mabrfl.catalog import entry
from mabrfl.cli.live import display_for, headline
from mabrfl.cli.stopping import importing
from mabrfl.config import ResolvedConfig, config_hash
from mabrfl.recording import RoundRecord, read_rounds
from mabrfl.recording.evaluation import attacker_ids
from mabrfl.runs import Observer, RunResult, RunStart, run
from mabrfl.runs.session import Build

if TYPE_CHECKING:
    from mabrfl.simulation.simulator import Simulation


def execute(
    config: ResolvedConfig,
    path: Path,
    *,
    build: Build,
    console: Console,
    quiet: bool = False,
    plots: bool = True,
    observers: Sequence[str] = (),
    force: bool = False,
    resume: bool = False,
    checkpoint_every: int = 1,
    save_model: bool = False,
) -> RunResult:
    """Run a configuration into a folder, show it, and draw its pictures, even if it is interrupted.

    Parameters
    ----------
    config, path
        The run and its folder.
    build
        Makes the simulation.
    console, quiet
        Where the run is shown; not at all if ``quiet``.
    plots
        Whether its pictures are drawn.
    observers
        Names of observers.
    force
        Replace the run that is in the folder.
    resume
        Go on with the run that is in the folder; if it is finished, nothing is run.
    checkpoint_every
        Rounds between checkpoints; 0 for none.
    save_model
        Write the final model into the folder.
    """

    def build_visibly(resolved: ResolvedConfig) -> Simulation:
        with _waiting(console, f"loading {config.dataset} and starting {config.workers} workers"):
            return build(resolved)

    notes = _Notes()
    displays = [] if quiet else [display_for(config, console)]
    result = run(
        config,
        path,
        observers=observers,
        resume=resume,
        force=force,
        checkpoint_every=checkpoint_every,
        build=build_visibly,
        essential=[notes, *displays, *([_Pictures()] if plots else [])],
        report=_show_note,
        save_model=save_model,
    )
    if not notes.shown:
        for note in result.notes:
            _show_note(note)
    return result


class _Notes(Observer):
    """Shows the notes on the start of a run."""

    shown = False

    def started(self, run: RunStart) -> None:
        for note in run.notes:
            _show_note(note)
        self.shown = True


class _Pictures(Observer):
    """Draws the pictures of a run at its end, also if that comes early."""

    _run: RunStart | None = None

    def started(self, run: RunStart) -> None:
        self._run = run

    def finished(self, result: RunResult) -> None:
        assert result.path is not None
        draw(result.config, result.path, result.records)

    def failed(self, error: BaseException) -> None:  # noqa: ARG002 (the pictures do not show it)
        if self._run is not None and self._run.path is not None and (records := read_rounds(self._run.path).records):
            draw(self._run.config, self._run.path, records)


def _show_note(note: str) -> None:
    Console(stderr=True).print(Text(f"note: {note}", style="yellow"), soft_wrap=True)


def draw(config: ResolvedConfig, path: Path, records: Sequence[RoundRecord]) -> None:
    """Draw the two pictures of a run into its folder."""
    with importing():
        from mabrfl.reports import run_pictures as plotting  # Matplotlib takes a second to import

    title = headline(config)
    has_presets = entry("defenses", config.defense).presets
    label = f"{config.defense} ({config.preset})" if has_presets else config.defense
    plotting.save(plotting.accuracy_figure({label: records}, title=title), path / "accuracy")
    clients = plotting.clients_figure(records, attacker_ids(records), config.clients, title=title)
    plotting.save(clients, path / "clients")


def default_folder(config: ResolvedConfig, root: Path = Path("runs")) -> Path:
    """Return ``runs/<dataset>-<defense>-<attack>-<hash>``; see :func:`~mabrfl.recording.ownership.reserved`."""
    name = "-".join((config.dataset, config.defense, config.attack, config_hash(config)[:8]))
    return root / re.sub(r"[^A-Za-z0-9._-]+", "-", name)


def _waiting(console: Console, message: str) -> AbstractContextManager[Any]:
    return console.status(message + " ...") if console.is_terminal else nullcontext()
