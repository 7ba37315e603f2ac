from __future__ import annotations

import numpy as np
import pytest
import torch

from helpers import random_rows
from mabrfl import catalog
from mabrfl.attacks import DBA, Backdoor, ConstrainAndScale, Knowledge, ModelReplacement, Neurotoxin, Sleeper
from mabrfl.config import RunConfig
from mabrfl.errors import ConfigError
from mabrfl.runs import simulate
from mabrfl.simulation.data import Dataset
from mabrfl.simulation.data.library import load
from mabrfl.simulation.federation import make_shards
from mabrfl.simulation.simulator import Simulation
from mabrfl.simulation.training import TrainingOptions, initialise
from mabrfl.simulation.training.local import train_client
from mabrfl.testing import make_view

FEDERATION = {"dataset": "digits", "defense": "fedavg", "clients": 10, "rounds": 8, "workers": 1}


def rng():
    return np.random.default_rng(0)


def drawn(mask):
    return ["".join(".#"[pixel] for pixel in row) for row in mask.astype(int)]


class TestDBA:
    def test_the_mark_is_the_four_bars_of_the_papers_mnist(self):
        # The authors' patterns: columns 0-3 and 6-9 of the rows 0 and 3.
        mask = DBA().mask((1, 28, 28))
        assert mask.sum() == 16
        bars = [(row, column) for row in (0, 3) for column in (*range(4), *range(6, 10))]
        assert sorted(map(tuple, np.argwhere(mask).tolist())) == bars

    def test_bars_are_shorter_where_pictures_are_narrow(self):
        bars = ["###..###", "........", "........", "###..###"]
        assert drawn(DBA().mask((8, 8))[:4]) == bars
        assert drawn(DBA(corner="bottom-right").mask((8, 8))[4:]) == bars

    def test_each_attacker_has_one_bar_and_the_goal_has_all(self):
        images, labels = np.zeros((6, 1, 8, 8), np.uint8), np.arange(6)
        attack = DBA(share=1.0, size=2, gap=1)
        parts = []
        for place in range(4):
            inputs, wanted = attack.poisoner(place).poison(images, labels, num_classes=6, rng=rng())
            assert (wanted == 0).all()
            parts.append(inputs[0, 0] > 0)
        assert [drawn(part[:3, :5]) for part in parts] == [
            ["##...", ".....", "....."],
            ["...##", ".....", "....."],
            [".....", ".....", "##..."],
            [".....", ".....", "...##"],
        ]
        marked, _ = attack.goal(images, labels, num_classes=6)
        np.testing.assert_array_equal(marked[0, 0] > 0, np.any(parts, axis=0))

    def test_the_adversarys_clients_take_the_parts_in_turn_also_inside_another_attack(self):
        images, labels = np.zeros((60, 1, 8, 8), np.float32), np.arange(60) % 2
        data = Dataset("blank", images, labels, images[:2], labels[:2], num_classes=2)
        partition = list(np.arange(60).reshape(12, 5))
        attackers = frozenset({1, 3, 5, 7, 10})
        for attack in (DBA(share=1.0), Sleeper(inner=DBA(share=1.0), honest_rounds=3)):
            shards = make_shards(data, partition, attack=attack, attackers=attackers, seed=0)
            marks = [shards[client].poisoned_inputs[0, 0] > 0 for client in sorted(attackers)]
            for place, mark in enumerate(marks):
                np.testing.assert_array_equal(mark, DBA().bar(place % 4, (8, 8)))

    def test_data_that_are_no_pictures_have_the_parts_one_after_the_other(self):
        assert drawn([DBA(size=2).bar(part, (10,)) for part in range(4)] @ np.eye(10, dtype=bool)) == [
            "##........",
            "..##......",
            "....##....",
            "......##..",
        ]
        assert DBA(size=2).mask((10,)).sum() == 8

    def test_what_does_not_fit_is_refused(self):
        for shape in ((1, 3, 28), (1, 28, 3), (3,)):
            with pytest.raises(ConfigError, match="the mark of 4 bars does not fit inputs of shape"):
                DBA().mask(shape)
        with pytest.raises(ConfigError, match="gap must be a whole number >= 0; got -1"):
            DBA(gap=-1)

    def test_averaging_learns_the_whole_mark_from_its_parts(self):
        # The paper's claim: the parts, each trained by another client, add up in the global model.
        attacked = simulate(RunConfig(attack="dba", attackers=0.4, **FEDERATION))
        assert attacked[-1].attack_success > 80
        assert attacked[-1].accuracy > 80


class TestModelReplacement:
    def test_one_attacker_replaces_the_mean_of_all_clients(self):
        # Bagdasaryan et al., equation 3: with honest updates that cancel, the mean is the attacker's update.
        own, benign = random_rows(1, 5), random_rows(9, 5, seed=3)
        benign -= benign.mean(axis=0)
        rows = ModelReplacement()(make_view(benign, attackers=1, own=own, knowledge=Knowledge.AGNOSTIC))
        np.testing.assert_allclose(np.concatenate([benign, rows]).mean(axis=0), own[0])

    def test_several_attackers_share_the_factor(self):
        own = random_rows(2, 4)
        view = make_view(random_rows(3, 4), own=own, knowledge=Knowledge.AGNOSTIC, num_clients=50)
        np.testing.assert_allclose(ModelReplacement()(view), 25 * own)
        np.testing.assert_allclose(ModelReplacement(boost=0.1)(view), 2.5 * own)

    def test_one_round_is_enough(self):
        # The paper's single shot: the backdoor is in the model after one round.
        settings = {**FEDERATION, "attackers": 0.1, "rounds": 5}
        options = {"inner": "model-replacement", "honest_rounds": 4, "size": 3}
        boosted = simulate(RunConfig(attack="sleeper", attack_options=options, **settings))
        plain = simulate(RunConfig(attack="sleeper", attack_options={**options, "inner": "backdoor"}, **settings))
        assert boosted[-2].attack_success == plain[-2].attack_success < 20
        assert boosted[-1].attack_success > 60
        assert plain[-1].attack_success < 20


class TestNeurotoxin:
    def test_the_coordinates_of_the_largest_last_steps_are_left_out(self):
        own = np.array([[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]])
        view = make_view(np.ones((3, 4)), own=own, knowledge=Knowledge.AGNOSTIC, last_step=[0.1, -9.0, 0.2, 3.0])
        np.testing.assert_array_equal(Neurotoxin(masked=0.5)(view), [[1, 0, 3, 0], [5, 0, 7, 0]])
        np.testing.assert_array_equal(Neurotoxin()(view), [[1, 0, 3, 4], [5, 0, 7, 8]])
        np.testing.assert_array_equal(Neurotoxin(masked=0.0, boost=2.0)(view), 2 * own)
        np.testing.assert_array_equal(view.own_updates, own)

    def test_without_a_last_step_it_is_a_plain_backdoor(self):
        own = random_rows(2, 4)
        for step in (None, np.zeros(4)):
            view = make_view(random_rows(3, 4), own=own, knowledge=Knowledge.AGNOSTIC, last_step=step)
            np.testing.assert_array_equal(Neurotoxin()(view), Backdoor()(view))

    def test_the_share_is_a_fraction(self):
        with pytest.raises(ConfigError, match=r"masked must be at most 1; got 1\.5"):
            Neurotoxin(masked=1.5)

    def test_averaging_learns_it(self):
        attacked = simulate(RunConfig(attack="neurotoxin", attackers=0.3, **FEDERATION))
        assert attacked[-1].attack_success > 80
        assert attacked[-1].accuracy > 80


class TestConstrainAndScale:
    def test_the_distance_is_part_of_the_loss_and_its_gradient_reaches_the_model(self):
        # Against PyTorch by hand: two steps of SGD on one batch with (1 - c) * cross-entropy + c * distance.
        torch.manual_seed(0)
        inputs, labels = torch.rand(8, 3), torch.arange(8) % 2
        ours, theirs = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
        theirs.load_state_dict(ours.state_dict())
        start = [parameter.detach().clone() for parameter in theirs.parameters()]
        options = TrainingOptions(epochs=2, batch_size=8, optimizer="sgd", learning_rate=0.5)
        train_client(ours, inputs.numpy(), labels.numpy(), options, seed=0, round=1, client=0, constraint=0.4)
        for _ in range(2):
            squares = sum(((now - then) ** 2).sum() for now, then in zip(theirs.parameters(), start, strict=True))
            distance = squares.sqrt() if squares > 0 else 0.0
            theirs.zero_grad()
            (0.6 * torch.nn.functional.cross_entropy(theirs(inputs), labels) + 0.4 * distance).backward()
            with torch.no_grad():
                for parameter in theirs.parameters():
                    parameter.sub_(0.5 * parameter.grad)
        for one, two in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(one, two)

    def test_the_more_it_is_constrained_the_shorter_is_the_update_also_inside_another_attack(self):
        lengths = []
        for attack in (
            ConstrainAndScale(constraint=0.0),
            ConstrainAndScale(constraint=0.5),
            Sleeper(inner=ConstrainAndScale(constraint=0.5), honest_rounds=0),
        ):
            sent = []

            def spy(view, attack=attack, sent=sent):
                sent.append(attack(view))
                return sent[-1]

            spy.poisons, spy.poison, spy.constraint = True, attack.poison, attack.constraint
            digits = load("digits")
            partition = list(np.arange(200).reshape(5, 40))
            with Simulation(
                dataset=digits,
                model=lambda: initialise(catalog.build_model("mlp", (1, 8, 8), 10), "he-normal", seed=0),
                partition=partition,
                defense=catalog.build_defense("fedavg"),
                attack=spy,
                attackers={1},
                rounds=1,
            ) as simulation:
                list(simulation.run())
            lengths.append(np.linalg.norm(sent[0]))
        assert lengths[1] < 0.9 * lengths[0]
        assert lengths[1] == lengths[2]

    def test_it_replaces_the_model_and_keeps_the_accuracy(self):
        # The paper's claim for its loss: the backdoor and the main task are both learned.
        attacked = simulate(RunConfig(attack="constrain-and-scale", attackers=0.1, **FEDERATION))
        assert attacked[-1].attack_success > 70
        assert attacked[-1].accuracy > 85

    def test_the_weight_is_a_fraction(self):
        with pytest.raises(ConfigError, match=r"constraint must be at most 1; got 1\.5"):
            ConstrainAndScale(constraint=1.5)
