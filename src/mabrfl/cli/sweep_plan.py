"""What ``mabrfl sweep`` prints before and after: the plan, and the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mabrfl.cli.live import in_words, say
from mabrfl.errors import SweepError
from mabrfl.sweeps.adoption import with_adopted
from mabrfl.sweeps.cells import PlannedCell
from mabrfl.sweeps.estimate import Pace, estimate
from mabrfl.sweeps.locking import refuse_foreign_folder
from mabrfl.sweeps.plan import Rerun, Standing, changes, last_plan, pace_in, refuse_others_folder, standing
from mabrfl.sweeps.results import Cell
from mabrfl.sweeps.sharing import Sharing, share_machine
from mabrfl.sweeps.stale import code_notes
from mabrfl.sweeps.sweep_file import Sweep
from mabrfl.sweeps.sweep_progress import SweepProgress

_STYLES = {"done": "green", "failed": "red", "running": "yellow", "missing": "dim"}
_WORDS = {"done": "done", "failed": "failed", "running": "begun", "missing": "to do"}


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
    say(console, _sum(known, left, pace, sharing, time_budget))
    _say_notes(console, notes)
    gone = {entry["key"] for entry in before} - {cell.key for cell in sweep.cells}
    if changed:
        reasons = Counter(changed.values()).most_common(5)
        for reason, number in reasons:
            say(console, f"changed since last time, so {number} run again: {reason}")
    if gone:
        say(console, f"{len(gone)} cells of last time are no longer in the file; their folders stay where they are")


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
        say(console, f"time is up: {progress.left} cells are left{rest}; go on with: {again}")
    done, total = progress.count("done"), len(progress.standings)
    say(console, f"{done} of {total} cells are done; results in {results}")
    _say_notes(console, code_notes(known.code for known in progress.standings.values() if known.status == "done"))
    for known in progress.failed:
        say(console, f"failed: {known.cell.label}: {known.error}", "red")
    for cell in progress.killed:
        say(console, f"killed: {cell.label}: its process was killed twice; out of memory? try --jobs 1", "red")
    failed, killed = len(progress.failed), len(progress.killed)
    problems = [
        *([f"{failed} of {total} cells failed; --rerun failed runs them again"] if failed else []),
        *([f"{killed} of {total} cells were killed; the next sweep goes on where they stopped"] if killed else []),
    ]
    if problems:
        raise SweepError("; ".join(problems))


def _say_notes(console: Console, notes: Sequence[str]) -> None:
    for note in notes:
        say(console, f"note: {note}", "yellow")
