"""Monitors that show a sweep: a table in place on a terminal, one plain line per cell elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from mabrfl.cli.live import in_words
from mabrfl.sweeps.plan import Standing
from mabrfl.sweeps.sweep_progress import CellOutcome, Monitor, RunningCell, SweepProgress

_NARROW = 60
_STYLES = {"done": "green", "failed": "red", "killed": "red", "stopped": "yellow"}


class PlainSweep(Monitor):
    """Prints one line when a cell begins and one when it ends, for pipes and log files."""

    def __init__(self, name: str, console: Console) -> None:
        self._name, self._console = name, console
        self._progress = SweepProgress({})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is left open."""

    def begin(self, progress: SweepProgress) -> None:
        """Print how many cells are to run."""
        self._progress = progress
        self._print(Text(opening(self._name, progress), style="bold"))

    def started(self, running: RunningCell) -> None:
        """Print which cell begins, and after which round it goes on."""
        after = f" after round {running.round}" if running.round else ""
        self._print(Text(f"{counted(self._progress)} started{after}: {running.cell.label}"))

    def noted(self, running: RunningCell, note: str) -> None:
        """Print a message about a cell."""
        self._print(Text(f"note: {running.cell.label}: {note}", style="yellow"))

    def ended(self, known: Standing, outcome: CellOutcome, seconds: float) -> None:
        """Print the outcome of a cell, and how long the rest will take."""
        self._print(ending(self._progress, known, outcome, seconds))

    def _print(self, line: Text) -> None:
        self._console.print(line, soft_wrap=True)
        self._console.file.flush()


class LiveSweep(PlainSweep):
    """Shows the running cells as a table in place, below one line for each cell that has ended."""

    def __init__(self, name: str, console: Console) -> None:
        super().__init__(name, console)
        # Redrawn by the sweep's own ticks: processes are started here, and threads do not go with that.
        self._live = Live(console=console, auto_refresh=False, get_renderable=self._render, transient=True)
        self._open = False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._open:
            self._live.stop()

    def begin(self, progress: SweepProgress) -> None:
        """Open the table."""
        super().begin(progress)
        self._live.start()
        self._open = True

    def started(self, running: RunningCell) -> None:
        """Add the cell to the table."""
        del running
        self.tick()

    def tick(self) -> None:
        """Redraw the table."""
        self._live.refresh()

    def _render(self) -> RenderableType:
        progress = self._progress
        table = Table(header_style="bold", expand=False)
        for column in ("running", "round", "accuracy", "time"):
            table.add_column(column, justify="left" if column == "running" else "right", overflow="fold")
        for running in progress.running.values():
            accuracy = "" if running.accuracy is None else f"{running.accuracy:.2f} %"
            rounds = f"{running.round}/{running.cell.config.rounds}"
            table.add_row(Text(running.cell.label), rounds, accuracy, in_words(time.monotonic() - running.started))
        line = Table.grid(padding=(0, 1))
        ended = progress.count("done") + progress.count("failed")
        bar = ProgressBar(total=max(len(progress.standings), 1), completed=ended, width=30)
        line.add_row(bar, f"{ended} of {len(progress.standings)} cells", Text(eta(progress), style="dim"))
        return Group(table, line)


def opening(name: str, progress: SweepProgress) -> str:
    """Return a sweep's first line."""
    done, failed, left = progress.count("done"), progress.count("failed"), len(progress.waiting)
    sharing = progress.sharing
    line = f"{name}: {len(progress.standings)} cells, {done} done, {left} to run"
    line += f", {failed} failed earlier" if failed else ""
    line += f", {progress.adopted} adopted" if progress.adopted else ""
    return line + (f"; {sharing.jobs} at once with {sharing.workers} process(es) each" if left else "")


def counted(progress: SweepProgress) -> str:
    """Return how many cells have ended."""
    return f"[{progress.count('done') + progress.count('failed')}/{len(progress.standings)}]"


def ending(progress: SweepProgress, known: Standing, outcome: CellOutcome, seconds: float) -> Text:
    """Return the outcome of a cell in one line."""
    accuracy = f"{known.accuracy:.2f} %, " if known.accuracy is not None else ""
    detail = f": {known.error}" if outcome == "failed" else ""
    if outcome in ("killed", "stopped"):
        detail = f" after round {known.rounds}"
    rest = f", {eta(progress)}" if outcome != "stopped" else ""
    return Text.assemble(
        f"{counted(progress)} ",
        (outcome, _STYLES[outcome]),
        f"{detail}: {known.cell.label}  {accuracy}{in_words(seconds)}{rest}",
    )


def eta(progress: SweepProgress) -> str:
    """Return how long the rest of the sweep will take, as far as that is known."""
    guess = progress.remaining()
    if not progress.waiting and not progress.running:
        return "nothing left"
    if guess.unknown and not guess.seconds:
        return "ETA unknown"
    return f"ETA {in_words(guess.seconds)}" + (f" without {guess.unknown} unknown" if guess.unknown else "")


def monitor_for(name: str, console: Console) -> PlainSweep:
    """Return a table for a terminal, and plain lines for everything else."""
    live = console.is_terminal and not console.is_dumb_terminal and console.width >= _NARROW
    return LiveSweep(name, console) if live else PlainSweep(name, console)
