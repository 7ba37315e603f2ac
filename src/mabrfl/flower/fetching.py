"""Fetching replies one by one in threads, so that a fetch that blocks delays no other."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from flwr.app import Message
from flwr.serverapp import Grid

from mabrfl.flower.internals import limited_unpacking
from mabrfl.flower.problems import UnusableReply, undecodable

_UNPACKING = ("inflate", "inflate_object_from_contents")


@dataclass(frozen=True)
class FetchResult:
    """The result of one look for the reply to a message.

    Attributes
    ----------
    replies
        The replies that were there; some may answer other messages.
    settled
        Whether no more replies to this message are expected.
    """

    replies: list[Message]
    settled: bool


class ReplySource(Protocol):
    """Where replies come from.

    Attributes
    ----------
    may_block
        Whether a fetch may wait for a reply that is not complete.
    """

    may_block: bool

    def fetch(self, message_id: str) -> FetchResult:
        """Return the replies to one message that are there; raise UnusableReply if one cannot be used."""

    def incomplete(self, message_id: str) -> bool:
        """Return whether a reply was announced and is not complete."""

    def stop(self) -> None:
        """Start no further requests."""


class GridSource:
    """Replies from any grid, by ``pull_messages``: the grid unpacks them itself.

    Parameters
    ----------
    grid
        The simulation engine's grid, say, or one of the user's own.
    max_bytes
        The largest size of a reply's arrays; no limit if None.
    """

    may_block = True

    def __init__(self, grid: Grid, max_bytes: int | None) -> None:
        self.grid = grid
        self.max_bytes = max_bytes

    def fetch(self, message_id: str) -> FetchResult:
        """Return the replies to one message that are there."""
        try:
            with limited_unpacking(self.max_bytes):
                replies = list(self.grid.pull_messages([message_id]))
        except (MemoryError, UnusableReply):
            raise
        except Exception as error:
            if _while_unpacking(error):
                raise undecodable(error) from None
            raise
        return FetchResult(replies, bool(replies))

    def incomplete(self, message_id: str) -> bool:  # noqa: ARG002 (a grid does not say)
        """Return whether a reply was announced; a grid does not say."""
        return False

    def stop(self) -> None:
        """Start no further requests; there are none."""


def _while_unpacking(error: Exception) -> bool:
    """Return whether Flower raised an exception while it unpacked a reply; it may also come from network or code."""
    trace = error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_code.co_name in _UNPACKING and frame.f_globals.get("__name__", "").startswith("flwr."):
            return True
        trace = trace.tb_next
    return False


@dataclass(frozen=True)
class CompletedFetch:
    """The end of one fetch: its result or its error."""

    message_id: str
    result: FetchResult | None = None
    error: BaseException | None = None


class _FetchThread(threading.Thread):
    """Fetches the replies to the messages in its queue. A daemon: it never keeps the process from ending."""

    def __init__(self, fetch: Callable[[str], FetchResult], completed: queue.SimpleQueue[CompletedFetch]) -> None:
        super().__init__(name="mabrfl-fetch", daemon=True)
        self.message_ids: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._fetch, self._completed = fetch, completed

    def run(self) -> None:
        while (message_id := self.message_ids.get()) is not None:
            try:
                completed = CompletedFetch(message_id, self._fetch(message_id))
            except BaseException as error:  # noqa: BLE001 (it is raised again in the thread that waits)
                completed = CompletedFetch(message_id, error=error)
            self._completed.put(completed)
            del completed


class FetchPool:
    """Threads that fetch replies: one, as long as no fetch blocks."""

    def __init__(self, fetch: Callable[[str], FetchResult]) -> None:
        self._fetch = fetch
        self._completed: queue.SimpleQueue[CompletedFetch] = queue.SimpleQueue()
        self._idle: list[_FetchThread] = []
        self.busy: dict[str, _FetchThread] = {}

    def start(self, message_id: str) -> None:
        """Start to fetch the reply to a message."""
        if not self._idle:
            self._idle.append(_FetchThread(self._fetch, self._completed))
            self._idle[0].start()
        thread = self.busy[message_id] = self._idle.pop()
        thread.message_ids.put(message_id)

    def completed(self, until: float, message_id: str | None = None) -> Iterator[CompletedFetch]:
        """Yield fetches as they end, until a time, or until this message's fetch has ended."""
        while message_id is None or message_id in self.busy:
            try:
                fetch = self._completed.get(timeout=min(max(until - time.monotonic(), 0.0), threading.TIMEOUT_MAX))
            except queue.Empty:
                return
            self._idle.append(self.busy.pop(fetch.message_id))
            yield fetch

    def close(self) -> None:
        """End all threads; a busy one ends after its fetch."""
        for thread in (*self._idle, *self.busy.values()):
            thread.message_ids.put(None)
