"""A grid that fetches replies one by one, so that one that cannot be unpacked costs its sender alone.

Flower's own grid unpacks all replies of a poll together: an exception on the way (an array whose shape is a string,
say) ends the run, and takes with it the replies of that poll that were good.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from flwr.app import Message
from flwr.serverapp import Grid
from google.protobuf.message import DecodeError

if TYPE_CHECKING:
    from flwr.proto.node_pb2 import NodeInfo
    from flwr.supercore.run import Run

PULL_SECONDS = 3.0
"""Between two polls, where the grid does not say; as Flower's own."""

_BAD_OBJECT = "UnexpectedObjectContentError"  # Flower's own, from a module that is not public
_DECODING = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    DecodeError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What unpacking raises. Anything else (the network, say) is nobody's fault, and ends the run as it always did."""


class OneByOneGrid(Grid):
    """Another grid, with replies fetched one by one.

    Attributes
    ----------
    undecodable
        Message ids whose reply could not be unpacked, and why; emptied with each :meth:`send_and_receive`.
    """

    def __init__(self, inner: Grid) -> None:
        self.inner = inner
        self.undecodable: dict[str, str] = {}

    def set_run(self, run: Run) -> None:
        """Set the run of the grid."""
        self.inner.set_run(run)

    @property
    def run(self) -> Run:
        """Run information."""
        return self.inner.run

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        """Create a message."""
        return self.inner.create_message(*args, **kwargs)

    def get_node_ids(self) -> Iterable[int]:
        """Get node ids."""
        return self.inner.get_node_ids()

    def get_nodes(self) -> Iterable[NodeInfo]:
        """Get nodes."""
        return self.inner.get_nodes()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Push messages."""
        return self.inner.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Pull messages."""
        return self.inner.pull_messages(message_ids)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Push messages and collect their replies until all are there or the time is over."""
        self.undecodable = {}
        waiting = [mid for mid in self.inner.push_messages(list(messages)) if mid]
        deadline = None if timeout is None else time.monotonic() + timeout
        replies: list[Message] = []
        while waiting:
            waiting = [mid for mid in waiting if not self._fetch(mid, replies)]
            if not waiting or (deadline is not None and time.monotonic() >= deadline):
                break
            time.sleep(getattr(self.inner, "pull_interval", PULL_SECONDS))
        return replies

    def _fetch(self, message_id: str, replies: list[Message]) -> bool:
        """Fetch what there is for one message; return whether that settles it."""
        try:
            found = list(self.inner.pull_messages([message_id]))
        except Exception as error:
            if not isinstance(error, _DECODING) and type(error).__name__ != _BAD_OBJECT:
                raise
            self.undecodable[message_id] = f"{type(error).__name__}: {error}"
            return True
        replies.extend(found)
        return bool(found)
