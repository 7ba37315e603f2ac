"""The state of a sweep while it runs, and the monitor that shows it."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from mabrfl.sweeps.cells import PlannedCell
from mabrfl.sweeps.estimate import Estimate, Pace, estimate
from mabrfl.sweeps.plan import Standing
from mabrfl.sweeps.sharing import Sharing

CellOutcome = Literal["done", "failed", "killed", "stopped"]


@dataclass
class RunningCell:
    """A cell that runs.

    Attributes
    ----------
    cell, workers
        The cell, and on how many processes it runs.
    round, accuracy
        The last finished round, and the accuracy after it. Until the cell has reported after which round it goes on,
        the round is the last recorded one.
    started
        When, by the monotonic clock.
    """

    cell: PlannedCell
    workers: int
    round: int = 0
    accuracy: float | None = None
    started: float = field(default_factory=time.monotonic)


@dataclass
class SweepProgress:
    """The state of a sweep.

    Attributes
    ----------
    standings
        Every cell that was asked for, by key.
    running
        Cells that run, by key.
    waiting
        Cells that are still to be started, in order.
    sharing
        How many run at once.
    pace
        How long a round takes.
    killed
        Cells that this sweep does not start again, because they were killed too often.
    out_of_time
        Whether the time budget has ended the sweep.
    adopted
        How many finished cells were taken over from other results.
    """

    standings: dict[str, Standing]
    waiting: deque[PlannedCell] = field(default_factory=deque)
    running: dict[str, RunningCell] = field(default_factory=dict)
    sharing: Sharing = field(default_factory=Sharing)
    pace: Pace = field(default_factory=Pace)
    killed: list[PlannedCell] = field(default_factory=list)
    out_of_time: bool = False
    adopted: int = 0

    def count(self, status: str) -> int:
        """Return how many cells have this status."""
        return sum(known.status == status for known in self.standings.values())

    @property
    def failed(self) -> list[Standing]:
        """The cells that failed, now or earlier."""
        return [known for known in self.standings.values() if known.status == "failed"]

    @property
    def left(self) -> int:
        """How many cells are neither done nor failed."""
        return len(self.standings) - self.count("done") - self.count("failed")

    def remaining(self) -> Estimate:
        """Estimate how long the sweep is still going to take."""
        left = [(cell.config, self.standings[cell.key].rounds_left) for cell in self.waiting]
        running = [
            (each.cell.config, each.cell.config.rounds - each.round, each.workers) for each in self.running.values()
        ]
        return estimate(left, self.pace, self.sharing, running)


class Monitor:
    """Follows a sweep: a display, say. Each method does nothing unless a subclass says otherwise."""

    def begin(self, progress: SweepProgress) -> None:
        """Take note that the sweep begins."""

    def started(self, running: RunningCell) -> None:
        """Take note that a cell begins, or goes on after its round, which may be before the last recorded one."""

    def noted(self, running: RunningCell, note: str) -> None:
        """Take note of a message for the user about a cell."""

    def advanced(self, running: RunningCell) -> None:
        """Take note that a round of a cell is done."""

    def ended(self, known: Standing, outcome: CellOutcome, seconds: float) -> None:
        """Take note that a cell does not run any more."""

    def tick(self) -> None:
        """Take note that time passes: called every quarter of a second."""
