"""The memory of the updates: filled as replies arrive, and used again in the next round."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Error, Message

from flower_grid import MemoryGrid, key_name, reply_to, round_in
from mabrfl import Decision, Defense
from mabrfl.flower import RobustStrategy
from mabrfl.flower.schema import ModelSchema
from mabrfl.flower.update_rows import UpdateRows

SIZE = 5
MODEL = ArrayRecord({"w": Array(np.full(SIZE, 0.5, np.float32))})


def sending(number):
    """A node whose update says who sent it, and when."""
    return lambda message: reply_to(message, {"w": np.full(SIZE, 0.5 + number + 10 * round_in(message), np.float32)})


def failing(message):
    return Message(Error(code=0, reason="no"), reply_to=message)


def twice(message):
    return [sending(6)(message)] * 2


def judged(keep):
    """Run three rounds with good and bad nodes; return what a rule saw, and the matrices that it kept."""
    seen, kept = [], []

    def rule(cohort):
        seen.append(dict(zip(cohort.ids, cohort.matrix.tolist(), strict=True)))
        kept.extend([cohort.matrix[0]] if keep else [])
        return Decision(weights=np.zeros(len(cohort)))

    bad = {3: failing, 5: lambda message: reply_to(message, {"w": np.full(SIZE, np.nan, np.float32)}), 6: twice}
    nodes = {node: bad.get(node) or sending(node) for node in range(1, 9)}
    RobustStrategy(Defense(rule), fraction_evaluate=0.0).start(MemoryGrid(nodes), MODEL, num_rounds=3, timeout=600)
    return seen, kept


@pytest.mark.parametrize("keep", [False, True])
def test_every_client_has_its_own_update_whatever_the_others_send(keep):
    seen, kept = judged(keep)
    good = (1, 2, 4, 7, 8)
    expected = [{key_name(node): [float(node + 10 * number)] * SIZE for node in good} for number in (1, 2, 3)]
    assert seen == expected
    first = min(expected[0])
    assert [row.tolist() for row in kept] == ([round_[first] for round_ in expected] if keep else [])


def test_memory_is_used_again_unless_somebody_keeps_an_update_or_it_does_not_fit():
    rows, schema = UpdateRows(), ModelSchema.of(MODEL)

    def place(clients):
        rows.begin(clients, range(len(clients)), schema)
        matrix = rows.take(len(clients))
        matrix[:] = len(clients)
        return matrix

    first = place("abcd").__array_interface__["data"][0]
    assert place("abc").__array_interface__["data"][0] == first, "fewer clients fit as well"
    one = place("abcd")[2, 1:].reshape(2, 2).view()
    assert place("abc").__array_interface__["data"][0] != first
    assert one.tolist() == [[4.0, 4.0], [4.0, 4.0]]
    place("abc")
    assert rows._memory.size == 3 * SIZE
    place("a")
    assert rows._memory.size == SIZE, "much more than is needed is given back"
    rows.begin((), (), schema)
    assert (rows.take(0).shape, rows.row(1)) == ((0, SIZE), None)
