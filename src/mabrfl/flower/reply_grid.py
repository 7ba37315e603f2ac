"""A grid that fetches and checks replies one by one, so that a bad one costs its sender alone.

Flower's own grid unpacks all replies of a poll together: an exception on the way (an array whose shape is a string,
say) ends the run, and takes with it the replies of that poll that were good. It keeps them all until the last has come.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from flwr.app import Message, MessageType, RecordDict
from flwr.serverapp import Grid

from mabrfl.flower.contract import Finding, without_arrays
from mabrfl.flower.fetching import AnyGrid, Catch, Crew, Report, Source
from mabrfl.flower.problems import Problem, SetAside
from mabrfl.flower.schema import Bound
from mabrfl.flower.wire import Wire

if TYPE_CHECKING:
    from flwr.proto.node_pb2 import NodeInfo
    from flwr.supercore.run import Run

PULL_SECONDS = 3.0
"""Between two polls, where the grid does not say; as Flower's own."""

PATIENCE_SECONDS = 1.0
"""After which a fetch from a grid that may wait is left to itself, and the next one begun."""

_TRIES = 3


class OneByOneGrid(Grid):
    """Another grid, with replies fetched and checked one by one.

    Parameters
    ----------
    inner
        The other grid.
    bound
        The most that a reply may take; no bound if left out.
    examine
        Called with each reply to a train message as soon as it is there. Of every reply, only the records that are no
        arrays are handed on.

    Attributes
    ----------
    findings
        By message id, what examining the reply came to, or why there is none; of the last :meth:`send_and_receive`.
    """

    def __init__(
        self, inner: Grid, bound: Bound | None = None, examine: Callable[[RecordDict], Finding] | None = None
    ) -> None:
        self.inner = inner
        self.bound = bound
        self.examine = examine
        self.findings: dict[str, Finding] = {}
        self._examined: set[str] = set()
        self._stalled: set[int] = set()

    def set_run(self, run: Run) -> None:
        """Set the run of the grid."""
        self.inner.set_run(run)

    @property
    def run(self) -> Run:
        """Run information."""
        return self.inner.run

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        """Create a message."""
        return self.inner.create_message(*args, **kwargs)

    def get_node_ids(self) -> Iterable[int]:
        """Get node ids."""
        return self.inner.get_node_ids()

    def get_nodes(self) -> Iterable[NodeInfo]:
        """Get nodes."""
        return self.inner.get_nodes()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Push messages."""
        return self.inner.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Pull messages."""
        return self.inner.pull_messages(message_ids)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Push messages and collect their replies until all are there or the time is over.

        Nodes that announced a reply and did not deliver it in time are asked last the next time.
        """
        self.findings, self._examined = {}, set()
        messages = list(messages)
        ids = [message_id for message_id in self.inner.push_messages(messages) if message_id]
        sent = {message.metadata.message_id: message for message in messages}
        replies: list[Message] = []

        def take(found: list[Message]) -> None:
            replies.extend(self._taken(found, sent))

        node_of = {message_id: sent[message_id].metadata.dst_node_id for message_id in ids if message_id in sent}
        ids.sort(key=lambda message_id: node_of.get(message_id) in self._stalled)
        collection = _Collection(self._source(), ids, take, self.findings)
        try:
            collection.run(timeout, getattr(self.inner, "pull_interval", PULL_SECONDS))
        finally:
            self._stalled -= set(node_of.values())
            self._stalled |= {node_of[message_id] for message_id in collection.stalled if message_id in node_of}
        place = {message_id: k for k, message_id in enumerate(sent)}
        return sorted(replies, key=lambda reply: place.get(reply.metadata.reply_to_message_id, len(place)))

    def _source(self) -> Source:
        if self.bound is not None and Wire.suits(self.inner):
            return Wire(self.inner, self.bound)
        return AnyGrid(self.inner, None if self.bound is None else self.bound.data)

    def _taken(self, found: list[Message], sent: dict[str, Message]) -> list[Message]:
        """Examine replies to train messages, each under the message that it answers, and let go of their arrays.

        Of several replies to one message none is examined: it cannot be known which is meant.
        """
        for reply in found:
            if not reply.has_content():
                continue
            answered = reply.metadata.reply_to_message_id
            asked = answered in sent and sent[answered].metadata.message_type.split(".")[0] == MessageType.TRAIN
            if self.examine is not None and asked:
                if answered in self._examined:
                    self.findings.pop(answered, None)
                else:
                    self.findings[answered] = self.examine(reply.content)
                self._examined.add(answered)
            reply.content = _lightened(reply.content)
        return found


def _lightened(content: Any) -> RecordDict:
    """Return a reply's other records, and empty those of arrays.

    Flower's ``RecordDict`` is part of a cycle: without that, arrays would stay until Python looks for garbage.
    """
    if not isinstance(content, RecordDict):  # Flower's unpacking does not make sure of it
        return RecordDict()
    rest = without_arrays(content)
    for record in content.array_records.values():
        record.clear()
    return rest


class _Collection:
    """The replies to some messages, as they come in."""

    def __init__(
        self,
        source: Source,
        message_ids: list[str],
        take: Callable[[list[Message]], None],
        findings: dict[str, Finding],
    ) -> None:
        self.source = source
        self.waiting = message_ids
        self.total = len(message_ids)
        self.take = take
        self.findings = findings
        self.crew = Crew(source.fetch)
        self.stalled: list[str] = []
        self._deadline = math.inf
        self._patience = math.inf
        self._failures: dict[str, list[Exception]] = {}

    def run(self, timeout: float | None, pause: float) -> None:
        """Look for replies until all are there or the time is over; a fetch that stalls is not waited for."""
        if isinstance(self.source, AnyGrid):  # one that may wait for a reply; everybody gets a turn in half the time
            share = math.inf if timeout is None else timeout / (2 * max(self.total, 1))
            self._patience = min(PATIENCE_SECONDS, share)
        if timeout is not None:
            self._deadline = time.monotonic() + timeout
        try:
            while self.waiting and time.monotonic() < self._deadline:
                self._sweep()
                if self.waiting:
                    self._hear_until(time.monotonic() + pause)
        finally:
            self.source.stop()
            self.crew.dismiss()
        self.stalled = [mid for mid in self.waiting if mid in self.crew.busy or self.source.unfinished(mid)]
        for message_id in set(self.waiting) & set(self._failures):
            self.findings[message_id] = _failed(self._failures[message_id])

    def _sweep(self) -> None:
        """Look once for every reply that is not there yet, those that were announced and are not complete last."""
        asked = sorted((mid for mid in self.waiting if mid not in self.crew.busy), key=self.source.unfinished)
        for message_id in asked:
            if time.monotonic() >= self._deadline:
                return
            self.crew.start(message_id)
            self._hear_until(time.monotonic() + self._patience, message_id)
        given_up = [self._failures[mid][-1] for mid in asked if len(self._failures.get(mid, ())) >= _TRIES]
        alike = len({type(error) for error in given_up}) == 1
        if alike and len(given_up) == len(asked) == self.total:
            raise given_up[0]

    def _hear_until(self, moment: float, message_id: str | None = None) -> None:
        """Wait for what is reported, until a moment or until this message is done with."""
        for report in self.crew.reports(min(moment, self._deadline), message_id):
            self._hear(report)
            if not self.waiting:
                return

    def _hear(self, report: Report) -> None:
        message_id, error = report.message_id, report.error
        if report.catch is not None:
            self._failures.pop(message_id, None)
            self.take(report.catch.replies)
            self._tick_off(message_id, report.catch)
        elif message_id not in self.waiting:
            return  # its reply came along with another's
        elif isinstance(error, SetAside):
            self.findings[message_id] = error.problem
            self.waiting.remove(message_id)
        elif isinstance(error, Exception):
            self._failures.setdefault(message_id, []).append(error)
            if len(self._failures[message_id]) == _TRIES:
                self.findings[message_id] = _failed(self._failures[message_id])
                self.waiting.remove(message_id)
        elif error is not None:
            raise error

    def _tick_off(self, message_id: str, catch: Catch) -> None:
        """Wait no longer for what is there. A grid may hand out replies that it was not asked for."""
        done = {reply.metadata.reply_to_message_id for reply in catch.replies} & set(self.waiting)
        if catch.settled and (message_id in done or not done):
            done.add(message_id)
        self.waiting = [waited for waited in self.waiting if waited not in done]


def _failed(errors: list[Exception]) -> Problem:
    """Return what is to be said of a reply that could not be fetched, for no fault of its sender's."""
    return Problem("error", f"it could not be fetched: {type(errors[-1]).__name__}: {errors[-1]!s:.1000}", blamed=False)
