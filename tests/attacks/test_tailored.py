from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest

from mabrfl import MabRfl
from mabrfl.attacks import AgrMabRfl, AttackerView, JitteredSybils, Knowledge, Secrets
from mabrfl.attacks.tailored import disguised
from mabrfl.errors import ConfigError
from mabrfl.testing import make_view
from mabrfl.updates import Outcome, Updates, Verdict

WIDTH = 3000
BENIGN, LIARS = 14, 6


def honest(seed=0, cosine=0.1):
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal((BENIGN, WIDTH)) / np.sqrt(WIDTH)
    return np.sqrt(cosine) * np.eye(WIDTH)[0] + np.sqrt(1 - cosine) * noise


def view_of(rows, verdict):
    """A view whose defense accepts what ``verdict(sent)`` says, row by row, and averages that."""
    asked = []
    liars = tuple(range(len(rows), len(rows) + LIARS))

    def rehearse(sent):
        asked.append(np.array(sent))
        good = np.asarray(verdict(sent), dtype=bool)
        verdicts = {client: Verdict(True, "accepted") for client in range(len(rows))}
        verdicts |= {client: Verdict(bool(fine), "accepted") for client, fine in zip(liars, good, strict=True)}
        return Outcome(np.concatenate([rows, sent[good]]).mean(axis=0), verdicts, 1)

    view = AttackerView(
        round=1,
        attackers=liars,
        num_clients=BENIGN + LIARS,
        num_malicious=LIARS,
        knowledge=Knowledge.FULL,
        global_weights=np.zeros(WIDTH),
        secrets=Secrets(rows, tuple(range(len(rows))), "mab-rfl", rehearse),
    )
    return view, asked


def course_of(rows):
    mean = rows.mean(axis=0)
    return mean / np.linalg.norm(mean)


def test_against_a_defense_that_accepts_everybody_it_turns_round_at_once():
    rows = honest()
    view, asked = view_of(rows, lambda sent: np.ones(len(sent)))
    sent = AgrMabRfl()(view)
    assert len(asked) == len(AgrMabRfl().cosines)
    length = 1.5 * np.median(np.linalg.norm(rows, axis=1))
    np.testing.assert_allclose(sent @ course_of(rows), -np.sqrt(0.9) * length)
    np.testing.assert_allclose(np.linalg.norm(sent, axis=1), length, rtol=1e-6)


def test_it_finds_how_far_it_can_go():
    """The defense accepts rows whose cosine with the benign mean is at least -0.2: of those tried, the nearest."""
    rows = honest()

    def mild(sent):
        return sent @ course_of(rows) >= -0.2 * np.linalg.norm(sent, axis=1)

    view, asked = view_of(rows, mild)
    sent = AgrMabRfl(cosines=[0.81], steps=12)(view)
    assert len(asked) == 12
    # sqrt(0.81) * (1 - gamma) = -0.2, so gamma = 1.2222; ten halvings of 2 find it to two thousandths.
    cosines = sent @ course_of(rows) / np.linalg.norm(sent, axis=1)
    np.testing.assert_allclose(cosines, -0.2, atol=0.002)
    assert mild(sent).all()


def test_it_is_less_alike_where_being_alike_is_what_is_rejected():
    rows = honest()

    def no_sybils(sent):
        unit = sent / np.linalg.norm(sent, axis=1, keepdims=True)
        others = unit @ unit.T - 2 * np.eye(len(sent))
        return others.max(axis=1) < 0.35

    view, asked = view_of(rows, no_sybils)
    sent = AgrMabRfl()(view)
    unit = sent / np.linalg.norm(sent, axis=1, keepdims=True)
    off_diagonal = (unit @ unit.T)[~np.eye(LIARS, dtype=bool)]
    np.testing.assert_allclose(off_diagonal, 0.25, atol=0.08)
    np.testing.assert_allclose(unit @ course_of(rows), -0.5, atol=1e-6)
    assert len(asked) <= 8


def test_where_no_harm_passes_it_sends_what_looks_honest():
    """The defense accepts nothing that is further from the benign mean than half a right angle."""
    rows = honest()
    view, _ = view_of(rows, lambda sent: sent @ course_of(rows) >= 0.7 * np.linalg.norm(sent, axis=1))
    sent = AgrMabRfl()(view)
    cosines = sent @ course_of(rows) / np.linalg.norm(sent, axis=1)
    assert (cosines >= 0.7).all()
    assert (cosines < 0.85).all()  # and no more honest than it has to be: 0.95 would be straight along the mean


def test_where_nothing_passes_it_sends_what_passes_for_most():
    rows = honest()
    view, asked = view_of(rows, lambda sent: np.arange(len(sent)) < 2)
    assert AgrMabRfl()(view).shape == (LIARS, WIDTH)
    assert len(asked) == 12  # for each cosine straight against the mean, and along it
    view, _ = view_of(rows, lambda sent: np.arange(len(sent)) < (4 if abs(sent[0] @ sent[1]) < 0.2 else 1))
    sent = AgrMabRfl(scale=1.0)(view)
    assert abs(sent[0] @ sent[1]) < 0.2


def test_it_passes_the_papers_rule_and_moves_the_model_back_where_plain_sybils_are_caught():
    rows = honest()
    options = {"preset": "paper", "c_max": 0.3, "c_min": 0.3}

    def judged(sent):
        matrix = np.concatenate([rows, sent])
        outcome = MabRfl(**options).aggregate(Updates(range(len(matrix)), matrix), round=1)
        accepted = [outcome.verdicts[client].accepted for client in range(BENIGN, len(matrix))]
        return accepted, outcome.step @ course_of(rows)

    view, _ = view_of(rows, lambda sent: judged(sent)[0])
    accepted, moved = judged(AgrMabRfl()(view))
    assert all(accepted)
    caught, kept = judged(JitteredSybils(cosine=0.25)(view))
    assert not any(caught)
    assert moved < 0.8 * kept


def test_it_is_never_caught_by_the_hardened_preset_and_yet_holds_the_model_back():
    """Ten rounds against the real thing, which remembers: all the updates pass, and the model goes less far."""

    def progress(attack):
        shield, moved, caught = MabRfl(seed=1), [], 0
        for t in range(1, 11):
            rows = honest(seed=t)

            def rehearse(sent, shield=shield, rows=rows, t=t):
                copied = MabRfl(seed=1)
                copied.load_state_dict(copy.deepcopy(shield.state_dict()))
                return copied.aggregate(Updates(range(BENIGN + LIARS), np.concatenate([rows, sent])), round=t)

            sent = honest(seed=100 + t)[:LIARS]
            if attack is not None:
                secrets = Secrets(rows, tuple(range(BENIGN)), "mab-rfl", rehearse)
                sent = attack(dataclasses.replace(view_of(rows, np.ones)[0], round=t, secrets=secrets))
            outcome = shield.aggregate(Updates(range(BENIGN + LIARS), np.concatenate([rows, sent])), round=t)
            caught += sum(not outcome.verdicts[client].accepted for client in range(BENIGN, BENIGN + LIARS))
            moved.append(float(outcome.step @ course_of(rows)))
        return sum(moved), caught

    unharmed, nobody = progress(None)
    slowed, caught = progress(AgrMabRfl())
    assert nobody == caught == 0
    assert slowed < 0.9 * unharmed


def test_rows_have_the_length_the_cosine_and_the_push_that_were_asked_for():
    push, noises = np.eye(3)[0], np.eye(3)[1:]
    rows = disguised(push, noises, 0.36, 5.0)
    np.testing.assert_allclose(rows, [[3.0, 4.0, 0.0], [3.0, 0.0, 4.0]])


def test_a_fixed_random_side_lasts_for_the_run():
    rows = honest()
    attack = AgrMabRfl(side="random")
    view = make_view(rows)
    side = attack._side(view, course_of(rows))
    np.testing.assert_array_equal(side, attack._side(make_view(rows, round=7), course_of(rows)))
    assert abs(side @ course_of(rows)) < 1e-12


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cosines": []}, "cosines must be a list of at least one number"),
        ({"cosines": [2.0]}, "cosines must be at most 1; got 2.0"),
        ({"steps": 0}, "steps must be a whole number >= 1; got 0"),
        ({"side": "unit"}, "side has no variant 'unit'"),
        ({"scale": 0}, "scale must be a finite number > 0; got 0"),
    ],
)
def test_bad_options_are_refused_by_name(options, message):
    with pytest.raises(ConfigError, match=message):
        AgrMabRfl(**options)
