"""A small tier, and records of it with numbers that can be worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mabrfl.arena.arena_records import DefenseColumn, Records, Run
from mabrfl.arena.scenarios import NOBODY, Named, Scenario, Tier, load_tier, named

CLEAN = 90.0
SHARES = (0.1, 0.3)
ATTACKS = ("ipm", "backdoor")


@pytest.fixture
def tier() -> Tier:
    """Two attacks by one or three of ten clients on the digits, with two seeds."""
    quick = load_tier("quick")
    return replace(
        quick,
        settings={**quick.settings, "clients": 10, "rounds": 2, "training.epochs": 1, "partition.sizes": [8, 16]},
        tasks=quick.tasks[:1],
        attacks=tuple(attack for attack in quick.attacks if attack.label in ATTACKS),
        shares=SHARES,
        seeds=(1, 2),
    )


def column(tier: Tier, entrant: Named, losses: dict[tuple[int, float, str], float]) -> DefenseColumn:
    """A column that loses this many points, by seed, share and attack; nothing elsewhere."""
    runs = {
        one: Run(
            f"{number:016x}",
            accuracy=CLEAN - losses.get((one.seed, one.share, one.attack), 0.0),
            success=20.0 if one.attack == "backdoor" else None,
            rejected=5.0,
            milliseconds=2.0,
        )
        for number, one in enumerate(tier.scenarios())
    }
    return DefenseColumn(entrant, runs, {"mabrfl": "0.1.0"})


@pytest.fixture
def larger(tier: Tier) -> Records:
    """A tier that is scored by task: FedAvg is complete; our own entry has all runs of 10 %, and half of 30 %."""
    laptop = replace(tier, name="laptop")
    fallen = {(seed, share, "ipm"): 80.0 for seed in tier.seeds for share in SHARES}
    ours = column(laptop, Named("mab-rfl hardened", {"defense": "mab-rfl"}), {(1, 0.1, "ipm"): 3.0})
    kept = {one: run for one, run in ours.runs.items() if one.share == 0.1 and one.seed == 1}
    begun = {one: run for one, run in ours.runs.items() if one.share == 0.3 and one.attack == "ipm"}
    clean = {one: run for one, run in ours.runs.items() if one.attack == NOBODY and one.seed == 1}
    first = column(laptop, named("defense", "fedavg"), {**fallen, (1, 0.1, "ipm"): 1.5})
    return Records(laptop, (first, replace(ours, runs={**clean, **kept, **begun})))


@pytest.fixture
def records(tier: Tier) -> Records:
    """FedAvg falls to IPM, the median loses little, and Krum has a run missing."""
    fallen = {(seed, share, "ipm"): 80.0 for seed in tier.seeds for share in SHARES}
    little = {(1, 0.1, "ipm"): 2.0, (1, 0.3, "ipm"): 6.0, (2, 0.1, "ipm"): 4.0, (2, 0.3, "backdoor"): 8.0}
    krum = column(tier, named("defense", "krum"), {})
    missing = Scenario(2, "digits", 0.3, "ipm")
    unfinished = {one: run for one, run in krum.runs.items() if one.seed == 1 or one.attack == NOBODY}
    assert missing not in unfinished
    return Records(
        tier,
        (
            column(tier, named("defense", "fedavg"), fallen),
            column(tier, named("defense", "median"), little),
            replace(krum, runs=unfinished),
        ),
    )
