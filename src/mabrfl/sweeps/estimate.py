"""How long the rest of a sweep takes, by the rounds that were measured."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from mabrfl.config import ResolvedConfig
from mabrfl.sweeps.sharing import Sharing

if TYPE_CHECKING:
    from mabrfl.sweeps.plan import Standing


class Pace:
    """The time of a round in seconds times processes: the median over the rounds of similar runs.

    The mean would follow an hour in which the machine was busy with something else. Of a finished run only the sum is
    known without reading its rounds, so each of its rounds counts with their mean.

    Similar runs have the same data, model, number of clients and sizes of their data, epochs, batch size, optimizer,
    defense and selector; if there are none, the same data, model and defense; if there are none, data and model alone.
    """

    def __init__(self, standings: Iterable[Standing] = ()) -> None:
        self._rounds: defaultdict[tuple[Any, ...], list[tuple[float, int]]] = defaultdict(list)
        self._medians: dict[tuple[Any, ...], float] = {}
        for known in standings:
            if known.core_seconds is not None:
                self.learn(known.cell.config, known.core_seconds, known.rounds)

    def learn(self, config: ResolvedConfig, core_seconds: float, rounds: int = 1) -> None:
        """Add measured rounds."""
        for level in _levels(config) if rounds > 0 else ():
            self._rounds[level].append((core_seconds, rounds))
            self._medians.pop(level, None)

    def per_round(self, config: ResolvedConfig) -> float | None:
        """Return the time of a round of this run; None if no similar run was measured."""
        for level in _levels(config):
            if level in self._rounds:
                if level not in self._medians:
                    self._medians[level] = _median(self._rounds[level])
                return self._medians[level]
        return None


def _levels(config: ResolvedConfig) -> tuple[tuple[Any, ...], ...]:
    data, training = (config.dataset, config.model), config.training
    work = (config.clients, config.partition.sizes, training.epochs, training.batch_size, training.optimizer)
    return (*data, *work, config.defense, config.selector), (*data, config.defense), data


def _median(counted: Iterable[tuple[float, int]]) -> float:
    """Return the median of numbers, each with its count.

    Examples
    --------
    >>> _median([(6.0, 1), (2.0, 3)]), _median([(1.0, 2), (4.0, 1), (3.0, 1)])
    (2.0, 2.0)
    """
    ordered = sorted(counted)
    half, seen = sum(number for _, number in ordered) / 2, 0
    for (value, number), (following, _) in pairwise([*ordered, ordered[-1]]):
        seen += number
        if seen >= half:
            return value if seen > half else (value + following) / 2
    raise AssertionError  # pragma: no cover (all of them are more than half)


@dataclass(frozen=True)
class Estimate:
    """The time that the rest of a sweep takes.

    Attributes
    ----------
    seconds
        Until the last cell ends, of those with a known time.
    unknown
        How many cells are left without a known time.
    """

    seconds: float
    unknown: int


def estimate(
    left: Sequence[tuple[ResolvedConfig, int]],
    pace: Pace,
    sharing: Sharing,
    running: Iterable[tuple[ResolvedConfig, int, int]] = (),
) -> Estimate:
    """Estimate the time for runs by simulating the sweep: whenever a cell ends, the next one starts.

    Parameters
    ----------
    left
        The runs still to be started, in their order, each with its number of rounds left.
    pace
        The time of a round.
    sharing
        How many cells run at once, and with how many processes each.
    running
        The runs that have started: each with its number of rounds left, and of its processes.

    Examples
    --------
    >>> from mabrfl.config import RunConfig, resolve
    >>> config, pace = resolve(RunConfig()), Pace()
    >>> pace.learn(config, core_seconds=10.0)
    >>> [estimate([(config, 10)] * cells, pace, Sharing(jobs=2, workers=1)).seconds for cells in (1, 2, 3)]
    [50.0, 100.0, 200.0]
    """
    ends: list[float] = []
    unknown, last = 0, 0.0
    for config, rounds, workers in running:
        took = pace.per_round(config)
        unknown += took is None
        heapq.heappush(ends, (took or 0.0) * rounds / workers)
        last = max(last, *ends)
    for place, (config, rounds) in enumerate(left):
        now = heapq.heappop(ends) if len(ends) >= sharing.jobs else 0.0
        took = pace.per_round(config)
        unknown += took is None
        end = now + (took or 0.0) * rounds / sharing.workers_for(len(ends) + len(left) - place)
        heapq.heappush(ends, end)
        last = max(last, end)
    return Estimate(last, unknown)
