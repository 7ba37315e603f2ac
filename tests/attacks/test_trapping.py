"""Trapsetter (Yue, Jin, Wong and Dai, arXiv 2409.06474), by the properties of its authors' code."""

from __future__ import annotations

import numpy as np
import pytest

from mabrfl.attacks import AttackerView, Knowledge, Secrets, Trapsetter
from mabrfl.config import RunConfig
from mabrfl.errors import ConfigError
from mabrfl.layout import Layout
from mabrfl.runs import simulate

LAYOUT = Layout([("a.weight", (2, 2)), ("a.bias", (1,))])
WEIGHTS = np.array([3.0, 0.0, 0.0, 4.0, 10.0])
BENIGN = np.array([[1.0, 0, 0, 0, 2], [3.0, 0, 0, 0, 0], [2.0, 3, 0, 0, 1]])


def view(own_accuracy, *, knowledge=Knowledge.PARTIAL, own=None, attackers=(3, 4), round=1) -> AttackerView:
    return AttackerView(
        round=round,
        attackers=attackers,
        num_clients=5,
        num_malicious=2,
        knowledge=knowledge,
        global_weights=WEIGHTS,
        layout=LAYOUT,
        own_updates=own,
        own_accuracy=own_accuracy,
        secrets=Secrets(BENIGN, (0, 1, 2)),
    )


def test_the_mean_over_all_clients_moves_the_model_into_the_trap():
    # compute_delta in the authors' code: with scaling_factor 1 the honest updates and the attackers' average to the way
    # from the model to target_w.
    attack = Trapsetter(scale=1.0, estimate="benign")
    seen = []

    def accuracy(weights):
        seen.append(weights.copy())
        return len(seen) != 20  # the twentieth point of the plane is the worst

    rows = attack(view(accuracy))
    assert rows is not None
    assert rows.shape == (2, 5)
    step = np.concatenate([BENIGN, rows]).mean(axis=0)
    np.testing.assert_allclose(WEIGHTS + step, seen[19], rtol=1e-12)
    assert len(seen) == 49


def test_a_smaller_scale_goes_that_part_of_the_way():
    whole, part = (Trapsetter(scale=scale, estimate="benign")(view(lambda weights: 1.0)) for scale in (1.0, 0.25))
    assert whole is not None
    assert part is not None
    steps = [np.concatenate([BENIGN, rows]).mean(axis=0) for rows in (whole, part)]
    np.testing.assert_allclose(steps[1], steps[0] / 4, rtol=1e-12)


def test_the_trap_is_the_worst_corner_and_each_tensor_moves_by_the_radius():
    attack = Trapsetter(radius=0.1, steps=2)
    shown = view(lambda weights: float(-weights @ weights), knowledge=Knowledge.AGNOSTIC, own=BENIGN[:2])
    first, second = (attack.direction(shown, WEIGHTS, name) for name in ("first", "second"))
    for way in (first, second):
        assert np.linalg.norm(way[:4]) == pytest.approx(0.1 * 5)  # the first tensor is 5 long, the second 10
        assert abs(way[4]) == pytest.approx(0.1 * 10)
    corners = [WEIGHTS + along * first + across * second for along in (-1, 1) for across in (-1, 1)]
    longest = max(corners, key=lambda weights: weights @ weights)  # accuracy falls with the length
    np.testing.assert_allclose(attack.trap(shown, WEIGHTS), longest)


def test_attackers_without_knowledge_go_by_their_own_training():
    own = np.array([[2.0, 0, 0, 0, 0], [np.nan, 0, 0, 0, 0]])
    rows = Trapsetter(scale=1e-9)(view(lambda weights: 1.0, knowledge=Knowledge.AGNOSTIC, own=own))
    assert rows is not None
    np.testing.assert_allclose(
        rows[0], [-3, 0, 0, 0, 0], atol=1e-6
    )  # three honest clients to two attackers: -3/2 times 2


def test_the_directions_change_with_the_round():
    attack = Trapsetter()
    one, two = (attack.direction(view(None, round=number), WEIGHTS, "first") for number in (1, 2))
    assert not np.allclose(one, two)


def test_nothing_is_sent_without_a_measurement_or_an_honest_update():
    assert Trapsetter(estimate="benign")(view(None)) is None
    assert Trapsetter()(view(lambda weights: 1.0, knowledge=Knowledge.AGNOSTIC)) is None


@pytest.mark.parametrize("wrong", [{"scale": 0.0}, {"radius": -1.0}, {"steps": 0}, {"estimate": "guess"}])
def test_options_are_checked(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Trapsetter(**wrong)


def test_it_stops_plain_averaging_in_the_simulator_alike_with_one_and_two_workers():
    shared = {"dataset": "digits", "defense": "fedavg", "rounds": 4, "clients": 10, "attackers": 4}
    honest = simulate(RunConfig(**shared, workers=1))[-1].accuracy
    attacked = [
        [record.loss for record in simulate(RunConfig(**shared, attack="trapsetter", workers=workers))]
        for workers in (1, 2)
    ]
    assert attacked[0] == attacked[1]
    assert simulate(RunConfig(**shared, attack="trapsetter", workers=1))[-1].accuracy < honest - 20


def test_a_node_of_flower_cannot_run_it():
    pytest.importorskip("flwr")
    from mabrfl.flower import attack_mod

    with pytest.raises(ConfigError, match="measures models on data"):
        attack_mod("trapsetter", num_clients=5, num_malicious=1)
