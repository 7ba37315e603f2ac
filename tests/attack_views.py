"""Views for the tests of the attacks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mabrfl.attacks import AttackerView, Knowledge, Secrets
from mabrfl.updates import Outcome, Verdict


def make_view(
    benign: Any,
    *,
    attackers: int = 2,
    own: Any = None,
    knowledge: Knowledge = Knowledge.FULL,
    num_clients: int | None = None,
    num_malicious: int | None = None,
    defense: str = "krum",
    round: int = 1,
    seed: int = 0,
    last_step: Any = None,
) -> AttackerView:
    """Benign clients are 0, 1, ..., the attackers come after them; everyone is selected unless told otherwise."""
    rows: NDArray[Any] = np.asarray(benign)
    ids = tuple(range(len(rows)))

    def rehearse(sent: NDArray[Any]) -> Outcome:
        everyone = np.concatenate([rows, sent])
        verdicts = {client: Verdict(True, "accepted") for client in range(len(everyone))}
        return Outcome(everyone.mean(axis=0), verdicts, round)

    return AttackerView(
        round=round,
        attackers=tuple(range(len(rows), len(rows) + attackers)),
        num_clients=num_clients or len(rows) + attackers,
        num_malicious=attackers if num_malicious is None else num_malicious,
        knowledge=knowledge,
        global_weights=np.zeros(rows.shape[1], dtype=rows.dtype),
        last_step=None if last_step is None else np.asarray(last_step),
        own_updates=None if own is None else np.asarray(own),
        seed=seed,
        secrets=Secrets(rows, ids, defense, rehearse),
    )


def random_rows(count: int, width: int = 40, seed: int = 0, dtype: Any = np.float64) -> NDArray[Any]:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((count, width)) * rng.uniform(0.5, 2.0, width) + 0.3).astype(dtype)
