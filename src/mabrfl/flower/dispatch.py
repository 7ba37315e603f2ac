"""What was sent to whom in a round, and which reply belongs to which message."""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from flwr.app import Message, RecordDict

from mabrfl.flower.contract import Checked, Finding
from mabrfl.flower.problems import Problem
from mabrfl.rng import ClientId

_TOKEN_BYTES = 16


@dataclass(frozen=True)
class Dispatch:
    """The messages of one round.

    Attributes
    ----------
    round
        The round's number over all runs.
    available
        How many nodes could have been chosen.
    messages
        What was sent. The grid fills in the ids of these very objects when it sends them.
    clients
        Whom each message is for, in the same order.
    events
        What was odd about the nodes.
    """

    round: int
    available: int = 0
    messages: Sequence[Message] = ()
    clients: Sequence[ClientId] = ()
    events: tuple[str, ...] = ()

    def by_message_id(self) -> dict[str, tuple[ClientId, Message]]:
        """Return the messages that were sent, by the ids that the grid gave them."""
        pairs = zip(self.clients, self.messages, strict=True)
        return {message.metadata.message_id: (client, message) for client, message in pairs}


def write_messages(content: RecordDict, nodes: Sequence[int], kind: str, ttl: float) -> list[Message]:
    """Return one message per node, each with a random token of its own and a time to live.

    A message's id is a hash over its metadata, the token among them, so that nobody but its receiver can name it in
    a reply. A node works its messages one at a time: without a time to live, one that is slow would still be busy
    with a round that is long over. A list, because Flower's HTTP grid walks over it twice.
    """
    return [Message(content, node, kind, ttl=ttl, group_id=secrets.token_hex(_TOKEN_BYTES)) for node in nodes]


@dataclass(frozen=True)
class Arrival:
    """What came of one message, or a reply that belongs to none.

    Attributes
    ----------
    client
        Whose message it was; None if that is not known.
    node
        The node it was sent to; for a reply that belongs to no message, the node it says it comes from.
    content
        What was sent, if there is anything to look at.
    checked
        What the check of it came to, if it was done as soon as it arrived.
    problem
        Why it is set aside; None if it can be judged.
    """

    client: ClientId | None
    node: int
    content: RecordDict | None = None
    checked: Checked | None = None
    problem: Problem | None = None


@dataclass
class Mailroom:
    """Attributes replies to messages by message id, never by what they say about their sender."""

    earlier: dict[str, tuple[int, ClientId]] = field(default_factory=dict)

    def sort(self, replies: Sequence[Message], dispatch: Dispatch, findings: Mapping[str, Finding]) -> list[Arrival]:
        """Return one arrival per message of the round, and one per reply that belongs to none of them.

        ``findings`` has what is known of single messages' replies already.
        """
        sent = {mid: pair for mid, pair in dispatch.by_message_id().items() if mid}
        answers: dict[str, list[Message]] = defaultdict(list)
        strays = []
        for reply in replies:
            mid = reply.metadata.reply_to_message_id
            if mid in sent:
                answers[mid].append(reply)
            else:
                strays.append(self._stray(reply))
        arrivals = []
        for client, message in zip(dispatch.clients, dispatch.messages, strict=True):
            mid = message.metadata.message_id
            arrivals.append(_arrival(client, message, answers[mid], findings.get(mid)))
        self.earlier = {mid: (dispatch.round, client) for mid, (client, _) in sent.items()}
        return arrivals + strays

    def _stray(self, reply: Message) -> Arrival:
        mid, says = reply.metadata.reply_to_message_id, int(reply.metadata.src_node_id)
        if reply.has_error():
            return Arrival(None, says, problem=_error(reply))
        if mid in self.earlier:
            number, client = self.earlier[mid]
            return Arrival(client, says, problem=Problem("stale", f"answers a message of round {number}", blamed=False))
        return Arrival(None, says, problem=Problem("unattributed", "answers no message of this round", blamed=False))


def _arrival(client: ClientId, message: Message, replies: Sequence[Message], finding: Finding | None) -> Arrival:
    node = message.metadata.dst_node_id
    if isinstance(finding, Problem) and not replies:
        return Arrival(client, node, problem=finding)
    contents = [reply for reply in replies if not reply.has_error()]
    if len(contents) > 1:
        return Arrival(client, node, problem=Problem("duplicate", f"{len(contents)} replies to one message", True))
    if contents:
        return _agreeing(client, message, contents[0], finding)
    if replies:
        return Arrival(client, node, problem=_error(replies[0]))
    said = "no reply in time" if message.metadata.message_id else "the message could not be sent"
    return Arrival(client, node, problem=Problem("no-reply", said, blamed=False))


def _agreeing(client: ClientId, message: Message, reply: Message, finding: Finding | None) -> Arrival:
    """Look at what a reply says about itself; it must agree with the message it answers."""
    node, theirs = message.metadata.dst_node_id, reply.metadata
    if theirs.src_node_id != node:
        problem = Problem("sender", f"comes from node {theirs.src_node_id}, but node {node} was asked", blamed=False)
        return Arrival(client, node, problem=problem)
    if theirs.group_id != message.metadata.group_id:
        return Arrival(client, node, problem=Problem("sender", "does not carry the message's token", blamed=False))
    if isinstance(finding, Problem):
        return Arrival(client, node, problem=finding)
    return Arrival(client, node, content=reply.content, checked=finding)


def _error(reply: Message) -> Problem:
    return Problem("error", f"code {reply.error.code}: {reply.error.reason or 'no reason given'}", blamed=False)
