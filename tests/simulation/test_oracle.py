"""The servers that know more than a server can, and the rules that only look."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from helpers import make_cohort
from killing import TINY
from mabrfl.aggregation import FedAvg
from mabrfl.aggregation.averaging import SimilarityProbe
from mabrfl.config import RunConfig, resolve
from mabrfl.errors import ConfigError
from mabrfl.rng import ClientId
from mabrfl.runs import simulate
from mabrfl.selection import All, Uniform
from mabrfl.simulation.federation import choose_attackers
from mabrfl.simulation.oracle import AttackersPerRound, HonestOnly
from mabrfl.sweeps.sweep_file import load_sweep
from mabrfl.updates import Candidates

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


def candidates(number: int, seed: int = 0) -> Candidates:
    return Candidates(tuple(range(50)), np.ones(50), np.ones(50), number, seed)


def test_rational_sampling_takes_ten_honest_clients_at_random() -> None:
    attackers = choose_attackers(50, 15, seed=3)
    selector = HonestOnly(num_selected=10, num_attackers=15, num_clients=50, seed=3)
    counts = np.zeros(50)
    for number in range(1, 401):
        chosen = list(selector(candidates(number, seed=3)).ids)
        assert len(set(chosen)) == 10
        assert not attackers & set(chosen)
        counts[chosen] += 1
    honest = counts[[client for client in range(50) if client not in attackers]]
    assert honest.min() > 0.6 * honest.mean()


def test_rational_sampling_is_not_taken_in_by_a_new_identity() -> None:
    selector = HonestOnly(num_selected=50, num_attackers=15, num_clients=50, seed=3)
    ids = tuple(range(60))  # 50 to 59: attackers who came back
    chosen = selector(Candidates(ids, np.ones(60), np.ones(60), 1, 3)).ids
    assert set(chosen) == set(range(50)) - choose_attackers(50, 15, seed=3)


def test_rational_sampling_takes_whom_uniform_sampling_takes_if_honest() -> None:
    attackers = choose_attackers(50, 15, seed=0)
    uniform, honest = Uniform(num_selected=10), HonestOnly(num_attackers=15, num_clients=50, seed=0)
    for number in range(1, 20):
        at_random = set(uniform(candidates(number)).ids)
        assert at_random - attackers <= set(honest(candidates(number)).ids)


def test_the_three_samplings_differ_in_what_they_should_alone() -> None:
    shared = {**TINY, "clients": 10, "rounds": 3, "defense": "fedavg", "attackers": 4, "seed": 2}
    uniform = {"selector": "uniform", "selector_options": {"num_selected": 5}}
    rational = {"selector": "honest-only", "selector_options": {"num_selected": 5, "num_attackers": 4}}
    a = simulate(RunConfig(**shared, **uniform, attack="label-flip"))
    b = simulate(RunConfig(**shared, **uniform, attack="silent"))
    best = simulate(RunConfig(**shared, **rational, attack="label-flip"))
    assert [record.selected for record in a] == [record.selected for record in b]
    assert any(set(record.selected) & record.attackers for record in a)
    for ours, discarded, chosen in zip(a, b, best, strict=True):
        assert ours.attackers == discarded.attackers == chosen.attackers
        assert set(ours.verdicts) == set(ours.selected)
        assert set(discarded.verdicts) == set(discarded.selected) - discarded.attackers
        assert len(chosen.selected) == 5
        assert not set(chosen.selected) & chosen.attackers


def test_a_schedule_has_a_fixed_number_of_attackers_in_every_round() -> None:
    attackers: frozenset[ClientId] = frozenset(choose_attackers(50, 15, seed=1))
    uniform, counts = Uniform(num_selected=10), np.zeros(50)
    schedule = AttackersPerRound(uniform, lambda: attackers, 3)
    for number in range(1, 201):
        plain, chosen = set(uniform(candidates(number)).ids), schedule(candidates(number)).ids
        assert len(set(chosen)) == 10
        assert len(attackers & set(chosen)) == 3
        # No more clients change places than must: those that stay are as many as the two numbers of attackers allow.
        assert len(plain & set(chosen)) == 10 - abs(len(plain & attackers) - 3)
        counts[list(chosen)] += 1
    rates = counts[sorted(attackers, key=int)]
    assert rates.min() > 0.5 * rates.mean()


def test_a_schedule_leaves_attackers_out_where_everybody_is_selected() -> None:
    schedule = AttackersPerRound(All(), lambda: frozenset({1, 2, 3}), 1)
    chosen = set(schedule(Candidates(tuple(range(6)), np.ones(6), np.ones(6), 1, 0)).ids)
    assert {0, 4, 5} < chosen
    assert len(chosen) == 4


def test_the_attackers_per_round_are_a_setting_of_a_run() -> None:
    shared = {**TINY, "clients": 10, "rounds": 4, "defense": "fedavg", "attackers": 4, "attack": "whitewash"}
    config = RunConfig(**shared, selector="uniform", selector_options={"num_selected": 5}, attackers_per_round=1)
    records = simulate(config)
    assert [len(set(record.selected) & record.attackers) for record in records] == [1, 1, 1, 1]
    assert resolve(config.model_copy(update={"attack": "none"})).attackers_per_round == 0
    with pytest.raises(ConfigError, match="attackers_per_round must be at most 4, the attackers; got 5"):
        resolve(config.model_copy(update={"attackers_per_round": 5}))
    with pytest.raises(ConfigError, match="'acs' chooses by reputation"):
        resolve(RunConfig(attack="lie", attackers=0.3, attackers_per_round=1))


def test_an_oracle_refuses_nonsense() -> None:
    with pytest.raises(ConfigError, match="num_selected"):
        HonestOnly(num_selected=0)
    with pytest.raises(ConfigError, match="no variant 'first'"):
        HonestOnly(attackers_chosen="first")  # type: ignore[arg-type]


def test_the_probe_averages_as_fedavg_does_and_reports_what_it_sees() -> None:
    rows = np.array([[3.0, 0.0], [0.0, 4.0], [3.0, 4.0]])
    cohort = make_cohort(rows)
    decision, plain = SimilarityProbe()(cohort), FedAvg()(cohort)
    assert decision.weights is not None
    assert plain.weights is not None
    assert decision.weights.tolist() == plain.weights.tolist()
    # Cosines 0, 3/5 and 4/5; distances 5, 4 and 3; between unit vectors sqrt(2), sqrt(4/5) and sqrt(2/5).
    expected = {
        "largest_cosine": 0.8,
        "mean_cosine": 1.4 / 3,
        "largest_distance": 5.0,
        "mean_distance": 4.0,
        "smallest_unit_distance": np.sqrt(0.4),
        "mean_unit_distance": (np.sqrt(2) + np.sqrt(0.8) + np.sqrt(0.4)) / 3,
    }
    assert dict(decision.facts) == pytest.approx(expected, abs=1e-9)


def test_the_probe_has_nothing_to_say_about_one_update_or_about_zeros() -> None:
    assert SimilarityProbe()(make_cohort(np.ones((1, 3)))).facts == {}
    facts = SimilarityProbe()(make_cohort(np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 0.0]]))).facts
    assert facts["largest_cosine"] == pytest.approx(1.0)


@pytest.mark.parametrize("name", ["figure1a", "figure1b"])
def test_a_small_copy_of_a_figures_experiment_runs(name: str) -> None:
    for cell in load_sweep(EXPERIMENTS / f"{name}.toml").cells[:3]:
        changed = {
            "dataset": "digits",
            "model": "mlp",
            "rounds": 1,
            "workers": 1,
            "partition": {**cell.plain_config["partition"], "sizes": [8, 8]},
        }
        records = simulate(RunConfig(**{**cell.plain_config, **changed}))
        assert np.isfinite(records[0].accuracy)
        assert ("largest_distance" in records[0].facts) is (name == "figure1b")
