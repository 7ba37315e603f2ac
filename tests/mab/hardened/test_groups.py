import numpy as np
import pytest
from scipy.cluster import hierarchy

from literal_groups import branches as masks_of
from mabrfl.mab.hardened import groups
from mabrfl.mab.hardened.dendrogram import branches
from mabrfl.mab.hardened.groups import outlying_groups, separations
from mabrfl.mab.hardened.opposed import opposed_clients


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def rejected(cosines, mass=None, *, separation=0.35, **options):
    """Return who belongs to a group that is rejected."""
    groups, _ = outlying_groups(
        cosines, np.ones(len(cosines)) if mass is None else mass, separation=separation, **options
    )
    return sorted(member for group in groups for member in group.members.tolist())


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
        groups = branches(cosines)
        squared, cosine, inside, outside = separations(groups)
        mine = next(k for k in np.flatnonzero(groups.size == size) if groups.members(k)[0] == 30)
        assert squared[mine] == pytest.approx(0.4 + 0.6 + 2 * 0.5 * np.sqrt(0.24), abs=0.04)
        assert cosine[mine] == pytest.approx(-0.5, abs=0.05)
        assert (inside[mine], outside[mine]) == pytest.approx((0.6, 0.4), abs=0.04)


@pytest.mark.parametrize("agreement", [0.0, 0.05, 0.5, 0.9])
@pytest.mark.parametrize("seed", range(3))
def test_nobody_is_rejected_among_the_honest(agreement, seed):
    cosines = cohort(50, 0, agreement=agreement, seed=seed)
    assert rejected(cosines) == []
    assert opposed_clients(cosines, np.ones(50), opposed=0.25) == []


@pytest.mark.parametrize("cosine", [-1.0, -0.3, 0.0])
@pytest.mark.parametrize("share", [10, 15, 24])
def test_a_minority_with_a_direction_of_its_own_is_rejected_opposed_or_not(cosine, share):
    cosines = cohort(50 - share, share, cosine=cosine)
    assert rejected(cosines) == list(range(50 - share, 50))
    _, most = outlying_groups(cosines, np.ones(50), separation=0.35)
    assert most.excess > most.needed
    assert most.cosine == pytest.approx(cosine, abs=0.1)


def test_reputation_decides_which_side_is_the_minority():
    cosines = cohort(20, 30, agreement=0.4, cohesion=0.4)
    assert rejected(cosines) == list(range(20))
    assert rejected(cosines, np.repeat([0.9, 0.2], [20, 30])) == list(range(20, 50))


def test_a_group_that_only_pushes_harder_in_the_same_direction_is_not_rejected():
    assert rejected(cohort(35, 15, agreement=0.05, cohesion=0.98, cosine=1.0)) == []


def test_few_clients_who_happen_to_be_alike_are_not_rejected_but_many_are():
    assert rejected(cohort(47, 3, agreement=0.1, cohesion=0.7)) == []
    assert rejected(cohort(38, 12, agreement=0.1, cohesion=0.7)) == list(range(38, 50))


def test_less_is_asked_of_a_group_without_reputation():
    cosines = cohort(40, 10, agreement=0.1, cohesion=0.4)
    trust = np.repeat([0.95, 0.1], [40, 10])
    assert rejected(cosines) == []
    assert rejected(cosines, trust, suspicion=0.0) == []
    assert len(rejected(cosines, trust)) == 10


def kinds(*sizes, strength=0.9):
    """Groups of clients, each with a direction of its own."""
    rng = np.random.default_rng(1)
    axes = np.linalg.qr(rng.normal(size=(4000, len(sizes))))[0].T
    noise = np.sqrt(1 - strength**2)
    rows = [strength * axes[k] + noise * unit(rng.normal(size=(n, 4000))) for k, n in enumerate(sizes)]
    rows = unit(np.concatenate(rows))
    return rows @ rows.T


def test_several_groups_are_rejected_one_after_the_other():
    assert rejected(kinds(30, 10, 10, strength=0.8)) == list(range(30, 50))


def test_attackers_in_very_many_groups_are_rejected_with_few_clusterings(monkeypatch):
    cosines, calls = kinds(720, *[12] * 40, strength=0.97), []
    monkeypatch.setattr(groups, "compare", lambda *a, compare=groups.compare, **k: calls.append(0) or compare(*a, **k))
    assert rejected(cosines) == list(range(720, 1200))
    assert len(calls) <= 35
    monkeypatch.setattr(groups, "_ONE_BY_ONE", 1000)
    assert rejected(cosines) == list(range(720, 1200))
    assert len(calls) > 70


@pytest.mark.parametrize("sizes", [(5, 5, 5, 5), (8, 4, 4, 4), (6,) * 5, (10, 8, 8, 8, 8, 8)])
def test_where_everybody_is_in_a_group_of_its_own_kind_no_group_stands_out(sizes):
    assert rejected(kinds(*sizes)) == []


def test_a_group_that_differs_more_than_honest_kinds_do_stands_out():
    """Ten labels with four clients each, and nine clients who push against the mean of all these."""
    rng = np.random.default_rng(2)
    axes = np.linalg.qr(rng.normal(size=(2000, 12)))[0].T
    honest = 0.6 * axes[0] + 0.4 * np.repeat(axes[1:11], 4, axis=0) + 0.7 * unit(rng.normal(size=(40, 2000)))
    liars = -0.7 * axes[0] + 0.7 * unit(rng.normal(size=(9, 2000)))
    rows = unit(np.concatenate([honest, liars]))
    assert rejected(rows @ rows.T) == list(range(40, 49))
    assert rejected(unit(honest) @ unit(honest).T) == []


def test_less_is_asked_of_a_group_where_the_others_do_not_differ_at_all():
    clear = cohort(38, 12, agreement=0.2, cohesion=0.2)
    assert rejected(clear, separation=0.4) == []
    assert rejected(clear, separation=0.4, clear=0.5) == list(range(38, 50))
    (group,), _ = outlying_groups(clear, np.ones(50), separation=0.4, clear=0.5)
    assert group.needed == pytest.approx(0.2)
    assert rejected(clear, separation=0.6, clear=0.5) == []


def test_more_is_asked_of_a_group_that_agrees_as_clients_with_one_label_do():
    """Members agree three times as much as the others, 1.5 times as much, and as much as them."""
    for agreement, cohesion, sharing in ((0.1, 0.3, 1.0), (0.14, 0.21, 0.0), (0.2, 0.2, 0.0)):
        alike = cohort(38, 12, agreement=agreement, cohesion=cohesion)
        _, lowered = outlying_groups(alike, np.ones(50), separation=0.4, clear=0.5)
        _, raised = outlying_groups(alike, np.ones(50), separation=0.4, alike=1.0)
        assert lowered.mixed == pytest.approx(agreement / cohesion, abs=0.05)
        assert lowered.needed == pytest.approx(0.2 * (1 + sharing), abs=0.03)
        assert raised.needed == pytest.approx(0.4 * (1 + sharing), abs=0.06)


def test_a_group_that_agrees_is_spared_only_as_long_as_it_has_reputation():
    alike, blamed = cohort(38, 12, agreement=0.1, cohesion=0.3), np.repeat([0.8, 0.08], [38, 12])
    assert rejected(alike, separation=0.4, clear=0.5, suspicion=0.0) == []
    assert rejected(alike, blamed, separation=0.4, clear=0.5, suspicion=0.0) == list(range(38, 50))


def test_no_less_is_asked_of_a_group_with_more_than_a_third_of_the_reputation():
    for size, needed in ((16, 0.2), (18, 0.4)):
        groups, most = outlying_groups(
            cohort(50 - size, size, agreement=0.2, cohesion=0.2), np.ones(50), separation=0.4, clear=0.5
        )
        assert most.members.tolist() == list(range(50 - size, 50))
        assert most.needed == pytest.approx(needed, abs=0.01)
        assert bool(groups) is (needed == 0.2)


def test_less_is_asked_of_a_large_group_that_points_against_the_others():
    for cosine, lowered in ((-0.1, False), (-0.4, True)):
        groups, most = outlying_groups(
            cohort(28, 22, agreement=0.15, cohesion=0.15, cosine=cosine), np.ones(50), separation=0.45, clear=2 / 3
        )
        assert most.members.tolist() == list(range(28, 50))
        assert most.cosine == pytest.approx(cosine, abs=0.1)
        assert most.needed == pytest.approx(0.45 * 1.24 * (1 / 3 if lowered else 1), abs=0.01)
        assert bool(groups) is lowered


@pytest.mark.parametrize(("cohesion", "needed"), [(0.0, 1.2), (0.15, 1.2), (0.4, 0.6)])
def test_twice_as_much_is_asked_in_a_layer_of_a_group_that_hardly_differs_in_the_whole(cohesion, needed):
    """In the layer the group has an excess of 0.97. In the whole it has -0.01, 0.14 and 0.39."""
    layer, whole = cohort(agreement=0.5, cohesion=0.58), cohort(agreement=0.1, cohesion=cohesion)
    groups, most = outlying_groups(layer, np.ones(50), separation=0.6, whole=whole)
    assert most.excess == pytest.approx(0.97, abs=0.03)
    assert most.needed == pytest.approx(needed)
    assert bool(groups) is (needed == 0.6)


def test_the_more_the_others_differ_the_less_is_the_needed_excess_lowered():
    rng = np.random.default_rng(1)
    directions = np.linalg.qr(rng.normal(size=(4000, 3)))[0].T
    for cohesion, found in ((0.0, True), (0.1, True), (0.22, False)):
        strength = np.repeat([0.1, 0.35, cohesion], [30, 12, 8])[:, None]
        rows = unit(
            np.sqrt(strength) * directions[np.repeat([0, 1, 2], [30, 12, 8])]
            + np.sqrt(1 - strength) * unit(rng.normal(size=(50, 4000)))
        )
        trust = np.repeat([0.8, 0.02, 0.8], [30, 12, 8])
        groups, most = outlying_groups(rows @ rows.T, trust, separation=0.45, suspicion=0.0, clear=0.5)
        assert most.members.tolist() == list(range(30, 42))
        assert bool(groups) is found
        assert 0.22 < most.needed <= 0.45


def test_the_rejected_and_those_who_are_not_compared_are_less_than_half_together():
    rng = np.random.default_rng(0)
    way = np.zeros((2, 400))
    way[0, 0] = way[1, 1] = 1
    rows = unit(0.8 * way[np.repeat([0, 1], [15, 9])] + 0.6 * unit(rng.normal(size=(24, 400))))
    for spent, found in ((0.0, 9), (5.0, 9), (6.0, 0), (20.0, 0)):
        assert len(rejected(rows @ rows.T, spent=spent)) == found


def test_the_branches_hold_every_group():
    cosines = cohort(44, 6, agreement=0.0, cohesion=0.9)
    found = branches(cosines)
    assert any(found.members(k).tolist() == [44, 45, 46, 47, 48, 49] for k in range(len(found.size)))


@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_too_few_to_compare_are_left_alone(n):
    assert outlying_groups(np.eye(n), np.ones(n), separation=0.35) == ([], None)
    assert opposed_clients(-np.ones((n, n)), np.ones(n), opposed=0.25) == []


@pytest.mark.parametrize("n", [4, 6, 12, 50])
def test_a_single_client_that_opposes_all_others_is_found(n):
    cosines = cohort(n - 1, 1, agreement=0.4, cohesion=0.4, cosine=-1.0)
    [found] = opposed_clients(cosines, np.ones(n), opposed=0.25)
    assert found.member == n - 1
    assert found.cosine == pytest.approx(-np.sqrt(0.4), abs=0.1)


@pytest.mark.parametrize("cosine", [0.0, 0.3])
def test_a_single_client_with_a_direction_of_its_own_is_left_alone(cosine):
    assert opposed_clients(cohort(9, 1, agreement=0.4, cohesion=0.9, cosine=cosine), np.ones(10), opposed=0.25) == []


def test_two_that_oppose_all_others_in_their_own_ways_are_both_found():
    rng = np.random.default_rng(3)
    axes = np.linalg.qr(rng.normal(size=(2000, 3)))[0].T
    honest = np.sqrt(0.5) * axes[0] + np.sqrt(0.5) * unit(rng.normal(size=(10, 2000)))
    rows = np.concatenate([honest, [-0.6 * axes[0] + 0.8 * axes[1]], [-0.6 * axes[0] + 0.8 * axes[2]]])
    found = opposed_clients(rows @ rows.T, np.ones(12), opposed=0.25)
    assert sorted(each.member for each in found) == [10, 11]


def test_nobody_opposes_others_that_do_not_agree():
    assert opposed_clients(cohort(9, 1, agreement=0.05, cohesion=0.9, cosine=-1.0), np.ones(10), opposed=0.25) == []


def test_half_of_the_clients_are_never_opposed():
    rows = np.concatenate([np.ones((5, 3)), -np.ones((5, 3))]) / np.sqrt(3)
    assert opposed_clients(rows @ rows.T, np.ones(10), opposed=0.25) == []


def test_only_suspects_are_found():
    cosines = cohort(9, 1, agreement=0.4, cohesion=0.4, cosine=-1.0)
    assert opposed_clients(cosines, np.ones(10), opposed=0.25, among=np.arange(10) < 9) == []
    assert [each.member for each in opposed_clients(cosines, np.ones(10), opposed=0.25, among=np.arange(10) == 9)] == [
        9
    ]


def test_more_is_asked_of_a_group_of_nearly_half():
    def needed(share):
        return outlying_groups(cohort(50 - share, share, cosine=-1.0), np.ones(50), separation=0.35)[1].needed

    assert needed(15) == needed(20) == pytest.approx(0.35)
    assert needed(24) == pytest.approx(0.35 * 1.48)


def test_groups_below_the_smallest_are_not_examined():
    cosines = cohort(46, 4, agreement=0.4, cohesion=0.95, cosine=-1.0)
    assert rejected(cosines) == [46, 47, 48, 49]
    assert rejected(cosines, smallest=5) == []


def test_the_clustering_is_that_of_the_vectors_themselves():
    rng = np.random.default_rng(5)
    rows = unit(rng.normal(size=(1, 60)) + rng.normal(size=(40, 60)))
    merges = hierarchy.linkage(rows, method="ward")
    masks = np.concatenate([np.eye(40, dtype=bool), np.zeros((39, 40), dtype=bool)])
    for step, (left, right) in enumerate(merges[:, :2].astype(int)):
        masks[40 + step] = masks[left] | masks[right]
    assert np.array_equal(masks_of(rows @ rows.T), masks[40:-1])
    found = branches(rows @ rows.T)
    for number, mask in enumerate(masks[40:-1]):
        assert found.members(number, others=bool(mask.sum() > 20)).tolist() == np.flatnonzero(mask).tolist()


def test_a_group_above_the_largest_share_is_not_rejected():
    cosines = cohort(27, 23, cosine=-1.0)
    assert rejected(cosines, most=0.47) == list(range(27, 50))
    assert rejected(cosines, most=0.45) == []
