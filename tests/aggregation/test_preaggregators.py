"""Pre-aggregators, alone and in front of rules."""

from __future__ import annotations

import copy
import itertools
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from helpers import make_cohort, random_cohorts, rejected_rows, step_of
from mabrfl import Decision, Defense, Updates, vectors
from mabrfl.aggregation import (
    ARC,
    FABA,
    NNM,
    Bucketing,
    CenteredClip,
    DnC,
    FedAvg,
    GeometricMedian,
    Krum,
    Median,
    Mixing,
    MultiKrum,
    NormBound,
    PreAggregated,
    TrimmedMean,
)
from mabrfl.aggregation.mixing import MixedCohort, mix_cohort
from mabrfl.catalog import BUILT_IN, build_before, build_defense, build_rule
from mabrfl.config import RunConfig, config_hash, load_config, resolve
from mabrfl.errors import ConfigError, QuorumError, StateError
from mabrfl.layout import Layout
from mabrfl.simulation.simulator import defense_of
from mabrfl.sweeps.sweep_file import parse_sweep
from mabrfl.testing import check_rule


def slow_nnm(rows: np.ndarray[Any, Any], f: int) -> np.ndarray[Any, Any]:
    """The definition, row by row."""
    mixed = []
    for row in rows:
        nearest = sorted(range(len(rows)), key=lambda other: float(np.sum((rows[other] - row) ** 2)))
        mixed.append(rows[nearest[: len(rows) - f]].mean(axis=0))
    return np.array(mixed)


def test_nnm_is_the_mean_of_the_n_f_nearest_itself_included() -> None:
    for cohort, f in random_cohorts(30, least=2):
        mixed, _, _ = mix_cohort(cohort, [NNM(num_malicious=f)])
        expected = slow_nnm(cohort.matrix, f)
        size = cohort.norms.max()
        np.testing.assert_allclose(mixed.matrix, expected, atol=1e-9 * size)
        np.testing.assert_allclose(mixed.gram, expected @ expected.T, atol=1e-9 * size**2)
        np.testing.assert_allclose(mixed.norms, np.linalg.norm(expected, axis=1), atol=1e-6 * size)


def test_krum_after_nnm_keeps_the_bound_of_the_papers_lemma() -> None:
    """Allouah et al. 2023, Lemma 1: (f, k)-robust becomes (f, k')-robust with k' <= 8 f / (n - f) * (k + 1).

    Krum is (f, k)-robust with k = 6 (1 + f / (n - 2f)) (their Proposition 3), so that for *every* set S of n - f rows
    the squared distance to its mean is at most k' times the variance of S.
    """
    n, f = 7, 2
    bound = 8 * f / (n - f) * (6 * (1 + f / (n - 2 * f)) + 1)
    rule = PreAggregated(Krum(num_malicious=f), [NNM(num_malicious=f)])
    for seed in range(20):
        rows = np.random.default_rng(seed).normal(size=(n, 3)) * np.random.default_rng(seed + 99).choice(
            [1, 30], (n, 1)
        )
        cohort = make_cohort(rows)
        step = step_of(cohort, rule(cohort))
        for subset in itertools.combinations(range(n), n - f):
            mean = rows[list(subset)].mean(axis=0)
            variance = np.mean(np.sum((rows[list(subset)] - mean) ** 2, axis=1))
            assert np.sum((step - mean) ** 2) <= bound * variance


def test_a_copy_of_a_row_does_not_replace_the_row_in_its_own_neighbourhood() -> None:
    cohort = make_cohort([[1.0], [1.0], [1.0], [5.0]])
    mixing = NNM(num_malicious=1)(cohort).weights
    assert np.all(np.diag(mixing) == 1 / 3)


def test_buckets_are_a_partition_into_means_of_s_and_change_with_the_round() -> None:
    rows = np.random.default_rng(0).normal(size=(11, 4))
    seen = set()
    for number in range(1, 6):
        weights = Bucketing(bucket_size=3)(make_cohort(rows, round=number)).weights
        assert weights.shape == (4, 11)
        assert sorted(np.count_nonzero(weights, axis=1)) == [2, 3, 3, 3]
        assert np.all(np.count_nonzero(weights, axis=0) == 1)
        np.testing.assert_allclose(weights.sum(axis=1), 1)
        seen.add(weights.tobytes())
    assert len(seen) == 5
    assert np.array_equal(Bucketing(bucket_size=50)(make_cohort(rows)).weights, np.full((1, 11), 1 / 11))


def test_buckets_of_s_divide_the_spread_of_the_rows_by_s() -> None:
    """Karimireddy et al. 2022, Lemma 1: E |y_i - y_j|^2 <= rho^2 / s, with rho^2 that of the inputs."""
    rows = np.random.default_rng(1).normal(size=(24, 30))
    before = make_cohort(rows).squared_distances.sum() / (24 * 23)
    for size in (2, 3, 4):
        spread = []
        for number in range(1, 201):
            mixed, _, _ = mix_cohort(make_cohort(rows, round=number), [Bucketing(bucket_size=size)])
            count = 24 // size
            spread.append(mixed.squared_distances.sum() / (count * (count - 1)))
        assert np.mean(spread) == pytest.approx(before / size, rel=0.03)


def test_a_rule_behind_buckets_still_expects_f_of_them_and_says_when_they_are_too_few() -> None:
    cohort = make_cohort(np.random.default_rng(0).normal(size=(20, 5)), population=50)
    mixed, _, facts = mix_cohort(cohort, [Bucketing()])
    assert facts == {"num_buckets": 10}
    assert (cohort.expected_malicious(10), mixed.expected_malicious(10)) == (4, 4)
    decision = PreAggregated(Krum(num_malicious=10), [Bucketing()])(cohort)
    assert decision.events == ("krum-precondition: n >= 2f+3; n=10, f=4",)
    assert Krum(num_malicious=10)(cohort).events == ()
    with pytest.raises(QuorumError, match="got n=10, f=4"):
        PreAggregated(Krum(num_malicious=10, strict=True), [Bucketing()])(cohort)


def test_the_norm_bound_scales_down_what_is_longer_and_nothing_else() -> None:
    cohort = make_cohort([[3.0, 4.0], [0.6, 0.8], [0.0, 0.0]])
    mixed, _, facts = mix_cohort(cohort, [NormBound(bound=2.0, bound_unit="absolute")])
    np.testing.assert_allclose(mixed.matrix, [[1.2, 1.6], [0.6, 0.8], [0.0, 0.0]])
    assert facts == {"bound": 2.0, "num_bounded": 1}
    np.testing.assert_allclose(NormBound()(cohort).weights, np.diag([0.2, 1.0, 1.0]))


def test_arc_scales_the_k_longest_to_the_next() -> None:
    """Allouah et al. 2025, Algorithm 2: n = 10, f = 2 clips k = floor(2 * 0.2 * 8) = 3 of them."""
    cohort = make_cohort(np.diag([9.0, 1, 8, 2, 7, 3, 6, 4, 5, 100]))
    mixing = ARC(num_malicious=2)(cohort)
    np.testing.assert_allclose(np.diag(mixing.weights) * cohort.norms, [7, 1, 7, 2, 7, 3, 6, 4, 5, 7])
    assert mixing.facts == {"arc_bound": 7.0, "num_clipped_by_arc": 3}
    assert ARC(num_malicious=0)(cohort).facts["num_clipped_by_arc"] == 0


RULES = [
    Krum(num_malicious=2),
    MultiKrum(num_malicious=2),
    FABA(num_malicious=2),
    GeometricMedian(),
    FedAvg(),
    DnC(num_malicious=2),
    Median(),
    TrimmedMean(num_malicious=2),
    CenteredClip(),
]
STEPS: list[list[Any]] = [
    [NNM(num_malicious=2)],
    [Bucketing()],
    [NormBound(bound=0.8)],
    [ARC(num_malicious=2)],
    [Bucketing(), NNM(num_malicious=2)],
    [ARC(num_malicious=2), NNM(num_malicious=2)],
]


@pytest.mark.parametrize("before", STEPS, ids=lambda steps: "+".join(type(step).__name__ for step in steps))
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_a_composition_is_the_rule_on_the_mixed_rows(rule: Any, before: list[Any]) -> None:
    rows = np.random.default_rng(3).normal(size=(13, 30)) + 0.5
    cohort = make_cohort(rows, num_examples=np.full(13, 7.0))
    mixed, _, _ = mix_cohort(cohort, before)
    by_hand = make_cohort(mixed.mixing @ rows, population=len(mixed) if len(mixed) < 13 else 13)
    if len(mixed) < 13:  # the number of attackers does not shrink with the number of rows
        assert mixed.expected_malicious(2) == by_hand.expected_malicious(2) == 2
    decision = PreAggregated(copy.deepcopy(rule), before)(cohort)
    np.testing.assert_allclose(
        step_of(cohort, decision), step_of(by_hand, copy.deepcopy(rule)(by_hand)), rtol=1e-6, atol=1e-9
    )


def test_the_step_of_a_gram_rule_is_one_weighted_sum_over_the_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "mix", lambda *_: pytest.fail("the mixed rows are not needed"))
    cohort = make_cohort(np.random.default_rng(0).normal(size=(12, 50)))
    for rule in (Krum(num_malicious=2), MultiKrum(num_malicious=2), FABA(num_malicious=2), GeometricMedian()):
        decision = PreAggregated(rule, [Bucketing(), NNM(num_malicious=2)])(cohort)
        assert decision.weights is not None
        assert decision.weights.sum() == pytest.approx(1)


def test_blocks_of_mixed_rows_are_those_of_the_mixed_matrix() -> None:
    layout = Layout({"first.weight": (3, 4), "first.bias": (3,), "last": (5,)})
    cohort = make_cohort(np.random.default_rng(0).normal(size=(9, 20)), layout=layout)
    mixed, _, _ = mix_cohort(cohort, [NNM(num_malicious=2)])
    _, blocks = layout.blocks(mixed.matrix)
    for name, block in blocks.items():
        np.testing.assert_allclose(mixed.blocks[name].gram, block.gram, rtol=1e-9)


def test_nobody_is_judged_by_mixed_rows_and_scaled_rows_keep_their_verdicts() -> None:
    cohort = make_cohort(np.vstack([np.random.default_rng(0).normal(size=(10, 5)) + 3, np.full((2, 5), -90.0)]))
    scaled = PreAggregated(Krum(num_malicious=2), [NormBound()])(cohort)
    assert rejected_rows(cohort, scaled) == {10, 11}
    assert scaled.evidence is not None
    assert scaled.evidence[10]["scale"] < 0.1
    mixed = PreAggregated(Krum(num_malicious=2), [NNM(num_malicious=2)])(cohort)
    assert mixed.reasons is None
    assert mixed.evidence is not None
    assert sum(one["weight"] for one in mixed.evidence) == pytest.approx(1)


@pytest.mark.parametrize("name", BUILT_IN["preaggregators"])
@pytest.mark.parametrize("rule", ["krum", "median", "centered-clip"])
def test_every_pre_aggregator_before_a_rule_keeps_the_contract(name: str, rule: str) -> None:
    def make(num_malicious: int) -> PreAggregated:
        before = build_before([name], num_malicious=num_malicious)
        return PreAggregated(build_rule(rule, num_malicious=num_malicious), before)

    check_rule(make, names_matter=name == "bucketing")


def test_the_state_of_a_composition_is_the_state_of_its_rule() -> None:
    rule = PreAggregated(CenteredClip(), [NNM(num_malicious=1)])
    Defense(rule).aggregate(Updates(range(5), np.eye(5)), round=1)
    with pytest.raises(StateError, match="a rule and 1 pre-aggregators"):
        rule.load_state_dict({"rule": {}})
    with pytest.raises(StateError, match="Krum keeps no state"):
        PreAggregated(Krum(num_malicious=1), [NNM(num_malicious=1)]).load_state_dict(rule.state_dict())


def swap(cohort: Any) -> Mixing:
    """A pre-aggregator of a user's own."""
    return Mixing(np.eye(len(cohort))[::-1])


def test_a_plain_function_is_a_pre_aggregator_and_a_wrong_one_is_refused() -> None:
    cohort = make_cohort([[1.0], [2.0], [3.0]])

    def first(mixed: Any) -> Decision:
        return Decision(weights=np.eye(len(mixed))[0])

    assert step_of(cohort, PreAggregated(first, [swap])(cohort)) == [3.0]
    with pytest.raises(ConfigError, match="must return a Mixing with 3 columns"):
        PreAggregated(first, [lambda cohort: np.eye(2)])(cohort)  # type: ignore[arg-type, return-value]
    with pytest.raises(ConfigError, match="needs a list of pre-aggregators"):
        PreAggregated(first, [])
    with pytest.raises(ConfigError, match="one weight per row; got 2 for 3 rows"):
        PreAggregated(lambda mixed: Decision(weights=np.ones(2)), [swap])(cohort)


def test_a_run_names_its_pre_aggregators_as_text_or_as_a_list_and_the_key_knows_them() -> None:
    one = resolve(RunConfig(defense="krum", before="bucketing+nnm", attackers=0.2, attack="lie"))
    two = resolve(
        load_config(None, {"defense": "krum", "before": ["bucketing", "nnm"], "attackers": 4, "attack": "lie"})
    )
    assert one.before == two.before == "bucketing+nnm"
    assert one.before_options == {"bucket_size": 2, "strict": False}
    rule = defense_of(one).rule
    assert isinstance(rule, PreAggregated)
    assert rule.before == (Bucketing(bucket_size=2), NNM(num_malicious=4))
    assert defense_of(one).name == "bucketing+nnm+krum"
    keys = {
        config_hash(RunConfig(defense="krum", **own))  # type: ignore[arg-type]
        for own in (
            {},
            {"before": "nnm"},
            {"before": "bucketing"},
            {"before": "nnm+bucketing"},
            {"before": "bucketing+nnm"},
        )
    }
    assert len(keys) == 5
    sized = {"before": "bucketing", "before_options": {"bucket_size": 3}}
    assert config_hash(RunConfig(defense="krum", **sized)) not in keys  # type: ignore[arg-type]
    usual = {"before": "bucketing", "before_options": {"bucket_size": 2}}
    assert config_hash(RunConfig(defense="krum", **usual)) in keys  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"defense": "krum", "before": "nmm"}, "unknown pre-aggregator 'nmm'; did you mean 'nnm'?"),
        (
            {"defense": "krum", "before": "nnm", "before_options": {"size": 2}},
            "before_options.size: none of nnm has it",
        ),
        ({"defense": "krum", "before_options": {"bucket_size": 2}}, "before_options need a pre-aggregator"),
        ({"before": "nnm"}, "defense 'mab-rfl' judges each client by its own updates and takes no pre-aggregator"),
        (
            {"defense": "krum", "before": "bucketing", "before_options": {"bucket_size": 1.5}},
            "before_options.bucket_size must be a valid integer; got 1.5",
        ),
    ],
)
def test_a_wrong_setting_is_refused_in_one_line(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(load_config(None, settings))
    assert message in str(caught.value)


def test_a_sweep_has_pre_aggregators_as_an_axis() -> None:
    text = b'[base]\ndefense = "krum"\n[axes]\nbefore = ["", "nnm", "bucketing+nnm", ["arc", "nnm"]]\nseed = [1, 2]\n'
    cells = parse_sweep(text).cells
    assert [cell.config.before for cell in cells[::2]] == ["", "nnm", "bucketing+nnm", "arc+nnm"]
    assert len({cell.key for cell in cells}) == 8


def test_a_users_own_pre_aggregator_and_its_place_in_a_strategy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "own_steps", SimpleNamespace(swap=swap))  # type: ignore[misc]
    defense = build_defense("median", before=["own_steps:swap", "nnm"], num_malicious=2)
    assert isinstance(defense.rule, PreAggregated)
    assert defense.rule.before == (swap, NNM(num_malicious=2))
    flower = pytest.importorskip("mabrfl.flower")
    strategy = flower.RobustStrategy("krum", before="nnm", num_malicious_nodes=3)
    assert strategy.defense.name == "nnm+krum"
    assert strategy.description["defense"]["rule"]["before"][0]["num_malicious"] == 3


def test_a_table_names_the_pre_aggregators_of_a_column() -> None:
    from mabrfl.reports.labels import columns_of
    from result_folders import make_cell

    cells = [make_cell(90.0, defense="krum", before=before) for before in ("", "nnm", "bucketing+nnm")]
    assert [column.label for column in columns_of(cells)] == ["Krum", "NNM + Krum", "Bucketing + NNM + Krum"]


def test_a_mixed_cohort_is_a_cohort() -> None:
    cohort = make_cohort(np.eye(4), num_examples=[1, 2, 3, 6])
    mixed = MixedCohort(cohort, np.array([[0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5]]))
    assert (len(mixed), mixed.ids, mixed.population) == (2, (0, 1), 4)
    assert mixed.num_examples.tolist() == [1.5, 4.5]
