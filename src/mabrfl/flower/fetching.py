"""Fetching replies one by one, each in its own time, without waiting for those that stall."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from flwr.app import Message
from flwr.serverapp import Grid

from mabrfl.flower.inflation import bounded
from mabrfl.flower.problems import SetAside, undecodable

_UNPACKING = ("inflate", "inflate_object_from_contents")


@dataclass(frozen=True)
class Catch:
    """What one look for the reply to a message brought.

    Attributes
    ----------
    replies
        What there was; among it may be replies to other messages.
    settled
        Whether there is nothing more to come.
    """

    replies: list[Message]
    settled: bool


class Source(Protocol):
    """Where replies come from."""

    def fetch(self, message_id: str) -> Catch:
        """Return what there is for one message; raise SetAside if that cannot be used."""

    def unfinished(self, message_id: str) -> bool:
        """Whether a reply was begun and is not complete."""

    def stop(self) -> None:
        """Begin nothing more."""


class AnyGrid:
    """Replies from a grid that unpacks them by itself: the simulation engine's, say, or one of the user's own."""

    def __init__(self, grid: Grid, limit: int | None) -> None:
        self.grid = grid
        self.limit = limit

    def fetch(self, message_id: str) -> Catch:
        """Return what there is for one message."""
        try:
            with bounded(self.limit):
                found = list(self.grid.pull_messages([message_id]))
        except (MemoryError, SetAside):
            raise
        except Exception as error:
            if _while_unpacking(error):
                raise undecodable(error) from None
            raise
        return Catch(found, bool(found))

    def unfinished(self, message_id: str) -> bool:  # noqa: ARG002 (such a grid does not tell)
        """Whether a reply was begun; that is not known here."""
        return False

    def stop(self) -> None:
        """Begin nothing more: there is nothing to do."""


def _while_unpacking(error: Exception) -> bool:
    """Whether an exception comes from Flower's unpacking of what a client sent, and not from network or code."""
    trace = error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_code.co_name in _UNPACKING and frame.f_globals.get("__name__", "").startswith("flwr."):
            return True
        trace = trace.tb_next
    return False


@dataclass(frozen=True)
class Report:
    """What became of one fetch."""

    message_id: str
    catch: Catch | None = None
    error: BaseException | None = None


class _Hand(threading.Thread):
    """Fetches what it is told to. A daemon: it never keeps the process from ending."""

    def __init__(self, fetch: Callable[[str], Catch], done: queue.SimpleQueue[Report]) -> None:
        super().__init__(name="mabrfl-fetch", daemon=True)
        self.orders: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._fetch, self._done = fetch, done

    def run(self) -> None:
        while (message_id := self.orders.get()) is not None:
            try:
                report = Report(message_id, self._fetch(message_id))
            except BaseException as error:  # noqa: BLE001 (whoever waits for the report raises it)
                report = Report(message_id, error=error)
            self._done.put(report)
            del report


class Crew:
    """Threads that fetch: one, as long as none stalls."""

    def __init__(self, fetch: Callable[[str], Catch]) -> None:
        self._fetch = fetch
        self._done: queue.SimpleQueue[Report] = queue.SimpleQueue()
        self._idle: list[_Hand] = []
        self.busy: dict[str, _Hand] = {}

    def start(self, message_id: str) -> None:
        """Begin to fetch."""
        if not self._idle:
            self._idle.append(_Hand(self._fetch, self._done))
            self._idle[0].start()
        hand = self.busy[message_id] = self._idle.pop()
        hand.orders.put(message_id)

    def reports(self, until: float, message_id: str | None = None) -> Iterator[Report]:
        """Yield what is reported until a time, or until this message is done with."""
        while message_id is None or message_id in self.busy:
            try:
                report = self._done.get(timeout=min(max(until - time.monotonic(), 0.0), threading.TIMEOUT_MAX))
            except queue.Empty:
                return
            self._idle.append(self.busy.pop(report.message_id))
            yield report

    def dismiss(self) -> None:
        """Let everybody go; whoever is busy goes when done."""
        for hand in (*self._idle, *self.busy.values()):
            hand.orders.put(None)
