"""One run from configuration to finished folder, with whatever may stop it on the way."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from mabrfl.catalog import entry
from mabrfl.cli.live import Display, headline
from mabrfl.config import ResolvedConfig, config_hash
from mabrfl.errors import OutputError, StateError
from mabrfl.recording import RunFolder
from mabrfl.recording.evaluation import attacker_ids
from mabrfl.recording.folder import shown
from mabrfl.runs.finished import Finished, changed_code, claim, finished_run, is_same_run, quoted
from mabrfl.runs.session import Build, Sitting

__all__ = ["Build", "Finished", "default_folder", "draw", "execute"]


def execute(
    config: ResolvedConfig,
    path: Path,
    *,
    build: Build,
    display: Display,
    console: Console,
    force: bool = False,
    resume: bool = False,
    checkpoint_every: int = 1,
    arguments: Sequence[str] | None = None,
) -> Finished:
    """Run a configuration into a folder; interrupted or not, what was recorded is finished properly.

    The folder is checked first and made last: a mistake in it costs no time, and a run that cannot start
    (missing data, say) leaves no folder behind.

    Parameters
    ----------
    config, path
        What to run, and where to.
    build, display, console
        What makes the simulation, and where and how it is shown.
    force
        Replace the run that is in the folder.
    resume
        Go on with the run that is in the folder; if it is finished, nothing is run.
    checkpoint_every
        Rounds between checkpoints; 0 for none.
    arguments
        The command line, for the record.
    """
    if resume:
        if not is_same_run(path, config):
            raise OutputError(f"there is no run to resume in {shown(path)}; leave out --resume to start one")
        if done := finished_run(path, config):
            _tell(["this run is finished already", *done.notes])
            return done
        if changed := changed_code(path, config):
            raise StateError(
                f"the code of {quoted(changed)} has changed since the run in {shown(path)} began, so that it cannot be "
                "resumed; start again with --force in place of --resume, or choose another folder with --out"
            )
    else:
        RunFolder.check(path, force=force)
    with _waiting(console, f"loading {config.dataset} and starting {config.workers} workers"):
        simulation = build(config)
    with simulation, claim(path, begun=resume, force=force) as folder:
        if resume and (done := finished_run(path, config)):
            _tell(["this run is finished already"])
            return done
        sitting = Sitting(folder, simulation, config, arguments=arguments)
        _tell(sitting.notes)
        try:
            with display:
                sitting.run(checkpoint_every=checkpoint_every, on_record=display.update)
        finally:
            finished = sitting.finish()
            if finished.records:
                draw(finished)
    return finished


def _tell(notes: Sequence[str]) -> None:
    for note in notes:
        Console(stderr=True).print(Text(f"note: {note}", style="yellow"), soft_wrap=True)


def draw(finished: Finished) -> None:
    """Draw the two pictures of a run into its folder."""
    from mabrfl.reports import run_pictures as plotting  # Matplotlib takes a second to import

    config, records = finished.config, finished.records
    attackers = attacker_ids(records)
    title = headline(config)
    has_presets = entry("defenses", config.defense).presets
    label = f"{config.defense} ({config.preset})" if has_presets else config.defense
    plotting.save(plotting.accuracy_figure({label: records}, title=title), finished.path / "accuracy")
    plotting.save(plotting.clients_figure(records, attackers, config.clients, title=title), finished.path / "clients")


def default_folder(config: ResolvedConfig, root: Path = Path("runs")) -> Path:
    """Return ``runs/<dataset>-<defense>-<attack>-<hash>``; see :func:`~mabrfl.recording.ownership.reserved`."""
    name = "-".join((config.dataset, config.defense, config.attack, config_hash(config)[:8]))
    return root / re.sub(r"[^A-Za-z0-9._-]+", "-", name)


def _waiting(console: Console, message: str) -> AbstractContextManager[Any]:
    return console.status(message + " ...") if console.is_terminal else nullcontext()
