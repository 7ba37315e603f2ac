import numpy as np
import pytest

from mabrfl.errors import ConfigError
from mabrfl.selection import ACS, All, ThompsonTop, Uniform
from mabrfl.selection.thompson import beta_draws
from mabrfl.updates import Candidates


def candidates(benign, malicious, number=1, seed=0):
    return Candidates(tuple(range(len(benign))), np.array(benign, float), np.array(malicious, float), number, seed)


def rate(selector, benign, malicious, rounds=3000):
    """How often each client is selected."""
    counts = np.zeros(len(benign))
    for number in range(1, rounds + 1):
        counts[list(selector(candidates(benign, malicious, number)).ids)] += 1
    return counts / rounds


def test_draws_follow_the_beta_distribution():
    draws = beta_draws(candidates(np.full(20_000, 5.0), np.full(20_000, 2.0)))
    assert abs(draws.mean() - 5 / 7) < 0.005
    assert abs(draws.var() - 10 / (49 * 8)) < 0.001


def test_acs_selects_each_client_with_the_mean_of_its_belief():
    # The fifth client, trusted beyond doubt, keeps the draw from being empty.
    found = rate(ACS(), [1, 10, 1, 4, 1e6], [1, 1, 10, 6, 1])
    np.testing.assert_allclose(found, [1 / 2, 10 / 11, 1 / 11, 0.4, 1.0], atol=0.03)


def test_cutoffs_of_the_released_code_give_its_known_probabilities():
    # reliability arithmetic: fresh 0.485, ten accepted 0.945, five rejected 0.082, ten rejected 0.023.
    # The fifth client keeps the selection from being empty, which would select everybody.
    selector = ACS(inclusion="cutoffs", empty_selection="all")
    found = rate(selector, [1, 11, 1, 1, 10_000], [1, 1, 6, 11, 1], rounds=6000)
    np.testing.assert_allclose(found, [0.485, 0.945, 0.082, 0.023, 1.0], atol=0.02)


def test_warmup_selects_everybody_and_then_stops():
    selector = ACS(warmup_rounds=2)
    outcasts = [1.0] * 5, [1e6] * 5
    assert selector(candidates(*outcasts, number=2)).ids == (0, 1, 2, 3, 4)
    assert selector(candidates(*outcasts, number=2)).events == ("warm-up",)
    assert selector(candidates(*outcasts, number=3)).events == ("empty-selection",)


def test_an_empty_draw_gives_each_non_empty_subset_the_same_chance():
    selector, seen = ACS(), {}
    for number in range(1, 3001):
        chosen = selector(candidates([1e-3] * 3, [1e6] * 3, number))
        assert chosen.events == ("empty-selection",)
        seen[tuple(chosen.ids)] = seen.get(tuple(chosen.ids), 0) + 1
    assert len(seen) == 7
    assert max(abs(count / 3000 - 1 / 7) for count in seen.values()) < 0.03


def test_an_empty_draw_can_select_everybody():
    assert ACS(empty_selection="all")(candidates([1e-3] * 3, [1e6] * 3)).ids == [0, 1, 2]


def test_nobody_to_choose_from_is_nobody_chosen():
    for selector in (ACS(), All(), Uniform(), ThompsonTop()):
        assert list(selector(candidates([], [])).ids) == []


def test_thompson_takes_the_best_draws():
    drawn = candidates([1, 50, 50, 1], [50, 1, 1, 50])
    assert list(ThompsonTop(num_selected=2)(drawn).ids) == [1, 2]
    assert list(ThompsonTop(num_selected=9)(drawn).ids) == [0, 1, 2, 3]


def test_uniform_selects_m_of_k_evenly():
    chosen = rate(Uniform(num_selected=3), [1] * 10, [1] * 10)
    np.testing.assert_allclose(chosen, 0.3, atol=0.03)
    assert len(Uniform(num_selected=3)(candidates([1] * 10, [1] * 10)).ids) == 3


def test_another_client_changes_nobody_elses_selection():
    few = ACS()(candidates([1] * 10, [1] * 10)).ids
    more = ACS()(candidates([1] * 11, [1] * 11)).ids
    assert [k for k in more if k < 10] == list(few)


@pytest.mark.parametrize("make", [lambda: Uniform(num_selected=0), lambda: ThompsonTop(num_selected=-1)])
def test_less_than_one_client_is_refused(make):
    with pytest.raises(ConfigError, match="num_selected must be a whole number >= 1"):
        make()


def test_unknown_rules_are_refused():
    with pytest.raises(ConfigError, match="inclusion has no variant 'x'; known: bernoulli, cutoffs"):
        ACS(inclusion="x")
    with pytest.raises(ConfigError, match="empty_selection has no variant 'x'"):
        ACS(empty_selection="x")
