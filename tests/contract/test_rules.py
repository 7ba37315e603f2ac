"""What holds for every aggregation rule, whatever it computes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers import make_cohort, step_of
from mabrfl import vectors
from mabrfl.aggregation import (
    FABA,
    FLAME,
    LASA,
    SMEA,
    AlignIns,
    Bulyan,
    CenteredClip,
    DnC,
    FLDetector,
    FoolsGold,
    GeometricMedian,
    Krum,
    MedianOfMeans,
    MoNNA,
    MultiKrum,
    NoisyNormBound,
    SignGuard,
)
from mabrfl.catalog import BUILT_IN, build_rule
from mabrfl.explaining import explain
from mabrfl.layout import Layout
from mabrfl.mab.method import rule_of
from mabrfl.mab.presets import PRESETS, options
from mabrfl.protocols import Rule
from mabrfl.testing import check_rule
from mabrfl.updates import Cohort

Factory = Callable[..., Rule]


OPTIONS: dict[str, dict[str, Any]] = {
    "smea": {"search": "greedy"},
    "flame": {"noise": 0.0},
    "noisy-norm-bound": {"noise": 0.0},
}
"""Not the default: the exact search of SMEA is for few clients, and noise is no update of anybody."""


def catalogued(name: str) -> Factory:
    return lambda num_malicious: build_rule(name, OPTIONS.get(name, {}), num_malicious=num_malicious)


RULES: dict[str, Factory] = {
    # The step of mab-rfl is made of momenta: it has its own tests.
    **{name: catalogued(name) for name, entry in BUILT_IN["defenses"].items() if not entry.presets},
    "krum-n-f-1": partial(Krum, neighbours="n-f-1"),
    "krum-n-f-3": partial(Krum, neighbours="n-f-3"),
    "krum-medoid": partial(Krum, neighbours="all", power=1),
    "krum-4th-power": partial(Krum, power=4),
    "multi-krum-two": partial(MultiKrum, num_selected=2),
    "multi-krum-repeated": partial(MultiKrum, selection="repeated", neighbours="n-f-3"),
    "faba-one-shot": partial(FABA, removal="one-shot"),
    "faba-pairwise": partial(FABA, removal="pairwise"),
    "dnc-five-passes": partial(DnC, num_iterations=5, num_coordinates=11, filter_fraction=0.5),
    "dnc-normalised-union": partial(DnC, num_iterations=3, normalise=True, combine="union"),
    "centered-clip-absolute": lambda num_malicious: CenteredClip(radius=10.0, radius_unit="absolute", num_iterations=5),
    "centered-clip-from-mean": lambda num_malicious: CenteredClip(start="mean", num_iterations=3),
    "bulyan-single-pass": partial(Bulyan, selection="single-pass"),
    "flame-updates": lambda num_malicious: FLAME(compared="updates", noise=0.0),
    "signguard-sim": lambda num_malicious: SignGuard(coordinates="window", share=0.5, likeness="cosine"),
    "lasa-mad": lambda num_malicious: LASA(sparsity=0.0, spread="mad"),
    "alignins-mad": lambda num_malicious: AlignIns(spread="mad", direction_bound=3.0, sign_bound=3.0),
    "fldetector-short": lambda num_malicious: FLDetector(window=1, base="median"),
    "monna-first": partial(MoNNA, pivot=0),
    "median-of-means-coordinate": partial(MedianOfMeans, centre="coordinate"),
    "foolsgold-this-round": lambda num_malicious: FoolsGold(history="this-round"),
    "geometric-median-from-mean": lambda num_malicious: GeometricMedian(start="mean", num_iterations=3),
}

NAMES_MATTER = {"median-of-means", "median-of-means-coordinate", "monna-first"}
"""Rules that draw lots per client, or take the first one."""

OTHER_SIZE = {"fltrust", "sign-majority"}
"""Their step has the size of the server's own update, or is made of signs; they have their own tests."""
OF_THE_UPDATES_SIZE = {name: make for name, make in RULES.items() if name not in OTHER_SIZE}
every_rule = pytest.mark.parametrize("make", OF_THE_UPDATES_SIZE.values(), ids=OF_THE_UPDATES_SIZE.keys())
every_dtype = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def cohort_of(matrix: Any) -> Cohort:
    """A cohort with all that a rule may need: layers, the global model, the server's own update."""
    width = np.shape(matrix)[1]
    layout = Layout({"first.weight": (width - 12,), "last.weight": (3, 3), "last.bias": (3,)})
    weights = np.random.default_rng(width).normal(size=width)
    return make_cohort(matrix, layout=layout, global_weights=weights, root_update=np.ones(width))


def updates(n: int, d: int = 40, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng([seed, n, d]).normal(size=(n, d))


@pytest.mark.parametrize("name", RULES)
def test_every_rule_keeps_the_contract(name: str) -> None:
    check_rule(RULES[name], names_matter=name in NAMES_MATTER)


@pytest.mark.parametrize("rule", [FLAME, NoisyNormBound])
def test_rules_with_noise_keep_the_contract(rule: Any) -> None:
    check_rule(rule)


def test_the_exact_search_of_smea_keeps_the_contract_as_far_as_it_goes() -> None:
    check_rule(partial(SMEA, max_subsets=2000))


@pytest.mark.parametrize("preset", PRESETS)
def test_the_rule_of_every_preset_keeps_the_contract(preset: str) -> None:
    check_rule(rule_of(options(preset)))


@every_rule
@every_dtype
def test_weights_are_an_average_and_somebody_is_accepted(make: Factory, dtype: Any) -> None:
    sizes = {n: {0, 1, n // 4, (n - 1) // 2, n // 2, n - 1, n, 10 * n} for n in (1, 2, 3, 5, 20)}
    for n, f in ((n, f) for n, numbers in sizes.items() for f in numbers):
        rule = make(num_malicious=f)
        cohort = cohort_of(updates(n).astype(dtype))
        for _ in range(2):
            decision = rule(cohort)
            if decision.weights is not None:
                assert decision.weights.dtype == np.float64
                assert decision.weights.shape == (n,)
                assert 0 < decision.weights.sum() < 1 + 1e-9  # less than 1 where updates are clipped
                assert np.all(decision.weights >= 0)
            assert set(decision.reasons or ()) <= {"accepted", "outlier", "sybil"}
            assert decision.reasons is None or "accepted" in decision.reasons


@every_rule
@every_dtype
def test_a_single_client_is_returned_unchanged_where_no_clipping_is_at_work(make: Factory, dtype: Any) -> None:
    cohort = cohort_of(updates(1).astype(dtype))
    np.testing.assert_allclose(step_of(cohort, make(num_malicious=0)(cohort)), cohort.matrix[0], rtol=1e-5, atol=1e-6)


@every_rule
@every_dtype
def test_equal_updates_give_that_update(make: Factory, dtype: Any) -> None:
    cohort = cohort_of(np.tile(updates(1), (7, 1)).astype(dtype))
    np.testing.assert_allclose(step_of(cohort, make(num_malicious=2)(cohort)), cohort.matrix[0], rtol=1e-5, atol=1e-6)


@every_rule
def test_updates_of_any_size_give_a_step_of_that_size(make: Factory) -> None:
    for scale in (1e-30, 1e-20, 1e-3, 1e3, 1e18, 1e30):
        cohort = cohort_of((updates(8) * scale).astype(np.float32))
        rule = make(num_malicious=3)
        for _ in range(3):
            decision = rule(cohort)
            assert np.linalg.norm(step_of(cohort, decision) / scale) < 20, scale


@every_rule
def test_rows_wider_than_a_slice_are_taken_whole(make: Factory) -> None:
    width = vectors.SLICE + 17
    cohort = cohort_of(np.tile(np.arange(1.0, width + 1), (4, 1)) / width)
    np.testing.assert_allclose(step_of(cohort, make(num_malicious=1)(cohort)), cohort.matrix[0], rtol=0.25)


NOT_ROBUST = {
    *("fedavg", "fedavg-uniform", "similarity-probe", "centered-clip-from-mean", "geometric-median-from-mean"),
    *("robust-learning-rate", "fldetector"),
}
"""Averages, iterations that start from one and stop before they are anywhere else, a mean with changed signs, and one
rule that judges nobody in its first rounds."""


@pytest.mark.parametrize("name", [name for name in RULES if name not in NOT_ROBUST])
def test_every_defense_withstands_a_quarter_of_loud_attackers(name: str) -> None:
    honest = 1 + 0.3 * updates(15)
    # They are not quite the same: whom of equal ones DnC removes, three in each pass, would hang on the last bits.
    cohort = cohort_of(np.vstack([honest, -100 + 10 * updates(5)]))
    step = step_of(cohort, RULES[name](num_malicious=5)(cohort))
    centre = honest.mean(axis=0)
    cosine = float(step @ centre) / math.sqrt(float(step @ step) * float(centre @ centre))
    assert cosine > 0.9
    assert np.linalg.norm(step) < 2 * np.linalg.norm(centre)


@pytest.mark.parametrize("name", sorted(NOT_ROBUST))
def test_loud_attackers_do_turn_an_average_around(name: str) -> None:
    honest = 1 + 0.3 * updates(15)
    cohort = cohort_of(np.vstack([honest, np.full((5, 40), -100.0)]))
    assert step_of(cohort, RULES[name](num_malicious=5)(cohort)) @ honest.mean(axis=0) < 0


PAGE = Path(__file__).parents[2] / "docs" / "explain.md"
MEANINGS = set(re.findall(r"`(\w+)`", PAGE.read_text(encoding="utf-8")))
"""Names of evidence that the page explains."""
TOGETHER = {"mda", "smea", "flame", "flame-updates"}
"""Rules that choose a group of clients: no number of one client decides."""


@pytest.mark.parametrize("name", RULES)
def test_every_rejection_is_explained_by_a_number_beside_those_of_the_accepted(name: str) -> None:
    cohort = cohort_of(np.vstack([1 + 0.3 * updates(15), -100 + 10 * updates(5)]))
    decision = RULES[name](num_malicious=5)(cohort)
    reasons, evidence = decision.reasons or ["accepted"] * 20, decision.evidence or [{}] * 20
    accepted = [given for given, reason in zip(evidence, reasons, strict=True) if reason == "accepted"]
    for reason, given in zip(reasons, evidence, strict=True):
        assert given.keys() <= MEANINGS
        if reason != "accepted":
            told = explain(reason, given, decision.facts, accepted=accepted)
            together = name in TOGETHER and ("as a group." in told or "in the group of clients" in told)
            assert together or ("accepted clients have" in told and "it would have been like them" in told)
