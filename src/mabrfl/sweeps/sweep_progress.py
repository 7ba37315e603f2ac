"""Where a sweep stands while it runs, and who wants to know."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Literal, Protocol

from mabrfl.sweeps.cells import PlannedCell
from mabrfl.sweeps.launchers import Job
from mabrfl.sweeps.plan import Estimate, Pace, Standing, estimate
from mabrfl.sweeps.sharing import Sharing

Outcome = Literal["done", "failed", "killed", "stopped"]


@dataclass
class Progress:
    """Where a sweep stands.

    Attributes
    ----------
    standings
        Every cell that was asked for, by key.
    running
        Cells whose process is running, by key.
    waiting
        Cells that are still to be started, in order.
    sharing
        How many run at once.
    pace
        What a round takes.
    killed
        Cells that were given up on in this sweep because their processes were killed.
    out_of_time
        Whether the time budget has ended the sweep.
    adopted
        How many finished cells were taken over from other results.
    """

    standings: dict[str, Standing]
    waiting: deque[PlannedCell] = field(default_factory=deque)
    running: dict[str, Job] = field(default_factory=dict)
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
        running = [(job.cell.config, job.cell.config.rounds - job.round, job.workers) for job in self.running.values()]
        return estimate(left, self.pace, self.sharing, running)


class Monitor(Protocol):
    """Somebody who wants to know how a sweep goes on."""

    def begin(self, progress: Progress) -> None:
        """See the sweep begin."""

    def started(self, job: Job) -> None:
        """See a cell begin, or go on after its round: the true one, which may be before the last recorded one."""

    def noted(self, job: Job, note: str) -> None:
        """Hear what the user should know about how a cell goes on."""

    def advanced(self, job: Job) -> None:
        """See a round of a cell end."""

    def ended(self, known: Standing, outcome: Outcome, seconds: float) -> None:
        """See a cell's process end."""

    def tick(self) -> None:
        """Hear, every quarter of a second, that time goes by."""


class Unwatched:
    """Nobody watches."""

    def begin(self, progress: Progress) -> None:  # noqa: D102 (see Monitor)
        ...

    def started(self, job: Job) -> None:  # noqa: D102 (see Monitor)
        ...

    def noted(self, job: Job, note: str) -> None:  # noqa: D102 (see Monitor)
        ...

    def advanced(self, job: Job) -> None:  # noqa: D102 (see Monitor)
        ...

    def ended(self, known: Standing, outcome: Outcome, seconds: float) -> None:  # noqa: D102 (see Monitor)
        ...

    def tick(self) -> None:  # noqa: D102 (see Monitor)
        ...
