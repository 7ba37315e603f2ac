"""The ids under which the server knows the clients: their numbers, until a client comes back under a new id."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mabrfl.errors import StateError
from mabrfl.rng import ClientId


class Identities:
    """The public ids of K clients. Client k starts as k; a new identity is a number that was never used.

    Only the simulator and evaluation know the client of an id. For the server a new id is a new client, and the
    old one is a client that left.

    Parameters
    ----------
    num_clients
        K.

    Examples
    --------
    >>> known = Identities(3)
    >>> known.renew(1)
    3
    >>> known.ids, known.client(3), known.client(1)
    ((0, 3, 2), 1, 1)
    """

    def __init__(self, num_clients: int) -> None:
        self._num_clients = num_clients
        self._owners = list(range(num_clients))
        self._current = list(range(num_clients))

    @property
    def ids(self) -> tuple[int, ...]:
        """The present id of each client, in order of the clients."""
        return tuple(self._current)

    def of(self, clients: Iterable[ClientId]) -> tuple[int, ...]:
        """Return the present ids of these clients."""
        return tuple(self._current[int(client)] for client in clients)

    def client(self, public_id: ClientId) -> int:
        """Return the client that has, or had, this id."""
        return self._owners[int(public_id)]

    def renew(self, client: ClientId) -> int:
        """Give a client an id that was never used, and return it."""
        new = len(self._owners)
        self._owners.append(int(client))
        self._current[int(client)] = new
        return new

    def state_dict(self) -> dict[str, Any]:
        """Return the clients that took a new identity, in order; everything else follows from that."""
        return {"renewals": self._owners[self._num_clients :]}

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        """Restore what ``state_dict`` returned."""
        renewals = state.get("renewals")
        if not isinstance(renewals, list | tuple) or not all(self._is_client(client) for client in renewals):
            raise StateError(f"identities must be a list of clients from 0 to {self._num_clients - 1}")
        restored = Identities(self._num_clients)
        for client in renewals:
            restored.renew(client)
        self._owners, self._current = restored._owners, restored._current

    def _is_client(self, value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < self._num_clients
