import numpy as np
import pytest

from mabrfl import MabRfl, Updates
from mabrfl.screening.intake import inspect

WIDTH = 9_000


def honest(n=8, dtype=np.float32, seed=5):
    return np.random.default_rng(seed).normal(size=(n, WIDTH)).astype(dtype)


def with_value(value, where=slice(None)):
    row = honest(9)[8].copy()
    row[where] = value
    return row


BAD_ROWS = {
    "nan": with_value(np.nan, 17),
    "inf": with_value(np.inf, -1),
    "minus-inf": with_value(-np.inf, 0),
    "zero": np.zeros(WIDTH, np.float32),
    "denormal": np.full(WIDTH, 1e-45, np.float32),
    "overflow": np.full(WIDTH, 3e38, np.float32),
    "float64-overflow": np.full(WIDTH, 1e300),
    "too-short": np.ones(WIDTH - 1, np.float32),
    "too-long": np.ones(WIDTH + 1, np.float32),
    "one-number": np.ones(1, np.float32),
    "scalar": np.float32(3.0),
    "matrix": np.ones((1, WIDTH), np.float32),
    "integers": np.ones(WIDTH, np.int64),
    "booleans": np.ones(WIDTH, bool),
    "complex": np.ones(WIDTH, np.complex64),
    "strings": np.array(["1.0"] * WIDTH),
    "objects": np.array([None] * WIDTH),
    "ragged": [[1.0, 2.0], [3.0]],
    "nothing": None,
    "empty": np.zeros(0, np.float32),
}


@pytest.mark.parametrize("preset", ["paper", "reference", "hardened"])
@pytest.mark.parametrize(("position", "dtype"), [(0, np.float32), (4, np.float64), (8, np.float16)])
@pytest.mark.parametrize("kind", BAD_ROWS)
def test_a_malformed_client_changes_no_bit_of_the_others_result_and_is_blamed_unless_it_said_nothing(
    kind, position, dtype, preset
):
    rows, ids = list(honest(dtype=dtype)), [10, 11, 12, 13, 14, 15, 16, 17]
    clean = MabRfl(preset, seed=1)
    expected = clean.aggregate(Updates(ids, rows), round=1)
    mixed = MabRfl(preset, seed=1)
    outcome = mixed.aggregate(
        Updates([*ids[:position], 99, *ids[position:]], [*rows[:position], BAD_ROWS[kind], *rows[position:]]), round=1
    )
    assert outcome.verdicts[99].reason == "malformed"
    assert not outcome.verdicts[99].accepted
    assert outcome.verdicts[99].evidence["cause"]
    assert outcome.step.tobytes() == expected.step.tobytes()
    assert {k: v for k, v in outcome.verdicts.items() if k != 99} == dict(expected.verdicts)
    assert outcome.verdicts[99].blamed is (kind not in ("zero", "denormal"))
    start, struck = {"hardened": ((2.0, 1.0), (1.4, 2.0))}.get(preset, ((1.0, 1.0), (1.0, 2.0)))
    assert mixed.reputation == {**clean.reputation, 99: struck if outcome.verdicts[99].blamed else start}


@pytest.mark.parametrize("preset", ["paper", "reference", "hardened"])
def test_what_a_client_of_long_standing_sends_malformed_is_as_if_it_had_not_been_there(preset):
    clean, mixed = MabRfl(preset, seed=1), MabRfl(preset, seed=1)
    for t in (1, 2):
        for shield in (clean, mixed):
            shield.aggregate(Updates(range(8), honest(seed=t)), round=t)
    rows = honest(seed=3)
    expected = clean.aggregate(Updates(range(1, 8), rows[1:]), round=3)
    rows[0] = np.nan
    outcome = mixed.aggregate(Updates(range(8), rows), round=3)
    assert outcome.rejected("malformed") == [0]
    assert outcome.step.tobytes() == expected.step.tobytes()
    assert {k: v for k, v in outcome.verdicts.items() if k != 0} == dict(expected.verdicts)


def test_a_bad_row_of_a_whole_matrix_is_quarantined_too():
    matrix = honest()
    expected = MabRfl(seed=2).aggregate(Updates(range(7), matrix[:7]), round=1)
    matrix[7, 3] = np.nan
    outcome = MabRfl(seed=2).aggregate(Updates(range(8), matrix), round=1)
    assert outcome.rejected("malformed") == [7]
    assert outcome.step.tobytes() == expected.step.tobytes()


def test_every_row_of_an_id_that_came_twice_is_quarantined():
    outcome = MabRfl().aggregate(Updates([1, 2, 3, 2], honest(4)), round=1)
    assert outcome.rejected("malformed") == [2]
    assert outcome.verdicts[2].evidence["cause"] == "id sent twice"


@pytest.mark.parametrize("count", [0, -1, np.nan, np.inf, "many", None, [1]])
def test_an_impossible_number_of_examples_is_malformed(count):
    counts = np.array([5, 5, count, 5], dtype=object)
    outcome = MabRfl().aggregate(Updates(range(4), honest(4), counts), round=1)
    assert outcome.rejected("malformed") == [2]
    assert "num_examples must be positive and finite" in outcome.verdicts[2].evidence["cause"]


def test_the_servers_own_dimension_decides_not_the_majority():
    liars = [np.ones(3, np.float32)] * 5
    found = inspect(Updates(range(7), [*liars, *honest(2)], dimension=WIDTH))
    assert found.ids == (5, 6)
    assert set(found.malformed) == set(range(5))


def test_the_dimension_of_earlier_rounds_is_remembered():
    shield = MabRfl()
    shield.aggregate(Updates(range(4), honest(4)), round=1)
    outcome = shield.aggregate(Updates(range(3), np.ones((3, 5), np.float32)), round=2)
    assert outcome.rejected("malformed") == [0, 1, 2]
    assert outcome.step.shape == (WIDTH,)


def test_all_malformed_leaves_the_model_where_it_is():
    outcome = MabRfl().aggregate(Updates(["a", "b"], np.full((2, 4), np.nan, np.float32)), round=1)
    assert outcome.events == ("most-rejected: 2 of 2", "no-usable-updates")
    assert outcome.step.tolist() == [0, 0, 0, 0]


def test_half_precision_is_converted_and_double_precision_kept():
    assert inspect(Updates([1, 2], honest(2).astype(np.float16))).matrix.dtype == np.float32
    assert inspect(Updates([1, 2], honest(2, np.float64))).matrix.dtype == np.float64
    assert inspect(Updates([1, 2], honest(2).astype(">f8"))).matrix.dtype == np.float64
    assert inspect(Updates([1, 2], honest(2).astype(np.longdouble))).matrix.dtype == np.float64
    assert inspect(Updates([1, 2], list(honest(2, np.float64)))).matrix.dtype == np.float32


def test_no_client_can_change_the_servers_precision():
    shield = MabRfl()
    shield.aggregate(Updates(range(4), list(honest(4, np.float64))), round=1)
    large = [*honest(3, np.float64), honest(4, np.float64)[3] * 1e60]
    second = shield.aggregate(Updates(range(4), large), round=2)
    third = shield.aggregate(Updates(range(4), honest(4, np.float64)), round=3)
    assert second.rejected("malformed") == [3]
    assert third.rejected("malformed") == []
    assert {second.step.dtype, third.step.dtype} == {np.dtype(np.float32)}


def test_many_rows_under_one_id_have_no_vote_on_the_length():
    rows = [*honest(4), *[np.ones(3, np.float32)] * 7]
    found = inspect(Updates([*range(4), *[66] * 7], rows))
    assert found.ids == (0, 1, 2, 3)
    assert set(found.malformed) == {66}


def test_when_no_length_has_most_senders_nobody_is_believed_and_none_is_remembered():
    shield = MabRfl()
    outcome = shield.aggregate(Updates([0, 1], [honest(1)[0], np.ones(3, np.float32)]), round=1)
    assert outcome.rejected("malformed") == [0, 1]
    assert "declare it" in outcome.verdicts[0].evidence["cause"]
    assert len(shield.aggregate(Updates(range(4), list(honest(4))), round=2).accepted) > 0
    declared = MabRfl(dimension=WIDTH).aggregate(Updates([0, 1], [honest(1)[0], np.ones(3, np.float32)]), round=1)
    assert declared.rejected("malformed") == [1]


class Bomb:
    def __float__(self):
        raise RuntimeError("no")

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("no")


@pytest.mark.parametrize("count", [10**5000, Bomb(), "x" * 10**6], ids=["huge", "bomb", "text"])
def test_a_hostile_number_of_examples_costs_its_sender_alone(count):
    outcome = MabRfl().aggregate(Updates(range(3), honest(3), [5, 5, count]), round=1)
    assert outcome.rejected("malformed") == [2]
    assert len(outcome.verdicts[2].evidence["cause"]) < 200


def test_a_hostile_row_costs_its_sender_alone():
    assert MabRfl().aggregate(Updates(range(4), [*honest(3), Bomb()]), round=1).rejected("malformed") == [3]


@pytest.mark.parametrize("client", ["x" * 2000, 10**5000], ids=["text", "number"])
def test_ids_have_a_reasonable_length(client):
    with pytest.raises(ValueError, match="client ids have at most"):
        Updates([client], np.ones((1, 2)))


@pytest.mark.parametrize("scale", [1e-160, 1e160, 1e300])
def test_double_precision_whose_squares_leave_its_range_is_malformed(scale):
    matrix = honest(5, np.float64)
    matrix[2] *= scale
    outcome = MabRfl().aggregate(Updates(range(5), matrix), round=1)
    assert outcome.rejected("malformed") == [2]


def test_a_matrix_of_integers_is_the_callers_mistake():
    with pytest.raises(TypeError, match="floating-point numbers; got a matrix of int64"):
        MabRfl().aggregate(Updates([1, 2], np.ones((2, 3), np.int64)), round=1)


def test_order_of_arrival_changes_no_bit():
    matrix, ids = honest(12), np.arange(12)
    matrix[3] = matrix[7]
    expected = MabRfl(seed=4).aggregate(Updates(ids.tolist(), matrix), round=1)
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(12)
        outcome = MabRfl(seed=4).aggregate(Updates(ids[order].tolist(), matrix[order]), round=1)
        assert outcome.step.tobytes() == expected.step.tobytes()
        assert dict(outcome.verdicts) == dict(expected.verdicts)


def test_updates_are_neither_modified_nor_kept():
    matrix = honest(6)
    before = matrix.copy()
    matrix.flags.writeable = False
    shield = MabRfl()
    outcome = shield.aggregate(Updates(range(6), matrix), round=1)
    assert not np.shares_memory(outcome.step, matrix)
    assert not np.shares_memory(shield.state_dict()["rule"]["momenta"], matrix)
    np.testing.assert_array_equal(matrix, before)


@pytest.mark.parametrize("layout", ["fortran", "reversed", "strided", "subclass"])
def test_memory_layout_does_not_matter(layout):
    matrix = honest(6)
    expected = MabRfl().aggregate(Updates(range(6), matrix), round=1)
    if layout == "fortran":
        matrix = np.asfortranarray(matrix)
    elif layout == "reversed":
        matrix = np.ascontiguousarray(matrix[:, ::-1])[:, ::-1]
    elif layout == "strided":
        matrix = np.repeat(matrix, 2, axis=1)[:, ::2]
    else:
        matrix = np.ma.masked_array(matrix)
    outcome = MabRfl().aggregate(Updates(range(6), matrix), round=1)
    assert np.asarray(outcome.step).tobytes() == expected.step.tobytes()


@pytest.mark.parametrize("ids", [[1.0, 2], [None, 1], [True, 2], [b"a", 1]])
def test_ids_of_another_type_are_refused(ids):
    with pytest.raises(TypeError, match="client ids must be int or str; got"):
        Updates(ids, np.ones((2, 2)))


def test_rows_ids_and_counts_must_match():
    with pytest.raises(ValueError, match="got 3 ids for 2 rows"):
        Updates([1, 2, 3], np.ones((2, 2)))
    with pytest.raises(ValueError, match="got 1 counts for 2 rows"):
        Updates([1, 2], np.ones((2, 2)), [1])
