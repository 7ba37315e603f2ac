"""Flower's private modules: the only place that imports them, and the only one that changes anything in them.

Flower has no public way to see the size of a reply before it is unpacked, or to fetch a reply without waiting until it
is complete. If a release of Flower lacks what is needed here, :func:`connect` returns None, :func:`limited_unpacking`
limits nothing, and a single warning says so. Replies are then fetched with ``Grid.pull_messages`` alone.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import flwr
from flwr.app import Array, Message, RecordDict
from flwr.serverapp import Grid

from mabrfl.flower.problems import MalformedReply

log = logging.getLogger("flwr")

_NAMES = {
    "flwr.app.message": ("make_message",),
    "flwr.common.serde_utils": ("error_from_proto", "metadata_from_proto"),
    "flwr.proto.message_pb2": ("ConfirmMessageReceivedRequest", "PullObjectRequest"),
    "flwr.proto.runtime_pb2": ("PullAppMessagesRequest",),
    "flwr.supercore.inflatable.inflatable_object": (
        "get_object_head_values_from_object_content",
        "iterate_object_tree",
    ),
    "flwr.supercore.inflatable.inflatable_utils": ("inflate_object_from_contents",),
    "flwr.superlink.grid.http_grid": ("HttpGrid",),
}
_CALLS = ("PullMessages", "PullObject", "ConfirmMessageReceived")
_DIVIDER = b"\x00"  # between head and body
_thread = threading.local()
_lock = threading.Lock()


def available() -> bool:
    """Return whether this release of Flower has everything that is used here."""
    return _private() is not None


@functools.cache
def _private() -> SimpleNamespace | None:
    """Import what is needed, and try it on a small array; the warning is logged once because of the cache."""
    names = SimpleNamespace()
    try:
        for module, wanted in _NAMES.items():
            loaded = importlib.import_module(module)
            for name in wanted:
                setattr(names, name, getattr(loaded, name))
        _try_out(names)
    except Exception as error:  # noqa: BLE001 (code that changes without notice may raise anything)
        _warn(f"{type(error).__name__}: {error}")
        return None
    return names


def _try_out(names: SimpleNamespace) -> None:
    """Unpack a small array: a format that was changed must not look like a client's fault."""
    array = Array("float32", (1,), "numpy.ndarray", b"12345678")
    chunks = {name: chunk.deflate() for name, chunk in array.children.items()}
    packed = array.deflate()
    restored = names.inflate_object_from_contents(array.object_id, {**chunks, array.object_id: packed})
    sizes = {name: len(chunk.data) for name, chunk in array.children.items()}  # type: ignore[attr-defined] # chunks
    if restored.data != array.data or _unpacked_size(names, packed, sizes.__getitem__) != len(array.data):
        raise ValueError("packed arrays have another format")
    if not callable(getattr(Array.inflate, "__func__", None)):
        raise TypeError("Array.inflate is no class method")


def _warn(cause: str) -> None:
    log.warning(
        "mabrfl does not know the internals of Flower %s (%s). Replies are fetched by Flower's public interface alone: "
        "their size is checked only after Flower has unpacked them, so that one reply can use up the server's memory, "
        "and a node that does not complete its upload keeps a thread waiting. All other checks remain.",
        flwr.__version__,
        cause,
    )


def head(packed: bytes) -> tuple[str, list[str]]:
    """Return the kind of a packed object, and the ids of the objects that it is made of."""
    kind, children, _ = _known().get_object_head_values_from_object_content(packed)
    return kind, children


def unpacked_size(packed: bytes, size_of: Callable[[str], int]) -> int:
    """Return how many bytes a packed array unpacks to, given the sizes of its chunks.

    In Flower's format an array is a list of chunks, and may name each of them any number of times.
    """
    return _unpacked_size(_known(), packed, size_of)


def _unpacked_size(names: SimpleNamespace, packed: bytes, size_of: Callable[[str], int]) -> int:
    _, children, _ = names.get_object_head_values_from_object_content(packed)
    sizes = [size_of(child) for child in children]
    body = packed[packed.index(_DIVIDER) + 1 :]
    return sum(sizes[place] for place in json.loads(body)["arraychunk_ids"])


def _known() -> SimpleNamespace:
    names = _private()
    if names is None:
        raise RuntimeError("the internals of this release of Flower are not known")
    return names


def unpack(reply_id: str, contents: Mapping[str, bytes]) -> Message:
    """Return the message that pieces make up."""
    message = _known().inflate_object_from_contents(reply_id, contents)
    if not isinstance(message, Message):
        raise TypeError(f"it is of type {type(message).__name__}")
    message.metadata.__dict__["_message_id"] = reply_id
    return message


def too_large(limit: int) -> MalformedReply:
    """Return the problem of a reply whose arrays take more than is allowed."""
    return MalformedReply("size", f"its arrays would take more than {limit:,} bytes")


@contextmanager
def limited_unpacking(limit: int | None) -> Iterator[None]:
    """Within this block and in this thread, let Flower unpack arrays of at most ``limit`` bytes together.

    For grids that unpack replies themselves. Flower has no hook for this, so ``Array.inflate`` is replaced, once, by
    a function that counts first; outside of such a block it works as before.

    Raises
    ------
    MalformedReply
        Before more than that is unpacked.
    """
    if limit is None or not available():
        yield
        return
    with _lock:  # two replacements would count twice
        _replace_inflate()
    _thread.limit = _thread.left = limit
    try:
        yield
    finally:
        _thread.limit = _thread.left = None


@functools.cache
def _replace_inflate() -> None:
    original = Array.inflate.__func__  # type: ignore[attr-defined] # a class method has one

    @functools.wraps(original)
    def inflate(cls: type[Array], object_content: bytes, children: dict[str, Any] | None = None) -> Array:
        left = getattr(_thread, "left", None)
        if left is not None:
            _thread.left = left - unpacked_size(object_content, lambda child: len((children or {})[child].data))
            if _thread.left < 0:
                raise too_large(_thread.limit)
        array: Array = original(cls, object_content, children)
        return array

    Array.inflate = classmethod(inflate)  # type: ignore[method-assign,assignment] # it is replaced on purpose


@dataclass(frozen=True)
class Announcement:
    """A reply that the SuperLink has announced.

    Attributes
    ----------
    reply_id
        Its id.
    answers
        The id of the message that it answers.
    pieces
        The ids of its pieces; read no more of them than needed, there may be any number.
    empty
        A message with its metadata, or its error, and no content.
    """

    reply_id: str
    answers: str
    pieces: Iterator[str]
    empty: Message


class PieceMissing(Exception):  # noqa: N818 (it never leaves this package)
    """The SuperLink does not have a piece of a reply any more."""


class SuperLinkConnection:
    """The connection of Flower's own grid to its SuperLink; make it with :func:`connect`."""

    def __init__(self, grid: Any, names: SimpleNamespace) -> None:
        self._grid = grid
        self._names = names
        self._client = grid._runtime_client
        for call in _CALLS:
            getattr(self._client, call)

    def announced(self, message_id: str) -> list[Announcement]:
        """Ask for replies to a message. The SuperLink announces each reply once."""
        response = self._client.PullMessages(self._names.PullAppMessagesRequest(message_ids=[message_id]))
        return [
            self._announcement(message, tree)
            for message, tree in zip(response.messages_list, response.message_object_trees, strict=True)
        ]

    def _announcement(self, message: Any, tree: Any) -> Announcement:
        metadata = self._names.metadata_from_proto(message.metadata)
        if message.HasField("error"):
            empty = self._names.make_message(metadata, error=self._names.error_from_proto(message.error))
        else:
            empty = self._names.make_message(metadata, content=RecordDict())
        pieces = (part.object_id for part in self._names.iterate_object_tree(tree))
        return Announcement(message.metadata.message_id, message.metadata.reply_to_message_id, pieces, empty)

    def pull(self, piece: str) -> bytes | None:
        """Return a piece of a reply; None if it is not uploaded yet.

        Raises
        ------
        PieceMissing
            If the SuperLink does not have the piece any more.
        """
        request = self._names.PullObjectRequest(node=self._grid.node, run_id=self._grid.run.run_id, object_id=piece)
        response = self._client.PullObject(request)
        if not response.object_found:
            raise PieceMissing(piece)
        content: bytes | None = response.object_content if response.object_available else None
        return content

    def confirm(self, reply_id: str) -> None:
        """Tell the SuperLink that it may delete a reply; if that fails, it deletes the reply later."""
        request = self._names.ConfirmMessageReceivedRequest(
            node=self._grid.node, run_id=self._grid.run.run_id, message_object_id=reply_id
        )
        with contextlib.suppress(Exception):
            self._client.ConfirmMessageReceived(request)


def connect(grid: Grid) -> SuperLinkConnection | None:
    """Return the connection of a grid; None if it is not Flower's own, or not known here."""
    names = _private()
    if names is None or not isinstance(grid, names.HttpGrid):
        return None
    if type(grid).pull_messages is not names.HttpGrid.pull_messages:
        return None  # a grid of the user's own, which may do something with the replies
    try:
        return SuperLinkConnection(grid, names)
    except AttributeError as error:
        _warn_of_connection(str(error))
        return None


@functools.cache
def _warn_of_connection(cause: str) -> None:
    _warn(cause)
