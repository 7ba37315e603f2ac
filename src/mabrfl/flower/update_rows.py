"""The memory of the updates of a round."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mabrfl.flower.schema import ModelSchema
from mabrfl.rng import ClientId
from mabrfl.updates import Floats, canonical

_NOTHING: Floats = np.zeros((0, 0), np.float32)


class UpdateRows:
    """A row for each client that is asked in a round; the next round uses the same memory again.

    Fresh memory takes as long as filling it does. Whoever keeps updates of a round, as a rule of the user's own may,
    keeps their memory as well: then the next round gets other memory.
    """

    def __init__(self) -> None:
        self._memory: NDArray[Any] = np.empty(0)
        self._lent: weakref.ref[NDArray[Any]] | None = None
        self._matrix = _NOTHING
        self._place: dict[int, int] = {}

    def begin(self, clients: Sequence[ClientId], nodes: Sequence[int], schema: ModelSchema) -> None:
        """Begin a round in which these clients, at these nodes, are asked; rows are in canonical order of clients."""
        node_of = dict(zip(clients, nodes, strict=True))
        self._place = {node_of[client]: k for k, client in enumerate(canonical(clients))}
        self._matrix = _NOTHING
        numbers = len(clients) * schema.dimension
        kept = self._lent is not None and self._lent() is not None
        fits = self._memory.dtype == schema.dtype and numbers <= self._memory.size <= 2 * numbers
        if kept or not fits:
            self._memory = np.empty(max(numbers, 1), schema.dtype)
        # Every view of this array, and no other object, keeps it: it does not own its memory, nor does another array.
        lent = np.frombuffer(self._memory.data, schema.dtype)
        self._lent = weakref.ref(lent)
        self._matrix = lent[:numbers].reshape(len(clients), schema.dimension)

    def row(self, node: int) -> Floats | None:
        """Return the row of the client at a node; None if it was not asked."""
        place = self._place.get(node)
        return None if place is None else self._matrix[place]

    def take(self, count: int) -> Floats:
        """Return so many rows, from the first one on, as the matrix of the round, which ends here.

        The row of a client moves up by the number of those before it that have none. So rows can be filled in order: no
        row is overwritten that is still needed.
        """
        matrix, self._matrix, self._place = self._matrix[:count], _NOTHING, {}
        return matrix
