"""Fresh scenarios, drawn from a seed that is published with the results, not before: nobody can tune to them."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import Any

import numpy as np

from mabrfl.arena.scenarios import Named, Tier
from mabrfl.rng import generator

ATTACKS = 12
"""How many attacks are drawn."""
_BANDS = ((0.05, 0.2), (0.2, 0.35), (0.35, 0.46))
"""One share of attackers is drawn of each."""
_SEEDS = 2**31


def new_seed() -> int:
    """Return a seed that nobody knows before."""
    return secrets.randbelow(_SEEDS)


def fresh_tier(tier: Tier, seed: int) -> Tier:
    """Return a tier with the tasks of another, but partitions, sizes, shares, attacks and the runs' seed drawn anew.

    Examples
    --------
    >>> from mabrfl.arena.scenarios import load_tier
    >>> one, again = (fresh_tier(load_tier("quick"), 7) for _ in range(2))
    >>> one == again, one.drawn_from, len(one.attacks), one == fresh_tier(load_tier("quick"), 8)
    (True, 7, 12, False)
    """
    rng = generator(seed, "arena")
    chosen = sorted(rng.choice(len(tier.attacks), size=min(ATTACKS, len(tier.attacks)), replace=False))
    return replace(
        tier,
        name=f"{tier.name}-fresh",
        tasks=tuple(_task(task, rng) for task in tier.tasks),
        attacks=tuple(tier.attacks[place] for place in chosen),
        shares=tuple(round(float(rng.uniform(low, high)), 3) for low, high in _BANDS),
        seeds=(int(rng.integers(_SEEDS)),),
        drawn_from=seed,
    )


def _task(task: Named, rng: np.random.Generator) -> Named:
    """Return a task with another partition among other clients."""
    kinds: tuple[dict[str, Any], ...] = (
        {"partition.kind": "dominant-label", "partition.q": round(float(rng.uniform(0.2, 0.7)), 2)},
        {"partition.kind": "dirichlet", "partition.concentration": round(float(rng.uniform(0.3, 3)), 2)},
        {"partition.kind": "iid"},
    )
    smallest = int(rng.integers(20, 60))
    drawn = {
        **kinds[int(rng.integers(len(kinds)))],
        "partition.sizes": [smallest, smallest + int(rng.integers(20, 100))],
        "clients": int(rng.integers(20, 41)),
        "rounds": int(rng.integers(15, 31)),
    }
    kept = {key: value for key, value in task.settings.items() if not key.startswith("partition.kind")}
    return Named(task.label, {**kept, **drawn})
