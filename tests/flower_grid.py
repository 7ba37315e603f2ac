"""A grid in memory: real Flower messages, packed and unpacked as on the wire, and nodes that are functions."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity

Answer = Callable[[Message], "Message | Sequence[Message] | None"]


def pretend_a_task() -> None:
    """Say who we are, as Flower tells the process of a ServerApp; messages carry it."""
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1


class MemoryGrid(Grid):
    """Nodes that answer at once. ``nodes`` maps node ids to what they do with a message."""

    pull_interval = 0.01

    def __init__(self, nodes: dict[int, Answer], *, keys: dict[int, bytes] | None = None) -> None:
        self.nodes = nodes
        self.keys = {node: b"key of %d" % node for node in nodes} if keys is None else keys
        self.sent: list[Message] = []
        self.outbox: dict[str, list[Message]] = {}
        self.times: dict[str, int] = {}

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def get_nodes(self) -> Iterable[NodeInfo]:
        return [NodeInfo(node_id=node, public_key=self.keys.get(node, b"")) for node in self.nodes]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        ids = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = message.object_id
            self.sent.append(message)
            ids.append(message.metadata.message_id)
            answer = self.nodes[message.metadata.dst_node_id](message)
            answers = [] if answer is None else [answer] if isinstance(answer, Message) else list(answer)
            self.outbox[message.metadata.message_id] = answers
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        waiting = [reply for mid in list(message_ids) for reply in self.outbox.pop(mid, [])]
        return [over_the_wire(reply) for reply in waiting]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        return self.pull_messages(self.push_messages(list(messages)))


def over_the_wire(message: Message) -> Message:
    """Pack and unpack a message as Flower's HTTP grid does."""
    if message.has_error():
        return message
    objects = get_all_nested_objects(message)
    contents = {name: found.deflate() for name, found in objects.items()}
    unpacked = inflate_object_from_contents(message.object_id, contents)
    assert isinstance(unpacked, Message)
    return unpacked


def reply_to(message: Message, arrays: ArrayRecord | dict[str, Any], *, examples: Any = 10, **metrics: Any) -> Message:
    """Return a well-formed reply."""
    record = arrays if isinstance(arrays, ArrayRecord) else ArrayRecord({k: Array(v) for k, v in arrays.items()})
    told = MetricRecord({"num-examples": examples, **metrics})
    return Message(RecordDict({"arrays": record, "metrics": told}), reply_to=message)


def arrays_in(message: Message) -> dict[str, np.ndarray]:
    """Return the model that a message carries."""
    return {key: array.numpy() for key, array in message.content.array_records["arrays"].items()}


def round_in(message: Message) -> int:
    return int(message.content.config_records["config"]["server-round"])


def honest(seed: int, scale: float = 0.1) -> Answer:
    """A node whose update is drawn from its seed and the round, with a direction that all share."""

    def answer(message: Message) -> Message:
        rng = np.random.default_rng([seed, round_in(message)])
        common = np.random.default_rng([7, round_in(message)])
        moved = {}
        for key, values in arrays_in(message).items():
            if values.dtype.kind == "f":
                step = rng.normal(size=values.shape) + 0.3 * common.normal(size=values.shape)
                moved[key] = (values + scale * step).astype(values.dtype)
            else:
                moved[key] = np.asarray(values + 1)
        return reply_to(message, moved, loss=float(seed))

    return answer


def evaluating(seed: int) -> Answer:
    """A node that trains as :func:`honest` does, and says how good the model is if asked."""
    train = honest(seed)

    def answer(message: Message) -> Message:
        if message.metadata.message_type == "train":
            return train(message)
        weights = arrays_in(message)["a.weight"]
        told = MetricRecord({"num-examples": 10, "accuracy": float(seed + weights.sum()), "round": round_in(message)})
        return Message(RecordDict({"metrics": told}), reply_to=message)

    return answer


def model(seed: int = 0) -> ArrayRecord:
    """Return a small model: two matrices, a bias, BatchNorm's statistics and its count."""
    rng = np.random.default_rng(seed)
    return ArrayRecord(
        {
            "a.weight": Array(rng.normal(size=(6, 4)).astype(np.float32)),
            "a.bias": Array(np.zeros(6, np.float32)),
            "n.running_mean": Array(np.zeros(6, np.float32)),
            "n.num_batches_tracked": Array(np.array(0, np.int64)),
            "b.weight": Array(rng.normal(size=(3, 6)).astype(np.float32)),
        }
    )


def key_name(node: int) -> str:
    """The identity of a node of a grid in memory."""
    return "key:" + hashlib.sha256(b"key of %d" % node).hexdigest()
