"""Momenta and updates on disk: the same bytes as in memory, and no copy of them in memory."""

from __future__ import annotations

import numpy as np
import pytest

from mabrfl import Defense, Krum, MabRfl, Updates, vectors
from mabrfl.errors import ConfigError
from mabrfl.updates import Layout

LAYOUT = Layout({"a.weight": (30, 300), "a.bias": (30,), "b.weight": (5, 30), "b.bias": (5,)})


def rows_of(number, n=12):
    rng = np.random.default_rng(number)
    rows = np.random.default_rng(0).normal(size=LAYOUT.size) + rng.normal(size=(n, LAYOUT.size))
    rows[9:] *= -1
    return rows.astype(np.float32)


def mapped(rows, folder):
    path = folder / "rows.bin"
    rows.tofile(path)
    return np.memmap(path, dtype=rows.dtype, mode="r", shape=rows.shape)


def judge(shield, rounds, rows=lambda matrix: matrix):
    outcomes = []
    for number in rounds:
        chosen = shield.select(range(12 + number), round=number)  # clients join, so that the memory grows
        matrix = rows_of(number, 12 + number)[chosen]
        outcomes.append(shield.aggregate(Updates(chosen, rows(matrix), layout=LAYOUT), round=number))
    return [(outcome.verdicts, outcome.facts, outcome.step.tobytes()) for outcome in outcomes]


@pytest.mark.parametrize("preset", ["hardened", "paper", "reference"])
def test_momenta_on_disk_give_the_same_bytes_also_after_a_restart(preset, tmp_path):
    inside = MabRfl(preset)
    outside = MabRfl(preset, momenta="disk", momenta_folder=tmp_path)
    assert judge(inside, range(1, 4)) == judge(outside, range(1, 4), lambda matrix: mapped(matrix, tmp_path))
    state = outside.state_dict()
    assert isinstance(state["rule"]["momenta"], np.memmap)
    expected = judge(inside, range(4, 7))
    assert judge(outside, range(4, 7)) == expected  # the state that was taken before is not changed by it
    for place in ({}, {"momenta": "disk", "momenta_folder": tmp_path}):
        later = MabRfl(preset, **place)
        later.load_state_dict(state)
        assert judge(later, range(4, 7)) == expected


def test_nothing_that_can_be_seen_is_left_in_the_folder(tmp_path):
    shield = MabRfl(momenta="disk", momenta_folder=tmp_path)
    judge(shield, range(1, 3))
    assert list(tmp_path.iterdir()) == []


def test_rows_on_disk_are_put_in_order_and_sifted_on_disk(tmp_path):
    rows = rows_of(1)
    rows[4, 7] = np.nan
    order = [5, 3, 4, 0, 1, 2, 11, 10, 9, 8, 7, 6]
    rule = Krum(num_malicious=3)
    both = (rows, mapped(rows, tmp_path))
    screenings = [Defense(rule).screen(Updates(order, matrix), round=1) for matrix in both]
    assert screenings[0].verdicts == screenings[1].verdicts
    assert not screenings[1].verdicts[1].accepted
    base = screenings[1].cohort.matrix
    while not isinstance(base, np.memmap):
        base = base.base
    assert screenings[0].cohort.matrix.tobytes() == base.tobytes()


def test_replies_are_taken_one_by_one_and_a_bad_one_costs_its_sender_alone(tmp_path):
    rows = rows_of(1)
    bad = {2: "no row", 5: np.zeros(3), 7: np.arange(LAYOUT.size)}
    replies = ((k, bad.get(k, rows[k].astype(np.float64)), 10.0) for k in range(12))
    sent = Updates.on_disk(replies, dimension=LAYOUT.size, folder=tmp_path, layout=LAYOUT)
    outcome = MabRfl().aggregate(sent, round=1)
    assert {client for client, verdict in outcome.verdicts.items() if verdict.reason == "malformed"} == set(bad)
    good = [k for k in range(12) if k not in bad]
    alone = MabRfl().aggregate(Updates(good, rows[good], [10.0] * len(good), layout=LAYOUT), round=1)
    assert outcome.step.tobytes() == alone.step.tobytes()
    assert isinstance(sent.matrix, np.memmap)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("preset", ["hardened", "paper"])
def test_without_momenta_nothing_is_kept(preset):
    shield = MabRfl(preset, momenta="none")
    judge(shield, range(1, 3))
    assert shield.state_dict()["rule"]["momenta"].size == 0


def test_a_place_that_makes_no_sense_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="momenta has no variant 'disc'; did you mean 'disk'"):
        MabRfl(momenta="disc")
    with pytest.raises(ConfigError, match="momenta 'disk' and momenta_folder need each other; got 'disk' and None"):
        MabRfl(momenta="disk")
    with pytest.raises(ConfigError, match="must be an existing folder"):
        MabRfl(momenta="disk", momenta_folder=tmp_path / "none")


def test_grams_of_slices_are_added_as_they_come():
    matrix = np.random.default_rng(0).normal(size=(5, 20 * vectors.SLICE)).astype(np.float32)
    waiting, most = set(), 0

    def visit(columns):
        nonlocal most
        waiting.add(columns.start)
        most = max(most, len(waiting))
        return columns.start

    for start in vectors.slices.visit_slices(matrix.shape[1], visit, threads=2):
        waiting.discard(start)
    assert most <= 5
