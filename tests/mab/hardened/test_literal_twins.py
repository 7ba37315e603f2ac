"""The search along the tree finds what the search with a mask for every group finds: ties and copies included."""

import numpy as np
import pytest

import literal_groups
from mabrfl import Layout, MabRfl, Updates
from mabrfl.mab.hardened import groups, rule
from mabrfl.mab.hardened.copies import residual_cosines, similar_groups
from mabrfl.mab.hardened.dendrogram import branches
from mabrfl.mab.hardened.groups import compare, outlying_groups, separations
from mabrfl.mab.hardened.opposed import opposed_clients

LAYOUT = Layout({"a.weight": (8, 12), "a.bias": (8,), "m.weight": (8, 8), "b.weight": (5, 8), "b.bias": (5,)})
ATTACKS = ("none", "opposed", "copies", "elsewhere", "two groups", "last layer", "alone", "pairs", "almost copies")
TIES = ("none", "signs", "whole numbers", "twins", "few kinds")


def updates(rng, n, attack, ties, width=LAYOUT.size):
    """Return updates of honest clients, alike or of several kinds, and of attackers; some with many exact ties."""
    common = rng.normal(size=width)
    rows = rng.choice([0.3, 1, 3]) * common + rng.normal(size=(n, width))
    if rng.integers(2):
        kinds = rng.normal(size=(rng.integers(2, 8), width))
        rows += rng.choice([0.5, 1, 2]) * kinds[rng.integers(0, len(kinds), n)]
    bad = slice(n - int(rng.integers(1, max(n // 2, 1) + 1)), n)
    size = bad.stop - bad.start
    noise = rng.normal(size=(size, width))
    if attack == "opposed":
        rows[bad] *= -1
    elif attack == "copies":
        rows[bad] = rows[-1]
    elif attack in {"elsewhere", "two groups"}:
        rows[bad] = rng.choice([0.5, 1, 2]) * rng.normal(size=width) + noise
        if attack == "two groups":
            rows[n - size // 2 - 1 :] = 2 * rng.normal(size=width) + noise[: size // 2 + 1]
    elif attack == "last layer":
        rows[bad, -45:] += 2 * rng.normal(size=45)
    elif attack == "alone":
        rows[-3:] = -0.8 * common + rng.choice([1, 2]) * rng.normal(size=(3, width))
    elif attack == "pairs":
        rows[bad] = rows[:size]
    elif attack == "almost copies":
        rows[bad] = rows[-1] + 1e-3 * noise
    return with_ties(rng, rows, ties, common)


def with_ties(rng, rows, ties, common):
    n, width = rows.shape
    if ties == "signs":
        rows = np.sign(rows)
    elif ties == "whole numbers":
        rows = np.round(rows) + (np.arange(width) == 0)
    elif ties == "twins":
        rows = np.repeat(rows[: (n + 1) // 2], 2, axis=0)[:n]
    elif ties == "few kinds":
        rows = rng.choice([-1.0, 1.0], size=(n, 1)) * np.sign(common) + np.eye(width)[rng.integers(0, 3, n)]
    return rows


def cases(sizes):
    for number, (attack, ties) in enumerate((attack, ties) for attack in ATTACKS for ties in TIES):
        rng = np.random.default_rng(number)
        yield rng, updates(rng, sizes[number % len(sizes)], attack, ties)


def cosines_of(rows):
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return np.clip(rows @ rows.T, -1, 1)


def test_the_same_group_is_found_and_it_differs_by_the_same():
    for rng, rows in cases([7, 30, 64]):
        cosines, mass = cosines_of(rows), rng.choice([0.3, 2 / 3, 0.9], size=len(rows))
        members = np.sort(rng.permutation(len(rows))[: len(rows) - int(rng.integers(0, 3))])
        settings = {"separation": 0.35, "suspicion": 0.3, "smallest": int(rng.integers(2, 5)), "members": members}
        mine, literal = compare(cosines, mass, **settings), literal_groups.compare(cosines, mass, **settings)
        assert mine.spread == pytest.approx(literal.spread, abs=1e-12)
        assert (mine.group is None) == (literal.group is None)
        if mine.group is not None and literal.group is not None:
            assert mine.group.members.tolist() == literal.group.members.tolist()
            for name in ("excess", "needed", "cosine"):
                assert getattr(mine.group, name) == pytest.approx(getattr(literal.group, name), abs=1e-12)


def test_the_same_copies_and_the_same_opposed_clients_are_found():
    for rng, rows in cases([5, 30, 64]):
        cosines, mass = cosines_of(rows), rng.choice([0.3, 2 / 3, 0.9], size=len(rows))
        similarity = residual_cosines(cosines, mass)
        found = zip(similar_groups(similarity, 0.9999, 0.9, 0.7), [0.9999, 0.9, 0.7], strict=True)
        for mine, threshold in found:
            literal = literal_groups.similar_groups(similarity, threshold)[0]
            assert [group.tolist() for group in mine] == [group.tolist() for group in literal]
        members = np.sort(rng.permutation(len(rows))[: len(rows) - 1])
        for_both = {"opposed": 0.2, "among": rng.random(len(members)) < 0.8, "spent": 0.5, "members": members}
        mine, literal = (find(cosines, mass, **for_both) for find in (opposed_clients, literal_groups.opposed_clients))
        assert [each.member for each in mine] == [each.member for each in literal]
        np.testing.assert_allclose([each.cosine for each in mine], [each.cosine for each in literal], atol=1e-12)


def test_many_that_oppose_the_others_in_their_own_ways_are_found_one_after_the_other():
    rng = np.random.default_rng(0)
    rows = np.concatenate([np.ones((60, 400)), np.full((25, 400), -0.15)]) + rng.normal(size=(85, 400))
    for_both = cosines_of(rows), rng.choice([0.5, 0.9], size=85)
    mine, literal = (find(*for_both, opposed=0.05) for find in (opposed_clients, literal_groups.opposed_clients))
    assert len(mine) > 20
    assert [each.member for each in mine] == [each.member for each in literal]


def verdicts(number, attack, ties):
    """Return the verdicts, credits and steps of three rounds."""
    rng, sizes = np.random.default_rng(number), [8, 25, 60]
    n = sizes[number % 3]
    rounds = [updates(rng, n, attack, ties).astype(np.float32) for _ in range(3)]
    shield = MabRfl(seed=number)
    found = []
    for t, rows in enumerate(rounds, start=1):
        chosen = shield.select(range(n), round=t)
        outcome = shield.aggregate(Updates(chosen, rows[chosen], layout=LAYOUT), round=t)
        found.append([(each.reason, each.credit) for each in outcome.verdicts.values()] + [outcome.step.tobytes()])
    return found


def test_whole_rounds_have_the_same_verdicts_and_the_same_bytes(monkeypatch):
    settings = [(number, attack, TIES[number % len(TIES)]) for number, attack in enumerate(ATTACKS * 2)]
    mine = [verdicts(*each) for each in settings]
    monkeypatch.setattr(groups, "compare", literal_groups.compare)
    monkeypatch.setattr(rule, "opposed_clients", literal_groups.opposed_clients)
    monkeypatch.setattr(rule, "similar_groups", literal_groups.similar_groups)
    assert mine == [verdicts(*each) for each in settings]
    assert len({reason for rounds in mine for one in rounds for reason, _ in one[:-1]}) == 3


def test_the_sums_of_large_groups_are_as_exact_as_those_of_small_ones():
    """Of a group of all but two clients the sums of these two are kept, not the small difference of large sums."""
    rng = np.random.default_rng(1)
    rows = np.concatenate([np.ones((298, 40)) + 0.1 * rng.normal(size=(298, 40)), -np.ones((2, 40))])
    cosines = cosines_of(rows)
    found = branches(cosines)
    assert found.members(int(np.argmin(found.toward))).tolist() == [298, 299]
    assert found.size.max() <= 150
    found_separations = separations(found)
    masks = literal_groups.branches(cosines)
    two = (masks.sum(axis=1) <= 298) & (masks.sum(axis=1) >= 2)
    exact = literal_groups.separations(cosines, masks[two])
    np.testing.assert_allclose(found_separations.squared[two], exact.squared, atol=1e-12)
    np.testing.assert_allclose(found_separations.cosine[two], exact.cosine, atol=1e-12)


def test_groups_among_some_clients_are_those_of_their_own_matrix():
    rng = np.random.default_rng(2)
    cosines = cosines_of(updates(rng, 40, "two groups", "none"))
    members = np.sort(rng.permutation(40)[:31])
    mine, _ = outlying_groups(cosines, np.ones(40), separation=0.3, members=members)
    alone, _ = outlying_groups(cosines[np.ix_(members, members)], np.ones(31), separation=0.3)
    assert [group.members.tolist() for group in mine] == [members[group.members].tolist() for group in alone]
    assert mine
