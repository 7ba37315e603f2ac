"""Reputation that reacts: how fast it falls, how fast it recovers, and what a new identity is worth."""

import numpy as np
import pytest

from mabrfl import MabRfl, Verdict
from mabrfl.errors import ConfigError
from mabrfl.reputation import Beliefs, Reaction

GOOD, BAD = Verdict(True, "accepted"), Verdict(False, "outlier")


def beliefs():
    chosen = MabRfl().options
    made = Beliefs(
        prior_benign=chosen.prior_benign,
        prior_malicious=chosen.prior_malicious,
        newcomer=(chosen.newcomer_benign, chosen.newcomer_malicious),
        reaction=Reaction(chosen.keep_good, chosen.strike, chosen.forgive),
    )
    made.know(["a"])
    return made


def probability(made, client="a"):
    """How likely the selector is to take a client: the mean of Beta(B, M)."""
    benign, malicious = made.as_dict()[client]
    return benign / (benign + malicious)


def test_the_default_reaction_is_the_papers_count():
    made = Beliefs()
    for verdict in (GOOD, GOOD, BAD):
        made.reward({"a": verdict})
    assert made.as_dict() == {"a": (3.0, 2.0)}


def test_fifty_good_rounds_are_undone_by_five_bad_ones():
    made = beliefs()
    for _ in range(50):
        made.reward({"a": GOOD})
    assert probability(made) > 0.95
    for _ in range(5):
        made.reward({"a": BAD})
    assert probability(made) < 0.5


def rounds_to_recover(made, client="a"):
    """Blame a client once; return how long each of 200 trials takes to bring it back above 0.8."""
    made.reward({client: BAD})
    rng = np.random.default_rng(0)
    rounds = []
    start = made.as_dict()[client]
    for _ in range(200):
        trial = Beliefs(reaction=made._react)
        trial._counts = {client: start}
        for t in range(1, 60):
            if rng.random() < probability(trial, client):
                trial.reward({client: GOOD})
            if probability(trial, client) > 0.8:
                rounds.append(t)
                break
        else:
            rounds.append(60)
    return rounds


@pytest.mark.parametrize("before", [0, 5, 50])
def test_an_honest_client_wrongly_blamed_recovers_within_twenty_rounds(before):
    made = beliefs()
    for _ in range(before):
        made.reward({"a": GOOD})
    assert np.quantile(rounds_to_recover(made), 0.9) <= 20


def test_a_newcomer_wrongly_blamed_at_once_takes_longer():
    made = beliefs()
    made.know(["late"])
    assert np.quantile(rounds_to_recover(made, "late"), 0.8) <= 20


def test_a_new_identity_is_worth_less_than_an_honest_one_and_more_than_a_bad_one():
    made = beliefs()
    made.know(["late"])
    made.reward({"a": GOOD, "bad": BAD})
    made.reward({"bad": BAD})
    assert probability(made, "late") > probability(made, "bad")
    assert probability(made, "late") == pytest.approx(1 / 3)
    assert probability(made, "late") < probability(made, "a")


def test_newcomers_are_those_who_were_not_there_at_first():
    shield = MabRfl()
    shield.select(["a", "b"], round=1)
    shield.select(["a", "b", "late"], round=2)
    assert shield.reputation["a"] == (2.0, 1.0)
    assert shield.reputation["late"] == (0.5, 1.0)


def test_credit_scales_the_reaction_and_suspicion_counts_against():
    reaction = Reaction(keep_good=0.5, strike=0.25, forgive=0.5)
    assert reaction(4.0, 2.0, Verdict(True, "accepted", {}, 0.0)) == (4.0, 2.0)
    assert reaction(4.0, 2.0, Verdict(True, "accepted")) == (3.0, 1.0)
    assert reaction(4.0, 2.0, Verdict(False, "sybil", {}, 0.5)) == (2.0, 2.5)
    assert reaction(4.0, 2.0, Verdict(True, "accepted", {}, -0.5)) == (2.0, 2.5)


@pytest.mark.parametrize("bad", [{"keep_good": 0.0}, {"strike": 1.5}, {"forgive": float("nan")}])
def test_impossible_reactions_are_refused(bad):
    with pytest.raises(ConfigError, match="must lie in"):
        Reaction(**bad)
