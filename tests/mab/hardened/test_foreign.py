import numpy as np
import pytest

from mabrfl.mab.hardened.foreign import branches, foreign_clients, separations


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def cohort(honest=35, foreign=15, *, agreement=0.3, cohesion=0.5, cosine=0.0, seed=0, width=4000):
    """Honest unit vectors with mean cosine ``agreement``; others with mean cosine ``cohesion``."""
    rng = np.random.default_rng(seed)
    common, other = np.linalg.qr(rng.normal(size=(width, 2)))[0].T
    direction = cosine * common + np.sqrt(1 - cosine**2) * other
    noise = unit(rng.normal(size=(honest + foreign, width)))
    rows = np.concatenate(
        [
            np.sqrt(agreement) * common + np.sqrt(1 - agreement) * noise[:honest],
            np.sqrt(cohesion) * direction + np.sqrt(1 - cohesion) * noise[honest:],
        ]
    )
    rows = unit(rows)
    return rows @ rows.T


def test_separation_is_free_of_the_noise_of_the_members():
    for size in (2, 5, 15):
        cosines = cohort(30, size, agreement=0.4, cohesion=0.6, cosine=-0.5)
        mask = np.zeros((1, 30 + size), dtype=bool)
        mask[0, 30:] = True
        squared, cosine = separations(cosines, mask)
        assert squared[0] == pytest.approx(0.4 + 0.6 + 2 * 0.5 * np.sqrt(0.24), abs=0.04)
        assert cosine[0] == pytest.approx(-0.5, abs=0.05)


@pytest.mark.parametrize("agreement", [0.0, 0.05, 0.5, 0.9])
@pytest.mark.parametrize("seed", range(3))
def test_nobody_is_foreign_among_the_honest(agreement, seed):
    foreign, _ = foreign_clients(cohort(50, 0, agreement=agreement, seed=seed), np.ones(50))
    assert not foreign.any()


@pytest.mark.parametrize("cosine", [-1.0, -0.3, 0.0])
@pytest.mark.parametrize("share", [10, 15, 24])
def test_a_minority_with_a_direction_of_its_own_is_foreign_opposed_or_not(cosine, share):
    foreign, suspicions = foreign_clients(cohort(50 - share, share, cosine=cosine), np.ones(50))
    assert np.flatnonzero(foreign).tolist() == list(range(50 - share, 50))
    assert suspicions[0].rejected
    assert not suspicions[-1].rejected or len(suspicions) == 1


def test_reputation_decides_which_side_is_the_minority():
    cosines = cohort(20, 30, agreement=0.4, cohesion=0.4)
    by_heads, _ = foreign_clients(cosines, np.ones(50))
    by_trust, _ = foreign_clients(cosines, np.repeat([0.9, 0.2], [20, 30]))
    assert np.flatnonzero(by_heads).tolist() == list(range(20))
    assert np.flatnonzero(by_trust).tolist() == list(range(20, 50))


def test_a_group_that_only_pushes_harder_in_the_same_direction_is_not_foreign():
    foreign, _ = foreign_clients(cohort(35, 15, agreement=0.05, cohesion=0.98, cosine=1.0), np.ones(50))
    assert not foreign.any()


def test_few_clients_who_happen_to_be_alike_are_not_foreign_but_many_are():
    few, _ = foreign_clients(cohort(47, 3, agreement=0.1, cohesion=0.7), np.ones(50))
    many, _ = foreign_clients(cohort(38, 12, agreement=0.1, cohesion=0.7), np.ones(50))
    assert (few.sum(), many.sum()) == (0, 12)


def test_less_is_asked_of_a_group_without_reputation():
    cosines = cohort(40, 10, agreement=0.1, cohesion=0.45)
    trust = np.repeat([0.95, 0.1], [40, 10])
    assert not foreign_clients(cosines, np.ones(50))[0].any()
    assert not foreign_clients(cosines, trust, suspicion=0.0)[0].any()
    assert foreign_clients(cosines, trust)[0].sum() == 10


def test_several_foreign_groups_are_found_one_after_the_other():
    rng = np.random.default_rng(1)
    axes = np.linalg.qr(rng.normal(size=(4000, 3)))[0].T
    rows = np.concatenate([0.8 * axes[k] + 0.6 * unit(rng.normal(size=(n, 4000))) for k, n in enumerate((30, 10, 10))])
    rows = unit(rows)
    foreign, suspicions = foreign_clients(rows @ rows.T, np.ones(50))
    assert np.flatnonzero(foreign).tolist() == list(range(30, 50))
    assert sum(each.rejected for each in suspicions) in (1, 2)


@pytest.mark.parametrize("groups", [(5, 5, 5, 5), (8, 4, 4, 4), (6,) * 5])
def test_where_everybody_is_in_a_group_of_its_own_kind_nobody_is_foreign(groups):
    rng = np.random.default_rng(1)
    axes = np.linalg.qr(rng.normal(size=(4000, len(groups))))[0].T
    rows = np.concatenate([0.9 * axes[k] + 0.4 * unit(rng.normal(size=(n, 4000))) for k, n in enumerate(groups)])
    rows = unit(rows)
    mass = np.ones(len(rows))
    assert not foreign_clients(rows @ rows.T, mass)[0].any()
    assert foreign_clients(rows @ rows.T, mass, guard=False)[0].any()


def test_the_foreign_and_those_without_a_voice_are_less_than_half_together():
    rng = np.random.default_rng(0)
    way = np.zeros((2, 400))
    way[0, 0] = way[1, 1] = 1
    rows = 0.8 * way[np.repeat([0, 1], [15, 9])] + 0.6 * unit(rng.normal(size=(24, 400)))
    for spent, found in ((0.0, 9), (5.0, 9), (6.0, 0), (20.0, 0)):
        foreign, _ = foreign_clients(unit(rows) @ unit(rows).T, np.ones(24), spent=spent)
        assert foreign.sum() == found


def test_the_branches_hold_every_group_and_the_first_division_two():
    cosines = cohort(44, 6, agreement=0.0, cohesion=0.9)
    mine = np.zeros(50, dtype=bool)
    mine[44:] = True
    assert any((mask == mine).all() for mask in branches(cosines))
    first = branches(cosines, "first")
    assert len(first) == 2
    assert (first[0] ^ first[1]).all()


@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_too_few_to_compare_are_left_alone(n):
    foreign, suspicions = foreign_clients(np.eye(n), np.ones(n))
    assert (foreign.sum(), suspicions) == (0, [])
