"""Replies from a SuperLink: they come in pieces, of which no more are fetched than the server's own model needs.

Flower's grid waits for an announced reply until all of its pieces are there, and unpacks them whatever their size: a
piece may be named any number of times, so that a reply of megabytes unpacks to gigabytes. Here an incomplete reply is
left for the next look, and its size is added up before anything is unpacked.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from flwr.app import Message

from mabrfl.flower import internals
from mabrfl.flower.fetching import FetchResult
from mabrfl.flower.problems import MalformedReply, Problem, UnusableReply, undecodable
from mabrfl.flower.schema import ReplyLimits

_CHUNK, _ARRAY = "ArrayChunk", "Array"


@dataclass
class _PendingReply:
    """A reply that the SuperLink has announced; its pieces are uploaded already, or later."""

    reply_id: str
    pieces: list[str]

    def put_first(self, piece: str) -> None:
        """Ask for this piece first, the next time."""
        self.pieces.remove(piece)
        self.pieces.insert(0, piece)


class SuperLinkSource:
    """Fetches replies from a SuperLink and waits for none of them.

    Parameters
    ----------
    link
        The connection to the SuperLink.
    limits
        The largest size of a reply.
    """

    may_block = False

    def __init__(self, link: internals.SuperLinkConnection, limits: ReplyLimits) -> None:
        self.link = link
        self.limits = limits
        self._pending: dict[str, _PendingReply] = {}
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Fetch no further pieces."""
        self._stopped.set()

    def incomplete(self, message_id: str) -> bool:
        """Return whether the reply to a message was announced and is not complete."""
        return message_id in self._pending

    def fetch(self, message_id: str) -> FetchResult:
        """Return the replies to one message that are there.

        Raises
        ------
        UnusableReply
            If there is a reply that cannot be used.
        """
        others: list[Message] = []
        if message_id not in self._pending:
            others, settled = self._look(message_id)
            if message_id not in self._pending:
                return FetchResult(others, settled)
        pending = self._pending[message_id]
        try:
            contents = self._pull(pending)
            reply = None if contents is None else _unpack(pending.reply_id, contents, self.limits)
        except UnusableReply:
            self._forget(message_id)
            raise
        if reply is not None or self._stopped.is_set():
            self._forget(message_id)
        return FetchResult([*others, reply], settled=True) if reply is not None else FetchResult(others, settled=False)

    def _look(self, message_id: str) -> tuple[list[Message], bool]:
        """Ask for announcements. The pieces of a reply to another message, or of a second reply, are not fetched."""
        announced = self.link.announced(message_id)
        answers = [each for each in announced if each.answers == message_id]
        if len(answers) == 1:
            self._pending[message_id] = _PendingReply(answers[0].reply_id, self._unique(answers[0].pieces))
        others = [each for each in announced if len(answers) > 1 or each.answers != message_id]
        for each in others:
            self.link.confirm(each.reply_id)
        return [each.empty for each in others], len(answers) > 1

    def _unique(self, pieces: Iterable[str]) -> list[str]:
        """Return the ids of a reply's pieces; one more than allowed if there are too many."""
        ids: dict[str, None] = {}
        for piece in pieces:
            ids[piece] = None
            if len(ids) > self.limits.pieces:
                break
        return list(ids)

    def _pull(self, pending: _PendingReply) -> dict[str, bytes] | None:
        """Return a reply's pieces, or None if one of them is not there yet."""
        limits = self.limits
        if len(pending.pieces) > limits.pieces:
            raise MalformedReply("size", f"it has more than {limits.pieces:,} pieces")
        contents: dict[str, bytes] = {}
        total = 0
        for piece in list(pending.pieces):
            if self._stopped.is_set():
                return None
            try:
                content = self.link.pull(piece)
            except internals.PieceMissing:
                raise UnusableReply(Problem("error", "a piece of it is not there any more", blamed=False)) from None
            if content is None:
                pending.put_first(piece)
                return None
            contents[piece] = content
            total += len(content)
            if total > limits.data + limits.rest:
                raise MalformedReply("size", f"it has more than {limits.data + limits.rest:,} bytes")
        return contents

    def _forget(self, message_id: str) -> None:
        self.link.confirm(self._pending.pop(message_id).reply_id)


def _unpack(reply_id: str, contents: dict[str, bytes], limits: ReplyLimits) -> Message:
    """Return the message that pieces make up. Any error but a lack of memory is blamed on the sender."""
    try:
        check_size(contents, limits)
        return internals.unpack(reply_id, contents)
    except (MemoryError, UnusableReply):
        raise
    except Exception as error:  # noqa: BLE001 (a hostile reply may raise anything, and only its sender must pay)
        raise undecodable(error) from None


def check_size(contents: Mapping[str, bytes], limits: ReplyLimits) -> None:
    """Add up the size of pieces once they are unpacked.

    Raises
    ------
    MalformedReply
        If it is above the limits.
    """
    heads = {name: internals.head(content) for name, content in contents.items()}
    rest = sum(len(content) for name, content in contents.items() if heads[name][0] != _CHUNK)
    if rest > limits.rest:
        raise MalformedReply("size", f"it has {rest:,} bytes beside the numbers of its arrays")
    data = 0
    for name, content in contents.items():
        kind, children = heads[name]
        if kind == _ARRAY:
            # Flower accepts anything with bytes as a chunk: arrays of arrays would multiply at every level.
            if any(heads[child][0] != _CHUNK for child in children):
                raise MalformedReply("encoding", "an array is made of something else than chunks")
            data += internals.unpacked_size(content, lambda chunk: len(contents[chunk]))
            if data > limits.data:
                raise internals.too_large(limits.data)
