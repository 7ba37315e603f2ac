"""``mabrfl arena``: the place of a defense among all others, in fixed scenarios."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import click
import typer
from rich.console import Console
from rich.text import Text

from mabrfl import catalog
from mabrfl.arena.arena_records import Records, committed, part_of, write_records
from mabrfl.arena.contest import (
    attack_folder,
    falls,
    place_defenses,
    run_everything,
    try_attacks,
    write_pages,
    write_result,
)
from mabrfl.arena.fresh import fresh_tier, new_seed
from mabrfl.arena.merging import merged, records_in
from mabrfl.arena.running import ColumnProgress, count_done, run_columns
from mabrfl.arena.scenarios import BASELINE, Named, Tier, entrants, load_tier, named
from mabrfl.cli.arena_boards import show_board, show_falls
from mabrfl.cli.live import in_words, say
from mabrfl.cli.once import INTEGER, duration
from mabrfl.cli.run import parse_value
from mabrfl.cli.stopping import Stopped
from mabrfl.errors import SweepError, require
from mabrfl.reports.arrangement import slug
from mabrfl.sweeps.plan import Standing
from mabrfl.sweeps.results import Results, load_results
from mabrfl.sweeps.sweep_progress import CellOutcome, Monitor, SweepProgress

_WHAT, _HOW = "What to run", "How"
_PARTS, _PAUSE_SECONDS = 10, 5.0
_OF_DEFENSES = ("defense_options.", "before", "selector")


def arena(  # the options document themselves
    *,
    tier: Annotated[str, typer.Option(help="quick, laptop or full.", rich_help_panel=_WHAT)] = "quick",
    defense: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Run this defense alone (module:Name, or a name of the catalogue) and place it; repeatable.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    attack: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Run this attack alone (module:Name) against all defenses, or those of --defense; repeatable.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="An option of the defense (defense_options.KEY, before, selector) or the attack (attack_options.KEY).",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    seed: Annotated[
        list[int] | None,
        typer.Option(
            **INTEGER, help="Only this seed of the tier; repeatable (default: all with records).", rich_help_panel=_WHAT
        ),
    ] = None,
    task: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only this task of the tier; repeatable.", rich_help_panel=_WHAT),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Draw new scenarios that nobody has seen.", rich_help_panel=_WHAT)
    ] = False,
    draw: Annotated[
        int | None,
        typer.Option(**INTEGER, help="Draw scenarios from this seed: repeats those of --fresh.", rich_help_panel=_WHAT),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Folder for the runs and pages (default: runs/arena/TIER).")
    ] = None,
    adopt_from: Annotated[
        list[Path] | None,
        typer.Option(
            "--from",
            metavar="PACKED",
            help="Take finished runs over from a packed file (mabrfl pack) or a sweep's folder; repeatable.",
        ),
    ] = None,
    merge: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Add the finished runs of --out and --from to the records in this file; run nothing."
        ),
    ] = None,
    render: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write the leaderboard of the committed records here; run nothing."),
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Show how many runs are to be done; run nothing.")] = False,
    time_budget: Annotated[
        float | None,
        typer.Option(
            parser=duration, metavar="TIME", help="Stop after e.g. 90m; the same command goes on.", rich_help_panel=_HOW
        ),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(**INTEGER, help="Runs at once (default: one per core).", rich_help_panel=_HOW)
    ] = None,
) -> None:
    """Say where a defense stands among all others, or which defenses fall to an attack.

    Plain `mabrfl arena` runs every defense against every attack of a tier. With --defense or --attack only your own
    column runs, and is compared with the records that come with the package.

    Stop it at any moment; the same command goes on.
    """
    console, wanted = Console(), load_tier(tier)
    if render is not None:
        larger = None if wanted.by_task else committed(load_tier("laptop"))
        _show_files(console, write_pages(committed(wanted), render, larger=larger, pictures="images"))
        return
    if draw is not None and draw < 0:
        raise click.UsageError(f"--draw takes a seed from 0 on; got {draw}")
    if fresh or draw is not None:
        wanted = fresh_tier(wanted, new_seed() if draw is None else draw)
        say(console, f"scenarios drawn from the seed {wanted.drawn_from}; --draw {wanted.drawn_from} repeats them")
    sources = [load_results(path) for path in adopt_from or ()]
    if merge is not None:
        if defense or attack or settings or seed or task or plan or wanted.drawn_from is not None:
            raise click.UsageError("--merge adds every finished run of a tier; it takes --tier, --out and --from only")
        _merge(console, wanted, merge, out or Path("runs") / "arena" / wanted.name, sources)
        return
    wanted = wanted.with_tasks(task) if task else wanted
    alone = bool(defense or attack)
    chosen = seed or (committed(wanted).seeds() if alone else ())
    wanted = wanted.with_seeds(chosen) if chosen else wanted
    columns = [_defense(name, settings or ()) for name in defense or ()]
    attacks = [_attack(name, settings or ()) for name in attack or ()]
    name = wanted.name if wanted.drawn_from is None else f"{wanted.name}-{wanted.drawn_from}"
    results = out or Path("runs") / "arena" / name
    if plan:
        _show_plan(console, wanted, attacks, columns or list(entrants(tier)), results, sources=sources)
        return
    require("torch", "the simulator")
    run = partial(
        run_columns,
        adopt_from=sources,
        jobs=jobs,
        time_budget=time_budget,
        monitor=partial(_Tenths, console),
        report=partial(_report, console),
        arguments=sys.argv[1:],
    )
    try:
        if attacks:
            records = try_attacks(wanted, attacks, columns or entrants(tier), results, run)
        elif columns:
            # Nobody else has met scenarios that were just drawn: FedAvg alone is run beside.
            others = [named("defense", BASELINE)] if wanted.drawn_from is not None else []
            records = place_defenses(wanted, [*others, *columns], results, run)
        else:
            records = run_everything(wanted, results, run)
    except (KeyboardInterrupt, Stopped):
        Console(stderr=True).print(Text("interrupted; the same command goes on", style="yellow"))
        raise
    own = [one.label for one in (*columns, *attacks)]
    for label in [[one.label] for one in wanted.tasks] if wanted.by_task else [[one.label for one in wanted.tasks]]:
        show_board(console, part_of(records, records.tier.with_tasks(label)), own)
    for one in attacks:
        show_falls(console, falls(records, one.label), one.label)
    pages = results / f"place-of-{slug(own[0])}" if own else results
    _show_files(console, write_result(records, pages, own=own))
    _refuse_failures(records, own, results)


def _defense(name: str, settings: Sequence[str]) -> Named:
    # A name with presets stands for the first entrant of that name: `mab-rfl` for `mab-rfl hardened`.
    listed = [one for one in entrants() if name in (one.label, one.settings["defense"])]
    known = listed[0] if listed else named("defense", catalog.known_name("defenses", name))
    return _with_options(known, settings, _OF_DEFENSES)


def _attack(name: str, settings: Sequence[str]) -> Named:
    return _with_options(named("attack", catalog.known_name("attacks", name)), settings, ("attack_options.",))


def _with_options(one: Named, settings: Sequence[str], kept: Sequence[str]) -> Named:
    """Return a defense or an attack with those options of the command line that are for it, also in its label."""
    given = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key.startswith((*_OF_DEFENSES, "attack_options.")):
            raise click.UsageError(
                f"--set takes an option of the defense or the attack, e.g. defense_options.rounds=2; got {setting!r}"
            )
        if key.startswith(tuple(kept)):
            given[key] = parse_value(text, key)
    if not given:
        return one
    words = ", ".join(f"{key.partition('.')[2] or key}={value}" for key, value in given.items())
    return Named(f"{one.label} ({words})", {**one.settings, **given})


def _merge(console: Console, tier: Tier, file: Path, out: Path, sources: Sequence[Results]) -> None:
    before = records_in(file, tier)
    after = merged(before, entrants(tier.name), out, sources)
    write_records(after, file)
    old, new = (
        {
            (column.label, scenario, run.key, run.error)
            for column in each.columns
            for scenario, run in column.runs.items()
        }
        for each in (before, after)
    )
    say(
        console,
        f"{file}: {len(new):,} finished runs, {len(new - old):,} of them new; {len(old - new):,} that were void or "
        "failed are dropped",
    )


def _show_plan(
    console: Console,
    tier: Tier,
    attacks: Sequence[Named],
    columns: Sequence[Named],
    out: Path,
    *,
    sources: Sequence[Results],
) -> None:
    parts = [(tier.with_attacks([attack]), attack_folder(out, attack)) for attack in attacks] or [(tier, out)]
    counted = [count_done(one, columns, place, clean=not attacks, adopt_from=sources) for one, place in parts]
    done, adopted, total = (sum(numbers) for numbers in zip(*counted, strict=True))
    more = f" and {adopted:,} to be taken over" if sources else ""
    say(console, f"{len(columns)} defenses: {total:,} runs, {done:,} of them done{more}, in {out}")


def _report(console: Console, progress: ColumnProgress) -> None:
    failed = f", {progress.failed} failed" if progress.failed else ""
    adopted = f", {progress.adopted} taken over" if progress.adopted else ""
    say(
        console,
        f"{progress.label}, seed {progress.seed}: {progress.done} of {progress.total} runs done{failed}{adopted}; "
        f"{in_words(progress.seconds)}",
    )


class _Tenths(Monitor):
    """Prints a line whenever a tenth of a column is done, with the time that the rest takes."""

    def __init__(self, console: Console, label: str) -> None:
        self._console, self._label = console, label
        self._ended = self._todo = 0
        self._began = self._shown = time.monotonic()

    def begin(self, progress: SweepProgress) -> None:
        """Note how many runs are to be done."""
        self._todo = len(progress.waiting)

    def ended(self, known: Standing, outcome: CellOutcome, seconds: float) -> None:
        """Count a run."""
        del known, seconds
        if outcome not in ("done", "failed"):
            return
        self._ended += 1
        before, now = (_PARTS * count // max(self._todo, 1) for count in (self._ended - 1, self._ended))
        if now > before and self._ended < self._todo and time.monotonic() - self._shown >= _PAUSE_SECONDS:
            self._shown = time.monotonic()
            took = self._shown - self._began
            rest = in_words(took / self._ended * (self._todo - self._ended))
            say(self._console, f"{self._label}: {self._ended} of {self._todo} runs, about {rest} left", "dim")


def _show_files(console: Console, files: Sequence[Path]) -> None:
    say(console, f"written: {', '.join(map(str, files))}")


def _refuse_failures(records: Records, own: Sequence[str], out: Path) -> None:
    """Raise an error if runs of the user's own defenses or attacks failed, or any if everything was run."""
    errors = [
        (column.label, run.error)
        for column in records.columns
        for one, run in column.runs.items()
        if run.error is not None and (not own or column.label in own or one.attack in own)
    ]
    if errors:
        label, message = errors[0]
        raise SweepError(
            f"{len(errors)} runs failed, the first of {label}: {message}; they are in {out}, and the same command runs "
            "them again"
        )
