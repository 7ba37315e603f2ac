"""Flower's own grid on a SuperLink in memory: replies come in pieces, as on a deployment."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Message
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.proto.message_pb2 import ObjectTree, PullObjectResponse
from flwr.proto.node_pb2 import NodeInfo
from flwr.proto.runtime_pb2 import PullAppMessagesResponse
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_id
from flwr.supercore.run import Run
from flwr.superlink.grid.http_grid import HttpGrid


@dataclass
class Packed:
    """A reply as a node uploads it: what it says of itself, and its pieces."""

    proto: ProtoMessage
    contents: dict[str, bytes]


def packed(reply: Message) -> Packed:
    """Pack a reply as Flower does."""
    contents = {name: piece.deflate() for name, piece in get_all_nested_objects(reply).items()}
    proto = message_to_proto(remove_content_from_message(reply))
    proto.metadata.message_id = reply.object_id
    return Packed(proto, contents)


def repacked(reply: Message, change: Callable[[str, bytes], bytes]) -> Packed:
    """Pack a reply and change its pieces on the way; the names of pieces, which are hashes, follow."""
    contents, names = {}, {}
    for name, piece in get_all_nested_objects(reply).items():  # children come before their parents
        head, _, body = piece.deflate().partition(b"\x00")
        for old, new in names.items():
            head = head.replace(old.encode(), new.encode())
            body = body.replace(old.encode(), new.encode()) if head[:10] != b"ArrayChunk" else body
        body = change(type(piece).__name__, body)
        content = b" ".join([*head.split(b" ")[:-1], b"%d" % len(body)]) + b"\x00" + body
        names[name] = get_object_id(content)
        contents[names[name]] = content
    made = packed(reply)
    made.proto.metadata.message_id = names[reply.object_id]
    return Packed(made.proto, contents)


def bomb(reply: Message, times: int) -> Packed:
    """Pack a reply whose arrays name their chunks many times over: small on the wire, large when unpacked."""

    def change(kind: str, body: bytes) -> bytes:
        if kind != "Array":
            return body
        told = json.loads(body)
        return json.dumps({**told, "arraychunk_ids": told["arraychunk_ids"] * times}).encode()

    return repacked(reply, change)


def nested(reply: Message, levels: int, times: int) -> Packed:
    """Pack a reply with an array made of arrays: a chunk of ten bytes, ``times`` as much at each level."""
    whole = packed(reply)
    chunk = b"ArrayChunk  10\x00" + bytes(10)
    made, child = {get_object_id(chunk): chunk}, get_object_id(chunk)
    for _ in range(levels):
        told = {"dtype": "float32", "shape": [1], "stype": "numpy.ndarray", "arraychunk_ids": [0] * times}
        body = json.dumps(told).encode()
        array = b"Array %s %d\x00" % (child.encode(), len(body)) + body
        child = get_object_id(array)
        made[child] = array
    record = next(content for content in whole.contents.values() if content.startswith(b"ArrayRecord "))
    names = {record.partition(b"\x00")[0].split(b" ")[1].split(b",")[0].decode(): child}
    for name, content in whole.contents.items():  # children come before their parents
        head, _, body = content.partition(b"\x00")
        for old, new in names.items():
            head = head.replace(old.encode(), new.encode())
            body = body.replace(old.encode(), new.encode()) if head[:10] != b"ArrayChunk" else body
        changed = b" ".join([*head.split(b" ")[:-1], b"%d" % len(body)]) + b"\x00" + body
        names.setdefault(name, get_object_id(changed))
        made[names[name]] = made.get(names[name], changed)
    whole.proto.metadata.message_id = names[reply.object_id]
    return Packed(whole.proto, made)


@dataclass
class Link:
    """What Flower's grid calls of a SuperLink. Replies are made when they are asked for, and forgotten when confirmed.

    Attributes
    ----------
    withheld
        Nodes that announce their replies and do not upload the last piece.
    failing
        By node, what is raised when its reply is looked for.
    faltering
        By node, what is raised at the first looks, one after the other; None is a look that finds nothing yet.
    asked
        Which node's reply was looked for, in order.
    """

    nodes: dict[int, Callable[[Message], Any]]
    withheld: set[int] = field(default_factory=set)
    failing: dict[int, BaseException] = field(default_factory=dict)
    faltering: dict[int, list[BaseException | None]] = field(default_factory=dict)
    asked: list[int] = field(default_factory=list)
    sent: dict[str, Message] = field(default_factory=dict)
    pieces: dict[str, bytes | None] = field(default_factory=dict)
    belonging: dict[str, list[str]] = field(default_factory=dict)
    fetched: int = 0

    def PullMessages(self, request: Any) -> PullAppMessagesResponse:  # noqa: N802 (Flower's names)
        (mid,) = request.message_ids
        message = self.sent[mid]
        node = message.metadata.dst_node_id
        self.asked.append(node)
        if node in self.failing:
            raise self.failing[node]
        if self.faltering.get(node):
            trouble = self.faltering[node].pop(0)
            if trouble is not None:
                raise trouble
            return PullAppMessagesResponse()
        del self.sent[mid]
        answer = self.nodes[node](message)
        answers = [] if answer is None else [answer] if isinstance(answer, Message | Packed) else list(answer)
        response = PullAppMessagesResponse()
        for reply in answers:
            made = reply if isinstance(reply, Packed) else packed(reply)
            made.proto.metadata.reply_to_message_id = mid  # that is how a SuperLink found it, whatever is inside
            names = list(made.contents)
            self.pieces |= made.contents
            self.belonging[made.proto.metadata.message_id] = names
            if node in self.withheld:
                self.pieces[names[-1]] = None
            tree = ObjectTree(object_id=names[-1], children=[ObjectTree(object_id=name) for name in names[:-1]])
            response.messages_list.append(made.proto)
            response.message_object_trees.append(tree)
        return response

    def PullObject(self, request: Any) -> PullObjectResponse:  # noqa: N802
        self.fetched += 1
        content = self.pieces.get(request.object_id)
        return PullObjectResponse(
            object_found=request.object_id in self.pieces,
            object_available=content is not None,
            object_content=content or b"",
        )

    def ConfirmMessageReceived(self, request: Any) -> None:  # noqa: N802
        for name in self.belonging.pop(request.message_object_id):
            if not any(name in names for names in self.belonging.values()):
                self.pieces.pop(name, None)


class WireGrid(HttpGrid):
    """Flower's own grid; what is replaced is its connection. ``nodes`` as in ``MemoryGrid``."""

    pull_interval = 0.01

    def __init__(self, nodes: dict[int, Callable[[Message], Any]]) -> None:
        super().__init__(token="unused")
        self.link = Link(nodes)
        self._client = self.link  # type: ignore[assignment]
        self._run = Run.create_empty(1)
        self.sent: list[Message] = []

    def get_nodes(self) -> Iterable[NodeInfo]:
        return [NodeInfo(node_id=node, public_key=b"key of %d" % node) for node in self.link.nodes]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        for message in messages:
            message.metadata.__dict__["_message_id"] = message.object_id
            self.link.sent[message.object_id] = message
            self.sent.append(message)
        return [message.metadata.message_id for message in messages]
