from __future__ import annotations

import numpy as np
import pytest

from helpers import random_rows
from mabrfl import MabRfl
from mabrfl.attacks import Bridge, Frame, Hub, Knowledge
from mabrfl.errors import ConfigError, StateError
from mabrfl.testing import make_view
from mabrfl.updates import Updates

BENIGN = np.array([[0.0, 0.0], [1.0, 1.0], [5.0, 2.0]])
OWN = np.array([[7.0, 8.0], [9.0, 10.0]])


def honest_rejected(rows, sent):
    """How many honest clients the paper's rule rejects, with its thresholds of the last rounds on MNIST."""
    shield = MabRfl(preset="paper", c_max=0.3, c_min=0.3)
    matrix = np.concatenate([rows, sent])
    outcome = shield.aggregate(Updates(range(len(matrix)), matrix), round=1)
    return sum(not outcome.verdicts[client].accepted for client in range(len(rows)))


def alike(count, cosine, width=2000, seed=0):
    """Rows of length 1 with about this mutual cosine."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((count, width)) / np.sqrt(width)
    return np.sqrt(cosine) * np.eye(width)[0] + np.sqrt(1 - cosine) * rows


class TestBridge:
    def test_everybody_sends_the_benign_mean(self):
        np.testing.assert_array_equal(Bridge()(make_view(BENIGN, attackers=3)), [[2.0, 1.0]] * 3)

    def test_it_is_inactive_without_benign_updates(self):
        assert Bridge()(make_view(np.empty((0, 2)))) is None

    def test_jitter_is_a_length_in_lengths_of_the_mean_and_each_has_its_own(self):
        rows = Bridge(jitter=0.25)(make_view(BENIGN, attackers=3))
        np.testing.assert_allclose(np.linalg.norm(rows - [2.0, 1.0], axis=1), 0.25 * np.sqrt(5))
        assert len({row.tobytes() for row in rows}) == 3

    def test_with_one_sender_the_others_are_honest(self):
        attack = Bridge(senders=1)
        assert attack.trains
        np.testing.assert_array_equal(attack(make_view(BENIGN, own=OWN)), [[2.0, 1.0], [9.0, 10.0]])
        assert not Bridge().trains

    def test_one_bridge_gets_every_honest_client_rejected_by_the_papers_rule(self):
        rows = alike(20, cosine=0.15)
        assert honest_rejected(rows, np.empty((0, 2000))) == 0
        assert honest_rejected(rows, Bridge()(make_view(rows, attackers=1))) == 20

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"jitter": -1.0}, "jitter must be a finite number >= 0; got -1.0"),
            ({"senders": 0}, "senders must be a whole number >= 1; got 0"),
        ],
    )
    def test_bad_options_are_refused_by_name(self, options, message):
        with pytest.raises(ConfigError, match=message):
            Bridge(**options)


class TestHub:
    def test_it_sends_the_last_public_step(self):
        view = make_view(BENIGN, own=OWN, last_step=[3.0, -4.0], knowledge=Knowledge.AGNOSTIC, round=2)
        np.testing.assert_array_equal(Hub()(view), [[3.0, -4.0]] * 2)
        np.testing.assert_array_equal(Hub(scale=2.0)(view), [[6.0, -8.0]] * 2)
        rows = Hub(jitter=0.1)(view)
        np.testing.assert_allclose(np.linalg.norm(rows - [3.0, -4.0], axis=1), 0.5)

    @pytest.mark.parametrize("last_step", [None, [0.0, 0.0]])
    def test_it_is_honest_where_there_is_no_step_to_send(self, last_step):
        view = make_view(BENIGN, own=OWN, last_step=last_step, knowledge=Knowledge.AGNOSTIC)
        np.testing.assert_array_equal(Hub()(view), OWN)

    def test_it_gets_honest_clients_rejected_by_the_papers_rule_and_spies_on_nobody(self):
        rows, before = alike(20, cosine=0.15), alike(20, cosine=0.15, seed=1)
        own = alike(1, cosine=0.15, seed=2)
        view = make_view(rows, attackers=1, own=own, last_step=before.mean(axis=0), knowledge=Knowledge.AGNOSTIC)
        assert honest_rejected(rows, Hub()(view)) >= 10

    def test_bad_options_are_refused_by_name(self):
        with pytest.raises(ConfigError, match="scale must be a finite number > 0; got 0"):
            Hub(scale=0)


class TestFrame:
    def victim(self, attack, benign, **options):
        rows = attack(make_view(benign, own=OWN, **options))
        assert (rows == rows[0]).all()
        return int(np.flatnonzero((np.asarray(benign) == rows[0]).all(axis=1))[0])

    def test_the_victim_is_fixed_by_seed(self):
        benign = random_rows(8, 2)
        attack = Frame()
        assert len({self.victim(attack, benign, round=number) for number in range(1, 9)}) == 1
        assert len({self.victim(Frame(), benign, seed=seed) for seed in range(20)}) > 3

    def test_the_victim_is_never_another_and_without_it_the_attackers_are_honest(self):
        attack, benign = Frame(), random_rows(8, 2)
        victim = self.victim(attack, benign, round=1)
        absent = benign.copy()
        absent[victim] = np.nan
        np.testing.assert_array_equal(attack(make_view(absent, own=OWN, round=2)), OWN)
        assert self.victim(attack, benign, round=3) == victim

    def test_it_waits_for_a_benign_client_to_choose(self):
        attack = Frame()
        np.testing.assert_array_equal(attack(make_view(np.empty((0, 2)), own=OWN, round=1)), OWN)
        assert self.victim(attack, BENIGN, round=2) in (0, 1, 2)

    def test_a_named_victim_is_copied(self):
        assert self.victim(Frame(victim=2), BENIGN) == 2
        np.testing.assert_array_equal(Frame(victim=9)(make_view(BENIGN, own=OWN)), OWN)

    def test_the_papers_rule_takes_the_victim_for_a_sybil(self):
        rows = alike(20, cosine=0.05)
        attack = Frame(victim=4)
        view = make_view(rows, own=alike(2, 0.05, seed=3))
        assert honest_rejected(rows, view.own_updates) == 0
        assert honest_rejected(rows, attack(view)) == 1

    def test_state_goes_out_and_comes_back(self):
        attack, benign = Frame(), random_rows(8, 2)
        victim = self.victim(attack, benign, round=1)
        restored = Frame()
        restored.load_state_dict(attack.state_dict())
        absent = benign.copy()
        absent[victim] = np.nan
        np.testing.assert_array_equal(restored(make_view(absent, own=OWN, round=2)), OWN)
        with pytest.raises(StateError, match="state of Frame must have chosen and last_round"):
            restored.load_state_dict({})
        with pytest.raises(StateError, match=r"must be a client id; got 1\.5"):
            restored.load_state_dict({"chosen": 1.5, "last_round": 1})

    def test_bad_victims_are_refused(self):
        with pytest.raises(ConfigError, match="victim must be seeded or a client id; got True"):
            Frame(victim=True)
