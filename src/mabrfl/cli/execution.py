"""One run from configuration to finished folder, with whatever may stop it on the way."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from mabrfl.cli.live import Display, headline
from mabrfl.config import ResolvedConfig, config_hash, dump_toml
from mabrfl.recording import RoundRecord, RunFolder, manifest, summarize

if TYPE_CHECKING:
    from mabrfl.simulator import Simulation

Build = Callable[[ResolvedConfig], "Simulation"]


@dataclass
class Finished:
    """What came of a run."""

    config: ResolvedConfig
    path: Path
    records: list[RoundRecord] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)


def execute(
    config: ResolvedConfig,
    path: Path,
    *,
    build: Build,
    display: Display,
    console: Console,
    force: bool = False,
    arguments: Sequence[str] | None = None,
) -> Finished:
    """Run a configuration into a folder; interrupted or not, what was recorded is finished properly.

    The folder is checked first and made last: a mistake in it costs no time, and a run that cannot start
    (missing data, say) leaves no folder behind.
    """
    RunFolder.check(path, force=force)
    with _waiting(console, f"loading {config.dataset} and starting {config.workers} workers"):
        simulation = build(config)
    finished = Finished(config, path)
    with simulation, RunFolder.create(path, force=force) as folder:
        folder.start(config=dump_toml(config), manifest=_manifest(config, simulation, arguments))
        started = time.perf_counter()
        interrupted = True
        try:
            with display:
                for record in simulation.run():
                    folder.append(record)
                    finished.records.append(record)
                    display.update(record)
            interrupted = False
        finally:
            seconds = time.perf_counter() - started
            finished.summary = summarize(finished.records, config, seconds, interrupted)
            folder.finish(finished.summary)
            if finished.records:
                draw(finished)
    return finished


def draw(finished: Finished) -> None:
    """Draw the two pictures of a run into its folder."""
    from mabrfl import plotting  # Matplotlib takes a second to import

    config, records = finished.config, finished.records
    attackers = records[-1].attackers
    title = headline(config)
    label = f"{config.defense} ({config.preset})" if config.defense == "mab-rfl" else config.defense
    plotting.save(plotting.accuracy_figure({label: records}, title=title), finished.path / "accuracy")
    plotting.save(plotting.clients_figure(records, attackers, config.clients, title=title), finished.path / "clients")


def default_folder(config: ResolvedConfig, root: Path = Path("runs")) -> Path:
    """Return ``runs/<dataset>-<defense>-<attack>-<hash>``, with a number if that is taken."""
    name = "-".join((config.dataset, config.defense, config.attack, config_hash(config)[:8]))
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", name)
    numbered = (root / (name if number == 1 else f"{name}-{number}") for number in count(1))
    return next(path for path in numbered if not path.exists())


def _manifest(config: ResolvedConfig, simulation: Simulation, arguments: Sequence[str] | None) -> dict[str, Any]:
    return manifest(
        seed=config.seed,
        config_hash=config_hash(config),
        data_fingerprint=simulation.dataset.fingerprint(),
        arguments=sys.argv[1:] if arguments is None else arguments,
    )


def _waiting(console: Console, message: str) -> AbstractContextManager[Any]:
    return console.status(message + " ...") if console.is_terminal else nullcontext()
