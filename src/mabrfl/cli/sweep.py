"""``mabrfl sweep``: many runs from one file, resumable."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mabrfl.cli.live import in_words
from mabrfl.cli.once import INTEGER, duration, share_or_count
from mabrfl.cli.results import one_of
from mabrfl.cli.run import parse_value
from mabrfl.cli.stopping import Stopped
from mabrfl.cli.sweep_live import monitor_for
from mabrfl.errors import ConfigError, DiskError, SweepError, require
from mabrfl.recording.tracker_logs import check_tracker
from mabrfl.sweeps.adoption import adoptable, with_adopted
from mabrfl.sweeps.cells import PlannedCell, Typed, select
from mabrfl.sweeps.estimate import Pace, estimate
from mabrfl.sweeps.locking import refuse_foreign_folder
from mabrfl.sweeps.plan import (
    Rerun,
    Standing,
    changes,
    damage_of_plan,
    last_plan,
    pace_in,
    refuse_others_folder,
    standing,
)
from mabrfl.sweeps.results import Cell
from mabrfl.sweeps.scheduler import run_sweep
from mabrfl.sweeps.sharing import Sharing, share_machine
from mabrfl.sweeps.stale import code_notes
from mabrfl.sweeps.sweep_file import Sweep, load_sweep
from mabrfl.sweeps.sweep_progress import SweepProgress

if TYPE_CHECKING:
    from mabrfl.sweeps.ray_cluster import RayCluster

_STYLES = {"done": "green", "failed": "red", "running": "yellow", "missing": "dim"}
_WORDS = {"done": "done", "failed": "failed", "running": "begun", "missing": "to do"}
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
        _say(console, f"note: {damage}", "yellow")
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


def show_plan(
    console: Console,
    sweep: Sweep,
    results: Path,
    cells: Sequence[PlannedCell],
    *,
    adopted: Mapping[str, Cell],
    rerun: Collection[Rerun] = (),
    time_budget: float | None = None,
    jobs: int | None = None,
    workers: int | None = None,
    sharing: Sharing | None = None,
) -> None:
    """Print where every cell stands once those of other results are adopted, what changed, and the time."""
    refuse_foreign_folder(results)
    refuse_others_folder(results, sweep.name, sweep.cells)
    before = last_plan(results)
    standings = {cell.key: with_adopted(standing(results, cell), adopted) for cell in sweep.cells}
    pace = pace_in(results, standings.values())
    known = [standings[cell.key] for cell in cells]
    notes = code_notes(entry.code for entry in known if entry.status == "done")
    known = [entry.anew() if entry.stale and "stale" in rerun else entry for entry in known]
    statuses = ("running", "missing", "failed") if "failed" in rerun else ("running", "missing")
    left = [entry for entry in known if entry.status in statuses]
    to_run = {entry.cell.key for entry in left}
    changed = {key: why for key, why in changes(before, sweep.cells).items() if key in to_run}
    # As the sweep itself decides, but for the memory of large models: to measure them takes longer than a plan should.
    sharing = sharing or share_machine([entry.cell.config for entry in left], jobs=jobs, workers=workers)
    table = Table(header_style="bold")
    for column, justify in (("cell", "left"), ("status", "left"), ("rounds", "right"), ("time", "right"), ("", "left")):
        table.add_column(column, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for entry in known:
        time = _time(entry, pace, sharing.workers) if entry.cell.key in to_run else ""
        table.add_row(*_row(entry, time, changed.get(entry.cell.key, "")))
    console.print(table)
    _say(console, _sum(known, left, pace, sharing, time_budget))
    _say_notes(console, notes)
    gone = {entry["key"] for entry in before} - {cell.key for cell in sweep.cells}
    if changed:
        reasons = Counter(changed.values()).most_common(5)
        for reason, number in reasons:
            _say(console, f"changed since last time, so {number} run again: {reason}")
    if gone:
        _say(console, f"{len(gone)} cells of last time are no longer in the file; their folders stay where they are")


def _time(known: Standing, pace: Pace, workers: int) -> str:
    """Return the time that a cell takes on this many processes."""
    per_round = pace.per_round(known.cell.config)
    return "?" if per_round is None else in_words(per_round * known.rounds_left / workers)


def _row(known: Standing, time: str, changed: str) -> tuple[str | Text, ...]:
    """Return the columns of a cell."""
    config = known.cell.config
    why = known.error or (f"changed: {changed}" if changed else "")
    if known.status == "done" and known.accuracy is not None:
        why = f"{known.accuracy:.2f} %"
    if known.code.changed:
        why = "; ".join(filter(None, (why, f"made with other code of {', '.join(known.code.changed)}")))
    rounds = f"{known.rounds}/{config.rounds}" if known.rounds else str(config.rounds)
    return Text(known.cell.label), Text(_WORDS[known.status], style=_STYLES[known.status]), rounds, time, Text(why)


def _sum(
    known: Sequence[Standing], left: Sequence[Standing], pace: Pace, sharing: Sharing, time_budget: float | None
) -> str:
    counts: Counter[str] = Counter(entry.status for entry in known)
    words = [f"{counts[status]} {_WORDS[status]}" for status in _WORDS if counts[status]]
    line = f"{len(known)} cells: {', '.join(words)}"
    again = sum(entry.status == "failed" for entry in left)
    line += f"; {again} that failed run again" if again else ""
    if not left:
        return line
    guess = estimate([(entry.cell.config, entry.rounds_left) for entry in left], pace, sharing)
    if guess.unknown == len(left):
        return f"{line}; time unknown: no round of such a run has been measured yet"
    line += (
        f"; about {in_words(guess.seconds)} on {sharing.jobs * sharing.workers} processes, judged by measured rounds"
    )
    line += f"; unknown for {guess.unknown} cells, nothing like them has been measured" if guess.unknown else ""
    if time_budget is not None and time_budget < guess.seconds:
        line += f"; the time budget stops it after {in_words(time_budget)}"
    return line


def show_end(console: Console, progress: SweepProgress, results: Path, again: str) -> None:
    """Print the end of a sweep, and the command that goes on with it; failed and killed cells are an error."""
    if progress.out_of_time:
        guess = progress.remaining()
        rest = f", about {in_words(guess.seconds)} of work" if guess.seconds else ""
        _say(console, f"time is up: {progress.left} cells are left{rest}; go on with: {again}")
    done, total = progress.count("done"), len(progress.standings)
    _say(console, f"{done} of {total} cells are done; results in {results}")
    _say_notes(console, code_notes(known.code for known in progress.standings.values() if known.status == "done"))
    for known in progress.failed:
        _say(console, f"failed: {known.cell.label}: {known.error}", "red")
    for cell in progress.killed:
        _say(console, f"killed: {cell.label}: its process was killed twice; out of memory? try --jobs 1", "red")
    failed, killed = len(progress.failed), len(progress.killed)
    problems = [
        *([f"{failed} of {total} cells failed; --rerun failed runs them again"] if failed else []),
        *([f"{killed} of {total} cells were killed; the next sweep goes on where they stopped"] if killed else []),
    ]
    if problems:
        raise SweepError("; ".join(problems))


def _say_notes(console: Console, notes: Sequence[str]) -> None:
    for note in notes:
        _say(console, f"note: {note}", "yellow")


def _say(console: Console, line: str, style: str = "") -> None:
    console.print(Text(line, style=style), soft_wrap=True)
