import numpy as np
import pytest
from sklearn.cluster import AgglomerativeClustering
from sklearn.decomposition import PCA

from mabrfl.screening import (
    cluster_cosine,
    components,
    largest_components,
    principal_scores,
    similarity_threshold,
    two_clusters,
)


def cosine_matrix(pairs, n):
    matrix = np.eye(n)
    for i, j, value in pairs:
        matrix[i, j] = matrix[j, i] = value
    return matrix


def test_threshold_falls_from_c_max_to_c_min_when_the_audit_says():
    mnist = [similarity_threshold(t, c_max=0.7, c_min=0.3) for t in range(1, 101)]
    cifar = [similarity_threshold(t, c_max=0.3, c_min=0.1) for t in range(1, 101)]
    assert mnist[0] == 0.7
    assert mnist[1] == pytest.approx(0.7 * np.exp(-1 / 20))
    # The audit counts the released code's epochs from 0: the floor is reached after 17 and 22 of them.
    assert next(epoch for epoch, value in enumerate(mnist) if value == 0.3) == 17
    assert next(epoch for epoch, value in enumerate(cifar) if value == 0.1) == 22


def test_first_release_schedule_falls_within_two_rounds():
    values = [similarity_threshold(t, c_max=0.3, c_min=0.1, schedule_decay=1.0) for t in (1, 2, 3)]
    np.testing.assert_allclose(values, [0.30, 0.11, 0.10], atol=0.001)


def test_chains_are_one_component():
    labels = components(cosine_matrix([(0, 3, 0.8), (3, 4, 0.75), (1, 2, 0.71)], 6), 0.7)
    assert labels.tolist() == [0, 1, 1, 0, 0, 2]


def test_edge_tests_differ_at_the_threshold():
    matrix = cosine_matrix([(0, 1, 0.5)], 2)
    assert components(matrix, 0.5, "at-least").tolist() == [0, 0]
    assert components(matrix, 0.5, "above").tolist() == [0, 1]


def test_only_the_largest_component_is_marked():
    labels = np.array([0, 1, 1, 0, 0, 2])
    assert largest_components(labels).tolist() == [True, False, False, True, True, False]
    assert largest_components(labels, count=2).tolist() == [True, True, True, True, True, False]
    assert largest_components(labels, count=0).sum() == 0


def test_singletons_are_spared_unless_asked_for():
    labels = np.arange(4)
    assert largest_components(labels).sum() == 0
    assert largest_components(labels, min_size=1).tolist() == [True, False, False, False]


def test_ties_go_to_the_lowest_id_or_to_a_seeded_choice():
    labels = np.array([0, 1, 0, 1, 2, 2])
    assert largest_components(labels).tolist() == [True, False, True, False, False, False]
    seen = {tuple(largest_components(labels, rng=np.random.default_rng(seed))) for seed in range(40)}
    assert len(seen) == 3


def random_units(seed, n=15, d=40):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, d)) + 0.7 * rng.normal(size=(1, d))
    rows[: n // 3] -= 1.0 * rng.normal(size=(1, d))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize("variance", [0.5, 0.95])
def test_scores_are_those_of_scikit_learns_pca(variance):
    for seed in range(20):
        rows = random_units(seed)
        scores, exact = principal_scores(rows @ rows.T, variance), PCA(variance).fit_transform(rows)
        assert scores.shape == exact.shape
        np.testing.assert_allclose(np.abs(scores), np.abs(exact), atol=1e-8)


def test_clusters_are_scikit_learns_and_first_is_its_label_zero():
    for seed in range(100):
        rows = random_units(seed)
        scores = PCA(0.95).fit_transform(rows)
        for linkage in ("ward", "average", "complete", "single"):
            labels = AgglomerativeClustering(2, linkage=linkage).fit_predict(scores)
            assert two_clusters(rows @ rows.T, linkage=linkage).first.tolist() == (labels == 0).tolist()


def test_identical_rows_can_be_clustered():
    split = two_clusters(np.ones((4, 4)))
    assert split.num_components == 1
    assert 0 < split.first.sum() < 4


def test_cluster_cosine_is_that_of_the_means():
    rows = random_units(3)
    mask = np.arange(15) < 5
    one, other = rows[mask].mean(axis=0), rows[~mask].mean(axis=0)
    expected = one @ other / np.linalg.norm(one) / np.linalg.norm(other)
    assert cluster_cosine(rows @ rows.T, mask) == pytest.approx(expected)
    assert cluster_cosine(np.zeros((3, 3)), np.array([True, False, False])) == 0.0
