import numpy as np
import pytest

from mabrfl import vectors
from mabrfl.layout import Layout
from mabrfl.mab.hardened.views import Blocks, views


@pytest.mark.parametrize(
    ("shapes", "first", "last", "head"),
    [
        ({"a.weight": (4, 2), "a.bias": (4,), "b.weight": (3, 4), "b.bias": (3,)}, 12, 15, True),
        ({"a.weight": (4, 2), "norm.weight": (4,), "norm.bias": (4,), "b.weight": (3, 4)}, 8, 12, False),
        (
            {"rnn.w_ih": (8, 2), "rnn.w_hh": (8, 2), "rnn.b": (8,), "head.weight": (3, 2), "head.bias": (3,)},
            40,
            9,
            True,
        ),
        ({"a.weight": (4, 2), "b.weight": (3, 4), "b.bias": (3,), "norm.weight": (3,), "norm.bias": (3,)}, 8, 15, True),
        ({"a.weight": (4, 2), "b.weight": (3, 4, 1, 1), "b.bias": (3,)}, 8, 15, False),
    ],
)
def test_the_blocks_are_the_first_and_the_last_layer_with_weights(shapes, first, last, head):
    blocks = Blocks.of(Layout(shapes))
    assert sum(columns.stop - columns.start for columns in blocks.first) == first
    assert sum(columns.stop - columns.start for columns in blocks.last) == last
    assert (blocks.head is not None) is head


def test_without_a_layout_or_with_one_layer_there_is_the_whole_alone():
    assert Blocks.of(None) == Blocks()
    assert Blocks.of(Layout({"scale": (7,)})) == Blocks()
    linear = Blocks.of(Layout({"l.weight": (3, 2), "l.bias": (3,)}))
    assert linear.layers == {}
    assert linear.head == (slice(0, 6), slice(6, 9))


def test_views_are_cosines_over_the_columns_of_each_block():
    layout = Layout({"a.weight": (4, 2), "a.bias": (4,), "m.weight": (4, 4), "b.weight": (3, 4), "b.bias": (3,)})
    rows = np.random.default_rng(0).normal(size=(6, layout.size))
    blocks = Blocks.of(layout)
    gram, shares = vectors.block_grams(rows, list(blocks.layers.values()))
    found = views(gram, dict(zip(blocks.layers, shares, strict=True)), blocks.head, rows)
    assert set(found) == {"whole", "first", "last", "labels"}
    for name, columns in (("whole", slice(None)), ("first", slice(0, 12)), ("last", slice(28, 43))):
        part = rows[:, columns]
        np.testing.assert_allclose(found[name], cosine(part), atol=1e-12)


def cosine(rows):
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return rows @ rows.T


def test_a_layer_that_is_not_touched_is_at_right_angles_to_all_others():
    gram, (share,) = vectors.block_grams(np.array([[0.0, 1.0], [0.0, 2.0], [3.0, 1.0]]), [[slice(0, 1)]])
    first = views(gram, {"first": share}, None, np.zeros((3, 2)))["first"]
    assert first.tolist() == np.eye(3).tolist()
