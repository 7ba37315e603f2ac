"""Our rules are those of other libraries, on committed vectors, or differ for a reason that is written down."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import conformance
from conformance_pairs import ATTACK_PAIRS, PAIRS, AttackPair, Pair
from helpers import make_cohort, step_of
from mabrfl import Defense, Updates
from mabrfl.aggregation import MDA
from mabrfl.aggregation.foolsgold import foolsgold_weights
from mabrfl.attacks import FangKrum, FangTrim, craft
from mabrfl.attacks.view import Knowledge
from mabrfl.catalog import build_rule
from mabrfl.testing import make_view


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair.label} | {pair.peer}")
def test_a_rule_is_equal_to_a_peers_on_as_many_inputs_as_the_page_says(pair: Pair) -> None:
    equal, of, largest = conformance.result(pair)
    assert (equal, of) == (pair.equal, pair.of)
    assert pair.note or largest < conformance.TOLERANCE
    assert np.isfinite(largest)


@pytest.mark.parametrize("pair", ATTACK_PAIRS, ids=lambda pair: f"{pair.label} | {pair.peer}")
def test_an_attack_sends_what_a_peers_sends(pair: AttackPair) -> None:
    equal, of, largest = conformance.result(pair)
    assert (equal, of) == (pair.equal, pair.of)
    assert pair.note or largest < conformance.TOLERANCE


def test_the_geometric_median_of_blades_is_one_of_the_updates() -> None:
    golden = conformance.golden()
    for number, theirs in enumerate(golden["blades: Geomed"]):
        assert np.abs(golden[f"input {number}"] - theirs).max(axis=1).min() < 1e-9


def test_where_fang_differs_from_a_peer_the_direction_and_the_interval_are_the_same() -> None:
    """FL-Byzantine-Library has another length against Krum, and the far end of our interval against trimmed mean."""
    golden = conformance.golden()
    for number in range(50):
        rows, f = golden[f"input {number}"], int(golden["attackers"][number])
        view = make_view(rows[: len(rows) - f], attackers=f, knowledge=Knowledge.PARTIAL)
        theirs = golden["FL-Byzantine-Library attack: fang (krum)"][number]
        ours = craft(FangKrum(), view)
        assert ours is not None
        assert not theirs.any() or np.array_equal(np.sign(ours[0]), np.sign(theirs))
        end = golden["FL-Byzantine-Library attack: fang (tm)"][number]
        extreme = np.where(view.benign.mean(axis=0) < 0, view.benign.max(axis=0), view.benign.min(axis=0))
        drawn = craft(FangTrim(values="updates"), view)
        assert drawn is not None
        shares = (drawn - extreme) / (end - extreme)
        assert np.all((shares >= 0) & (shares <= 1))


def test_sign_majority_has_the_signs_of_a_peers() -> None:
    golden, pair = conformance.golden(), next(pair for pair in PAIRS if pair.ours == "sign-majority")
    for number, theirs in enumerate(golden[pair.peer]):
        np.testing.assert_array_equal(np.sign(conformance.our_step(pair, number)), theirs)


def test_foolsgold_weighs_clients_as_a_peer_does_that_adds_them_up() -> None:
    """FLPoison scales updates longer than 1 to length 1, and adds them up with the weights."""
    golden = conformance.golden()
    for number, theirs in enumerate(golden["FLPoison: FoolsGold"]):
        rows = golden[f"input {number}"]
        unit = rows / np.maximum(np.linalg.norm(rows, axis=1), 1)[:, None]
        np.testing.assert_allclose(foolsgold_weights(unit @ unit.T) @ unit, theirs, atol=2e-5)


def test_the_page_is_up_to_date() -> None:
    """Differences are left out: the last bits of another machine's arithmetic may show in them."""
    ours, written = (text.splitlines() for text in (conformance.page(), conformance.PAGE.read_text(encoding="utf-8")))
    assert len(ours) == len(written)
    for one, other in zip(ours, written, strict=True):
        cells, theirs = one.split(" | "), other.split(" | ")
        assert [cell for number, cell in enumerate(cells) if number != 3] == [
            cell for number, cell in enumerate(theirs) if number != 3
        ]


@pytest.mark.parametrize("peer", ["byzfl: MDA", "krum: Brute", "byzpy: MinimumDiameterAveraging"])
def test_where_mda_differs_from_a_peer_both_diameters_are_the_least(peer: str) -> None:
    golden, differing = conformance.golden(), 0
    for number, theirs in enumerate(golden[peer]):
        rows, f = golden[f"input {number}"], int(golden["attackers"][number])
        cohort = make_cohort(rows)
        ours = MDA(num_malicious=f)(cohort)
        if np.isnan(theirs).all() or np.allclose(step_of(cohort, ours), theirs):
            continue
        differing += 1
        for subset in itertools.combinations(range(len(rows)), len(rows) - f):
            if np.allclose(rows[list(subset)].mean(axis=0), theirs):
                chosen = cohort.squared_distances[np.ix_(subset, subset)]
                assert np.sqrt(chosen.max()) == pytest.approx(ours.facts["diameter"])
    assert differing == 3


@pytest.mark.parametrize("name", sorted({pair.ours for pair in PAIRS}))
def test_a_row_of_nan_changes_no_bit_of_ours(name: str) -> None:
    rows, f = conformance.golden()["input 0"], 2
    with_nan = np.vstack([rows, np.full((1, rows.shape[1]), np.nan)])
    model = {"global_weights": np.ones(rows.shape[1]), "root_update": rows[0]}
    steps = [
        Defense(build_rule(name, num_malicious=f)).aggregate(Updates(range(len(each)), each, **model), round=1).step
        for each in (rows, with_nan)
    ]
    assert steps[0].tobytes() == steps[1].tobytes()
