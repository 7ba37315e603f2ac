"""Replies as they come from a SuperLink: in pieces, of which no more are taken than the server's own model needs.

Flower's grid waits for a reply that was announced until all of its pieces are there, and unpacks whatever they say:
a piece may be named any number of times, so that a reply of megabytes unpacks to gigabytes. Here a reply that is not
complete is left for the next look, and its size is added up before anything is unpacked.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from flwr.app import Message, RecordDict
from flwr.app.message import make_message
from flwr.common.serde_utils import error_from_proto, metadata_from_proto
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, ObjectTree, PullObjectRequest
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.proto.runtime_pb2 import PullAppMessagesRequest
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import get_object_head_values_from_object_content, iterate_object_tree
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.superlink.grid.http_grid import HttpGrid

from mabrfl.flower.fetching import Catch
from mabrfl.flower.inflation import too_large, unpacked_size
from mabrfl.flower.problems import Malformed, Problem, SetAside, undecodable
from mabrfl.flower.schema import Bound

_CHUNK, _ARRAY = "ArrayChunk", "Array"


@dataclass
class _Announced:
    """A reply that the SuperLink has told of, once; its pieces are there, or will be."""

    message_id: str
    pieces: list[str]

    def put_first(self, piece: str) -> None:
        """Ask for this piece first, the next time."""
        self.pieces.remove(piece)
        self.pieces.insert(0, piece)


class Wire:
    """Fetches replies from a SuperLink without waiting for any.

    Parameters
    ----------
    grid
        Flower's own grid. Its connection is used, which is not part of Flower's documented interface; versions 1.38
        to 1.41 have it.
    bound
        The most that a reply may take.
    """

    def __init__(self, grid: HttpGrid, bound: Bound) -> None:
        self.grid = grid
        self.bound = bound
        self._announced: dict[str, _Announced] = {}
        self._stopped = threading.Event()

    @staticmethod
    def suits(grid: Grid) -> TypeGuard[HttpGrid]:
        """Whether a grid is Flower's own, as it is known here."""
        known = isinstance(grid, HttpGrid) and type(grid).pull_messages is HttpGrid.pull_messages
        return known and hasattr(type(grid), "_runtime_client")

    def stop(self) -> None:
        """Fetch no further pieces."""
        self._stopped.set()

    def unfinished(self, message_id: str) -> bool:
        """Whether the reply to a message was announced and is not complete."""
        return message_id in self._announced

    def fetch(self, message_id: str) -> Catch:
        """Return what there is for one message.

        Raises
        ------
        SetAside
            If there is a reply that cannot be used.
        """
        others: list[Message] = []
        if message_id not in self._announced:
            others, settled = self._look(message_id)
            if message_id not in self._announced:
                return Catch(others, settled)
        announced = self._announced[message_id]
        try:
            contents = self._pull(announced)
            reply = None if contents is None else _unpacked(announced.message_id, contents, self.bound)
        except SetAside:
            self._forget(message_id)
            raise
        if reply is not None or self._stopped.is_set():
            self._forget(message_id)
        return Catch([*others, reply], settled=True) if reply is not None else Catch(others, settled=False)

    def _look(self, message_id: str) -> tuple[list[Message], bool]:
        """Ask whether there is a reply. What answers another message, or comes twice, is not even pulled."""
        told = self._client.PullMessages(PullAppMessagesRequest(message_ids=[message_id]))
        pairs = list(zip(told.messages_list, told.message_object_trees, strict=True))
        answers = [pair for pair in pairs if pair[0].metadata.reply_to_message_id == message_id]
        if len(answers) == 1:
            proto, tree = answers[0]
            self._announced[message_id] = _Announced(proto.metadata.message_id, self._pieces(tree))
        apart = [proto for proto, _ in pairs if len(answers) > 1 or proto.metadata.reply_to_message_id != message_id]
        for proto in apart:
            self._confirm(proto.metadata.message_id)
        return [_empty(proto) for proto in apart], len(answers) > 1

    def _pieces(self, tree: ObjectTree) -> list[str]:
        """Return the names of a reply's pieces; one more than allowed if there are too many."""
        names: dict[str, None] = {}
        for part in iterate_object_tree(tree):
            names[part.object_id] = None
            if len(names) > self.bound.pieces:
                break
        return list(names)

    def _pull(self, announced: _Announced) -> dict[str, bytes] | None:
        """Return a reply's pieces, or None if one of them is not there yet."""
        bound = self.bound
        if len(announced.pieces) > bound.pieces:
            raise Malformed("size", f"it has more than {bound.pieces:,} pieces")
        contents: dict[str, bytes] = {}
        total = 0
        for piece in list(announced.pieces):
            if self._stopped.is_set():
                return None
            found = self._client.PullObject(
                PullObjectRequest(node=self.grid.node, run_id=self.grid.run.run_id, object_id=piece)
            )
            if not found.object_found:
                raise SetAside(Problem("error", "a piece of it is not there any more", blamed=False))
            if not found.object_available:
                announced.put_first(piece)
                return None
            contents[piece] = found.object_content
            total += len(contents[piece])
            if total > bound.data + bound.rest:
                raise Malformed("size", f"it has more than {bound.data + bound.rest:,} bytes")
        return contents

    def _forget(self, message_id: str) -> None:
        self._confirm(self._announced.pop(message_id).message_id)

    def _confirm(self, reply_id: str) -> None:
        """Tell the SuperLink that it may delete a reply; if that fails it does so by itself, later."""
        request = ConfirmMessageReceivedRequest(
            node=self.grid.node, run_id=self.grid.run.run_id, message_object_id=reply_id
        )
        with contextlib.suppress(Exception):
            self._client.ConfirmMessageReceived(request)

    @property
    def _client(self) -> Any:
        # Not public; but Flower has no public way to fetch a reply without unpacking it.
        return self.grid._runtime_client


def _unpacked(object_id: str, contents: dict[str, bytes], bound: Bound) -> Message:
    """Return the message that pieces make up; whatever is raised on the way is its sender's doing, except one thing."""
    try:
        measure(contents, bound)
        message = inflate_object_from_contents(object_id, contents)
        if not isinstance(message, Message):
            raise TypeError(f"it is of type {type(message).__name__}")
    except (MemoryError, SetAside):
        raise
    except Exception as error:  # noqa: BLE001 (a hostile reply may raise anything, and must cost its sender alone)
        raise undecodable(error) from None
    message.metadata.__dict__["_message_id"] = object_id
    return message


def measure(contents: Mapping[str, bytes], bound: Bound) -> None:
    """Add up what pieces would take once they are unpacked.

    Raises
    ------
    Malformed
        If it is more than the bound.
    """
    heads = {name: get_object_head_values_from_object_content(content) for name, content in contents.items()}
    rest = sum(len(content) for name, content in contents.items() if heads[name][0] != _CHUNK)
    if rest > bound.rest:
        raise Malformed("size", f"it has {rest:,} bytes beside the numbers of its arrays")
    data = 0
    for name, content in contents.items():
        if heads[name][0] == _ARRAY:
            # Flower takes whatever has bytes for a chunk: arrays of arrays would multiply at every level.
            if any(heads[part][0] != _CHUNK for part in heads[name][1]):
                raise Malformed("encoding", "an array is made of something else than chunks")
            data += unpacked_size(content, lambda chunk: len(contents[chunk]))
            if data > bound.data:
                raise too_large(bound.data)


def _empty(proto: ProtoMessage) -> Message:
    """Return a message that has nothing but what the SuperLink tells of it."""
    metadata = metadata_from_proto(proto.metadata)
    if proto.HasField("error"):
        return make_message(metadata, error=error_from_proto(proto.error))
    return make_message(metadata, content=RecordDict())
