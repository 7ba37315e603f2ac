from __future__ import annotations

import numpy as np
import pytest

from mabrfl.attacks import AttackerView, Knowledge, LayerChoosing, Secrets, as_attack
from mabrfl.config import RunConfig
from mabrfl.errors import ConfigError
from mabrfl.layout import Layout
from mabrfl.simulation.simulator import build_simulation
from mabrfl.testing import make_view
from mabrfl.updates import Outcome, Verdict

LAYOUT = Layout([("first.weight", (2,)), ("first.bias", (1,)), ("last.weight", (2,))])
FIRST, LAST = (0, 1, 2), (3, 4)
BENIGN = np.array([[1.0, 0.0, 1.0, 2.0, 0.0]] * 4)
OWN = np.array([[1.0, 0.0, 1.0, 2.0, 0.0], [10.0, 0.0, 10.0, 1.0, 0.0]])


def view_with(limits, *, layout=LAYOUT):
    """Return a view whose server accepts a row if each part lies within its limit of the benign updates."""
    trials = []

    def rehearse(rows):
        trials.append(rows)
        apart = rows - BENIGN[0]
        good = [all(np.linalg.norm(row[list(part)]) <= limit for part, limit in limits.items()) for row in apart]
        step = np.concatenate([BENIGN, rows[good]]).mean(axis=0)
        verdicts = {place: Verdict(True, "accepted") for place in range(4)}
        verdicts |= {4 + place: Verdict(bool(one), "accepted" if one else "far") for place, one in enumerate(good)}
        return Outcome(step, verdicts, 1)

    view = make_view(BENIGN, own=OWN)
    fields = {name: getattr(view, name) for name in ("round", "attackers", "num_clients", "num_malicious")}
    secrets = Secrets(BENIGN, (0, 1, 2, 3), "test", rehearse)
    return (
        AttackerView(
            **fields,
            knowledge=Knowledge.FULL,
            global_weights=view.global_weights,
            own_updates=OWN,
            layout=layout,
            secrets=secrets,
        ),
        trials,
    )


def test_the_layer_that_the_defense_does_not_look_at_is_attacked_at_full_strength():
    view, trials = view_with({FIRST: 1e-9})
    rows = LayerChoosing(strongest=4.0, steps=3)(view)
    # The first layer looks honest: the second row is clipped to the benign length. The last is honest minus 4 means.
    np.testing.assert_allclose(rows, [[1, 0, 1, -6, 0], [1, 0, 1, -7, 0]])
    assert len(trials) <= 2 * 3 + 2


def test_a_test_of_distance_bounds_the_strength():
    view, _ = view_with({FIRST: 1e-9, LAST: 2.0})
    rows = LayerChoosing(strongest=4.0, steps=8)(view)
    np.testing.assert_allclose(rows[:, FIRST], BENIGN[:2, FIRST])
    # The second attacker's own update is at distance 1 already, so the mean of length 2 fits in half a time.
    np.testing.assert_allclose(rows[:, 3], [2 - 2 * 0.5, 1 - 2 * 0.5], atol=0.1)
    assert rows[1, 3] >= 0


def test_layers_are_joined_if_the_defense_accepts_both():
    view, _ = view_with({FIRST: 1e9})
    rows = LayerChoosing(strongest=4.0)(view)
    np.testing.assert_allclose(rows[0], -3 * BENIGN[0])


def test_without_a_layout_the_model_is_one_layer_and_without_benign_updates_nothing_is_sent():
    view, trials = view_with({FIRST: 1e9}, layout=None)
    np.testing.assert_allclose(LayerChoosing(strongest=4.0)(view)[0], -3 * BENIGN[0])
    assert len(trials) == 1
    assert LayerChoosing()(make_view(np.zeros((0, 5)), own=OWN)) is None


def test_attackers_that_the_defense_rejects_anyway_still_send_something_finite():
    view, _ = view_with({FIRST: 1e-12, LAST: 1e-12})
    assert np.isfinite(LayerChoosing()(view)).all()


def test_bad_options_are_refused_by_name():
    with pytest.raises(ConfigError, match="strongest must be a finite number > 0; got 0"):
        LayerChoosing(strongest=0)
    with pytest.raises(ConfigError, match="steps must be a whole number >= 1; got 0"):
        LayerChoosing(steps=0)


def test_rehearsals_leave_the_server_as_it_was():
    # Two rounds with the attack's rows, rehearsed or replayed, give the same reputations.
    settings = RunConfig(dataset="digits", attack="layer-choosing", attackers=0.3, clients=8, rounds=2, workers=1)
    with build_simulation(settings) as simulation:
        sent, inner = {}, simulation.attack

        def spy(view):
            sent[view.round] = inner(view)
            assert view.layout.size == view.shape[1]
            return sent[view.round]

        spy.knowledge = "full"
        simulation.attack = as_attack(spy)
        rehearsed = [record.reputation for record in simulation.run()]
    with build_simulation(settings) as simulation:
        simulation.attack = as_attack(lambda view: sent[view.round])
        replayed = [record.reputation for record in simulation.run()]
    assert rehearsed == replayed
