"""A grid that fetches and checks replies one by one, so that a bad reply costs only its sender.

Flower's own grid unpacks all replies of a poll together: one exception (an array whose shape is a string, say) ends
the run and loses the good replies of that poll. It also keeps all replies until the last one has come.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from typing import Any

from flwr.app import Message, MessageType, RecordDict
from flwr.serverapp import Grid

from mabrfl.flower import internals
from mabrfl.flower.fetching import CompletedFetch, FetchPool, FetchResult, GridSource, ReplySource
from mabrfl.flower.problems import Problem, UnusableReply
from mabrfl.flower.reply_checks import CheckResult, without_arrays
from mabrfl.flower.schema import ReplyLimits
from mabrfl.flower.superlink_source import SuperLinkSource

PULL_SECONDS = 3.0
"""Between two polls, if the grid has no ``pull_interval``; the same as in Flower's own grid."""

PATIENCE_SECONDS = 1.0
"""After which a fetch that blocks is left running, and the next one started."""

_TRIES = 3


class OneByOneGrid(Grid):
    """Another grid, with replies fetched and checked one by one.

    Parameters
    ----------
    inner
        The other grid.
    limits
        The largest size of a reply; no limit if left out.
    check
        Called with each reply to a train message as soon as it is there, and with the node that the message went to.
        Replies are returned without their arrays.

    Attributes
    ----------
    results
        By message id, the result of the check, or why there is no reply; of the last :meth:`send_and_receive`.
    """

    def __init__(
        self,
        inner: Grid,
        limits: ReplyLimits | None = None,
        check: Callable[[RecordDict, int], CheckResult] | None = None,
    ) -> None:
        self.inner = inner
        self.limits = limits
        self.check = check
        self.results: dict[str, CheckResult] = {}
        self._checked: set[str] = set()
        self._stalled: set[int] = set()

    def set_run(self, run: Any) -> None:
        """Set the run of the grid."""
        self.inner.set_run(run)

    @property
    def run(self) -> Any:
        """Run information."""
        return self.inner.run

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        """Create a message."""
        return self.inner.create_message(*args, **kwargs)

    def get_node_ids(self) -> Iterable[int]:
        """Get node ids."""
        return self.inner.get_node_ids()

    def get_nodes(self) -> Iterable[Any]:
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
        self.results, self._checked = {}, set()
        messages = list(messages)
        ids = [message_id for message_id in self.inner.push_messages(messages) if message_id]
        sent = {message.metadata.message_id: message for message in messages}
        replies: list[Message] = []

        def take(received: list[Message]) -> None:
            replies.extend(self._take(received, sent))

        node_of = {message_id: sent[message_id].metadata.dst_node_id for message_id in ids if message_id in sent}
        ids.sort(key=lambda message_id: node_of.get(message_id) in self._stalled)
        collection = _Collection(self._source(), ids, take, self.results)
        try:
            collection.run(timeout, getattr(self.inner, "pull_interval", PULL_SECONDS))
        finally:
            self._stalled -= set(node_of.values())
            self._stalled |= {node_of[message_id] for message_id in collection.stalled if message_id in node_of}
        position = {message_id: k for k, message_id in enumerate(sent)}
        return sorted(replies, key=lambda reply: position.get(reply.metadata.reply_to_message_id, len(position)))

    def _source(self) -> ReplySource:
        if self.limits is None:
            return GridSource(self.inner, None)
        link = internals.connect(self.inner)
        return GridSource(self.inner, self.limits.data) if link is None else SuperLinkSource(link, self.limits)

    def _take(self, received: list[Message], sent: dict[str, Message]) -> list[Message]:
        """Check replies to train messages, and drop the arrays of all replies.

        If there are several replies to one message, no result is kept: nobody can know which one is meant.
        """
        for reply in received:
            if not reply.has_content():
                continue
            answered = reply.metadata.reply_to_message_id
            is_train = answered in sent and sent[answered].metadata.message_type.split(".")[0] == MessageType.TRAIN
            if self.check is not None and is_train:
                if answered in self._checked:
                    self.results.pop(answered, None)
                else:
                    self.results[answered] = self.check(reply.content, sent[answered].metadata.dst_node_id)
                self._checked.add(answered)
            reply.content = _drop_arrays(reply.content)
        return received


def _drop_arrays(content: Any) -> RecordDict:
    """Return a reply's other records, and empty its records of arrays.

    Flower's ``RecordDict`` is part of a reference cycle: arrays would stay until Python's garbage collection.
    """
    if not isinstance(content, RecordDict):  # Flower does not check it when it unpacks
        return RecordDict()
    others = without_arrays(content)
    for record in content.array_records.values():
        record.clear()
    return others


class _Collection:
    """The replies to some messages, as they come in."""

    def __init__(
        self,
        source: ReplySource,
        message_ids: list[str],
        take: Callable[[list[Message]], None],
        results: dict[str, CheckResult],
    ) -> None:
        self.source = source
        self.waiting = message_ids
        self.total = len(message_ids)
        self.take = take
        self.results = results
        self.pool = FetchPool(source.fetch)
        self.stalled: list[str] = []
        self._deadline = math.inf
        self._patience = math.inf
        self._failures: dict[str, list[Exception]] = {}

    def run(self, timeout: float | None, pause: float) -> None:
        """Look for replies until all are there or the time is over; a fetch that blocks is left running."""
        if self.source.may_block:  # every message gets its turn within half of the time
            share = math.inf if timeout is None else timeout / (2 * max(self.total, 1))
            self._patience = min(PATIENCE_SECONDS, share)
        if timeout is not None:
            self._deadline = time.monotonic() + timeout
        try:
            while self.waiting and time.monotonic() < self._deadline:
                self._look_once()
                if self.waiting:
                    self._handle_until(time.monotonic() + pause)
        finally:
            self.source.stop()
            self.pool.close()
        self.stalled = [mid for mid in self.waiting if mid in self.pool.busy or self.source.incomplete(mid)]
        for message_id in set(self.waiting) & set(self._failures):
            self.results[message_id] = _failed(self._failures[message_id])

    def _look_once(self) -> None:
        """Look once for every missing reply; those that were announced and are not complete come last."""
        asked = sorted((mid for mid in self.waiting if mid not in self.pool.busy), key=self.source.incomplete)
        for message_id in asked:
            if time.monotonic() >= self._deadline:
                return
            self.pool.start(message_id)
            self._handle_until(time.monotonic() + self._patience, message_id)
        given_up = [self._failures[mid][-1] for mid in asked if len(self._failures.get(mid, ())) >= _TRIES]
        alike = len({type(error) for error in given_up}) == 1
        if alike and len(given_up) == len(asked) == self.total:
            raise given_up[0]

    def _handle_until(self, moment: float, message_id: str | None = None) -> None:
        """Handle fetches as they end, until a moment or until this message's fetch has ended."""
        for fetch in self.pool.completed(min(moment, self._deadline), message_id):
            self._handle(fetch)
            if not self.waiting:
                return

    def _handle(self, fetch: CompletedFetch) -> None:
        message_id, error = fetch.message_id, fetch.error
        if fetch.result is not None:
            self._failures.pop(message_id, None)
            self.take(fetch.result.replies)
            self._remove_answered(message_id, fetch.result)
        elif message_id not in self.waiting:
            return  # its reply came together with another one
        elif isinstance(error, UnusableReply):
            self.results[message_id] = error.problem
            self.waiting.remove(message_id)
        elif isinstance(error, Exception):
            self._failures.setdefault(message_id, []).append(error)
            if len(self._failures[message_id]) == _TRIES:
                self.results[message_id] = _failed(self._failures[message_id])
                self.waiting.remove(message_id)
        elif error is not None:
            raise error

    def _remove_answered(self, message_id: str, result: FetchResult) -> None:
        """Wait no longer for replies that are there. A grid may also return replies to other messages."""
        done = {reply.metadata.reply_to_message_id for reply in result.replies} & set(self.waiting)
        if result.settled and (message_id in done or not done):
            done.add(message_id)
        self.waiting = [waiting for waiting in self.waiting if waiting not in done]


def _failed(errors: list[Exception]) -> Problem:
    """Return the problem of a reply that could not be fetched; its sender is not to blame."""
    return Problem("error", f"it could not be fetched: {type(errors[-1]).__name__}: {errors[-1]!s:.1000}", blamed=False)
