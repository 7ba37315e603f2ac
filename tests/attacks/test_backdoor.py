from __future__ import annotations

import numpy as np
import pytest
import torch

from helpers import random_rows
from mabrfl import catalog
from mabrfl.attacks import Backdoor, Knowledge, LabelFlip, SignFlip, Sleeper
from mabrfl.config import RunConfig
from mabrfl.errors import ConfigError
from mabrfl.runs import simulate
from mabrfl.simulation.simulator import build_simulation
from mabrfl.simulation.training.flat import trainable, unflatten
from mabrfl.testing import make_view


def rng():
    return np.random.default_rng(0)


@pytest.mark.parametrize(
    ("corner", "expected"),
    [
        ("top-left", [[9, 9, 0], [9, 9, 0], [0, 0, 0]]),
        ("top-right", [[0, 9, 9], [0, 9, 9], [0, 0, 0]]),
        ("bottom-left", [[0, 0, 0], [9, 9, 0], [9, 9, 0]]),
        ("bottom-right", [[0, 0, 0], [0, 9, 9], [0, 9, 9]]),
    ],
)
def test_the_mark_is_a_square_in_a_corner_of_every_channel(corner, expected):
    images = np.zeros((2, 3, 3, 3), np.uint8)
    marked = Backdoor(size=2, value=9, corner=corner).marked(images)
    assert marked.dtype == np.uint8
    assert (marked == np.array(expected)).all()
    assert (images == 0).all()


def test_the_mark_is_white_in_whichever_way_pixels_are_written():
    assert Backdoor(size=1).marked(np.zeros((1, 1, 2, 2), np.uint8)).max() == 255
    assert Backdoor(size=1).marked(np.zeros((1, 1, 2, 2), np.float32)).max() == 1.0
    np.testing.assert_array_equal(Backdoor(size=2).marked(np.zeros((1, 6))), [[1, 1, 1, 1, 0, 0]])


def test_a_share_of_the_examples_bears_the_mark_and_the_target_label():
    images, labels = np.zeros((20, 1, 4, 4), np.uint8), np.arange(20) % 5
    inputs, poisoned = Backdoor(share=0.3, size=1, target=2).poison(images, labels, num_classes=5, rng=rng())
    marked = inputs[:, 0, 0, 0] == 255
    assert marked.sum() == 6
    assert (poisoned[marked] == 2).all()
    np.testing.assert_array_equal(poisoned[~marked], labels[~marked])
    assert (images == 0).all()
    assert (labels == np.arange(20) % 5).all()


def test_the_goal_is_every_marked_test_example_of_another_class():
    images, labels = np.zeros((10, 1, 4, 4), np.uint8), np.arange(10) % 5
    inputs, wanted = Backdoor(target=2, size=1).goal(images, labels, num_classes=5)
    assert (len(inputs), set(wanted)) == (8, {2})
    assert (inputs[:, 0, 0, 0] == 255).all()


def test_a_targeted_label_flip_has_a_goal_too_and_other_attacks_have_none():
    inputs, labels = np.arange(6.0)[:, None], np.array([0, 1, 2, 0, 1, 2])
    chosen, wanted = LabelFlip(mapping="targeted", source=1, target=2).goal(inputs, labels, num_classes=3)
    assert (chosen[:, 0].tolist(), wanted.tolist()) == ([1.0, 4.0], [2, 2])
    assert LabelFlip().goal(inputs, labels, num_classes=3) is None
    assert SignFlip().goal(inputs, labels, num_classes=3) is None


def test_a_wrapper_hands_the_goal_on():
    images, labels = np.zeros((4, 1, 2, 2)), np.array([0, 1, 2, 3])
    assert len(Sleeper(inner=Backdoor(size=1)).goal(images, labels, num_classes=4)[0]) == 3


def test_boost_makes_the_updates_longer():
    own = random_rows(2, 4)
    view = make_view(random_rows(3, 4), own=own, knowledge=Knowledge.AGNOSTIC)
    np.testing.assert_array_equal(Backdoor()(view), own)
    np.testing.assert_allclose(Backdoor(boost=5.0)(view), 5 * own)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"share": 1.5}, "share must be at most 1; got 1.5"),
        ({"size": 0}, "size must be a whole number >= 1; got 0"),
        ({"corner": "left"}, "corner has no variant 'left'"),
        ({"boost": 0}, "boost must be a finite number > 0; got 0"),
        ({"target": -1}, "target must be a whole number >= 0; got -1"),
        ({"value": -1.0}, "value must be a finite number >= 0; got -1.0"),
    ],
)
def test_bad_options_are_refused_by_name(options, message):
    with pytest.raises(ConfigError, match=message):
        Backdoor(**options)


def test_what_does_not_fit_the_data_is_refused():
    images, labels = np.zeros((2, 1, 4, 4), np.uint8), np.array([0, 1])
    for attack, message in (
        (Backdoor(target=7), "target must be a class below 5; got 7"),
        (Backdoor(size=5), r"size 5 is too large for inputs of shape \(1, 4, 4\)"),
        (Backdoor(value=300), "value must be a whole number up to 255; got 300"),
    ):
        with pytest.raises(ConfigError, match=message):
            attack.goal(images, labels, num_classes=5)
    with pytest.raises(ConfigError, match=r"size 3 is too large for inputs of shape \(8,\)"):
        Backdoor(size=3).marked(np.zeros((1, 8)))


FEDERATION = {"dataset": "digits", "defense": "fedavg", "clients": 10, "rounds": 8, "workers": 1}


def test_averaging_learns_the_backdoor_with_hardly_a_loss_of_accuracy_and_not_without_attackers():
    attacked = simulate(RunConfig(attack="backdoor", attackers=0.3, attack_options={"size": 2}, **FEDERATION))
    assert attacked[-1].attack_success > 80
    assert attacked[-1].accuracy > 85
    nobody = simulate(RunConfig(attack="backdoor", attackers=0, attack_options={"size": 2}, **FEDERATION))
    assert nobody[-1].attack_success < 20


def test_two_workers_measure_the_same_success():
    settings = {**FEDERATION, "rounds": 2, "attack": "backdoor", "attackers": 0.3}
    one, two = (simulate(RunConfig(**{**settings, "workers": workers})) for workers in (1, 2))
    assert [record.attack_success for record in one] == [record.attack_success for record in two]
    assert [record.accuracy for record in one] == [record.accuracy for record in two]


def test_the_success_rate_is_what_the_model_says_of_marked_pictures():
    settings = {**FEDERATION, "rounds": 3, "attack": "backdoor", "attackers": 0.3, "attack_options": {"target": 4}}
    with build_simulation(RunConfig(**settings)) as simulation:
        *_, record = simulation.run()
        dataset, weights = simulation.dataset, simulation.model.weights
        model = catalog.build_model(simulation.config.model, dataset.test_inputs.shape[1:], 10)
    unflatten(weights, trainable(model))
    others = dataset.test_inputs[dataset.test_labels != 4].copy()
    others[:, :, :3, :3] = 1.0
    answers = model(torch.from_numpy(others)).argmax(1).numpy()
    assert record.attack_success == pytest.approx(100 * (answers == 4).mean())
    assert 0 < record.attack_success < 100


def test_other_attacks_have_no_success_rate():
    settings = {**FEDERATION, "rounds": 1, "attack": "label-flip", "attackers": 0.3}
    assert simulate(RunConfig(**settings))[0].attack_success is None
