"""The panel: the clients that are compared with each other. Those of this round, and those of the last few rounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mabrfl import vectors
from mabrfl.rng import ClientId
from mabrfl.screening.momentum import MomentumMemory
from mabrfl.updates import Cohort


@dataclass(frozen=True)
class Panel:
    """Clients with their momenta; the first seats are the cohort's, in its order.

    Attributes
    ----------
    ids
        Who sits where.
    present
        How many of them sent something this round.
    cosines
        Of their momenta.
    trust
        Their reputation before this round, B / (B + M).
    consistency
        Cosine of each client's update with its own momentum of before; NaN without either.
    """

    ids: tuple[ClientId, ...]
    present: int
    cosines: NDArray[np.float64]
    trust: NDArray[np.float64]
    consistency: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.ids)


def convene(cohort: Cohort, memory: MomentumMemory, *, history: float, rounds: int, size: int) -> Panel:
    """Remember this round's updates, and seat the cohort with those who were judged lately.

    Parameters
    ----------
    cohort
        This round's updates.
    memory
        Momenta of unit updates, changed in place.
    history
        Weight of the past per round; with 0 nothing is remembered and the cohort sits alone.
    rounds, size
        How old a momentum may be to have a seat, and how many of these there are at most.
    """
    n = len(cohort)
    if not history:
        return Panel(cohort.ids, n, cohort.cosines, cohort.trust(cohort.ids), np.full(n, np.nan))
    memory.forget(gone=lambda client: client not in cohort.reputation, before=cohort.round - rounds)
    own = memory.rows(cohort.ids, cohort.matrix)
    clients = memory.clients()
    others = memory.recent(own, cohort.round - rounds) if rounds else own[:0]
    others = np.array([row for row in others if clients[row] in cohort.reputation][:size], dtype=np.intp)
    seats = np.concatenate([own, others])
    gram, consistency = memory.fold_unit(
        own, cohort.matrix, cohort.norms, seats, round_number=cohort.round, history=history
    )
    ids = (*cohort.ids, *(clients[row] for row in others))
    absent = np.full(len(others), np.nan)
    return Panel(ids, n, vectors.cosines(gram), cohort.trust(ids), np.concatenate([consistency, absent]))
