import threading

import numpy as np
import pytest

from mabrfl import vectors


def random_matrix(n=7, width=3 * vectors.SLICE + 11, dtype=np.float32):
    return np.random.default_rng(3).normal(size=(n, width)).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gram_equals_the_exact_products(dtype):
    matrix = random_matrix(dtype=dtype)
    exact = matrix.astype(np.float64) @ matrix.astype(np.float64).T
    np.testing.assert_allclose(vectors.gram(matrix), exact, atol=2e-6 * exact.max())


def test_results_are_the_same_bits_for_any_number_of_threads(monkeypatch):
    matrix, weights = random_matrix(), np.arange(7) / 3
    results = []
    for cores in (1, 2, 5):
        monkeypatch.setattr(vectors.slices, "_cores", lambda cores=cores: cores)
        results.append((vectors.gram(matrix), vectors.row_norms(matrix), vectors.combine(weights, matrix)))
    for other in results[1:]:
        for one, two in zip(results[0], other, strict=True):
            assert one.tobytes() == two.tobytes()


@pytest.mark.parametrize("exponent", range(-37, 38, 5))
def test_norms_and_cosines_are_right_at_every_scale(exponent):
    matrix = random_matrix(4, 500)
    scaled = (matrix.astype(np.float64) * 10.0**exponent / 10).astype(np.float32)
    exact = np.linalg.norm(scaled.astype(np.float64), axis=1)
    np.testing.assert_allclose(vectors.row_norms(scaled), exact, rtol=1e-6)
    np.testing.assert_allclose(vectors.cosines(vectors.gram(scaled)), vectors.cosines(vectors.gram(matrix)), atol=1e-6)


def test_scaling_an_extreme_row_leaves_the_products_of_the_others_as_they_are():
    matrix = random_matrix(5, 20_000)
    extreme = matrix.copy()
    extreme[2] *= np.float32(2.0**90)
    others = [0, 1, 3, 4]
    ordinary, scaled = vectors.gram(matrix), vectors.gram(extreme)
    assert ordinary[np.ix_(others, others)].tobytes() == scaled[np.ix_(others, others)].tobytes()
    np.testing.assert_array_equal(scaled[2, others], ordinary[2, others] * 2.0**90)


def test_combine_does_not_read_rows_of_weight_zero():
    matrix = random_matrix(3, 100)
    matrix[1] = np.nan
    step = vectors.combine(np.array([2.0, 0.0, -1.0]), matrix)
    np.testing.assert_allclose(step, 2 * matrix[0] - matrix[2], rtol=1e-6)
    assert not vectors.combine(np.zeros(3), matrix).any()


def test_momenta_are_folded_and_multiplied_in_one_pass():
    memory, updates = random_matrix(5, 9_000), random_matrix(3, 9_000) * 2
    rows, take, decay = np.array([4, 0]), np.array([2, 1]), np.array([0.5, 0.0])
    expected = updates[take] + decay[:, None].astype(np.float32) * memory[rows]
    untouched = memory[[1, 2, 3]].copy()
    fold = vectors.folding(memory, rows, updates, take, decay=decay, gain=np.ones(2))
    gram = vectors.gram(memory, np.full(2, 100.0), rows, before=fold)
    np.testing.assert_array_equal(memory[rows], expected)
    np.testing.assert_array_equal(memory[[1, 2, 3]], untouched)
    np.testing.assert_allclose(gram, expected.astype(float) @ expected.astype(float).T, rtol=1e-4, atol=1e-2)


def test_products_with_one_vector():
    matrix = random_matrix(3, 9_000)
    np.testing.assert_allclose(vectors.products(matrix, matrix[1]), vectors.gram(matrix)[1], rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n", "d"), [(1, 5), (1, 20_000), (2, 8_192), (7, 8_193), (50, 30_000)])
def test_norms_and_grams_in_one_pass_have_the_bytes_of_two(n, d, dtype):
    matrix, blocks = random_matrix(n, d).astype(dtype), [[slice(0, 3)], [slice(4, 5), slice(8_000, 9_000)]]
    matrix[0, 4] *= 1e-30  # in the second block, or in all of it that there is, a row of extreme size
    norms, (gram, shares) = vectors.norms_and_grams(matrix, blocks)
    whole, parts = vectors.block_grams(matrix, blocks)
    assert norms.tobytes() == vectors.row_norms(matrix).tobytes()
    assert gram.tobytes() == whole.tobytes() == vectors.gram(matrix).tobytes()
    assert [share.tobytes() for share in shares] == [part.tobytes() for part in parts]


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])
def test_in_one_pass_there_is_no_gram_of_rows_that_are_not_finite_or_of_extreme_size(value):
    matrix = random_matrix(3, 9_000).astype(np.float32)
    matrix[1, 5] = value
    norms, grams = vectors.norms_and_grams(matrix)
    np.testing.assert_array_equal(norms, vectors.row_norms(matrix))
    assert grams is None


def test_empty_matrices_are_fine():
    norms, grams = vectors.norms_and_grams(np.zeros((0, 5), np.float32))
    assert (len(norms), grams) == (0, None)
    assert vectors.gram(np.zeros((0, 5), np.float32)).shape == (0, 0)
    assert vectors.row_norms(np.zeros((3, 0), np.float32)).tolist() == [0, 0, 0]
    assert vectors.products(np.zeros((2, 0)), np.zeros(0)).tolist() == [0, 0]


def test_non_finite_rows_have_non_finite_norms():
    matrix = np.ones((3, 10), np.float32)
    matrix[0, 3], matrix[2, 9] = np.nan, -np.inf
    norms = vectors.row_norms(matrix)
    assert np.isnan(norms[0])
    assert norms[1] == pytest.approx(np.sqrt(10))
    assert np.isinf(norms[2])


@pytest.mark.parametrize("scale", [1.0, 1e30, 1e-30])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_label_residual_is_the_update_of_the_head_less_what_labels_explain(dtype, scale):
    rng = np.random.default_rng(3)
    matrix = rng.normal(size=(7, 40))
    matrix[2] *= scale
    matrix, rows, classes = matrix.astype(dtype), np.array([6, 2, 0, 5]), 4
    unit = matrix[rows].astype(np.float64) / vectors.row_norms(matrix[rows])[:, None]
    weights, biases = unit[:, 8:36].reshape(4, classes, 7), unit[:, 36:40]
    mean = sum(b * w for row, bias in zip(weights, biases, strict=True) for w, b in zip(row, bias, strict=True))
    residual = weights - biases[:, :, None] * (mean / (biases**2).sum())
    expected = residual.reshape(4, -1) @ residual.reshape(4, -1).T
    norms = vectors.row_norms(matrix[rows])
    found = vectors.label_residual_gram(matrix, norms, slice(8, 36), slice(36, 40), rows)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_the_grams_of_blocks_of_some_rows_are_those_of_these_rows_alone():
    matrix = np.random.default_rng(0).normal(size=(9, 3 * vectors.SLICE)).astype(np.float32)
    blocks, rows = [[slice(5, 700)], [slice(8000, 9000), slice(20000, 20003)]], np.array([7, 1, 3])
    gram, shares = vectors.block_grams(matrix, blocks, rows=rows)
    whole, parts = vectors.block_grams(matrix[rows], blocks)
    assert gram.tobytes() == whole.tobytes() == vectors.gram(matrix, rows=rows).tobytes()
    for share, part in zip(shares, parts, strict=True):
        assert share.tobytes() == part.tobytes()


@pytest.mark.parametrize("size", [1.0, 1e35])
def test_momenta_folded_in_place_are_those_folded_in_copies(size):
    rng = np.random.default_rng(3)
    memory, updates = (rng.normal(size=(6, 20_000)).astype(np.float32) for _ in range(2))
    updates *= np.float32(size)
    settings = {"decay": rng.random(4), "gain": rng.random(4) / size}
    rows = np.array([1, 2, 3, 4])
    once, again = memory.copy(), memory.copy()
    gram = vectors.gram(once, rows=rows, norms=np.ones(4), before=vectors.folding(once, rows, updates[:4], **settings))
    order = np.array([2, 0, 3, 1])
    shuffled = {name: values[order] for name, values in settings.items()}
    vectors.each_slice(20_000, vectors.folding(again, rows[order], updates[:4][order], **shuffled))
    assert once.tobytes() == again.tobytes()
    assert gram.tobytes() == vectors.gram(again[rows]).tobytes(), "products are taken of what was folded"
    assert np.array_equal(once[[0, 5]], memory[[0, 5]])


def test_threads_are_started_only_for_work_that_is_worth_it(monkeypatch):
    used = []
    monkeypatch.setattr(vectors.slices, "_cores", lambda: 2)
    for worth in (0.0, 1e9):
        monkeypatch.setattr(vectors.slices, "_WORTH_THREADS", worth)
        names = vectors.each_slice(5 * vectors.SLICE, lambda columns: (columns.start, threading.current_thread().name))
        assert [start for start, _ in names] == [k * vectors.SLICE for k in range(5)]
        used.append({name for _, name in names[1:]} == {threading.main_thread().name})
    assert used == [False, True]
