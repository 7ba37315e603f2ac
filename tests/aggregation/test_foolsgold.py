"""FoolsGold: the weights of its algorithm, its memory, and its claim about many sybils."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers import make_cohort, step_of
from mabrfl import Defense, Updates
from mabrfl.aggregation import NNM, FoolsGold, PreAggregated
from mabrfl.aggregation.foolsgold import foolsgold_weights
from mabrfl.errors import ConfigError, StateError


def slow_weights(cosines: np.ndarray[Any, Any]) -> list[float]:
    """Algorithm 1 of Fung et al., loop by loop."""
    n = len(cosines)
    similar = [[cosines[i][j] if i != j else 0.0 for j in range(n)] for i in range(n)]
    most = [max(row) for row in similar]
    pardoned = [
        [value * most[i] / most[j] if most[j] > most[i] else value for j, value in enumerate(row)]
        for i, row in enumerate(similar)
    ]
    alpha = [min(max(1 - max(row), 0.0), 1.0) for row in pardoned]
    alpha = [min(one / max(alpha), 0.99) for one in alpha]
    return [min(max(np.log(one / (1 - one)) + 0.5, 0.0), 1.0) if one else 0.0 for one in alpha]


def test_the_weights_are_those_of_the_algorithm() -> None:
    for seed in range(30):
        rows = np.random.default_rng(seed).normal(size=(9, 6)) + 0.5
        rows[:3] = rows[0] + 0.05 * rows[:3]
        cosines = make_cohort(rows).cosines
        np.testing.assert_allclose(foolsgold_weights(cosines), slow_weights(cosines), atol=1e-12)


def test_ninety_sybils_of_a_hundred_do_not_overpower_ten_honest_clients() -> None:
    """The paper's claim: with non-IID data it withstands any number of sybils, since they are alike."""
    rng = np.random.default_rng(0)
    honest = np.eye(10, 40) + 0.05 * rng.normal(size=(10, 40))
    sybils = np.tile(-np.ones(40), (90, 1)) + 0.05 * rng.normal(size=(90, 40))
    cohort = make_cohort(np.vstack([honest, sybils]))
    decision = FoolsGold()(cohort)
    assert decision.reasons == ["accepted"] * 10 + ["sybil"] * 90
    np.testing.assert_allclose(step_of(cohort, decision), honest.mean(axis=0), atol=0.02)


def test_sybils_that_look_different_in_a_round_are_known_by_their_sum() -> None:
    """Updates of one round are d + noise, the noise of the two cancels over two rounds: only history tells."""
    rng = np.random.default_rng(0)
    aim, noise = rng.normal(size=(2, 60))
    noise *= 4
    honest = [rng.normal(size=(6, 60)) for _ in range(2)]
    rounds = [
        np.vstack([honest[0], aim + noise, aim - noise]),
        np.vstack([honest[1], aim - noise, aim + noise]),
    ]
    weights = {}
    for history in ("all-rounds", "this-round"):
        defense = Defense(FoolsGold(history=history))  # type: ignore[arg-type]
        for number, rows in enumerate(rounds, start=1):
            outcome = defense.aggregate(Updates(range(8), rows), round=number)
        weights[history] = [outcome.verdicts[client].evidence["learning_rate"] for client in (6, 7)]
    assert weights["all-rounds"] == [0.0, 0.0]
    assert weights["this-round"] == [1.0, 1.0]


def test_if_all_are_alike_all_count_the_same() -> None:
    cohort = make_cohort(np.ones((4, 3)))
    decision = FoolsGold()(cohort)
    np.testing.assert_allclose(step_of(cohort, decision), 1)
    assert decision.events == ("foolsgold-all-alike: every client weighs the same",)
    assert decision.reasons == ["accepted"] * 4


def test_a_foreign_state_and_a_pre_aggregator_are_refused() -> None:
    with pytest.raises(StateError, match="may hold 'clients' and 'sums' only"):
        FoolsGold().load_state_dict({"centre": np.zeros(3)})
    with pytest.raises(StateError, match="one per client"):
        FoolsGold().load_state_dict({"clients": [1], "sums": np.zeros((2, 3))})
    rule = FoolsGold()
    rule(make_cohort(np.eye(3)))
    with pytest.raises(StateError, match="the history of 0 has 3 numbers, the updates 4"):
        rule(make_cohort(np.eye(4)))
    with pytest.raises(ConfigError, match="FoolsGold judges each client by its own updates over the rounds"):
        PreAggregated(FoolsGold(), [NNM(num_malicious=1)])
