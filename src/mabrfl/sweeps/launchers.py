"""The contract between a sweep and whatever runs its cells: processes of this machine, or a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

HaltCause = Literal["disk", "killed"]
"""Causes outside of a cell that stop it: a full disk, or the death of one of its workers."""


@dataclass(frozen=True)
class Assignment:
    """One cell to run, as plain data that any process on any machine can be given.

    :func:`mabrfl.sweeps.cell_process.run_assignment` runs it.

    Attributes
    ----------
    results
        The sweep's folder.
    key
        The cell's identity.
    label
        The cell in a few words, for the user.
    settings
        Its configuration, the number of its processes (``workers``) included.
    checkpoint_every
        Rounds between checkpoints.
    observers
        Names of the observers that watch it.
    arguments
        The sweep's command line, for the manifest.
    """

    results: str
    key: str
    label: str
    settings: Mapping[str, Any]
    checkpoint_every: int = 1
    observers: Sequence[str] = ()
    arguments: Sequence[str] = ()


@dataclass(frozen=True)
class CellStarted:
    """A cell starts, or goes on after a round of an earlier process; ``notes`` are for the user."""

    key: str
    after_round: int
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class CellAdvanced:
    """A round of a cell is done: its number, the accuracy after it (None if not finite) and its seconds."""

    key: str
    round: int
    accuracy: float | None
    seconds: float


@dataclass(frozen=True)
class CellNote:
    """A message for the user about a cell."""

    key: str
    message: str


@dataclass(frozen=True)
class CellHalted:
    """A cell stops by no fault of its own."""

    key: str
    cause: HaltCause
    message: str


@dataclass(frozen=True)
class CellEnded:
    """A cell runs no more; its folder says whether it is done.

    Attributes
    ----------
    key
        The cell.
    killed
        Whether it was stopped from outside, so that it has not failed.
    message
        How it ended, for the user; used if it has crashed.
    """

    key: str
    killed: bool = False
    message: str = ""


CellEvent = CellStarted | CellAdvanced | CellNote | CellHalted | CellEnded


class Launcher(Protocol):
    """Starts the cells of a sweep and reports on them.

    A cell writes its own folder. Its launcher may lose it at any moment without harm: the next sweep goes on with the
    folder as it is.
    """

    def inspect(self, pairs: Iterable[tuple[str, str]], deadline: float | None) -> Mapping[tuple[str, str], int]:
        """Return the number of parameters of each (data set, model), as far as they are known before the deadline.

        The deadline is a time of the monotonic clock. The numbers decide how many cells fit into the memory; an empty
        mapping will do.

        Raises
        ------
        DatasetError
            If a data set is missing and cannot be fetched.
        """

    def start(self, assignment: Assignment) -> None:
        """Start a cell; do not wait for it.

        Raises
        ------
        MabRflError
            If it cannot be started.
        """

    def poll(self, timeout: float) -> Iterable[CellEvent]:
        """Wait for events for at most so many seconds, and return those there are.

        The events of a cell come in order. :class:`CellEnded` is the last of each cell that was started, unless
        :meth:`stop` comes before it.

        Raises
        ------
        SweepError
            If control over a running cell is lost, so that no other must be started beside it.
        """

    def stop(self) -> None:
        """Stop every cell that runs; return when none does. There are no events of this."""
