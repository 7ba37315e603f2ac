"""Observers that show a run: a live table on a terminal, one plain line per round elsewhere."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from mabrfl.catalog import entry
from mabrfl.config import ResolvedConfig
from mabrfl.recording import RoundRecord
from mabrfl.runs import Observer, RunResult, RunStart

VISIBLE_ROUNDS = 15
_FRAME_LINES = 10
_NARROW = 78
"""Columns below which the table would wrap; plain lines are shown instead."""


class RoundTimer:
    """Measures rounds, and estimates the time of those that are left by the last ten."""

    def __init__(self, num_rounds: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._num_rounds = num_rounds
        self._clock = clock
        self._since = clock()
        self._durations: deque[float] = deque(maxlen=10)

    def start(self) -> None:
        """Start the clock of the first round."""
        self._since = self._clock()

    def lap(self, round_number: int) -> tuple[float, float]:
        """Return the seconds this round took, and those that remain after it."""
        now = self._clock()
        self._durations.append(now - self._since)
        self._since = now
        mean = sum(self._durations) / len(self._durations)
        return self._durations[-1], mean * max(self._num_rounds - round_number, 0)


def in_words(seconds: float) -> str:
    """Return a duration as a person says it.

    Examples
    --------
    >>> in_words(0.26), in_words(74), in_words(3725)
    ('0.3 s', '1:14 min', '1:02 h')
    """
    if seconds < 59.5:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d} min" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d} h"


def say(console: Console, line: str, style: str = "") -> None:
    """Print a line as it is, however long."""
    console.print(Text(line, style=style), soft_wrap=True)


def headline(config: ResolvedConfig) -> str:
    """Return a run in one line."""
    method = entry("defenses", config.defense)
    defense = f"{config.defense} ({config.preset})" if method.presets else config.defense
    defense = f"{config.before}+{defense}" if config.before else defense
    chosen = "" if config.selector == method.selector else f" + {config.selector}"
    attackers = f"{config.attack} by {config.num_attackers} of {config.clients} clients"
    attack = "no attack" if config.attack == "none" else attackers
    return f"{config.dataset}, {config.model}, {defense}{chosen}, {attack}, seed {config.seed}"


class PlainLines(Observer):
    """Prints one line per round, for pipes and log files."""

    def __init__(self, config: ResolvedConfig, console: Console) -> None:
        self._config, self._console = config, console
        self._timer = RoundTimer(config.rounds)

    def started(self, run: RunStart) -> None:
        """Print the run in one line."""
        self._print(headline(run.config))
        self._timer.start()

    def round_done(self, record: RoundRecord) -> None:
        """Print the round."""
        seconds, remaining = self._timer.lap(record.round)
        caught = f"  caught {record.caught}  missed {record.missed}" if self._config.num_attackers else ""
        others = f"  malformed {record.malformed}" if record.malformed else ""
        others += f"  rejected otherwise {record.otherwise_rejected}" if record.otherwise_rejected else ""
        success = "" if record.attack_success is None else f"  attack success {record.attack_success:.1f} %"
        self._print(
            f"round {record.round}/{self._config.rounds}  accuracy {record.accuracy:.2f} %{success}"
            f"  selected {len(record.selected)}  sybil {record.sybils}  outlier {record.outliers}{others}{caught}"
            f"  honest rejected {record.honest_rejected}  {in_words(seconds)}  ETA {in_words(remaining)}"
        )

    def _print(self, line: str) -> None:
        self._console.print(Text(line), soft_wrap=True)
        self._console.file.flush()


class LiveTable(Observer):
    """Shows the last rounds as a table that grows in place, with a bar and the time that remains."""

    def __init__(self, config: ResolvedConfig, console: Console) -> None:
        self._config, self._console = config, console
        self._timer = RoundTimer(config.rounds)
        self._rows: deque[tuple[RoundRecord, float]] = deque(maxlen=VISIBLE_ROUNDS)
        self._remaining: float | None = None
        self._live = Live(console=console, refresh_per_second=8, get_renderable=self._render)

    def started(self, run: RunStart) -> None:  # noqa: ARG002 (the configuration is known)
        """Open the table."""
        self._timer.start()
        self._live.start()

    def finished(self, result: RunResult) -> None:  # noqa: ARG002 (the end is shown elsewhere)
        """Close the table."""
        self._live.stop()

    def failed(self, error: BaseException) -> None:  # noqa: ARG002 (the end is shown elsewhere)
        """Close the table."""
        self._live.stop()

    def round_done(self, record: RoundRecord) -> None:
        """Add the round."""
        seconds, self._remaining = self._timer.lap(record.round)
        self._rows.append((record, seconds))
        self._live.refresh()

    def _render(self) -> RenderableType:
        table = self._table()
        visible = min(VISIBLE_ROUNDS, max(self._console.height - _FRAME_LINES, 3))
        for record, seconds in list(self._rows)[-visible:]:
            table.add_row(*self._cells(record, seconds))
        return Group(Text(headline(self._config), style="bold"), table, self._progress())

    def _table(self) -> Table:
        table = Table(header_style="bold", box=SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
        columns = ["round", "accuracy", "selected", "sybil", "outlier"]
        columns += [name for name, _ in self._seldom]
        columns += ["caught", "missed"] if self._config.num_attackers else []
        for column in (*columns, "honest\nrejected", "time"):
            table.add_column(column, justify="right", no_wrap=True)
        return table

    @property
    def _seldom(self) -> list[tuple[str, Callable[[RoundRecord], int]]]:
        """The columns that are shown only if one of the rounds has something in them."""
        columns: list[tuple[str, Callable[[RoundRecord], int]]] = [
            ("malformed", lambda record: record.malformed),
            ("rejected\notherwise", lambda record: record.otherwise_rejected),
        ]
        return [(name, count) for name, count in columns if any(count(record) for record, _ in self._rows)]

    def _cells(self, record: RoundRecord, seconds: float) -> list[RenderableType]:
        cells: list[RenderableType] = [
            str(record.round),
            Text(f"{record.accuracy:.2f} %", style="bold"),
            str(len(record.selected)),
            _count(record.sybils, "yellow"),
            _count(record.outliers, "magenta"),
        ]
        cells += [_count(count(record), "red") for _, count in self._seldom]
        if self._config.num_attackers:
            cells += [_count(record.caught, "green"), _count(record.missed, "red")]
        return [*cells, _count(record.honest_rejected, "red"), in_words(seconds)]

    def _progress(self) -> RenderableType:
        done = self._rows[-1][0].round if self._rows else 0
        line = Table.grid(padding=(0, 1))
        bar = ProgressBar(total=self._config.rounds, completed=done, width=30)
        remaining = "" if self._remaining is None else f"ETA {in_words(self._remaining)}"
        line.add_row(bar, f"round {done} of {self._config.rounds}", Text(remaining, style="dim"))
        return line


def display_for(config: ResolvedConfig, console: Console) -> Observer:
    """Return a table for a wide terminal, and plain lines for everything else."""
    live = console.is_terminal and not console.is_dumb_terminal and console.width >= _NARROW
    return LiveTable(config, console) if live else PlainLines(config, console)


def _count(number: int, style: str) -> Text:
    return Text(str(number), style=style if number else "dim")
