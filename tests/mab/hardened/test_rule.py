"""The hardened preset as a whole, on made-up updates: what must hold whatever the model."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mabrfl import HardenedOptions, MabRfl, Updates
from mabrfl.errors import StateError
from mabrfl.layout import Layout

WIDTH = 3000
CLIENTS = 30


def unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def world(agreement=0.3, seed=0):
    """Return a function round -> honest updates: a common direction that turns, and everyone's own noise."""
    root = np.random.default_rng(seed)
    axes = unit(root.normal(size=(40, WIDTH)))
    for t in range(1, 40):  # the common direction turns by 27 degrees a round
        axes[t] = unit(0.9 * axes[t - 1] + np.sqrt(0.19) * axes[t])

    def honest(t):
        rng = np.random.default_rng([seed, t])
        rows = np.sqrt(agreement) * axes[t] + np.sqrt(1 - agreement) * unit(rng.normal(size=(CLIENTS, WIDTH)))
        return (rows * rng.uniform(0.5, 1.5, size=(CLIENTS, 1))).astype(np.float32)

    return honest


def play(attack, attackers, *, rounds=12, agreement=0.3, **options):
    """Run a shield against ``attack(t, honest rows, last step) -> rows``; return it and all outcomes."""
    shield, honest, last, outcomes = MabRfl(seed=1, **options), world(agreement), None, []
    for t in range(1, rounds + 1):
        chosen = shield.select(range(CLIENTS), round=t)
        rows = honest(t)
        liars = [k for k in chosen if k in attackers]
        good = [k for k in chosen if k not in attackers]
        sent = rows.copy()
        if liars:
            sent[liars] = attack(t, rows, rows[good], last)
        outcome = shield.aggregate(Updates(chosen, sent[chosen]), round=t)
        last = outcome.step
        outcomes.append((chosen, outcome, rows[good].mean(axis=0)))
    return shield, outcomes


def trust(shield, clients):
    return np.mean([good / (good + bad) for good, bad in (shield.reputation[k] for k in clients)])


def rejected(outcomes, clients):
    return sum(not outcome.verdicts[k].accepted for chosen, outcome, _ in outcomes for k in chosen if k in clients)


def alignment(outcomes):
    """Cosine of each step with the honest mean."""
    return [float(unit(outcome.step) @ unit(mean)) for _, outcome, mean in outcomes]


def lie(t, rows, good, last):
    return good.mean(axis=0) - 1.5 * good.std(axis=0)


def bridge(t, rows, good, last):
    return good.mean(axis=0)


def hub(t, rows, good, last):
    return good[0] if last is None else last


def reverse(t, rows, good, last):
    return -good.mean(axis=0)


def frame(t, rows, good, last):
    return rows[0]


ATTACKS = [lie, bridge, hub, reverse]
LIARS = frozenset(range(20, 30))
HONEST = frozenset(range(20))


@pytest.mark.parametrize("agreement", [0.0, 0.02, 0.3, 0.9, 0.99])
@pytest.mark.parametrize("budget", [0, 8])
def test_with_nobody_attacking_nobody_is_rejected_however_alike_the_updates_are(agreement, budget):
    shield, outcomes = play(None, frozenset(), rounds=25, agreement=agreement, budget=budget)
    assert rejected(outcomes, range(CLIENTS)) == 0
    assert trust(shield, range(CLIENTS)) > 0.8


@pytest.mark.parametrize("attack", ATTACKS)
def test_colluders_lose_their_reputation_and_nobody_honest_is_rejected(attack):
    shield, outcomes = play(attack, LIARS)
    assert rejected(outcomes, HONEST) == 0
    assert trust(shield, LIARS) < 0.4
    assert trust(shield, HONEST) > 0.9
    assert min(alignment(outcomes)) > 0.9


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("attack", [bridge, hub])
def test_a_bridge_or_hub_catches_nobody_but_itself(attack, size):
    liars = frozenset(range(CLIENTS - size, CLIENTS))
    _, outcomes = play(attack, liars)
    assert rejected(outcomes, set(range(CLIENTS)) - liars) == 0


def test_copies_of_one_client_have_one_vote_at_most_and_do_not_prosper():
    shield, outcomes = play(frame, LIARS, rounds=20)
    assert rejected(outcomes, HONEST - {0}) == 0
    together = [outcome for chosen, outcome, _ in outcomes if 0 in chosen and LIARS & set(chosen)]
    for outcome in together:
        group = [k for k in outcome.verdicts if k == 0 or k in LIARS]
        assert sum(outcome.verdicts[k].accepted for k in group) <= 1
    first = outcomes[0][1]
    assert sum(first.verdicts[k].accepted for k in (0, *LIARS)) == 1
    assert trust(shield, LIARS) < trust(shield, HONEST - {0}) - 0.3
    assert min(alignment(outcomes)) > 0.9


def test_the_original_is_told_apart_from_copies_that_have_another_past():
    honest, shield = world(0.2), MabRfl(seed=1)
    for t in range(1, 4):
        shield.aggregate(Updates(range(CLIENTS), own_ways(honest, t)), round=t)
    rows = own_ways(honest, 4)
    rows[20:] = rows[0]
    outcome = shield.aggregate(Updates(range(CLIENTS), rows), round=4)
    assert outcome.verdicts[0].accepted
    assert outcome.rejected("sybil") == list(range(20, 30))
    swapped = own_ways(honest, 4)
    swapped[:10] = swapped[29]
    assert shield_says(swapped, honest).verdicts[29].accepted
    assert not shield_says(swapped, honest, memory=0.0).verdicts[29].accepted


def shield_says(rows, honest, **options):
    """The fourth round of a shield that has seen three honest ones."""
    shield = MabRfl(seed=1, **options)
    for t in range(1, 4):
        shield.aggregate(Updates(range(CLIENTS), own_ways(honest, t)), round=t)
    return shield.aggregate(Updates(range(CLIENTS), rows), round=4)


def own_ways(honest, t):
    """Updates of clients whose data differ: to what all have in common each adds a direction of its own."""
    ways = unit(np.random.default_rng(3).normal(size=(CLIENTS, WIDTH)))
    return (honest(t) + 0.8 * ways).astype(np.float32)


def test_a_single_copier_and_its_victim_lose_no_reputation():
    def copy(t, rows, good, last):
        return rows[0]

    shield, _ = play(copy, frozenset({29}), rounds=3)
    assert shield.reputation[0][1] <= 1.0


def test_an_update_a_hundred_times_as_long_moves_the_model_no_further():
    def loud(t, rows, good, last):
        return 100 * rows[20]

    _, outcomes = play(loud, frozenset(range(20, 21)))
    longest = max(np.linalg.norm(outcome.step) for _, outcome, _ in play(None, frozenset())[1])
    assert max(np.linalg.norm(outcome.step) for _, outcome, _ in outcomes) < 1.2 * longest


@pytest.mark.parametrize(("clients", "budget"), [(3, 0), (20, 2), (20, 1)])
def test_length_is_bounded_in_the_smallest_cohorts_by_what_others_sent_before(clients, budget):
    shield, steps = MabRfl(seed=2, budget=budget), []
    for t in range(1, 31):
        chosen = shield.select(range(clients), round=t)
        rows = unit(np.random.default_rng([3, t]).normal(size=(clients, 50))).astype(np.float32)
        rows[0] *= 1e4
        steps.append(np.linalg.norm(shield.aggregate(Updates(chosen, rows[chosen]), round=t).step))
    assert max(steps[10:]) < 2


def test_strikes_between_honest_rounds_are_seen_at_once():
    honest, shield, caught, progress = world(), MabRfl(seed=1), [], []
    for t in range(1, 22):
        chosen = shield.select(range(CLIENTS), round=t)
        rows = honest(t)
        good = [k for k in chosen if k not in LIARS]
        mean = rows[good].mean(axis=0)
        for k in LIARS:
            rows[k] *= -100 if t % 3 == 0 else 1e-3
        outcome = shield.aggregate(Updates(chosen, rows[chosen]), round=t)
        caught += [not outcome.verdicts[k].accepted for k in chosen if k in LIARS and t % 3 == 0]
        if t == 3:
            assert {outcome.verdicts[k].evidence["over"] for k in chosen if k in LIARS} == {"this round"}
        progress.append(float(outcome.step @ unit(mean)) / np.linalg.norm(mean))
        assert not [k for k in good if not outcome.verdicts[k].accepted]
    assert np.mean(caught) > 0.9
    assert np.mean(progress) > 0.8
    assert trust(shield, LIARS) < 0.5


def test_liars_who_trip_the_guard_with_copies_of_others_are_still_rejected():
    honest, shield = world(), MabRfl(seed=1)
    for t in range(1, 7):
        shield.aggregate(Updates(range(CLIENTS), honest(t)), round=t)
    rows = honest(7)
    mean = rows[:17].mean(axis=0)
    rows[17:21] = rows[:4]
    rows[21:] = -1.5 * unit(mean)
    outcome = shield.aggregate(Updates(range(CLIENTS), rows), round=7)
    assert "majority-guard" in outcome.events
    assert not [k for k in range(17) if outcome.verdicts[k].blamed]
    assert sum(shares(outcome)[k] for k in range(21, CLIENTS)) < 0.1
    assert unit(outcome.step) @ unit(mean) > 0.95


def test_liars_who_trip_the_guard_among_honest_groups_still_stand_out():
    """The worst case of the guard: honest clients come in kinds, and with copies of theirs half of all are copies."""
    honest, shield, kinds = world(), MabRfl(seed=1), unit(np.random.default_rng(8).normal(size=(5, WIDTH)))

    def rows_of(t):
        return (0.5 * honest(t) + kinds[np.arange(CLIENTS) % 5]).astype(np.float32)

    for t in range(1, 7):
        shield.aggregate(Updates(range(CLIENTS), rows_of(t)), round=t)
    rows = rows_of(7)
    mean = rows[:17].mean(axis=0)
    rows[17:21] = rows[:4]
    rows[21:] = -1.5 * unit(mean) * np.median(np.linalg.norm(rows[:17], axis=1))
    outcome = shield.aggregate(Updates(range(CLIENTS), rows), round=7)
    assert "majority-guard" in outcome.events
    assert outcome.accepted == list(range(21))
    assert [k for k in range(CLIENTS) if outcome.verdicts[k].blamed] == list(range(21, CLIENTS))


def test_after_fifty_honest_rounds_a_sign_flipper_is_selected_less_than_half_of_the_time_within_six_bad_rounds():
    axes = unit(np.random.default_rng(4).normal(size=WIDTH))
    shield, sent = MabRfl(seed=1), dict.fromkeys(LIARS, 0)
    for t in range(1, 63):
        chosen = shield.select(range(CLIENTS), round=t)
        rows = np.sqrt(0.3) * axes + np.sqrt(0.7) * unit(np.random.default_rng([9, t]).normal(size=(CLIENTS, WIDTH)))
        for k in LIARS:
            rows[k] *= 1 if t <= 50 else -1
            sent[k] += t > 50 and k in chosen and trust(shield, [k]) >= 0.5
        shield.aggregate(Updates(chosen, rows[chosen].astype(np.float32)), round=t)
    assert max(sent.values()) <= 6
    assert trust(shield, LIARS) < 0.5
    assert trust(shield, HONEST) > 0.95


def shares(outcome):
    return {client: verdict.evidence["share"] for client, verdict in outcome.verdicts.items()}


def test_clients_with_more_data_have_more_votes_and_braggarts_no_more_than_the_usual():
    rows = unit(world()(1)).astype(np.float32)
    claims = np.full(CLIENTS, 100.0)
    claims[0], claims[1], claims[2] = 10, 50, 1e15
    honest = shares(MabRfl(seed=1).aggregate(Updates(range(CLIENTS), rows, claims), round=1))
    plain = shares(MabRfl(seed=1, claims=0).aggregate(Updates(range(CLIENTS), rows, claims), round=1))
    gained = {client: honest[client] / plain[client] for client in range(CLIENTS)}
    usual = gained[CLIENTS - 1]
    assert gained[0] / usual == pytest.approx(0.1)
    assert gained[1] / usual == pytest.approx(0.5)
    assert gained[2] / usual == pytest.approx(1.0)


def test_without_claims_all_count_the_same():
    rows = world()(1)
    bounded, ignored = (
        MabRfl(seed=1, claims=bound).aggregate(Updates(range(CLIENTS), rows), round=1) for bound in (1.0, 0.0)
    )
    assert np.array_equal(bounded.step, ignored.step)


def test_claims_are_bounded_in_the_smallest_cohorts_by_what_others_claimed_before():
    honest, shield = world(), MabRfl(seed=1)
    shield.aggregate(Updates(range(CLIENTS), honest(1), np.full(CLIENTS, 100.0)), round=1)
    restored = MabRfl(seed=1)
    restored.load_state_dict(shield.state_dict())
    rows = unit(honest(2)).astype(np.float32)
    for each in (shield, restored):
        outcome = each.aggregate(Updates([0, 1], rows[:2], [1e9, 100.0]), round=2)
        assert shares(outcome)[0] == pytest.approx(0.5, rel=1e-3)


def test_a_state_with_senseless_claims_is_refused():
    shield = MabRfl(seed=1)
    shield.aggregate(Updates(range(CLIENTS), world()(1)), round=1)
    state = shield.state_dict()
    state["rule"]["examples"] = np.zeros(CLIENTS)
    with pytest.raises(StateError, match="examples must be one positive number per client"):
        MabRfl(seed=1).load_state_dict(state)


def test_honest_lengths_far_above_those_of_others_cost_no_reputation():
    honest = world()
    shield = MabRfl(seed=1)
    for t in range(1, 6):
        rows = honest(t)
        rows[0] *= 40
        rows[20:] *= 1e-3
        outcome = shield.aggregate(Updates(range(CLIENTS), rows), round=t)
        assert outcome.accepted == list(range(CLIENTS))


@pytest.mark.parametrize("groups", [10, 5, 3])
def test_honest_clients_whose_data_come_in_kinds_are_not_taken_for_sybils(groups):
    kinds = unit(np.random.default_rng(8).normal(size=(groups, WIDTH)))
    honest, shield, rejected_ones = world(0.3), MabRfl(seed=1), 0
    for t in range(1, 21):
        chosen = shield.select(range(CLIENTS), round=t)
        rows = 0.5 * honest(t) + 2.0 * kinds[np.arange(CLIENTS) % groups]
        outcome = shield.aggregate(Updates(chosen, rows[chosen].astype(np.float32)), round=t)
        rejected_ones += sum(not verdict.accepted for verdict in outcome.verdicts.values())
    assert rejected_ones == 0
    assert trust(shield, range(CLIENTS)) > 0.9


def test_more_liars_than_honest_clients_in_one_draw_do_not_win():
    honest, shield = world(), MabRfl(seed=1)
    rows = honest(1)
    rows[20:] = -np.abs(rows[:1]) - 0.3 * rows[20:]
    shield.select(range(CLIENTS), round=1)
    shield.aggregate(Updates(range(CLIENTS), rows), round=1)
    rows = honest(2)
    rows[20:] = -np.abs(honest(1)[:1]) - 0.3 * rows[20:]
    drawn = [0, 1, 2, *range(20, 26)]
    outcome = shield.aggregate(Updates(drawn, rows[drawn]), round=2)
    assert outcome.accepted == [0, 1, 2]


def test_identities_that_are_gone_have_no_weight_and_leave_no_momenta():
    honest, shield, names = world(), MabRfl(seed=1), list(range(CLIENTS))
    fresh, passed = CLIENTS, 0
    for t in range(1, 41):
        chosen = shield.select(names, round=t)
        rows = honest(t if t < 40 else 39)
        sent = {name: rows[k] if k < 17 else -rows[:17].mean(axis=0) for k, name in enumerate(names)}
        outcome = shield.aggregate(Updates(chosen, np.stack([sent[name] for name in chosen])), round=t)
        passed += sum(verdict.accepted for name, verdict in outcome.verdicts.items() if name >= 17)
        assert unit(outcome.step) @ unit(rows[:17].mean(axis=0)) > 0.8
        for k in range(17, CLIENTS):
            if names[k] in outcome.verdicts:
                names[k], fresh = fresh, fresh + 1
    assert fresh > 100
    assert passed < 0.2 * (fresh - CLIENTS)
    assert len(shield.state_dict()["rule"]["ids"]) < 0.8 * fresh


def test_a_fixed_direction_beside_that_of_the_others_is_caught_over_the_rounds():
    drift = unit(np.random.default_rng(77).normal(size=WIDTH))

    honest = world(0.05)
    shield = MabRfl(seed=1)
    for t in range(1, 21):
        chosen = shield.select(range(CLIENTS), round=t)
        rows = honest(t)
        for k in LIARS:
            rng = np.random.default_rng([5, t, k])
            rows[k] = np.sqrt(0.28) * drift + np.sqrt(0.72) * unit(rng.normal(size=WIDTH))
        shield.aggregate(Updates(chosen, rows[chosen]), round=t)
    assert trust(shield, LIARS) < 0.3
    assert trust(shield, HONEST) > 0.9


def test_a_lone_liar_is_known_by_its_fellows_of_earlier_rounds():
    shield, honest = MabRfl(seed=1), world(0.1)
    lie = unit(np.random.default_rng(5).normal(size=WIDTH)).astype(np.float32)
    rows = honest(1)
    rows[20:25] = lie
    shield.select(range(CLIENTS), round=1)
    shield.aggregate(Updates(range(CLIENTS), rows), round=1)
    rows = honest(2)
    rows[20] = lie
    outcome = shield.aggregate(Updates(range(21), rows[:21]), round=2)
    assert not outcome.verdicts[20].accepted or outcome.verdicts[20].credit < 0
    alone = MabRfl(seed=1, panel_rounds=0)
    alone.aggregate(Updates(range(CLIENTS), np.concatenate([honest(1)[:20], np.repeat(lie[None], 10, 0)])), round=1)
    assert alone.aggregate(Updates(range(21), rows[:21]), round=2).verdicts[20].accepted


def test_the_guard_is_no_event_where_there_was_nothing_to_guard():
    _, outcomes = play(None, frozenset(), rounds=5)
    assert {event for _, outcome, _ in outcomes for event in outcome.events} == {"warm-up"}


def test_a_federation_that_sends_one_and_the_same_update_follows_it():
    shield, rows = MabRfl(seed=1), np.repeat(world()(1)[:1], 8, axis=0)
    outcome = shield.aggregate(Updates(range(8), rows), round=1)
    assert outcome.accepted == list(range(8))
    np.testing.assert_allclose(outcome.step, rows[0], rtol=1e-5)


def test_when_the_guard_fires_nobody_is_blamed():
    shield = MabRfl(seed=1)
    rows = world()(1)[:8]
    rows[:5] = rows[0]
    outcome = shield.aggregate(Updates(range(8), rows), round=1)
    assert "majority-guard" in outcome.events
    assert outcome.accepted == list(range(8))
    assert all(bad <= 1 for _, bad in shield.reputation.values())


def test_where_half_of_those_present_are_copies_nobody_is_blamed_and_least_of_all_the_victim():
    shield, honest = MabRfl(seed=1), world()
    for t in range(1, 7):
        shield.aggregate(Updates(range(CLIENTS), honest(t)), round=t)
    before = dict(shield.reputation)
    rows, present = honest(7), [0, 1, 2, 3, 4, 25, 26, 27, 28, 29]
    rows[25:] = rows[0]
    outcome = shield.aggregate(Updates(present, rows[present]), round=7)
    assert "majority-present" in outcome.events
    assert len(outcome.rejected("sybil")) == 5
    assert not [k for k in present if outcome.verdicts[k].blamed]
    assert all(shield.reputation[k][1] <= before[k][1] for k in present)
    assert shield.reputation[1][0] > before[1][0]  # the others are rewarded as ever


def test_copies_and_an_outlying_group_are_never_half_of_the_reputation_together():
    """Of copies all but one lose their voice: 7 of 30 clients, and 8 who push the other way would make it half."""

    def judged(copies, foreign):
        rows = world()(1)
        rows[:copies] = rows[0]
        rows[CLIENTS - foreign :] *= -1
        outcome = MabRfl(seed=1).aggregate(Updates(range(CLIENTS), rows), round=1)
        return len(outcome.rejected("sybil")), len(outcome.rejected("outlier"))

    assert judged(8, 7) == (7, 7)
    assert judged(7, 8) == (6, 8)
    assert judged(8, 8) == (7, 0)
    assert judged(0, 8) == (0, 8)


@pytest.mark.parametrize(
    "option",
    [
        {"copy_similarity": 0.0, "separation_whole": 0.0},
        {"memory": 0.0},
        {"panel_rounds": 0},
        {"opposed": 0.0},
        {"suspicion": 0.0},
        {"claims": 0.0},
    ],
    ids=str,
)
def test_without_any_one_mechanism_the_shield_still_runs(option):
    shield, outcomes = play(lie, LIARS, rounds=4, **option)
    assert all(np.isfinite(outcome.step).all() for _, outcome, _ in outcomes)
    for name, value in option.items():
        assert getattr(shield.options, name) == value != getattr(HardenedOptions(), name)


def test_without_memory_no_momenta_are_kept():
    shield, _ = play(lie, LIARS, rounds=3, memory=0.0)
    assert shield.state_dict()["rule"]["momenta"].size == 0


def test_the_facts_of_a_round_say_what_was_seen():
    _, outcomes = play(reverse, LIARS, rounds=2)
    facts = outcomes[0][1].facts
    assert facts["panel"] == CLIENTS
    assert facts["largest_copied_group"] == len(LIARS)
    assert facts["largest_residual_cosine"] == pytest.approx(1.0)
    evidence = outcomes[0][1].verdicts[25].evidence
    assert (evidence["copies"], evidence["share"]) == (len(LIARS), 0.0)


# The share of one client, and small federations.


@settings(max_examples=150)
@given(
    size=st.tuples(st.integers(2, 200), st.integers(2, 40)),
    agreement=st.sampled_from([0.0, 0.5, 0.99, 1.0 - 1e-7]),
    liar=st.tuples(st.sampled_from([1e-30, 1e-5, 1.0, 1e5, 1e30]), st.sampled_from([1e-9, 1.0, 1e15])),
    layers=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_no_client_ever_has_more_than_two_shares_of_the_step(size, agreement, liar, layers, seed):
    """A search for a counter-example over geometries, sizes, lengths, reputations and claims."""
    rng, (clients, width), (loud, claim) = np.random.default_rng(seed), size, liar
    shield = MabRfl(seed=0)
    layout = Layout({"a.weight": (1, 1), "b.weight": (1, width - 1)}) if layers else None
    for t in (1, 2, 3):
        common = unit(rng.normal(size=(1, width)))
        rows = np.sqrt(agreement) * common + np.sqrt(1 - agreement) * unit(rng.normal(size=(clients, width)))
        rows *= rng.lognormal(sigma=2 * rng.random(), size=(clients, 1))
        claims = rng.lognormal(sigma=3, size=clients)
        liars = rng.random(clients) < rng.choice([0.0, 0.02, 0.3])
        liars[0] = True
        rows[liars], claims[liars] = -loud * common * rng.choice([1, -1]), claim
        outcome = shield.aggregate(Updates(range(clients), rows, claims, layout=layout), round=t)
        used = [share for share in shares(outcome).values() if share]
        assert max(used) <= 2 / len(used) * (1 + 1e-6)
        assert sum(used) == pytest.approx(1)


@pytest.mark.parametrize("clients", [12, 50])
def test_a_lone_liar_among_clients_that_nearly_agree_does_not_stop_training(clients):
    """All clients descend on one bowl from nearly the same data; the liar sends the negated step."""
    rng = np.random.default_rng(0)
    goals = 10 * unit(rng.normal(size=(1, 40))) + 0.05 * rng.normal(size=(clients, 40))

    def distance(liars):
        shield, weights = MabRfl(seed=1), np.zeros(40)
        for t in range(1, 13):
            chosen = shield.select(range(clients), round=t)
            rows = 0.5 * (goals - weights)
            rows[liars] *= -1
            weights = weights + shield.aggregate(Updates(chosen, rows[chosen]), round=t).step
        return np.linalg.norm(weights - goals.mean(axis=0)), shield

    alone, _ = distance([])
    with_liar, shield = distance([3])
    assert with_liar < alone + 0.1
    assert trust(shield, [3]) < 0.2
    assert trust(shield, set(range(clients)) - {3}) > 0.8


def test_an_update_that_is_next_to_nothing_is_judged_like_silence():
    rows = world()(1)
    rows[7] *= 1e-9
    outcome = MabRfl(seed=1).aggregate(Updates(range(CLIENTS), rows), round=1)
    verdict = outcome.verdicts[7]
    assert (verdict.accepted, verdict.reason, verdict.blamed) == (False, "malformed", False)
    assert "next to nothing" in verdict.evidence["cause"]
    assert len(outcome.accepted) == CLIENTS - 1


# Layers.

LAYERS = Layout({"first.weight": (4, 40), "middle.weight": (68, 40), "last.weight": (3, 40)})


def test_a_weak_push_in_a_small_first_layer_alone_is_not_seen():
    """Honest clients differ as much there (SGD), and no more in the whole update."""
    push = unit(np.random.default_rng(6).normal(size=160))
    columns = LAYERS.slices["first.weight"]
    honest, shield = world(), MabRfl(seed=1)
    for t in range(1, 9):
        rows = honest(t)
        rows[20:, columns] = np.linalg.norm(rows[20:, columns], axis=1, keepdims=True) * push + 0.3 * rows[20:, columns]
        outcome = shield.aggregate(Updates(range(CLIENTS), rows, layout=LAYERS), round=t)
        assert outcome.accepted == list(range(CLIENTS))
    assert outcome.facts["block"] == "first"
    assert outcome.facts["separation_needed"] == pytest.approx(1.2)
    assert outcome.facts["separation"] > 0.8


@pytest.mark.parametrize(("block", "layer"), [("first", "first"), ("last", "last")])
def test_a_push_in_one_layer_is_seen_there_and_nowhere_else(block, layer):
    push = unit(np.random.default_rng(6).normal(size=WIDTH)).astype(np.float32)
    columns = LAYERS.slices[f"{layer}.weight"]
    honest, shield, blind = world(), MabRfl(seed=1), MabRfl(seed=1)
    seen = set()
    for t in range(1, 9):
        rows = honest(t)
        scale = np.linalg.norm(rows[20:, columns], axis=1, keepdims=True)
        rows[20:, columns] = scale * unit(push[columns]) + 0.1 * rows[20:, columns]
        outcome = shield.aggregate(Updates(range(CLIENTS), rows, layout=LAYERS), round=t)
        assert set(HONEST) <= set(outcome.accepted)
        seen |= {outcome.verdicts[k].evidence.get("block") for k in LIARS}
        assert blind.aggregate(Updates(range(CLIENTS), rows), round=t).accepted == list(range(CLIENTS))
    assert outcome.rejected("outlier") == sorted(LIARS)
    assert seen <= {block, None}
    evidence = outcome.verdicts[25].evidence
    assert evidence["separation"] >= evidence["separation_needed"]
    assert (evidence["over"], evidence["group_size"]) == ("rounds", len(LIARS))


def test_an_honest_client_that_alone_owns_a_label_is_not_taken_for_a_liar():
    """It differs from all others, but in the last layer it does not oppose them."""
    rng = np.random.default_rng(1)
    honest, shield = world(), MabRfl(seed=1)
    own = unit(rng.normal(size=WIDTH))
    for t in range(1, 9):
        rows = honest(t)[:8]
        mean = rows[1:].mean(axis=0)
        rows[0] = -0.6 * mean + 0.5 * np.linalg.norm(mean) * own
        rows[0, LAYERS.slices["last.weight"]] = 0.5 * mean[LAYERS.slices["last.weight"]]
        outcome = shield.aggregate(Updates(range(8), rows, layout=LAYERS), round=t)
        assert outcome.accepted == list(range(8))
    without = MabRfl(seed=1).aggregate(Updates(range(8), rows), round=1)  # nothing tells them apart without the layout
    assert without.rejected("outlier") == [0]


@pytest.mark.parametrize(("clients", "size", "seen"), [(8, 2, False), (24, 6, True)])
def test_of_few_clients_more_is_asked_before_a_layer_rejects_a_group(clients, size, seen):
    """A quarter of the clients has a cosine of 0.38 with the others in the last layer, and all agree to 0.8."""
    rng = np.random.default_rng(3)
    common = rng.normal(size=3000)
    rows = common + 1.5 * rng.normal(size=(clients, 3000))
    last = LAYERS.slices["last.weight"]
    axes = np.linalg.qr(rng.normal(size=(120, clients + 2)))[0].T
    other = 0.475 * axes[0] + np.sqrt(1 - 0.475**2) * axes[1]
    rows[:, last] = np.sqrt(0.8) * axes[0] + np.sqrt(0.2) * axes[2:]
    rows[:size, last] += np.sqrt(0.8) * (other - axes[0])
    outcome = MabRfl(seed=0).aggregate(Updates(range(clients), rows, layout=LAYERS), round=1)
    found = {client for client, verdict in outcome.verdicts.items() if not verdict.accepted}
    assert found == (set(range(size)) if seen else set())
    assert not seen or {outcome.verdicts[k].evidence["block"] for k in found} == {"last"}
