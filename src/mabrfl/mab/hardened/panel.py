"""The panel: the clients that are compared with each other. Those of this round, and those of the last few rounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mabrfl.mab.hardened.views import AT_ONCE, Blocks, Name, Views, views
from mabrfl.rng import ClientId
from mabrfl.screening.momentum import MomentumMemory
from mabrfl.updates import Cohort

_SIZE = 256
"""At most so many absent clients are compared, the most recent ones."""


@dataclass(frozen=True)
class Panel:
    """Clients with their momenta; the first members are the cohort's, in its order.

    Attributes
    ----------
    ids
        The members.
    present
        How many of them sent something this round.
    views
        Cosines of their momenta, in the whole and in each block of the model.
    now
        The same of what was sent this round, of those ``present`` only, in the blocks of which one round says enough.
    columns
        How many numbers each block has.
    trust
        Their reputation before this round, B / (B + M).
    consistency
        Cosine of each client's update with its own momentum of before; NaN without either.
    """

    ids: tuple[ClientId, ...]
    present: int
    views: Views
    now: Views
    columns: dict[Name, int]
    trust: NDArray[np.float64]
    consistency: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.ids)


def convene(cohort: Cohort, memory: MomentumMemory, *, history: float, rounds: int) -> Panel:
    """Remember this round's updates, and compare the cohort with those who were judged lately.

    Parameters
    ----------
    cohort
        This round's updates.
    memory
        Momenta of unit updates, changed in place.
    history
        Weight of the past per round; with 0 nothing is remembered and the cohort is the whole panel.
    rounds
        How old a momentum of an absent client may be.
    """
    n, blocks = len(cohort), Blocks.of(cohort.layout)
    layers, columns = blocks.layers, blocks.columns(cohort.matrix.shape[1])
    at_once = {name: layers[name] for name in AT_ONCE if name in layers} if history else layers
    shares = dict(zip(at_once, cohort.grams(list(at_once.values())), strict=True))
    now = views(cohort.gram, shares, None if history else blocks.head, cohort.matrix)
    if not history:
        return Panel(cohort.ids, n, now, now, columns, cohort.trust(cohort.ids), np.full(n, np.nan))
    memory.forget(gone=lambda client: client not in cohort.reputation, before=cohort.round - rounds)
    own = memory.rows(cohort.ids, cohort.matrix)
    clients = memory.clients()
    others = memory.recent(own, cohort.round - rounds) if rounds else own[:0]
    others = np.array([row for row in others if clients[row] in cohort.reputation][:_SIZE], dtype=np.intp)
    rows = np.concatenate([own, others])
    gram, parts, consistency = memory.fold_unit(
        own,
        cohort.matrix,
        cohort.norms,
        rows,
        round_number=cohort.round,
        history=history,
        blocks=list(layers.values()),
    )
    ids = (*cohort.ids, *(clients[row] for row in others))
    return Panel(
        ids,
        n,
        views(gram, dict(zip(layers, parts, strict=True)), blocks.head, memory.matrix, rows, overwrite=True),
        now,
        columns,
        cohort.trust(ids),
        np.concatenate([consistency, np.full(len(others), np.nan)]),
    )
