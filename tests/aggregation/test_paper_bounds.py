"""Bounds that papers prove for their rules, on attacks of every kind and for *every* set of n - f rows."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from helpers import make_cohort, step_of
from mabrfl.aggregation import CGE, MDA, Meamed, MoNNA, NoisyNormBound

N, F, WIDTH = 9, 2, 3


def cohorts() -> list[np.ndarray]:
    """Random rows; the last two are far away, opposed, or just beyond the others."""
    made = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        rows = rng.normal(size=(N, WIDTH))
        push = [100.0, -3.0, 1.5, 0.0][seed % 4]
        rows[-F:] = push * rows[:-F].mean(axis=0) + rng.normal(size=(F, WIDTH)) * [1, 0.01, 0.1][seed % 3]
        made.append(rows)
    return made


def diameter(rows: np.ndarray) -> float:
    return float(np.linalg.norm(rows[:, None] - rows[None], axis=2).max())


def test_mda_is_within_2f_over_n_minus_f_diameters_of_the_mean_of_any_n_minus_f_rows():
    """Farhadkhani et al., ICML 2022, (f, lambda)-resilient averaging: MDA has lambda = 2f / (n - f)."""
    for rows in cohorts():
        cohort = make_cohort(rows)
        step = step_of(cohort, MDA(num_malicious=F)(cohort))
        for honest in itertools.combinations(range(N), N - F):
            own = rows[list(honest)]
            assert np.linalg.norm(step - own.mean(axis=0)) <= 2 * F / (N - F) * diameter(own) + 1e-9


def test_meamed_is_within_the_same_bound_in_each_coordinate():
    """The same paper: Meamed has lambda = 2f / (n - f) in one dimension."""
    for rows in cohorts():
        cohort = make_cohort(rows)
        step = step_of(cohort, Meamed(num_malicious=F)(cohort))
        for honest in itertools.combinations(range(N), N - F):
            own = rows[list(honest)]
            assert (np.abs(step - own.mean(axis=0)) <= 2 * F / (N - F) * np.ptp(own, axis=0) + 1e-9).all()


def test_monna_is_within_the_same_bound_of_the_mean_of_any_n_minus_f_rows_with_its_pivot():
    """Farhadkhani et al., ICML 2023: nearest-neighbour averaging around a client that is honest itself."""
    for rows in cohorts():
        cohort = make_cohort(rows)
        step = step_of(cohort, MoNNA(num_malicious=F, pivot=0)(cohort))
        for others in itertools.combinations(range(1, N), N - F - 1):
            own = rows[[0, *others]]
            assert np.linalg.norm(step - own.mean(axis=0)) <= 2 * F / (N - F) * diameter(own) + 1e-9


def test_cge_averages_nothing_longer_than_the_longest_honest_update():
    """Gupta, Liu and Vaidya, 2020, the step on which their proof rests: there are n - f honest norms to choose."""
    for rows in cohorts():
        decision = CGE(num_malicious=F)(make_cohort(rows))
        assert decision.weights is not None
        norms = np.linalg.norm(rows, axis=1)
        assert norms[decision.weights > 0].max() <= norms[:-F].max()


@pytest.mark.parametrize("boost", [1.0, 1e3, 1e9])
def test_under_a_norm_bound_a_boosted_update_moves_the_mean_by_no_more_than_the_bounds_share(boost: float):
    """Sun et al., 2019, section 4: the bound limits model replacement to M / n, however much it is boosted."""
    rows = np.random.default_rng(0).normal(size=(10, 5))
    rule = NoisyNormBound(bound=1.0, bound_unit="absolute", noise=0.0)
    steps = []
    for sent in (boost * rows[0], np.zeros(5)):
        cohort = make_cohort(np.vstack([sent, rows[1:]]))
        steps.append(step_of(cohort, rule(cohort)))
    assert np.linalg.norm(steps[0] - steps[1]) <= 1.0 / 10 + 1e-12
