"""Who a node is: the name under which its reputation is kept, from round to round and from run to run."""

from __future__ import annotations

import hashlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flwr.app import ConfigRecord, MessageType, RecordDict
from flwr.serverapp import Grid

from mabrfl.flower.dispatch import write_messages
from mabrfl.rng import ClientId
from mabrfl.updates import as_client_id, canonical

if TYPE_CHECKING:
    from flwr.proto.node_pb2 import NodeInfo

    Identify = Callable[[Grid, Sequence[NodeInfo]], Mapping[int, ClientId]]

log = logging.getLogger("flwr")

_SECONDS_BETWEEN_LOOKS = 1.0
_LOOKS_BETWEEN_LINES = 10


def by_public_key(grid: Grid, nodes: Sequence[NodeInfo]) -> dict[int, ClientId]:  # noqa: ARG001 (one of several)
    """Name each node by the SHA-256 of its public key; one without a key by its node id.

    With SuperNode authentication the key is the registered one, and the name survives restarts of node, SuperLink
    and server. Without it every start of a SuperNode makes a new key, so that a name lasts as long as a connection,
    and whoever restarts has a clean slate.
    """
    return {
        node.node_id: (
            f"key:{hashlib.sha256(node.public_key).hexdigest()}" if node.public_key else f"node:{node.node_id}"
        )
        for node in nodes
    }


class ClaimedIdentity:
    """Ask the nodes who they are and believe them. **For experiments only**: a liar says what it likes.

    In Flower's simulation engine ids and keys are random in every run; with this, the clients of an experiment are
    called 0 to K-1 as in mabrfl's own simulator, and the same seed selects the same clients. The ClientApp answers a
    query with a ``ConfigRecord`` that holds ``key``.

    Parameters
    ----------
    key
        Which entry of the answer is the name.
    timeout
        Seconds to wait for answers. A node that does not answer is asked again in the next round.
    """

    def __init__(self, key: str = "partition-id", timeout: float = 60.0) -> None:
        self.key = key
        self.timeout = timeout
        self._known: dict[int, ClientId] = {}

    def __call__(self, grid: Grid, nodes: Sequence[NodeInfo]) -> dict[int, ClientId]:
        """Return the names of the nodes that said one."""
        asked = [node.node_id for node in nodes if node.node_id not in self._known]
        content = RecordDict({"config": ConfigRecord()})
        messages = write_messages(content, asked, MessageType.QUERY, self.timeout)
        replies = list(grid.send_and_receive(messages, timeout=self.timeout)) if messages else []
        sent_to = {message.metadata.message_id: message.metadata.dst_node_id for message in messages}
        for reply in replies:
            node = sent_to.get(reply.metadata.reply_to_message_id)
            name = None if reply.has_error() else _claim(reply.content, self.key)
            if node is not None and name is not None:
                self._known[node] = name
        return {node.node_id: self._known[node.node_id] for node in nodes if node.node_id in self._known}


def _claim(content: RecordDict, key: str) -> ClientId | None:
    for record in content.config_records.values():
        try:
            return as_client_id(record[key])
        except (KeyError, TypeError, ValueError):
            continue
    return None


@dataclass(frozen=True)
class Roster:
    """The nodes that are online: who they are, and what was odd about them."""

    node_of: Mapping[ClientId, int]
    events: tuple[str, ...] = ()

    @property
    def clients(self) -> list[ClientId]:
        """Everybody who could take part, in canonical order."""
        return canonical(self.node_of)


def call_roll(grid: Grid, identify: Identify, at_least: int) -> Roster:
    """Wait until enough nodes are online, and say who they are; two nodes of one name are both left out."""
    looks = 0
    while len(nodes := list(grid.get_nodes())) < at_least:
        if looks % _LOOKS_BETWEEN_LINES == 0:
            log.info("Waiting for nodes to connect: %d connected (minimum required: %d).", len(nodes), at_least)
        looks += 1
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    names = dict(identify(grid, nodes))
    times = Counter(names.values())
    node_of = {name: node for node, name in names.items() if times[name] == 1}
    events = []
    if len(node_of) < len(names):
        events.append(f"identity-used-twice: {len(names) - len(node_of)} nodes left out")
    if len(names) < len(nodes):
        events.append(f"identity-unknown: {len(nodes) - len(names)} nodes left out")
    return Roster(node_of, tuple(events))
