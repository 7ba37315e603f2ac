"""The identity of a node: the name under which its reputation is kept over rounds and runs."""

from __future__ import annotations

import hashlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from flwr.app import ConfigRecord, MessageType, RecordDict
from flwr.serverapp import Grid

from mabrfl.flower.messages import write_messages
from mabrfl.rng import ClientId
from mabrfl.updates import as_client_id, canonical

log = logging.getLogger("flwr")

_SECONDS_BETWEEN_LOOKS = 1.0
_LOOKS_BETWEEN_LINES = 10


class NodeInfo(Protocol):
    """An entry of ``Grid.get_nodes``."""

    @property
    def node_id(self) -> int:
        """The id of the node."""

    @property
    def public_key(self) -> bytes:
        """The public key of the node; empty if it has none."""


Identify = Callable[[Grid, Sequence[NodeInfo]], Mapping[int, ClientId]]
"""Returns the identity of each node by its node id."""


def by_public_key(grid: Grid, nodes: Sequence[NodeInfo]) -> dict[int, ClientId]:  # noqa: ARG001 (the signature of Identify)
    """Name each node by the SHA-256 of its public key; one without a key by its node id.

    With SuperNode authentication the key is the registered one, and the name survives restarts of node, SuperLink
    and server. Without it every start of a SuperNode makes a new key: a node that restarts loses its reputation.
    """
    return {
        node.node_id: (
            f"key:{hashlib.sha256(node.public_key).hexdigest()}" if node.public_key else f"node:{node.node_id}"
        )
        for node in nodes
    }


class ClaimedIdentity:
    """Ask the nodes for their names and believe them. **For experiments only**: a liar can claim any name.

    In Flower's simulation engine ids and keys are random in every run; with this, the clients of an experiment are
    called 0 to K-1 as in mabrfl's own simulator, and the same seed selects the same clients. The ClientApp answers a
    query with a ``ConfigRecord`` that contains ``key``.

    Parameters
    ----------
    key
        The entry of the answer that is the name.
    timeout
        Seconds to wait for answers. A node that does not answer is asked again in the next round.
    """

    def __init__(self, key: str = "partition-id", timeout: float = 60.0) -> None:
        self.key = key
        self.timeout = timeout
        self._known: dict[int, ClientId] = {}

    def __call__(self, grid: Grid, nodes: Sequence[NodeInfo]) -> dict[int, ClientId]:
        """Return the names of the nodes that answered."""
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
class OnlineNodes:
    """The nodes that are online, by identity, irregularities among them, and the names they are registered with."""

    node_of: Mapping[ClientId, int]
    events: tuple[str, ...] = ()
    names: Mapping[ClientId, str] = field(default_factory=dict)

    @property
    def clients(self) -> list[ClientId]:
        """All identities, in canonical order."""
        return canonical(self.node_of)


def wait_for_nodes(
    grid: Grid, identify: Identify, at_least: int, banned: Callable[[], Collection[ClientId]] = frozenset
) -> OnlineNodes:
    """Wait until enough nodes are online, and identify them; nodes that share a name are all left out.

    Banned identities are left out and do not count; ``banned`` is called before every look, since an operator may
    change them while the server waits.
    """
    looks = 0
    while True:
        out, nodes, names = banned(), list(grid.get_nodes()), {}
        if len(nodes) >= at_least:
            names = dict(identify(grid, nodes))
        left_out = sum(name in out for name in names.values())
        usable = len(nodes) - left_out
        if usable >= at_least:
            break
        if looks % _LOOKS_BETWEEN_LINES == 0:
            log.info("Waiting for nodes to connect: %d connected (minimum required: %d).", usable, at_least)
        looks += 1
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    counts = Counter(names.values())
    events = [f"banned: {left_out} nodes left out"] if left_out else []
    nodes = [node for node in nodes if names.get(node.node_id) not in out]
    names = {node: name for node, name in names.items() if name not in out}
    node_of = {name: node for node, name in names.items() if counts[name] == 1}
    if len(node_of) < len(names):
        events.append(f"identity-used-twice: {len(names) - len(node_of)} nodes left out")
    if len(names) < len(nodes):
        events.append(f"identity-unknown: {len(nodes) - len(names)} nodes left out")
    registered = {node.node_id: str(getattr(node, "name", "")) for node in nodes}
    return OnlineNodes(
        node_of, tuple(events), {client: name for client, node in node_of.items() if (name := registered.get(node))}
    )
