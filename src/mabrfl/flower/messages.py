"""The messages of a round, and the match of replies to messages."""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from flwr.app import Message, RecordDict

from mabrfl.flower.problems import Problem
from mabrfl.flower.reply_checks import CheckedReply, CheckResult
from mabrfl.rng import ClientId

_TOKEN_BYTES = 16


@dataclass(frozen=True)
class SentMessages:
    """The messages of one round.

    Attributes
    ----------
    round
        The round's number over all runs.
    available
        The number of nodes that could be chosen.
    messages
        The messages. The grid sets the ids of these objects when it sends them.
    clients
        The client of each message, in the same order.
    events
        Irregularities among the nodes.
    """

    round: int
    available: int = 0
    messages: Sequence[Message] = ()
    clients: Sequence[ClientId] = ()
    events: tuple[str, ...] = ()

    def by_message_id(self) -> dict[str, tuple[ClientId, Message]]:
        """Return clients and messages by the ids that the grid has set."""
        pairs = zip(self.clients, self.messages, strict=True)
        return {message.metadata.message_id: (client, message) for client, message in pairs}


def write_messages(content: RecordDict, nodes: Sequence[int], kind: str, ttl: float) -> list[Message]:
    """Return one message per node, each with a random token of its own and a time to live.

    The id of a message is a hash over its metadata, which include the token, so that only its receiver can name it in a
    reply. A node handles its messages one at a time: without a time to live, a slow node would still work on rounds
    that are over. The messages are a list because Flower's HTTP grid iterates over them twice.
    """
    return [Message(content, node, kind, ttl=ttl, group_id=secrets.token_hex(_TOKEN_BYTES)) for node in nodes]


@dataclass(frozen=True)
class MatchedReply:
    """A message with its reply, a message without one, or a reply that belongs to no message.

    Attributes
    ----------
    client
        The client that the message was sent to; None if it is not known.
    node
        The node that it was sent to; for a reply that belongs to no message, the node that the reply names.
    content
        The content of the reply, if there is one to check.
    checked
        The checked reply, if the check was done on arrival.
    problem
        Why the reply is not used; None if it can be judged.
    """

    client: ClientId | None
    node: int
    content: RecordDict | None = None
    checked: CheckedReply | None = None
    problem: Problem | None = None


@dataclass
class ReplyMatcher:
    """Matches replies to messages by message id, never by the sender that a reply names."""

    earlier: dict[str, tuple[int, ClientId]] = field(default_factory=dict)

    def match(
        self, replies: Sequence[Message], sent: SentMessages, results: Mapping[str, CheckResult]
    ) -> list[MatchedReply]:
        """Return one entry per message of the round, and one per reply that belongs to none of them.

        ``results`` has the replies that were checked already, by message id.
        """
        pairs = {mid: pair for mid, pair in sent.by_message_id().items() if mid}
        answers: dict[str, list[Message]] = defaultdict(list)
        unmatched = []
        for reply in replies:
            mid = reply.metadata.reply_to_message_id
            if mid in pairs:
                answers[mid].append(reply)
            else:
                unmatched.append(self._unmatched(reply))
        matched = []
        for client, message in zip(sent.clients, sent.messages, strict=True):
            mid = message.metadata.message_id
            matched.append(_match(client, message, answers[mid], results.get(mid)))
        self.earlier = {mid: (sent.round, client) for mid, (client, _) in pairs.items()}
        return matched + unmatched

    def _unmatched(self, reply: Message) -> MatchedReply:
        mid, node = reply.metadata.reply_to_message_id, int(reply.metadata.src_node_id)
        if reply.has_error():
            return MatchedReply(None, node, problem=_error(reply))
        if mid in self.earlier:
            number, client = self.earlier[mid]
            problem = Problem("stale", f"answers a message of round {number}", blamed=False)
            return MatchedReply(client, node, problem=problem)
        problem = Problem("unattributed", "answers no message of this round", blamed=False)
        return MatchedReply(None, node, problem=problem)


def _match(client: ClientId, message: Message, replies: Sequence[Message], result: CheckResult | None) -> MatchedReply:
    node = message.metadata.dst_node_id
    if isinstance(result, Problem) and not replies:
        return MatchedReply(client, node, problem=result)
    contents = [reply for reply in replies if not reply.has_error()]
    if len(contents) > 1:
        return MatchedReply(client, node, problem=Problem("duplicate", f"{len(contents)} replies to one message", True))
    if contents:
        return _check_sender(client, message, contents[0], result)
    if replies:
        return MatchedReply(client, node, problem=_error(replies[0]))
    detail = "no reply in time" if message.metadata.message_id else "the message could not be sent"
    return MatchedReply(client, node, problem=Problem("no-reply", detail, blamed=False))


def _check_sender(client: ClientId, message: Message, reply: Message, result: CheckResult | None) -> MatchedReply:
    """Compare the sender and the token that a reply names with those of the message."""
    node, metadata = message.metadata.dst_node_id, reply.metadata
    if metadata.src_node_id != node:
        problem = Problem("sender", f"comes from node {metadata.src_node_id}, but node {node} was asked", blamed=False)
        return MatchedReply(client, node, problem=problem)
    if metadata.group_id != message.metadata.group_id:
        return MatchedReply(client, node, problem=Problem("sender", "does not carry the message's token", blamed=False))
    if isinstance(result, Problem):
        return MatchedReply(client, node, problem=result)
    return MatchedReply(client, node, content=reply.content, checked=result)


def _error(reply: Message) -> Problem:
    return Problem("error", f"code {reply.error.code}: {reply.error.reason or 'no reason given'}", blamed=False)
