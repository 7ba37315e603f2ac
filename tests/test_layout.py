"""The layers of a model: where they stand in the vector, and what rules see of them."""

import numpy as np
import pytest

from helpers import make_cohort
from mabrfl import Decision, Defense, MabRfl, Updates, vectors
from mabrfl.errors import ConfigError, StateError
from mabrfl.layout import Layout

THREE = Layout([("a.weight", (2, 2)), ("a.bias", (2,)), ("b", ()), ("c.weight", (3,))])


def test_tensors_stand_one_after_the_other():
    assert THREE.size == 10
    assert THREE.slices == {
        "a.weight": slice(0, 4),
        "a.bias": slice(4, 6),
        "b": slice(6, 7),
        "c.weight": slice(7, 10),
    }


def test_weight_and_bias_are_one_layer_and_a_name_without_a_dot_is_one_by_itself():
    assert THREE.layers == {"a": (slice(0, 6),), "b": (slice(6, 7),), "c": (slice(7, 10),)}


def test_a_layer_in_several_places_has_several_slices():
    layout = Layout({"a.w": (2,), "b.w": (3,), "a.b": (1,), "b.b": (1,), "b.c": (4,), "b.none": (0, 5)})
    assert layout.layers == {"a": (slice(0, 2), slice(5, 6)), "b": (slice(2, 5), slice(6, 11))}


def test_a_layout_is_made_of_anything_with_shapes():
    arrays = {"a.weight": np.zeros((2, 2)), "a.bias": np.zeros(2), "b": np.float64(1), "c.weight": np.zeros(3)}
    assert Layout.of(arrays) == THREE
    assert hash(Layout.of(arrays)) == hash(THREE)
    assert Layout(dict(reversed(THREE.shapes.items()))) != THREE
    assert repr(Layout({"a": (1, 2)})) == "Layout([('a', (1, 2))])"


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ([], "needs at least one tensor; got none"),
        ([("a", (1,)), ("a", (2,))], "each tensor once; got 'a' twice"),
        ([("", (1,))], "a non-empty string; got ''"),
        ([(3, (1,))], "a non-empty string; got 3"),
        ([("a", (2, -1))], r"tensor 'a' .* whole numbers from 0; got \(2, -1\)"),
        ([("a", (2.0,))], r"tensor 'a' .* whole numbers from 0; got \(2.0,\)"),
        ([("a", 7)], "tensor 'a' .* whole numbers from 0; got 7"),
    ],
)
def test_a_bad_layout_is_refused(tensors, message):
    with pytest.raises(ConfigError, match=message):
        Layout(tensors)


def test_a_layout_of_another_length_is_refused():
    with pytest.raises(ConfigError, match="the layout has 10 numbers, the matrix 9; they must be the same"):
        Updates([1, 2], np.ones((2, 9)), layout=THREE)
    with pytest.raises(ConfigError, match="the layout has 10 numbers, dimension 11"):
        Updates([1], [np.ones(10)], dimension=11, layout=THREE)


def test_for_rows_that_come_one_by_one_the_layout_declares_the_length():
    rows = [np.ones(9), np.ones(9), np.ones(10)]
    assert Updates([1, 2, 3], rows, layout=THREE).dimension == 10
    outcome = Defense(lambda cohort: Decision(weights=np.ones(len(cohort)))).aggregate(
        Updates([1, 2, 3], rows, layout=THREE), round=1
    )
    assert outcome.rejected("malformed") == [1, 2]


def cohort_of(matrix, layout=THREE):
    return make_cohort(matrix, layout=layout)


def test_blocks_are_the_products_of_the_layers():
    cohort = cohort_of([[3, 0, 0, 4, 0, 0, 2, 1, 0, 0], [0, 0, 0, 5, 0, 0, -1, 0, 1, 0]])
    a, b, c = cohort.blocks["a"], cohort.blocks["b"], cohort.blocks["c"]
    assert list(cohort.blocks) == ["a", "b", "c"]
    assert a.gram.tolist() == [[25, 20], [20, 25]]
    assert a.norms.tolist() == [5, 5]
    assert a.cosines[0, 1] == pytest.approx(0.8)
    assert b.cosines.tolist() == [[1, -1], [-1, 1]]
    assert c.gram.tolist() == [[1, 0], [0, 1]]
    assert (a.name, a.slices) == ("a", (slice(0, 6),))
    assert cohort.gram.tolist() == [[30, 18], [18, 27]]


def test_layers_can_be_put_together():
    cohort = cohort_of(np.random.default_rng(0).normal(size=(4, 10)))
    both = cohort.block("c", "a")
    assert (both.name, both.slices) == ("c+a", (slice(7, 10), slice(0, 6)))
    np.testing.assert_array_equal(both.gram, cohort.blocks["a"].gram + cohort.blocks["c"].gram)
    columns = np.delete(cohort.matrix, 6, axis=1)
    np.testing.assert_allclose(both.norms, np.linalg.norm(columns, axis=1))
    with pytest.raises(ConfigError, match="no layer 'cc'; did you mean 'c'"):
        cohort.block("cc")
    with pytest.raises(ConfigError, match=r"each once; got \['a', 'a'\]"):
        cohort.block("a", "a")
    with pytest.raises(ConfigError, match=r"at least one layer.*got \[\]"):
        cohort.block()


def test_without_a_layout_there_are_no_blocks():
    with pytest.raises(ConfigError, match=r"needs the layers of the model: Updates\(ids, matrix, layout=...\)"):
        _ = cohort_of(np.ones((2, 10)), None).blocks


def test_the_layout_reaches_the_rule_also_if_somebody_was_not_selected():
    seen = []

    def rule(cohort):
        seen.append((cohort.ids, cohort.layout, list(cohort.blocks)))
        return Decision(weights=np.full(len(cohort), 1 / len(cohort)))

    defense = Defense(rule, selector=lambda candidates: [1, 2])
    defense.select([1, 2, 3], round=1)
    defense.aggregate(Updates([1, 2, 3], np.ones((3, 10)), layout=THREE), round=1)
    assert seen == [((1, 2), THREE, ["a", "b", "c"])]


def test_a_layout_that_changes_is_refused_and_changes_nothing():
    defense = MabRfl(seed=0)
    matrix = np.random.default_rng(0).normal(size=(5, 10))
    defense.aggregate(Updates(range(5), matrix, layout=THREE), round=1)
    other = Layout({"a.weight": (2, 2), "rest": (6,)})
    before = defense.state_dict()["progress"]
    with pytest.raises(StateError, match=r"the same in all rounds; it had \('a.bias', \(2,\)\) .* \('rest', \(6,\)\)"):
        defense.aggregate(Updates(range(5), matrix, layout=other), round=2)
    assert defense.state_dict()["progress"] == before
    defense.aggregate(Updates(range(5), matrix), round=2)  # to say nothing is no change
    with pytest.raises(StateError, match="the same in all rounds"):
        defense.aggregate(Updates(range(5), matrix, layout=other), round=3)


def test_steps_and_states_of_the_preset_paper_do_not_depend_on_the_layout():
    with_layout, without = MabRfl("paper", seed=0), MabRfl("paper", seed=0)
    for number in (1, 2):
        matrix = np.random.default_rng(number).normal(size=(6, 10))
        one = with_layout.aggregate(Updates(range(6), matrix, layout=THREE), round=number)
        two = without.aggregate(Updates(range(6), matrix), round=number)
        assert one.step.tobytes() == two.step.tobytes()
    without.load_state_dict(with_layout.state_dict())
    with_layout.load_state_dict(without.state_dict())
    other = Layout({"all": (10,)})  # a restored defense knows no layout yet
    with_layout.aggregate(Updates(range(6), matrix, layout=other), round=3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 2, 7])
def test_the_gram_matrix_is_the_same_bytes_with_blocks_and_they_add_up_to_it(dtype, n):
    layout = Layout({"a.w": (3, 2000), "a.b": (7,), "none": (0,), "b.w": (2 * vectors.SLICE, 2), "c": (5000,)})
    matrix = np.random.default_rng(1).normal(size=(n, layout.size)).astype(dtype)
    plain, cut = cohort_of(matrix, None), cohort_of(matrix, layout)
    blocks = cut.blocks
    assert cut.gram.tobytes() == plain.gram.tobytes()
    total = sum(block.gram for block in blocks.values())
    bound = 2 * vectors.SLICE * np.finfo(dtype).eps / 2 * np.outer(plain.norms, plain.norms)
    assert np.all(np.abs(total - plain.gram) <= bound)
    for block in blocks.values():
        part = np.concatenate([matrix[:, columns] for columns in block.slices], axis=1).astype(np.float64)
        np.testing.assert_allclose(block.gram, part @ part.T, rtol=1e-5, atol=1e-3)


def test_where_layers_end_with_slices_the_products_are_the_same():
    layout = Layout({"a": (vectors.SLICE,), "b": (2, vectors.SLICE), "c": (3,)})
    matrix = np.random.default_rng(1).normal(size=(5, layout.size)).astype(np.float32)
    blocks = cohort_of(matrix, layout).blocks
    for name, columns in layout.slices.items():
        assert blocks[name].gram.tobytes() == vectors.gram(matrix[:, columns]).tobytes()


def test_blocks_asked_for_after_the_gram_matrix_leave_it_as_it_is():
    cohort = cohort_of(np.random.default_rng(0).normal(size=(4, 10)))
    before = cohort.gram
    assert cohort.blocks is cohort.blocks
    assert cohort.gram is before


@pytest.mark.parametrize("scale", [1e-35, 1e-20, 1e15, 1e30])
def test_one_layer_of_extreme_size_is_measured_right(scale):
    rng = np.random.default_rng(2)
    matrix = rng.normal(size=(4, 10)).astype(np.float32)
    matrix[1:3, :6] *= np.float32(scale)
    cohort = cohort_of(matrix)
    exact = matrix[:, :6].astype(np.float64)
    np.testing.assert_allclose(cohort.blocks["a"].norms, np.linalg.norm(exact, axis=1), rtol=1e-5)
    np.testing.assert_allclose(cohort.blocks["a"].cosines, vectors.cosines(exact @ exact.T), atol=1e-5)
    last = matrix[:, 7:].astype(np.float64)
    np.testing.assert_allclose(cohort.blocks["c"].gram, last @ last.T, rtol=1e-5, atol=1e-5)


def test_a_layer_of_zeros_has_norm_and_cosine_zero():
    matrix = np.random.default_rng(2).normal(size=(3, 10)).astype(np.float32)
    matrix[1, :6] = 0
    block = cohort_of(matrix).blocks["a"]
    assert block.norms[1] == 0
    assert block.cosines[1].tolist() == [0, 0, 0]
    assert block.norms[0] == pytest.approx(np.linalg.norm(matrix[0, :6]), rel=1e-6)


def test_a_memory_mapped_matrix_has_blocks(tmp_path):
    matrix = np.random.default_rng(4).normal(size=(3, 3 * vectors.SLICE)).astype(np.float32)
    path = tmp_path / "rows.npy"
    np.save(path, matrix)
    seen = []

    def rule(cohort):
        seen.append((cohort.matrix, cohort.blocks["b"].gram))
        return Decision(weights=np.ones(len(cohort)) / len(cohort))

    layout = Layout({"a": (1000,), "b": (matrix.shape[1] - 1000,)})
    mapped = np.load(path, mmap_mode="r")
    Defense(rule).aggregate(Updates(range(3), mapped, layout=layout), round=1)
    ((rows, gram),) = seen
    assert np.shares_memory(rows, mapped)
    assert gram.tobytes() == cohort_of(matrix, layout).blocks["b"].gram.tobytes()
