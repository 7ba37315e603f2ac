"""``mabrfl sweep``: many runs from one file, resumable."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer
from rich.console import Console
from rich.text import Text

from mabrfl.cli.live import say
from mabrfl.cli.once import INTEGER, duration, share_or_count
from mabrfl.cli.results import one_of
from mabrfl.cli.run import parse_value
from mabrfl.cli.stopping import Stopped
from mabrfl.cli.sweep_live import monitor_for
from mabrfl.cli.sweep_plan import show_end, show_plan
from mabrfl.errors import ConfigError, DiskError, require
from mabrfl.recording.tracker_logs import check_tracker
from mabrfl.sweeps.adoption import adoptable
from mabrfl.sweeps.cells import Typed, select
from mabrfl.sweeps.locking import refuse_foreign_folder
from mabrfl.sweeps.plan import Rerun, damage_of_plan
from mabrfl.sweeps.scheduler import run_sweep
from mabrfl.sweeps.sweep_file import load_sweep

if TYPE_CHECKING:
    from mabrfl.sweeps.ray_cluster import RayCluster

_RERUN: Mapping[str, Rerun] = {"failed": "failed", "stale": "stale"}
_LAUNCHERS = ("local", "ray")
_WHAT, _HOW, _CLUSTER = "What to run", "How", "Where"


def sweep(  # the options document themselves
    file: Annotated[
        Path, typer.Argument(metavar="FILE.toml", help="The sweep: settings of all runs, and what varies.")
    ],
    *,
    out: Annotated[
        Path | None, typer.Option(metavar="RESULTS", help="Folder for the results (default: runs/NAME of the file).")
    ] = None,
    adopt_from: Annotated[
        list[Path] | None,
        typer.Option(
            "--from",
            metavar="PACKED",
            help="Take finished cells over from a packed file (mabrfl pack) or another sweep's folder; repeatable.",
        ),
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Show what would run and why, and how long it takes; run nothing.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Only cells with this on an axis or in a setting; repeatable: values of one key add up.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    rerun: Annotated[
        list[str] | None,
        typer.Option(
            metavar="failed|stale",
            help="Run cells again that failed, or that were finished with other code of yours; repeatable.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    time_budget: Annotated[
        float | None,
        typer.Option(
            parser=duration,
            metavar="TIME",
            help="Stop after e.g. 90m, 1h30m or 45s; the same command goes on.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(**INTEGER, help="Cells at once (default: one per core, if memory allows).", rich_help_panel=_HOW),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(**INTEGER, help="Processes per cell (default: the cores that are left).", rich_help_panel=_HOW),
    ] = None,
    checkpoint_every: Annotated[
        int, typer.Option(**INTEGER, help="Rounds between checkpoints; 0: none.", rich_help_panel=_HOW)
    ] = 1,
    observe: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Have an observer watch each cell: module:Name, or a plug-in's name; repeatable.",
            rich_help_panel=_HOW,
        ),
    ] = None,
    track: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="tensorboard, mlflow or wandb, each cell by itself.", rich_help_panel=_HOW),
    ] = None,
    launcher: Annotated[
        str,
        typer.Option(
            metavar="local|ray", help="On this machine, or on an existing Ray cluster.", rich_help_panel=_CLUSTER
        ),
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Of the Ray cluster (default: RAY_ADDRESS, or the cluster of this machine).",
            rich_help_panel=_CLUSTER,
        ),
    ] = None,
    cpus: Annotated[
        float | None,
        typer.Option(
            metavar="NUMBER", help="CPUs that Ray sets aside for a cell (default: 1).", rich_help_panel=_CLUSTER
        ),
    ] = None,
    gpus: Annotated[
        float | None,
        typer.Option(
            metavar="NUMBER", help="GPUs that Ray sets aside for a cell (default: none).", rich_help_panel=_CLUSTER
        ),
    ] = None,
) -> None:
    """Run every cell of a sweep that is not done yet.

    Stop it at any moment, with Ctrl-C or `kill -9`; the same command goes on, with the same result to the bit.

    Finished cells are not run again, unless --rerun stale asks for those whose code (module:Name) has changed since.

    A cell whose settings changed is another cell.
    """
    if checkpoint_every < 0:
        raise click.UsageError(f"--checkpoint-every takes a number of rounds, or 0 for none; got {checkpoint_every}")
    on_cluster = one_of("--launcher", launcher, _LAUNCHERS) == "ray"
    given = {"--address": address, "--cpus": cpus, "--gpus": gpus}
    if not on_cluster and (others := [name for name, value in given.items() if value is not None]):
        raise click.UsageError(f"{others[0]} is for --launcher ray")
    run_again = [_RERUN[one_of("--rerun", word, list(_RERUN))] for word in rerun or ()]
    wanted = load_sweep(file)
    results = out or Path("runs") / wanted.name
    cells = select(wanted.cells, _patterns(only)) if only else list(wanted.cells)
    console = Console()
    if damage := damage_of_plan(results):
        refuse_foreign_folder(results)
        say(console, f"note: {damage}", "yellow")
    if plan:
        with _cluster(given, on_cluster=on_cluster) as cluster:
            sharing = None if cluster is None else cluster.sharing(jobs, workers)
        show_plan(
            console,
            wanted,
            results,
            cells,
            adopted=adoptable(adopt_from or (), wanted.cells),
            rerun=run_again,
            time_budget=time_budget,
            jobs=jobs,
            workers=workers,
            sharing=sharing,
        )
        return
    require("torch", "the simulator")
    trackers = [check_tracker(name) for name in track or ()]
    again = _command(
        file,
        {
            "--out": out,
            "--from": adopt_from,
            "--only": only,
            "--rerun": "stale" if "stale" in run_again else None,
            "--jobs": jobs,
            "--workers": workers,
            "--checkpoint-every": checkpoint_every if checkpoint_every != 1 else None,
            "--observe": observe,
            "--track": track,
            "--launcher": launcher if on_cluster else None,
            **given,
        },
    )
    monitor = monitor_for(wanted.name, console)
    try:
        with _cluster(given, on_cluster=on_cluster) as cluster, monitor:
            progress = run_sweep(
                wanted,
                results,
                only=cells,
                adopt_from=adopt_from or (),
                rerun=run_again,
                time_budget=time_budget,
                jobs=jobs,
                workers=workers,
                checkpoint_every=checkpoint_every,
                observers=[*(observe or ()), *trackers],
                monitor=monitor,
                launcher=cluster,
                sharing=None if cluster is None else cluster.sharing(jobs, workers),
                arguments=sys.argv[1:],
            )
    except (KeyboardInterrupt, Stopped):
        Console(stderr=True).print(Text(f"interrupted; go on with: {again}", style="yellow"), soft_wrap=True)
        raise
    except DiskError as error:
        raise DiskError(f"{error}; no cell has failed by that: make room, and go on with: {again}") from error
    show_end(console, progress, results, again)


@contextmanager
def _cluster(given: Mapping[str, Any], *, on_cluster: bool) -> Iterator[RayCluster | None]:
    """Connect to the Ray cluster, if the sweep runs on one."""
    if not on_cluster:
        yield None
        return
    from mabrfl.sweeps.ray_cluster import RayCluster

    cpus, gpus = given["--cpus"], given["--gpus"]
    with RayCluster(given["--address"], cpus=1.0 if cpus is None else cpus, gpus=gpus or 0.0) as cluster:
        yield cluster


def _command(file: Path, options: Mapping[str, Any]) -> str:
    """Return the command that goes on with a sweep, for a shell; options that were not given are left out."""
    words = ["mabrfl", "sweep", str(file)]
    for name, given in options.items():
        values = given if isinstance(given, list) else [given]
        words += [word for value in values if value is not None for word in (name, str(value))]
    return shlex.join(words)


def _patterns(only: Sequence[str]) -> dict[str, list[Typed]]:
    """Return the pattern of ``--only``: the accepted values of each key."""
    patterns: dict[str, list[Typed]] = {}
    for pattern in only:
        key, equals, text = pattern.partition("=")
        key = key.strip()
        if not equals or not key:
            raise click.UsageError(f"--only takes KEY=VALUE, e.g. defense=krum; got {pattern!r}")
        # A label of an axis ("48 %") need not be TOML: the text itself counts as well.
        patterns.setdefault(key, []).append(Typed(text, _parsed(text, key)))
    return patterns


def _parsed(text: str, key: str) -> tuple[Any, ...]:
    """Return the values that a text may stand for, besides itself."""
    try:
        return (share_or_count(text) if key == "attackers" else parse_value(text, key),)
    except (typer.BadParameter, ConfigError):
        return ()
