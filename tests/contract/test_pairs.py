"""Attacks against defenses, over several rounds: without training, so that it is quick.

The clients' updates are random, alike as honest ones are; the stages of the round, the defenses and the attacks
are the real ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mabrfl import catalog
from mabrfl.catalog import BUILT_IN
from mabrfl.config import RunConfig, resolve
from mabrfl.layout import Layout
from mabrfl.rng import generator
from mabrfl.simulation.federation import Federation, choose_attackers
from mabrfl.simulation.round import run_round
from mabrfl.simulation.simulator import defense_of
from mabrfl.simulation.training import Evaluation, Trained

CLIENTS, WIDTH, ROUNDS = 25, 150, 3
DEFENSES = [
    {"defense": name} | ({"preset": preset} if entry.presets else {})
    for name, entry in BUILT_IN["defenses"].items()
    for preset in (BUILT_IN["presets"] if entry.presets else [""])
]


OPTIONS: dict[str, dict[str, Any]] = {"smea": {"search": "greedy"}}
"""The exact search of SMEA is for few clients: 5,200,300 subsets here."""


class RandomEngine:
    """Trains in no time: an update is a common course and noise; on poisoned data, the way back."""

    dimension = WIDTH
    layout = Layout({"first.weight": (10, 10), "first.bias": (10,), "last.weight": (10, 4)})
    initial_weights = np.zeros(WIDTH, np.float32)
    initial_buffers = np.zeros(0, np.float32)

    def train(self, clients: Any, weights: Any, buffers: Any, *, round: int, poisoned: Any, transient: Any) -> Trained:
        rows = [generator(1, "noise", round, client).standard_normal(WIDTH) for client in clients]
        course = [(-1 if client in poisoned else 1) * np.eye(WIDTH)[0] for client in clients]
        updates = 5 * np.reshape(course, (-1, WIDTH)) + np.reshape(rows, (-1, WIDTH))
        return Trained(updates.astype(np.float32), None)

    def evaluate(self, weights: Any, buffers: Any, *args: Any) -> Evaluation:
        assert np.isfinite(weights).all()
        return Evaluation(50.0, 1.0, np.full(10, 50.0))

    def accuracy_on(self, examples: Any, weights: Any, buffers: Any) -> float:
        return float(np.mean(weights > 0))


def rounds_of(attack: str, share: float, **defense: str) -> list[Any]:
    config = RunConfig(
        attack=attack,
        attackers=share,
        dataset="digits",
        clients=CLIENTS,
        rounds=ROUNDS,
        defense_options=OPTIONS.get(defense["defense"], {}),
        **defense,
    )
    shield = defense_of(resolve(config))
    liars = choose_attackers(CLIENTS, int(CLIENTS * share), seed=0) if attack != "none" else frozenset()
    engine: Any = RandomEngine()
    has_root = "root-data" in BUILT_IN["defenses"][defense["defense"]].needs
    federation = Federation(
        engine,
        attackers=liars,
        seed=0,
        num_examples=[10] * CLIENTS,
        has_root=has_root,
        own_examples=np.arange(10 * len(liars)),
    )
    enemy, model, records = catalog.build_attack(attack), federation.initial_model(), []
    for number in range(1, ROUNDS + 1):
        model, record = run_round(number, model, federation, shield, enemy)
        records.append(record)
    return records


def get_through(attack, share, **defense):
    for record in rounds_of(attack, share, **defense):
        assert len(record.attackers) == (int(CLIENTS * share) if attack != "none" else 0)
        assert set(record.verdicts) <= set(record.selected)
        assert len(record.selected) <= CLIENTS


@pytest.mark.parametrize(("place", "defense"), list(enumerate(DEFENSES)), ids=str)
def test_a_tenth_of_all_pairs_of_attacks_and_defenses_get_through_their_rounds(place, defense):
    """Each attack meets several defenses and each defense several attacks; the slow test below has all pairs."""
    for attack in list(BUILT_IN["attacks"])[place % 10 :: 10]:
        get_through(attack, 0.48, **defense)


@pytest.mark.parametrize("defense", DEFENSES, ids=lambda chosen: "-".join(chosen.values()))
def test_every_defense_gets_through_with_no_few_and_more_attackers(defense):
    for share in (0.0, 0.1, 0.3):
        get_through("lie", share, **defense)


@pytest.mark.parametrize("attack", BUILT_IN["attacks"])
def test_every_attack_gets_through_with_no_few_and_more_attackers(attack):
    for share in (0.0, 0.1, 0.3):
        get_through(attack, share, defense="mab-rfl")


@pytest.mark.slow
@pytest.mark.parametrize("defense", DEFENSES, ids=lambda chosen: "-".join(chosen.values()))
@pytest.mark.parametrize("attack", BUILT_IN["attacks"])
def test_every_attack_and_every_defense_get_through_at_every_share(defense, attack):
    for share in (0.0, 0.1, 0.3, 0.48):
        get_through(attack, share, **defense)
