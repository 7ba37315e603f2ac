import copy

import numpy as np
import pytest
import torch
from torch import nn

from mabrfl import Defense, MabRfl
from mabrfl.aggregation import FedAvg
from mabrfl.attacks import Braggart, Knowledge, SignFlip, Whitewash
from mabrfl.catalog import BUILT_IN
from mabrfl.config import RunConfig
from mabrfl.errors import ConfigError, KnowledgeError, StateError
from mabrfl.mab.presets import PRESETS
from mabrfl.recording.evaluation import attacker_ids, selection_rates
from mabrfl.runs import simulate
from mabrfl.selection import Uniform
from mabrfl.simulation.client_ids import Identities
from mabrfl.simulation.data import Dataset, load
from mabrfl.simulation.data.partition import dominant_label
from mabrfl.simulation.federation import choose_attackers
from mabrfl.simulation.simulator import Simulation, build_simulation
from mabrfl.simulation.training import TrainingOptions

TINY = {
    "dataset": "digits",
    "clients": 25,
    "rounds": 2,
    "workers": 1,
    "training": {"epochs": 1},
    "partition": {"sizes": (8, 24)},
}


def run(**settings):
    """Records and final weights of a short run on digits, everything but wall-clock times."""
    with build_simulation(RunConfig(dataset="digits", **{"rounds": 3, "workers": 1, **settings})) as simulation:
        records = [record.to_json().split('"seconds"')[0] for record in simulation.run()]
        return records, simulation.model.weights.tobytes(), simulation.model.buffers.tobytes()


@pytest.mark.parametrize(("preset", "attack"), [("paper", "label-flip"), ("reference", "agrt")])
def test_one_worker_two_workers_and_a_repetition_give_the_same_bytes(preset, attack):
    settings = {"preset": preset, "attack": attack, "attackers": 0.3}
    first = run(**settings)
    assert run(**settings) == first
    assert run(**settings, workers=2) == first


def test_another_seed_gives_another_run():
    assert run(seed=1) != run(seed=2)


def test_the_attack_does_not_change_who_is_selected_first_nor_who_attacks():
    records = [
        simulate(RunConfig(dataset="digits", attack=attack, attackers=0.3, rounds=1, workers=1))[0]
        for attack in ("lie", "label-flip", "sign-flip")
    ]
    assert len({record.selected for record in records}) == 1
    assert len({record.attackers for record in records}) == 1
    assert len(records[0].attackers) == 6


SHARES = (0.1, 0.3, 0.48)


DEFENSES = [{"preset": preset} for preset in PRESETS]
DEFENSES += [{"defense": name} for name, entry in BUILT_IN["defenses"].items() if not entry.presets]
# The exact search of SMEA is for few clients.
DEFENSES[DEFENSES.index({"defense": "smea"})]["defense_options"] = {"search": "greedy"}


def train_under_attacks(place, defense, *, every):
    """Train under every so many of the attacks, with one share each; the next defense meets the next attacks."""
    for turn, attack in enumerate(BUILT_IN["attacks"]):
        if (place + turn) % every:
            continue
        share = SHARES[(place + turn // every) % 3] if attack != "none" else 0.0
        records = simulate(RunConfig(**defense, attack=attack, attackers=share, **TINY))
        assert len(records) == 2, (attack, share)
        assert all(np.isfinite(record.accuracy) for record in records)
        assert len(records[0].attackers) == int(25 * share)


@pytest.mark.parametrize(("place", "defense"), list(enumerate(DEFENSES)), ids=str)
def test_every_defense_trains_under_attacks_and_some_defenses_under_every_attack(place, defense):
    """tests/contract/test_pairs.py has more pairs, without training."""
    train_under_attacks(place, defense, every=len(DEFENSES) // 2)


@pytest.mark.slow
@pytest.mark.parametrize(("place", "defense"), list(enumerate(DEFENSES)), ids=str)
def test_every_defense_trains_under_every_attack(place, defense):
    train_under_attacks(place, defense, every=1)


def test_attackers_are_fixed_by_seed_and_a_new_client_changes_nobody_but_the_last_chosen():
    assert choose_attackers(50, 15, seed=1) == choose_attackers(50, 15, seed=1)
    assert choose_attackers(50, 15, seed=1) != choose_attackers(50, 15, seed=2)
    before, after = choose_attackers(50, 15, seed=1), choose_attackers(51, 15, seed=1)
    assert len(before - after) <= 1
    assert choose_attackers(50, 15, rule="last") == frozenset(range(35, 50))
    assert len(choose_attackers(50, 0)) == 0
    with pytest.raises(ConfigError, match="'random' or 'last'; got 'first'"):
        choose_attackers(5, 1, rule="first")


def small_federation(model, **settings):
    dataset = load("digits")
    partition = dominant_label(
        dataset.train_labels, num_classes=10, num_clients=6, q=0.5, sizes=(20, 40), draw="unique", seed=0
    )
    defaults = {"defense": Defense(FedAvg()), "rounds": 2, "training": TrainingOptions(epochs=1, batch_size=8)}
    return Simulation(dataset=dataset, model=model, partition=partition, **{**defaults, **settings})


class Normed(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(64, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 10))


def test_batch_norm_buffers_are_no_part_of_the_update_and_follow_the_accepted_clients_median():
    seen = []

    def trusting(cohort):
        seen.append(cohort.matrix.shape)
        return FedAvg()(cohort)

    with small_federation(Normed, defense=Defense(trusting), rounds=1) as simulation:
        engine, federation = simulation.federation.engine, simulation.federation
        trained = federation.train(federation.client_ids, simulation.model, None, round_number=1)
        expected = np.median(np.stack([trained.buffers[k] for k in range(6)]), axis=0)
        list(simulation.run())
        assert seen == [(6, 64 * 12 + 12 + 2 * 12 + 12 * 10 + 10)]
        assert engine.num_buffers == 24
        np.testing.assert_allclose(simulation.model.buffers, expected, rtol=1e-6)
        assert not np.allclose(simulation.model.buffers, federation.initial_model().buffers)


def test_rules_see_the_layers_of_the_model_in_the_order_of_the_update():
    seen = []

    def by_layer(cohort):
        seen.append(cohort)
        return FedAvg()(cohort)

    with small_federation(Normed, defense=Defense(by_layer), rounds=1) as simulation:
        list(simulation.run())
        columns = simulation.federation.engine.layout.slices
        assert {name: part.stop - part.start for name, part in columns.items()} == {
            "1.weight": 64 * 12,
            "1.bias": 12,
            "2.weight": 12,
            "2.bias": 12,
            "4.weight": 12 * 10,
            "4.bias": 10,
        }
        np.testing.assert_array_equal(simulation.federation.initial_model().weights[columns["2.weight"]], np.ones(12))
    assert list(seen[0].blocks) == ["1", "2", "4"]
    last = seen[0].matrix[:, -130:].astype(np.float64)
    np.testing.assert_allclose(seen[0].blocks["4"].gram, last @ last.T, rtol=1e-4)


def test_buffers_of_rejected_clients_are_left_out():
    def only_the_first(cohort):
        decision = FedAvg()(cohort)
        reasons = ["accepted"] + ["outlier"] * (len(cohort) - 1)
        return type(decision)(weights=decision.weights, reasons=reasons)

    with small_federation(Normed, defense=Defense(only_the_first), rounds=1) as simulation:
        federation = simulation.federation
        trained = federation.train(federation.client_ids, simulation.model, None, round_number=1)
        expected = trained.buffers[0].copy()
        list(simulation.run())
        np.testing.assert_allclose(simulation.model.buffers, expected, rtol=1e-6)


def test_users_bring_any_module_and_any_data():
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=80)
    inputs = (rng.normal(size=(80, 5)) + 3 * labels[:, None]).astype(np.float32)
    dataset = Dataset("mine", inputs, labels, inputs, labels, num_classes=2)
    with Simulation(
        dataset=dataset,
        model=lambda: nn.Linear(5, 2),
        partition=[np.arange(k * 20, k * 20 + 20) for k in range(4)],
        defense=Defense(FedAvg()),
        training=TrainingOptions(learning_rate=0.05, batch_size=4),
        rounds=8,
    ) as simulation:
        records = list(simulation.run())
    assert records[-1].accuracy > 95


def test_an_attack_may_be_a_plain_function_and_rehearse():
    rehearsed = []

    def nosy(view):
        outcome = view.rehearse(-view.own_updates)
        rehearsed.append(len(outcome.verdicts))
        return -view.own_updates

    nosy.knowledge = "full"
    with small_federation(
        Normed, defense=MabRfl("paper", seed=0), attack=nosy, attackers={0, 1}, rounds=3
    ) as simulation:
        records = list(simulation.run())
    assert rehearsed
    for record in records:
        for client, (good, bad) in record.reputation.items():
            judged = sum(client in earlier.verdicts for earlier in records[: record.round])
            assert good + bad == 2 + judged, "a rehearsal must not change the real defense"


def test_attackers_who_can_do_nothing_send_nothing_and_are_not_blamed():
    def idle(view):
        return None

    with small_federation(Normed, attack=idle, attackers={0, 1}, rounds=1) as simulation:
        record = next(simulation.run())
    assert "attack-inactive" in record.events
    assert set(record.verdicts) == {2, 3, 4, 5}
    assert set(record.selected) == set(range(6))


def test_an_attack_gets_no_more_than_it_declares():
    def curious(view):
        return view.benign

    simulation = small_federation(Normed, attack=curious, attackers={0}, rounds=1)
    with simulation, pytest.raises(KnowledgeError, match="benign is hidden"):
        next(simulation.run())


@pytest.mark.parametrize(("observes", "expected"), [("selected", 1), ("all", 4)])
def test_an_attack_sees_the_selected_or_all_benign_clients(observes, expected):
    seen = []

    def looking(view):
        seen.append((view.benign_ids, view.benign.shape[0]))
        return np.repeat(view.benign[:1], len(view.attackers), axis=0)

    looking.knowledge, looking.observes = "partial", observes

    def two(candidates):
        return [0, 3]

    defense = Defense(FedAvg(), selector=two)
    with small_federation(Normed, defense=defense, attack=looking, attackers={0, 1}, rounds=1) as simulation:
        record = next(simulation.run())
    assert set(record.verdicts) == {0, 3}
    assert seen[0][0][0] == 3
    assert seen[0][1] == len(seen[0][0]) == expected


def test_an_attack_that_observes_everybody_changes_nothing_for_the_honest():
    def watching(view):
        return np.zeros(view.shape, np.float32)

    def weights(observes):
        watching.knowledge, watching.observes = "partial", observes
        settings = {
            "defense": Defense(FedAvg(), selector=Uniform(num_selected=3), seed=1),
            "training": TrainingOptions(epochs=1, batch_size=8, optimizer_state="kept"),
        }
        with small_federation(Normed, attack=watching, attackers={0, 1}, rounds=6, **settings) as simulation:
            list(simulation.run())
            return simulation.model.weights.tobytes()

    assert weights("selected") == weights("all")


def test_the_adversary_does_not_have_the_servers_random_streams():
    drawn = []

    def guessing(view):
        drawn.append(view.rng("dnc").random())
        return -view.own_updates

    def watching(cohort):
        drawn.append(cohort.rng("dnc").random())
        return FedAvg()(cohort)

    with small_federation(Normed, defense=Defense(watching), attack=guessing, attackers={0}, rounds=1) as simulation:
        next(simulation.run())
    assert drawn[0] != drawn[1]


def suspicious(cohort):
    """Reject whoever is not among the first four clients."""
    decision = FedAvg()(cohort)
    reasons = ["accepted" if client < 4 else "outlier" for client in cohort.ids]
    return type(decision)(weights=decision.weights, reasons=reasons)


def test_a_rejected_whitewasher_comes_back_as_somebody_new_and_the_records_know_who_it_is():
    settings = {"attack": Whitewash(), "attackers": {4, 5}, "rounds": 3}
    with small_federation(Normed, defense=Defense(suspicious), **settings) as simulation:
        records = list(simulation.run())
        assert simulation.num_clients == 6
    assert [set(record.selected) for record in records] == [
        {0, 1, 2, 3, 4, 5},
        {0, 1, 2, 3, 6, 7},
        {0, 1, 2, 3, 8, 9},
    ]
    assert [record.attackers for record in records] == [{4, 5}, {6, 7}, {8, 9}]
    assert [(record.caught, record.missed, record.honest_rejected) for record in records] == [(2, 0, 0)] * 3
    assert all("new-identities: 2" in record.events for record in records)
    rates = selection_rates(records, attacker_ids(records), 6)
    assert (rates.honest, rates.malicious) == (1.0, 1.0)
    assert attacker_ids(records) == {4, 5, 6, 7, 8, 9}


def test_a_new_identity_trains_on_the_same_data_and_the_server_forgets_nobody():
    def weights(attack):
        defense = Defense(suspicious)
        with small_federation(Normed, defense=defense, attack=attack, attackers={4, 5}, rounds=3) as simulation:
            list(simulation.run())
            return simulation.model.weights.tobytes(), set(defense.reputation)

    renamed, plain = weights(Whitewash()), weights(SignFlip())
    assert renamed[0] == plain[0]
    assert renamed[1] == set(range(10))
    assert plain[1] == set(range(6))


def test_claims_move_those_who_believe_them_and_nobody_else():
    def weights(rule, attack):
        settings = {"attack": attack, "attackers": {4, 5}, "rounds": 1}
        with small_federation(Normed, defense=Defense(rule), **settings) as simulation:
            list(simulation.run())
            return simulation.model.weights.tobytes()

    honest, boasting = SignFlip(), Braggart(inner=SignFlip())
    assert weights(FedAvg(), honest) != weights(FedAvg(), boasting)
    assert weights(FedAvg(weighting="uniform"), honest) == weights(FedAvg(weighting="uniform"), boasting)


def test_an_attack_of_full_knowledge_rehearses_under_its_own_names():
    seen = []

    class Nosy(Whitewash):
        def __call__(self, view):
            seen.append((view.attackers, set(view.rehearse(-view.own_updates).verdicts)))
            return super().__call__(view)

    attack = Nosy()
    attack.knowledge = Knowledge.FULL
    with small_federation(Normed, defense=Defense(suspicious), attack=attack, attackers={4, 5}) as simulation:
        list(simulation.run())
    assert seen == [((4, 5), set(range(6)))] * 2


def test_an_attack_cannot_rename_honest_clients():
    class Overreaching(SignFlip):
        def new_identities(self, rejected, round_number):
            return [0]

    settings = {"defense": Defense(suspicious), "attack": Overreaching(), "attackers": {4, 5}}
    with small_federation(Normed, **settings) as simulation, pytest.raises(ConfigError, match="only rename its own"):
        next(simulation.run())


def test_identities_of_unknown_clients_are_refused():
    known = Identities(3)
    known.renew(2)
    for bad in ({}, {"renewals": [3]}, {"renewals": [True]}, {"renewals": "12"}):
        with pytest.raises(StateError, match="identities must be a list of clients from 0 to 2"):
            known.load_state_dict(bad)
    assert known.ids == (0, 1, 3)


def test_attackers_must_be_clients():
    with pytest.raises(ConfigError, match=r"attackers must be clients 0 to 5; got \[6\]"):
        small_federation(Normed, attack=SignFlip(), attackers={6})


@pytest.mark.parametrize(
    "settings",
    [
        {"preset": "paper", "attack": "lie"},
        {"preset": "reference", "attack": "label-flip"},
        {"defense": "centered-clip", "attack": "mimic", "attack_options": {"victim": "largest-variance"}},
        {"preset": "paper", "attack": "frame"},
        {"preset": "paper", "attack": "sleeper", "attack_options": {"inner": "label-flip", "honest_rounds": 2}},
        {"defense": "multi-krum", "attack": "on-off", "attack_options": {"inner": "frame", "on_rounds": 2}},
        {"preset": "paper", "attack": "whitewash", "attack_options": {"patience": 2}},
    ],
    ids=str,
)
def test_a_restored_simulation_goes_on_bit_for_bit(settings):
    config = RunConfig(**{**TINY, "rounds": 6, "attackers": 0.3, **settings})
    with build_simulation(config) as whole:
        expected = [record.to_json().split('"seconds"')[0] for record in whole.run()]
    with build_simulation(config) as first:
        rounds = first.run()
        for _ in range(3):
            next(rounds)
        state = copy.deepcopy(first.state_dict())
        next(rounds)
    with build_simulation(config) as second:
        second.load_state_dict(state)
        rest = [record.to_json().split('"seconds"')[0] for record in second.run()]
        assert rest == expected[3:]
        assert second.model.weights.tobytes() == whole.model.weights.tobytes()
        assert second.defense.reputation == whole.defense.reputation


def test_a_state_of_another_model_is_refused():
    with build_simulation(RunConfig(**TINY)) as simulation:
        state = simulation.state_dict()
        with pytest.raises(StateError, match="the state's weights are float32"):
            simulation.load_state_dict({**state, "weights": np.zeros(3, np.float32)})
        with pytest.raises(StateError, match="malformed: 'defense'"):
            simulation.load_state_dict({key: value for key, value in state.items() if key != "defense"})
        for name, bad, message in (
            ("round", -4, "round must be a whole number"),
            ("weights", np.full_like(state["weights"], np.nan), "weights are not all finite"),
            ("last_step", np.zeros(3, np.float32), "last_step are float32"),
            ("engine", {"clients": [1]}, "engine|kept|optimizer|state"),
        ):
            with pytest.raises(StateError, match=message):
                simulation.load_state_dict({**state, name: bad})
        next(simulation.run())  # nothing was changed by any of them
        assert simulation.round == 1


def test_torch_global_random_state_is_left_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    run(rounds=1)
    assert torch.equal(torch.rand(3), expected)
