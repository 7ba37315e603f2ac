"""FLAME, SignGuard, RFLBAT, LASA, AlignIns, LFighter and the norm bound with noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers import make_cohort, rejected_rows, step_of
from mabrfl.aggregation import FLAME, LASA, RFLBAT, AlignIns, LFighter, NoisyNormBound, SignGuard
from mabrfl.aggregation.flame import model_cosines
from mabrfl.aggregation.rflbat import principal_plane
from mabrfl.errors import ConfigError
from mabrfl.layout import Layout

Rows = np.ndarray[Any, Any]


def attacked(seed: int = 0, n: int = 15, f: int = 5, d: int = 60, shift: float = -2.0) -> Rows:
    """Honest rows around 1, then attackers that are alike around ``shift``."""
    rng = np.random.default_rng(seed)
    return np.vstack([1 + 0.8 * rng.normal(size=(n, d)), shift + 0.1 * rng.normal(size=(f, d))])


# FLAME


def test_flame_keeps_the_majority_by_cosine_clips_to_the_median_norm_and_averages() -> None:
    rows = attacked()
    cohort = make_cohort(rows)
    decision = FLAME(compared="updates", noise=0.0)(cohort)
    assert rejected_rows(cohort, decision) >= {15, 16, 17, 18, 19}
    kept = sorted(set(range(20)) - rejected_rows(cohort, decision))
    norms = np.linalg.norm(rows, axis=1)
    clipped = rows * np.minimum(1, np.median(norms) / norms)[:, None]
    np.testing.assert_allclose(step_of(cohort, decision), clipped[kept].mean(axis=0))
    assert 11 <= len(kept) <= 15


def test_flame_compares_models_as_the_paper_does() -> None:
    rows = attacked()
    weights = np.random.default_rng(1).normal(size=60)
    cohort = make_cohort(rows, global_weights=weights)
    models = rows + weights
    units = models / np.linalg.norm(models, axis=1, keepdims=True)
    np.testing.assert_allclose(model_cosines(cohort), units @ units.T)
    assert rejected_rows(cohort, FLAME(noise=0.0)(cohort)) >= {15, 16, 17, 18, 19}
    with pytest.raises(ConfigError, match="the clients' models need the global one"):
        FLAME()(make_cohort(rows))


def test_flames_noise_has_the_papers_deviation_and_a_name() -> None:
    rows = np.random.default_rng(0).normal(size=(9, 40_000)) + 1
    cohort = make_cohort(rows)
    noisy, plain = (FLAME(compared="updates", noise=noise) for noise in (0.001, 0.0))
    noise = step_of(cohort, noisy(cohort)) - step_of(cohort, plain(cohort))
    assert noise.std() == pytest.approx(0.001 * np.median(cohort.norms), rel=0.03)
    assert np.array_equal(step_of(cohort, noisy(cohort)), step_of(cohort, noisy(cohort)))
    later = make_cohort(rows, round=2)
    assert not np.array_equal(step_of(later, noisy(later)), step_of(cohort, noisy(cohort)))


def test_the_noisy_norm_bound_is_a_mean_of_clipped_updates_and_noise() -> None:
    rows = np.vstack([np.eye(3, 40_000) * 2, 1000 * np.eye(1, 40_000)])
    cohort = make_cohort(rows)
    expected = np.zeros(40_000)
    expected[:3] = [2.0, 1.0, 1.0]  # (2 + 4) / 4: the giant counts for 4
    quiet = NoisyNormBound(bound=4.0, bound_unit="absolute", noise=0.0)(cohort)
    np.testing.assert_allclose(step_of(cohort, quiet)[:3], [1.5, 0.5, 0.5])
    noisy = NoisyNormBound(bound=4.0, bound_unit="absolute", noise=0.01)(cohort)
    assert (step_of(cohort, noisy) - step_of(cohort, quiet)).std() == pytest.approx(0.04, rel=0.03)
    assert quiet.facts == {"bound": 4.0, "num_bounded": 1}


# SignGuard


def test_signguard_rejects_by_norm_and_by_signs() -> None:
    """The paper's observation: an attack turns the balance of signs around, however alike the norms are."""
    rng = np.random.default_rng(0)
    honest = 0.5 + rng.normal(size=(14, 2000))
    rows = np.vstack([honest, -honest[:4] * 1.1, 0.01 * honest[:1], 9 * honest[:1]])
    cohort = make_cohort(rows)
    decision = SignGuard()(cohort)
    assert rejected_rows(cohort, decision) >= {14, 15, 16, 17, 18, 19}
    assert decision.facts["rejected_by_norm"] == 2
    kept = sorted(set(range(20)) - rejected_rows(cohort, decision))
    assert len(kept) >= 10
    norms = np.linalg.norm(rows, axis=1)
    clipped = rows * np.minimum(1, np.median(norms) / norms)[:, None]
    np.testing.assert_allclose(step_of(cohort, decision), clipped[kept].mean(axis=0))


def test_signguard_clusters_as_the_authors_code_does() -> None:
    """Features and clustering of the authors' code, with scikit-learn, on all coordinates, but from every point.

    The authors begin on a grid (``bin_seeding``), for speed; ``docs/conformance.md`` has what that changes.
    """
    cluster = pytest.importorskip("sklearn.cluster")
    for seed in range(8):
        rows = attacked(seed, shift=-0.5, d=400)
        cohort = make_cohort(rows)
        shares = np.stack([(rows > 0).mean(1), (rows == 0).mean(1), (rows < 0).mean(1)], axis=1)
        features = shares / (shares.max(axis=0) + 1e-8)
        width = cluster.estimate_bandwidth(features, quantile=0.5)
        labels = cluster.MeanShift(bandwidth=width, cluster_all=False).fit(features).labels_
        expected = labels == np.argmax([np.sum(labels == label) for label in range(labels.max() + 1)])
        decision = SignGuard(share=1.0, lower=0.0, upper=1e9)(cohort)
        assert rejected_rows(cohort, decision) == set(np.flatnonzero(~expected).tolist())


def test_signguard_with_nobody_left_uses_the_norms() -> None:
    rows = np.vstack([np.full((3, 10), 1.0), np.full((2, 10), -100.0)])
    decision = SignGuard(upper=0.5, lower=0.0)(make_cohort(rows))
    assert rejected_rows(make_cohort(rows), decision) == set()


# RFLBAT


def test_the_principal_plane_is_that_of_a_principal_component_analysis() -> None:
    decomposition = pytest.importorskip("sklearn.decomposition")
    rows = np.random.default_rng(0).normal(size=(12, 50)) * np.linspace(1, 3, 50)
    theirs = decomposition.PCA(2).fit_transform(rows)
    np.testing.assert_allclose(np.abs(principal_plane(rows @ rows.T)), np.abs(theirs), atol=1e-9)


def test_rflbat_rejects_the_cluster_that_is_more_alike() -> None:
    """The paper's premise: backdoored updates form a tight cluster in the plane of two components."""
    cohort = make_cohort(attacked(shift=-3.0))
    decision = RFLBAT()(cohort)
    assert decision.facts["clusters"] >= 2
    assert rejected_rows(cohort, decision) >= {15, 16, 17, 18, 19}


def test_rflbat_removes_a_far_outlier_before_it_clusters() -> None:
    rows = np.vstack([1 + 0.5 * np.random.default_rng(0).normal(size=(14, 40)), np.full((1, 40), 900.0)])
    cohort = make_cohort(rows)
    assert 14 in rejected_rows(cohort, RFLBAT()(cohort))


# LASA and AlignIns


def slow_lasa(rows: Rows, tensors: list[slice], sparsity: float, bound: float) -> Rows:
    """The authors' steps, with lists; a tie with the smallest kept magnitude is kept."""
    norms = np.linalg.norm(rows, axis=1)
    clipped = rows * np.minimum(1, np.median(norms) / norms)[:, None]
    sparse = clipped.copy()
    count = int(rows.shape[1] * (1 - sparsity))
    for row in sparse:
        row[np.argsort(-np.abs(row), kind="stable")[count:]] = 0
    step = np.zeros(rows.shape[1])
    for columns in tensors:
        sizes = np.linalg.norm(sparse[:, columns], axis=1)
        signs = np.sign(sparse[:, columns])
        balance = [0.5 * (1 + one.sum() / max(np.abs(one).sum(), 1) * (1 - sparsity)) for one in signs]
        fine = [
            i
            for i in range(len(rows))
            if abs(sizes[i] - np.median(sizes)) / np.std(sizes) < bound
            and abs(balance[i] - np.median(balance)) / np.std(balance) < bound
        ]
        step[columns] = clipped[fine or list(range(len(rows))), columns].mean(axis=0)
    return step


def test_lasa_is_the_authors_algorithm() -> None:
    layout = Layout({"first.weight": (8, 5), "first.bias": (8,), "last.weight": (3, 4)})
    for seed in range(6):
        rows = np.random.default_rng(seed).normal(size=(11, 60)) + 0.3
        rows[:3] *= -2
        cohort = make_cohort(rows, layout=layout)
        for sparsity in (0.0, 0.3):
            expected = slow_lasa(rows, list(layout.slices.values()), sparsity, 1.0)
            np.testing.assert_allclose(step_of(cohort, LASA(sparsity=sparsity)(cohort)), expected, atol=1e-12)


def test_lasa_filters_in_one_layer_what_is_usual_in_the_others() -> None:
    """The paper's reason for layers: a poisoned layer is hidden in the norm of the whole."""
    rng = np.random.default_rng(0)
    layout = Layout({"large": (500,), "small": (20,)})
    rows = rng.normal(size=(12, 520)) + 0.2
    rows[:3, 500:] = -3.0
    cohort = make_cohort(rows, layout=layout)
    step = step_of(cohort, LASA()(cohort))
    assert step[500:].mean() > 0
    whole = step_of(make_cohort(rows), LASA()(make_cohort(rows)))
    assert whole[500:].mean() < 0
    with pytest.raises(ConfigError, match="sparsity must be less than 1"):
        LASA(sparsity=1.0)


def slow_alignins(rows: Rows, weights: Rows, share: float) -> set[int]:
    """Algorithm 1 of Xu et al. 2025 as in the authors' code."""
    major = np.sign(np.sign(rows).sum(axis=0))
    direction, agreement = [], []
    for row in rows:
        top = np.argsort(-np.abs(row), kind="stable")[: int(len(row) * share)]
        agreement.append(np.mean(np.sign(row[top]) == major[top]))
        direction.append(row @ weights / np.linalg.norm(row) / np.linalg.norm(weights))
    scores = [np.abs(each - np.median(each)) / np.std(each) for each in (direction, agreement)]
    return {i for i in range(len(rows)) if scores[0][i] < 1 and scores[1][i] < 1}


def test_alignins_keeps_whom_the_authors_code_keeps_and_clips_them_to_their_median_norm() -> None:
    for seed in range(6):
        rng = np.random.default_rng(seed)
        rows, weights = attacked(seed, d=100), rng.normal(size=100)
        cohort = make_cohort(rows, global_weights=weights)
        decision = AlignIns()(cohort)
        kept = slow_alignins(rows, weights, 0.3)
        assert kept
        assert set(range(20)) - rejected_rows(cohort, decision) == kept
        norms = np.linalg.norm(rows, axis=1)
        own = sorted(kept)
        clipped = rows[own] * np.minimum(1, np.median(norms[own]) / norms[own])[:, None]
        np.testing.assert_allclose(step_of(cohort, decision), clipped.mean(axis=0))


def test_alignins_needs_the_model_and_two_clients_are_both_kept() -> None:
    with pytest.raises(ConfigError, match="AlignIns needs the global model"):
        AlignIns()(make_cohort(np.eye(3)))
    decision = AlignIns()(make_cohort(np.eye(2, 5), global_weights=np.arange(5.0)))
    assert decision.events == ("alignins-nobody-kept: those nearest to the medians are averaged",)
    assert decision.reasons == ["accepted", "accepted"]


# LFighter


def test_lfighter_finds_the_flipped_classes_and_their_flippers() -> None:
    """Section 4 of the paper: source and target neurons of flippers turn against those of the others."""
    layout = Layout({"hidden.weight": (20, 10), "output.weight": (6, 20), "output.bias": (6,)})
    rng = np.random.default_rng(0)
    rows = 0.2 * rng.normal(size=(20, layout.size))
    output = rows[:, layout.slices["output.weight"]].reshape(20, 6, 20)
    direction = rng.normal(size=20)
    output[:14, 2] += direction + 0.4 * rng.normal(size=(14, 20))
    output[:14, 4] -= direction + 0.4 * rng.normal(size=(14, 20))
    output[14:, 2] -= direction
    output[14:, 4] += direction
    rows[:, layout.slices["output.weight"]] = output.reshape(20, -1)
    cohort = make_cohort(rows, layout=layout)
    decision = LFighter()(cohort)
    assert decision.facts["neurons"] == [2, 4]
    assert rejected_rows(cohort, decision) == set(range(14, 20))
    np.testing.assert_allclose(step_of(cohort, decision), rows[:14].mean(axis=0))


def test_lfighter_needs_an_output_layer() -> None:
    with pytest.raises(ConfigError, match="needs the layers of the model"):
        LFighter()(make_cohort(np.eye(3)))
    with pytest.raises(ConfigError, match="no tensor of the layout has two dimensions"):
        LFighter()(make_cohort(np.eye(3), layout=Layout({"bias": (3,)})))
