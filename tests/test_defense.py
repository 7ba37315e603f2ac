import copy
from dataclasses import fields
from functools import cache
from typing import Literal, get_args, get_origin, get_type_hints

import numpy as np
import pytest

from mabrfl import Decision, Defense, MabRfl, MabRflOptions, Median, MultiKrum, Updates, vectors
from mabrfl.aggregation import FedAvg, Krum
from mabrfl.errors import ConfigError, StateError
from mabrfl.layout import Layout
from mabrfl.mab.paper import MabRflRule
from mabrfl.mab.presets import PRESETS, options
from mabrfl.selection import ACS, Uniform

WIDTH = 300
OTHER_NUMBERS = {
    "warmup_rounds": 3,
    "always_from": 0.7,
    "never_to": 0.4,
    "prior_benign": 4.0,
    "prior_malicious": 4.0,
    "first_round": 4,
    "schedule_decay": 1.0,
    "c_max": 0.9,
    "c_min": 0.02,
    "min_component": 1,
    "components_removed": 2,
    "history": 0.9,
    "pca_variance": 0.2,
    "alpha": 0.9,
    "budget": 5,
    "newcomer_benign": 3.0,
    "newcomer_malicious": 3.0,
    "keep_good": 0.5,
    "strike": 0.2,
    "forgive": 0.5,
    "copy_similarity": 0.5,
    "memory": 0.0,
    "panel_rounds": 0,
    "separation_whole": 0.1,
    "separation_first": 0.1,
    "separation_last": 0.1,
    "separation_labels": 0.1,
    "suspicion": 0.9,
    "opposed": 0.9,
    "claims": 0.5,
    "clip": 0.5,
}


def cohort(n, seed=0, spread=1.0):
    rng = np.random.default_rng(seed)
    return (0.3 * rng.normal(size=WIDTH) + spread * rng.normal(size=(n, WIDTH))).astype(np.float32)


def scripted_run(shield, rounds=14, clients=16):
    """A run with sybils, opposed clients, unequal norms and pauses; a fingerprint of all it decided."""
    trace = []
    common = np.random.default_rng(99).normal(size=WIDTH)
    for t in range(1, rounds + 1):
        chosen = shield.select(range(clients), round=t)
        rows = []
        for k in chosen:
            rng = np.random.default_rng([t, k])
            noise = rng.normal(size=WIDTH)
            if k in (1, 2, 3):
                row = np.random.default_rng([t, 1000]).normal(size=WIDTH) + 0.2 * noise
            elif k in (4, 5):
                row = -0.4 * common + 0.4 * np.random.default_rng([t, k // 2, 7]).normal(size=WIDTH) + 0.5 * noise
            else:
                row = 0.2 * common + noise
            rows.append(row * (1 + k))
        outcome = shield.aggregate(Updates(chosen, np.array(rows, np.float32), [k + 1 for k in chosen]), round=t)
        trace.append((tuple(chosen), tuple(outcome.accepted), outcome.step.tobytes(), outcome.events))
    return trace


@pytest.mark.parametrize("preset", PRESETS)
def test_same_seed_same_bytes_and_another_seed_another_run(preset):
    assert scripted_run(MabRfl(preset, seed=3)) == scripted_run(MabRfl(preset, seed=3))
    assert scripted_run(MabRfl(preset, seed=3), rounds=14) != scripted_run(MabRfl(preset, seed=4), rounds=14)


def variants():
    """Every option of MAB-RFL, alone, at a value that its preset does not have."""
    for preset, chosen in PRESETS.items():
        hints = get_type_hints(type(chosen))
        for field in fields(chosen):
            current = getattr(chosen, field.name)
            if hints[field.name] is bool:
                values = [not current]
            elif get_origin(hints[field.name]) is Literal:
                values = [value for value in get_args(hints[field.name]) if value != current]
            else:
                values = [OTHER_NUMBERS[field.name]]
            for value in values:
                yield pytest.param(preset, field.name, value, id=f"{preset}-{field.name}-{value}")


@pytest.mark.parametrize(("preset", "name", "value"), list(variants()))
def test_every_option_can_be_set_alone_and_runs(preset, name, value):
    shield = MabRfl(preset, seed=3, **{name: value})
    assert getattr(shield.options, name) == value
    for _, accepted, step, _ in scripted_run(shield, rounds=6):
        assert len(accepted) <= 16
        assert np.all(np.isfinite(np.frombuffer(step, np.float32)))


# Each option alone (the first of each entry), on top of settings that make it matter. The others, which need a
# constructed case, have a test of their own below.
CHANGES_THE_SCRIPTED_RUN = [
    ("reference", {"always_from": 0.5, "never_to": 0.1, "warmup_rounds": 0}),
    ("reference", {"never_to": 0.85, "warmup_rounds": 0}),
    ("hardened", {"copy_similarity": 0.0}),
    ("hardened", {"separation_whole": 0.0, "opposed": 0.0}),
    ("hardened", {"opposed": 0.0, "separation_whole": 0.0}),
    ("hardened", {"memory": 0.0}),
    ("hardened", {"claims": 0.0}),
    ("hardened", {"clip": 0.5}),
    ("hardened", {"keep_good": 0.5}),
    ("hardened", {"strike": 0.2}),
    ("hardened", {"forgive": 0.5}),
    ("hardened", {"budget": 5}),
    ("hardened", {"warmup_rounds": 3}),
    ("paper", {"prior_benign": 4.0}),
    ("paper", {"c_max": 0.98, "c_min": 0.3}),
    ("paper", {"history": 0.9}),
    ("paper", {"warmup_rounds": 3}),
    ("paper", {"inclusion": "cutoffs"}),
    ("paper", {"prior_malicious": 4.0}),
    ("paper", {"beliefs": "reset"}),
    ("paper", {"first_round": 4}),
    ("paper", {"schedule_decay": 1e6, "c_max": 0.99, "c_min": 0.5}),
    ("paper", {"c_min": 0.02, "c_max": 0.3}),
    ("paper", {"graph_vectors": "momentum", "history": 0.9, "c_max": 0.15, "c_min": 0.15}),
    ("paper", {"momentum_memory": "unit", "history": 0.9}),
    ("paper", {"momentum_updated": "selected", "history": 0.9, "components_removed": 2}),
    ("paper", {"momentum_age": "selected", "history": 0.9, "c_max": 0.2, "c_min": 0.2}),
    ("paper", {"min_component": 1, "c_max": 0.9999, "c_min": 0.999}),
    ("paper", {"components_removed": 0}),
    ("paper", {"pca_variance": 0.2, "alpha": 0.5}),
    ("paper", {"linkage": "single", "alpha": 0.5}),
    ("paper", {"alpha": 0.9}),
    ("paper", {"cluster_means": "unit", "alpha": 0.1}),
    ("paper", {"step_size": "median"}),
    ("paper", {"weighting": "examples"}),
]


@cache
def plain_run(preset, settings):
    return scripted_run(MabRfl(preset, seed=3, **dict(settings)))


@pytest.mark.parametrize(("preset", "changed"), CHANGES_THE_SCRIPTED_RUN, ids=str)
def test_options_change_what_is_decided(preset, changed):
    name, value = next(iter(changed.items()))
    rest = {key: other for key, other in changed.items() if key != name}
    plain = plain_run(preset, tuple(rest.items()))
    assert scripted_run(MabRfl(preset, seed=3, **rest, **{name: value})) != plain


def test_a_sybil_keeps_its_old_momentum_in_the_paper_and_not_in_the_released_code():
    first, second = cohort(6, 1), cohort(6, 2)
    second[4] = second[5]
    for preset, changed in (("paper", False), ("reference", True)):
        shield = MabRfl(preset, c_max=0.9, c_min=0.9, alpha=-1.0)
        shield.aggregate(Updates(range(6), first), round=1)
        before = shield.state_dict()["rule"]
        outcome = shield.aggregate(Updates(range(6), second), round=2)
        after = shield.state_dict()["rule"]
        assert outcome.rejected("sybil") == [4, 5]
        assert bool(np.any(before["momenta"][4] != after["momenta"][4])) is changed
        assert np.any(before["momenta"][0] != after["momenta"][0])


def test_momentum_follows_equation_5_over_a_pause():
    shield = MabRfl("paper", history=0.5, c_max=0.999, c_min=0.99, alpha=-1.0)
    g = [cohort(4, seed) for seed in range(3)]
    shield.aggregate(Updates(range(4), g[0]), round=1)
    shield.aggregate(Updates([1, 2, 3], g[1][1:]), round=2)
    outcome = shield.aggregate(Updates(range(4), g[2]), round=4)
    m = [g[2][0] + 0.5**3 * g[0][0]] + [g[2][k] + 0.25 * (g[1][k] + 0.5 * g[0][k]) for k in (1, 2, 3)]
    mean = np.mean([row / np.linalg.norm(row) for row in m], axis=0)
    expected = np.linalg.norm(g[2], axis=1).mean() * mean
    np.testing.assert_allclose(outcome.step, expected, atol=1e-4)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_tiny_cohorts_are_defined(preset, n):
    shield = MabRfl(preset)
    outcome = shield.aggregate(Updates(list(range(n)), cohort(3)[:n]), round=1)
    assert outcome.step.shape == (WIDTH,)
    assert len(outcome.verdicts) == n
    if n == 0:
        assert outcome.events == ("no-usable-updates",)
    if n == 1:
        np.testing.assert_allclose(outcome.step, cohort(3)[0], rtol=1e-5)
        assert ("outlier-test-skipped" in outcome.events) is (preset != "hardened")
        assert ("would-have-crashed" in outcome.events) is (preset == "reference")


@pytest.mark.parametrize("preset", ["paper", "reference"])
def test_when_all_are_alike_nobody_survives_and_the_model_stays(preset):
    shield = MabRfl(preset)
    outcome = shield.aggregate(Updates(range(5), np.repeat(cohort(1), 5, axis=0)), round=1)
    assert outcome.rejected("sybil") == [0, 1, 2, 3, 4]
    assert not outcome.step.any()
    assert "no-survivors" in outcome.events
    assert set(shield.reputation.values()) == {(1.0, 2.0)}


def test_two_equal_clusters_are_kept_by_the_paper_and_cut_by_the_released_code():
    one = cohort(1, 1)[0]
    base = np.array([one, one, -one, -one]) + 0.8 * cohort(4, 5)
    kept = MabRfl("paper", c_max=0.99, c_min=0.99).aggregate(Updates(range(4), base), round=1)
    assert kept.accepted == [0, 1, 2, 3]
    assert "equal-clusters" in kept.events
    cut = MabRfl("reference", c_max=0.99, c_min=0.99).aggregate(Updates(range(4), base), round=1)
    assert len(cut.rejected("outlier")) == 2
    assert "equal-clusters" in cut.events


def test_evidence_says_why():
    matrix = cohort(8, 3)
    matrix[6] = matrix[7]
    outcome = MabRfl("paper", c_max=0.9, c_min=0.9).aggregate(Updates(range(8), matrix), round=1)
    evidence = outcome.verdicts[6].evidence
    assert outcome.verdicts[6].reason == "sybil"
    assert evidence["max_cosine"] == pytest.approx(1.0)
    assert evidence["component_size"] == 2
    assert evidence["norm"] == pytest.approx(np.linalg.norm(matrix[6]), rel=1e-6)
    assert outcome.verdicts[0].evidence["cluster"] in ("larger", "smaller", "equal")
    assert outcome.facts["similarity_threshold"] == 0.9


@pytest.mark.parametrize("preset", PRESETS)
def test_a_restored_state_goes_on_bit_for_bit(preset):
    whole, first = MabRfl(preset, seed=3), MabRfl(preset, seed=3)
    trace = scripted_run(whole)
    scripted_run(first, rounds=7)
    second = MabRfl(preset, seed=3)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    assert second.reputation == first.reputation

    class Resumed:
        def select(self, ids, *, round):
            return second.select(ids, round=round) if round > 7 else first_again.select(ids, round=round)

        def aggregate(self, updates, *, round):
            return (second if round > 7 else first_again).aggregate(updates, round=round)

    first_again = MabRfl(preset, seed=3)
    assert scripted_run(Resumed()) == trace
    assert second.reputation == whole.reputation


def plain_values(value):
    if isinstance(value, dict):
        return all(isinstance(key, str) and plain_values(entry) for key, entry in value.items())
    if isinstance(value, list):
        return all(plain_values(entry) for entry in value)
    return (
        value is None
        or isinstance(value, int | float | str)
        or (isinstance(value, np.ndarray) and value.dtype.kind in "fiu")
    )


def test_state_is_plain_arrays_numbers_and_strings():
    shield = MabRfl()
    scripted_run(shield, rounds=3)
    assert plain_values(shield.state_dict())


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda state: state.clear(), "not a state of a defense"),
        (lambda state: state.update(format=2), "not a state of a defense in format 1"),
        (lambda state: state.update(name="krum"), "name is 'krum', this defense's is 'mab-rfl'"),
        (lambda state: state.update(seed=9), "seed is 9"),
        (lambda state: state.pop("beliefs"), "malformed"),
        (lambda state: state["beliefs"].update(counts=np.full((16, 2), -1.0)), "positive and finite"),
        (lambda state: state["beliefs"].update(ids=[1]), "one .B, M. pair per distinct id"),
        (lambda state: state["rule"].update(momenta=np.zeros((1, 2))), "one row per distinct id"),
        (lambda state: state["rule"]["momenta"].fill(np.nan), "momenta must be finite"),
        (lambda state: state["rule"].pop("computed"), "malformed"),
        (lambda state: state["progress"].update(dimension="x"), "dimension must be a whole number"),
        (lambda state: state["progress"].update(last_round=-5), "last_round must be a whole number"),
        (lambda state: state["progress"].update(precision="int8"), "precision must be float32 or float64"),
        (lambda state: state["progress"].update(selected=[1.5]), "client ids must be int or str"),
        (lambda state: state["beliefs"].update(ids=[0.5] * 16), "client ids must be int or str"),
        (lambda state: state["rule"].update(momenta=state["rule"]["momenta"].astype(np.int64)), "single or double"),
        (lambda state: state["rule"].update(momenta=state["rule"]["momenta"][:, 0]), "one row per distinct id"),
        (lambda state: state["rule"].update(momenta=state["rule"]["momenta"][:, :, None]), "one row per distinct"),
        (lambda state: state["rule"]["norms"].fill(-1.0), "not negative"),
        (lambda state: state["rule"]["ids"].__setitem__(0, state["rule"]["ids"][1]), "one row per distinct id"),
    ],
)
def test_a_damaged_state_is_refused_and_changes_nothing(damage, message):
    shield = MabRfl()
    scripted_run(shield, rounds=3)
    state = shield.state_dict()
    before = copy.deepcopy(state)
    damage(state)
    fresh = MabRfl()
    fresh.load_state_dict(before)
    with pytest.raises(StateError, match=message):
        fresh.load_state_dict(state)
    np.testing.assert_equal(fresh.state_dict(), before)


def test_rounds_must_increase():
    shield = MabRfl()
    shield.aggregate(Updates([0, 1], cohort(2)), round=3)
    with pytest.raises(StateError, match="round 3 after round 3"):
        shield.aggregate(Updates([0, 1], cohort(2)), round=3)


@pytest.mark.parametrize("number", [0, -1, 1.5, True, "1"])
def test_a_round_is_a_number_from_one(number):
    with pytest.raises(ValueError, match="round must be an integer from 1"):
        MabRfl().select([1, 2], round=number)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"c_maxx": 0.7}, "MAB-RFL has no option 'c_maxx'; did you mean 'c_max'"),
        ({"c_max": 0.2, "c_min": 0.3}, "c_min <= c_max < 1 must hold; got c_min=0.3, c_max=0.2"),
        ({"c_max": float("nan")}, "must hold"),
        ({"history": 1.0}, "history must lie in"),
        ({"history": -0.1}, "history must lie in .* got -0.1"),
        ({"alpha": 2}, "alpha must lie in"),
        ({"linkage": "wards"}, "linkage must be one of ward, average, complete, single; got 'wards'"),
        ({"min_component": 1.5}, "min_component must be an integer; got 1.5"),
        ({"c_max": "0.7"}, "c_max must be a number; got '0.7'"),
        ({"warmup_rounds": True}, "warmup_rounds must be an integer; got True"),
        ({"never_to": 0.95}, "never_to <= always_from must hold"),
    ],
)
def test_bad_options_are_refused_by_name_rule_and_value(bad, message):
    with pytest.raises(ConfigError, match=message):
        MabRfl("paper", **bad)


def test_unknown_preset_names_the_nearest():
    with pytest.raises(ConfigError, match="unknown preset 'papr'; did you mean 'paper'"):
        MabRfl("papr")


def test_thresholds_of_the_paper_depend_on_the_data_set_and_the_released_codes_do_not():
    assert (options("paper", "mnist").c_max, options("paper", "mnist").alpha) == (0.7, -0.1)
    assert (options("paper", "cifar10").c_max, options("paper", "cifar10").alpha) == (0.3, 0.0)
    assert options("reference", "mnist") == options("reference", "cifar10")


def test_any_selector_goes_with_any_rule():
    defense = Defense(Krum(num_malicious=3), selector=ACS(), name="krum")
    outliers = set()
    for t in range(1, 15):
        chosen = defense.select(range(12), round=t)
        rows = np.array([cohort(12, t)[k] * (30 if k < 3 else 1) for k in chosen])
        outliers.update(defense.aggregate(Updates(chosen, rows), round=t).rejected("outlier"))
    assert {0, 1, 2} <= outliers
    beliefs = {k: good / (good + bad) for k, (good, bad) in defense.reputation.items()}
    assert max(beliefs[k] for k in (0, 1, 2)) < np.mean([beliefs[k] for k in range(3, 12)])


def test_mab_rfls_screens_go_with_another_selector():
    shield = MabRfl(selector=Uniform(num_selected=4))
    assert len(shield.select(range(10), round=1)) == 4


def test_a_plain_function_is_a_rule():
    def half(cohort):
        return Decision(weights=np.full(len(cohort), 0.5 / len(cohort)))

    outcome = Defense(half).aggregate(Updates([1, 2], np.array([[2.0, 4.0], [6.0, 8.0]])), round=1)
    assert outcome.step.tolist() == [2.0, 3.0]
    assert outcome.accepted == [1, 2]


@pytest.mark.parametrize(
    ("decision", "message"),
    [
        (Decision(), "weights or on a step; got neither"),
        (Decision(weights=np.ones(3)), "one weight per row; got 3 for 2 rows"),
        (Decision(step=np.ones(5)), r"shape \(2,\); got \(5,\)"),
        (None, "must return a Decision; got NoneType"),
        (Decision(weights=np.ones(2), reasons=["accepted", "acepted"]), "'acepted'; did you mean 'accepted'"),
        (Decision(weights=np.ones(2), reasons=["accepted", "outliers"]), "'outliers'; did you mean 'outlier'"),
        (Decision(weights=np.ones(2), reasons=["accepted", "<b>Evil"]), "the reason '<b>Evil'"),
        (Decision(weights=np.ones(2), reasons=["accepted", None]), "the reason None"),
        (Decision(weights=np.ones(2), reasons=["accepted"]), "one of reasons per client; got 1 for 2"),
    ],
)
def test_a_rule_that_decides_nonsense_is_told_so(decision, message):
    with pytest.raises(ConfigError, match=message):
        Defense(lambda cohort: decision).aggregate(Updates([1, 2], np.ones((2, 2))), round=1)


def test_a_step_that_is_not_finite_is_never_taken():
    outcome = Defense(lambda cohort: Decision(step=np.array([np.nan, 1.0]))).aggregate(
        Updates([1], np.ones((1, 2))), round=1
    )
    assert outcome.step.tolist() == [0.0, 0.0]
    assert outcome.events == ("step-not-finite",)


def test_a_selector_cannot_choose_strangers():
    with pytest.raises(ConfigError, match=r"not candidates: .'7'"):
        Defense(FedAvg(), selector=lambda candidates: [7]).select([1, 2], round=1)
    with pytest.raises(ValueError, match="distinct"):
        Defense(FedAvg()).select([1, 1], round=1)


@pytest.mark.parametrize("exponent", [-35, -20, 0, 20, 35])
def test_decisions_do_not_depend_on_scale(exponent):
    matrix = cohort(10, 4).astype(np.float64)
    matrix[8] = matrix[9] + 0.1
    matrix[:2] = -2 * matrix[2:4].mean(axis=0) + 0.3 * matrix[:2]
    expected = MabRfl("paper", c_max=0.6, alpha=0.0).aggregate(Updates(range(10), matrix.astype(np.float32)), round=1)
    scaled = (matrix * 10.0**exponent).astype(np.float32)
    outcome = MabRfl("paper", c_max=0.6, alpha=0.0).aggregate(Updates(range(10), scaled), round=1)
    assert outcome.accepted == expected.accepted
    assert len(outcome.accepted) < 9
    np.testing.assert_allclose(outcome.step / 10.0**exponent, expected.step, rtol=1e-3, atol=1e-5)


CONSTRUCTED = {"empty_selection", "edge_test", "component_ties", "alpha_test", "equal_clusters", "small_cohort"}


def test_no_option_of_the_paper_is_left_without_a_test_of_its_effect():
    literal = (changed for preset, changed in CHANGES_THE_SCRIPTED_RUN if preset != "hardened")
    tested = {next(iter(changed)) for changed in literal} | CONSTRUCTED
    assert tested == {field.name for field in fields(MabRflOptions)}


def test_empty_selection_reaches_the_selector():
    outcasts = {"prior_benign": 1e-6, "prior_malicious": 1e6}
    everybody = MabRfl("paper", empty_selection="all", **outcasts)
    some = MabRfl("paper", **outcasts)
    assert all(len(everybody.select(range(6), round=t)) == 6 for t in range(1, 9))
    assert any(len(some.select(range(6), round=t)) < 6 for t in range(1, 9))


def test_a_cosine_equal_to_the_threshold_is_an_edge_or_not():
    # The first two have norm 2 and inner product 2: a cosine of exactly one half.
    matrix = np.array([[1.0, 1, 1, 1, 0, 0], [2, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 0], [0, 0, 0, 0, 0, 1]])
    for test, sybils in (("at-least", [0, 1]), ("above", [])):
        shield = MabRfl("paper", c_max=0.5, c_min=0.5, edge_test=test, alpha=-1.0)
        assert shield.aggregate(Updates(range(4), matrix), round=1).rejected("sybil") == sybils


def test_a_cluster_cosine_equal_to_alpha_removes_or_not():
    matrix = np.array([[1.0, 0, 0], [1, 0, 0], [1, 0, 0], [0, 1, 0]])
    for test, outliers in (("at-most", [3]), ("below", [])):
        shield = MabRfl("paper", components_removed=0, alpha=0.0, alpha_test=test)
        assert shield.aggregate(Updates(range(4), matrix), round=1).rejected("outlier") == outliers


def test_ties_between_groups_are_random_or_go_to_the_lowest_id():
    matrix = np.array([[1.0, 0, 0], [0, 1, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
    lowest = [
        MabRfl("paper", component_ties="lowest-id", seed=seed)
        .aggregate(Updates(range(5), matrix), round=1)
        .rejected("sybil")
        for seed in range(12)
    ]
    seeded = [
        MabRfl("paper", component_ties="random", seed=seed)
        .aggregate(Updates(range(5), matrix), round=1)
        .rejected("sybil")
        for seed in range(12)
    ]
    assert lowest == [[0, 2]] * 12
    assert sorted(set(map(tuple, seeded))) == [(0, 2), (1, 3)]


def test_a_sybils_momentum_is_put_back_when_only_the_judged_are_updated():
    shield = MabRfl("paper", graph_vectors="momentum", momentum_updated="judged", c_max=0.9, c_min=0.9, alpha=-1.0)
    first, second = cohort(5, 1), cohort(5, 2)
    second[3] = second[4] = 40 * second[4]
    shield.aggregate(Updates(range(5), first), round=1)
    outcome = shield.aggregate(Updates(range(5), second), round=2)
    assert outcome.rejected("sybil") == [3, 4]
    momenta = shield.state_dict()["rule"]["momenta"]
    np.testing.assert_array_equal(momenta[3:], first[3:])
    np.testing.assert_allclose(momenta[0], second[0] + 0.1 * first[0], rtol=1e-6)


def test_a_past_too_large_to_add_is_forgotten():
    shield = MabRfl("paper", history=0.9, c_max=0.99, c_min=0.99, alpha=-1.0)
    huge = (cohort(3, 1) / np.linalg.norm(cohort(3, 1), axis=1, keepdims=True) * 3e38).astype(np.float32)
    for t in (1, 2, 3):
        outcome = shield.aggregate(Updates(range(3), huge), round=t)
        assert outcome.accepted == [0, 1, 2]
        assert np.all(np.isfinite(shield.state_dict()["rule"]["momenta"]))


def krum_outliers(defense, n=10):
    chosen = defense.select(range(50), round=1)[:n]
    return len(defense.aggregate(Updates(chosen, cohort(n, 3)), round=1).rejected("outlier"))


def test_rules_are_told_the_share_of_attackers_in_the_cohort_also_after_a_resume():
    assert krum_outliers(Defense(Krum(num_malicious=10), name="krum")) == 2
    first, second = (Defense(Krum(num_malicious=10), name="krum") for _ in range(2))
    first.select(range(50), round=1)
    second.load_state_dict(first.state_dict())
    outcome = second.aggregate(Updates(range(10), cohort(10, 3)), round=1)
    assert len(outcome.rejected("outlier")) == 2
    # Without a selection the cohort is all there is.
    alone = Defense(Krum(num_malicious=4)).aggregate(Updates(range(10), cohort(10, 3)), round=1)
    assert len(alone.rejected("outlier")) == 4


def test_what_happened_at_selection_survives_a_save_before_the_round_is_judged():
    outcasts = {"prior_benign": 1e-6, "prior_malicious": 1e6}
    first, second = MabRfl("paper", **outcasts), MabRfl("paper", **outcasts)
    chosen = first.select(range(6), round=1)
    second.load_state_dict(first.state_dict())
    outcome = second.aggregate(Updates(chosen, cohort(len(chosen))), round=1)
    assert "empty-selection" in outcome.events


def test_clients_that_were_not_selected_are_neither_judged_nor_rewarded():
    shield = MabRfl("paper")
    chosen = shield.select(range(10), round=1)
    everybody = shield.aggregate(Updates(range(10), cohort(10)), round=1)
    assert list(everybody.verdicts) == chosen
    assert f"not-selected-ignored: {10 - len(chosen)}" in everybody.events
    assert all(shield.reputation[k] == (1.0, 1.0) for k in range(10) if k not in chosen)
    invited = MabRfl("paper")
    invited.select(range(10), round=1)
    expected = invited.aggregate(Updates(chosen, cohort(10)[chosen]), round=1)
    assert everybody.step.tobytes() == expected.step.tobytes()


def test_a_decision_can_only_be_combined_before_the_next_round():
    shield = MabRfl()
    screening = shield.screen(Updates(range(4), cohort(4)), round=1)
    shield.screen(Updates(range(4), cohort(4, 1)), round=2)
    with pytest.raises(StateError, match="round 1 was screened, but round 2 came after it"):
        shield.combine(screening)


def test_numpys_integers_give_the_same_run_as_pythons():
    plain, numpys = MabRfl(seed=3), MabRfl(seed=np.int64(3))
    assert plain.select(range(20), round=1) == numpys.select(np.arange(20), round=np.int64(1))
    names = list("abcdefghij")
    assert plain.select(names, round=2) == numpys.select(np.array(names), round=2)


def test_no_updates_at_all_give_a_step_of_the_declared_length():
    assert MabRfl().aggregate(Updates([], [], dimension=10), round=1).step.shape == (10,)
    assert MabRfl(dimension=10).aggregate(Updates([], []), round=1).step.shape == (10,)


def test_mab_rfls_rule_is_known_by_its_name_with_any_selector():
    assert Defense(MabRflRule(), selector=Uniform()).name == "mab-rfl"


def test_thresholds_of_an_unknown_data_set_are_refused():
    assert MabRfl("paper", dataset="cifar10").options.c_min == 0.1
    with pytest.raises(ConfigError, match="data set 'cifar-10'; did you mean 'cifar10'"):
        MabRfl("paper", dataset="cifar-10")


@pytest.mark.parametrize("exponent", [-100, -60, 60, 100])
def test_decisions_do_not_depend_on_scale_in_double_precision(exponent):
    matrix = cohort(10, 4).astype(np.float64)
    matrix[:3] = -2 * matrix[4:8].mean(axis=0) + 0.3 * matrix[:3]
    expected = MabRfl("paper", c_max=0.99, c_min=0.99).aggregate(Updates(range(10), matrix), round=1)
    outcome = MabRfl("paper", c_max=0.99, c_min=0.99).aggregate(Updates(range(10), matrix * 10.0**exponent), round=1)
    assert expected.rejected("outlier")
    assert outcome.accepted == expected.accepted


def test_sizes_at_both_ends_of_single_precision_in_one_cohort_are_no_problem():
    matrix = cohort(6, 2)
    matrix[1] *= np.float32(1e-34)
    matrix[2] *= np.float32(1e34)
    outcome = MabRfl("paper", c_max=0.99, c_min=0.99, alpha=-1.0).aggregate(Updates(range(6), matrix), round=1)
    assert outcome.accepted == list(range(6))
    assert "step-not-finite" not in outcome.events
    assert outcome.step.any()


def test_a_state_of_other_options_is_refused():
    shield = MabRfl("paper")
    scripted_run(shield, rounds=2)
    with pytest.raises(StateError, match="the state's warmup_rounds is 0, this rule's is 10"):
        MabRfl("reference").load_state_dict(shield.state_dict())


@pytest.mark.parametrize(("preset", "blamed"), [("hardened", 0), ("paper", 4), ("reference", 4)])
def test_if_most_replies_are_malformed_hardened_blames_nobody_and_all_say_so(preset, blamed):
    rows = cohort(6)
    rows[:4] = np.nan
    shield = MabRfl(preset, seed=3)
    outcome = shield.aggregate(Updates(range(6), rows), round=1)
    assert "most-rejected: 4 of 6" in outcome.events
    assert sum(verdict.blamed for verdict in outcome.verdicts.values()) == blamed
    outcome = shield.aggregate(Updates(range(6), np.where(np.arange(6)[:, None] == 0, np.nan, cohort(6, 1))), round=2)
    assert not [event for event in outcome.events if event.startswith("most-rejected")] or preset != "hardened"
    assert outcome.verdicts[0].blamed  # one of six has itself to blame


def counted_passes(monkeypatch, defense, rounds, layout=None):
    """Judge rounds; return which functions read all updates in each round, and the steps."""
    read, passes, steps = [], [], []

    def counting(name, own):
        return lambda *args, **options: (read.append(name), own(*args, **options))[1]

    for name in ("row_norms", "gram", "norms_and_grams", "block_grams"):
        monkeypatch.setattr(vectors, name, counting(name, getattr(vectors, name)))
    for number, matrix in enumerate(rounds, 1):
        read.clear()
        steps.append(defense.aggregate(Updates(range(len(matrix)), matrix, layout=layout), round=number).step)
        passes.append(tuple(read))
    return passes, steps


def test_a_rule_that_asks_for_the_gram_matrix_gets_it_with_the_norms_from_its_second_round_on(monkeypatch):
    rounds = [np.random.default_rng(seed).normal(size=(7, 9_000)).astype(np.float32) for seed in range(6)]
    rounds[3][2, 5] = np.nan
    expected = [
        Defense(MultiKrum(num_malicious=2)).aggregate(Updates(range(7), matrix), round=1).step for matrix in rounds
    ]
    passes, steps = counted_passes(monkeypatch, Defense(MultiKrum(num_malicious=2)), rounds)
    apart, together = ("row_norms", "gram"), ("norms_and_grams",)
    assert passes == [apart, together, together, (*together, *apart), apart, together]
    for one, other in zip(steps, expected, strict=True):
        assert one.tobytes() == other.tobytes()


def test_hardened_gets_the_gram_matrices_of_layers_with_the_norms_from_its_second_round_on(monkeypatch):
    layout = Layout({"a.weight": (90, 100), "a.bias": (90,), "b.weight": (10, 90), "b.bias": (10,)})
    rounds = [np.random.default_rng(seed).normal(size=(7, layout.size)).astype(np.float32) for seed in range(3)]
    passes, steps = counted_passes(monkeypatch, MabRfl(seed=3), rounds, layout)
    momenta = "block_grams"
    assert passes == [("row_norms", "block_grams", momenta), *[("norms_and_grams", momenta)] * 2]
    apart = MabRfl(seed=3)
    for number, (matrix, step) in enumerate(zip(rounds, steps, strict=True), 1):
        apart._one_pass = None
        outcome = apart.aggregate(Updates(range(7), matrix, layout=layout), round=number)
        assert outcome.step.tobytes() == step.tobytes()


def test_a_rule_that_does_not_ask_for_the_gram_matrix_pays_for_none(monkeypatch):
    rounds = [np.random.default_rng(seed).normal(size=(7, 90)) for seed in range(3)]
    passes, _ = counted_passes(monkeypatch, Defense(Median()), rounds)
    assert passes == [("row_norms",)] * 3
