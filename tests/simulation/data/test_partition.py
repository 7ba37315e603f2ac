from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mabrfl.errors import ConfigError, DatasetError
from mabrfl.simulation.data.partition import dirichlet, dominant_label, iid

LABELS = np.tile(np.arange(10), 2_000)
DRAWS = ["disjoint", "unique", "replacement"]

SHARE: dict[str, Callable[..., list[np.ndarray]]] = {
    "dominant": partial(dominant_label, LABELS, num_classes=10, q=0.5, sizes=(10, 200)),
    "balanced": partial(dominant_label, LABELS, num_classes=10, q=0.5, sizes=(10, 200), dominant="balanced"),
    "dirichlet": partial(dirichlet, LABELS, num_classes=10, concentration=0.5, sizes=(10, 200)),
    "iid": partial(iid, LABELS, num_classes=10, sizes=(10, 200)),
}


def same(left: list[np.ndarray], right: list[np.ndarray]) -> bool:
    return len(left) == len(right) and all(np.array_equal(a, b) for a, b in zip(left, right, strict=True))


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("kind", SHARE)
def test_adding_a_client_does_not_change_the_others(kind: str, draw: str) -> None:
    few = SHARE[kind](num_clients=20, draw=draw, seed=3)
    many = SHARE[kind](num_clients=27, draw=draw, seed=3)
    assert same(few, many[:20])
    assert len(many) == 27


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("kind", SHARE)
def test_same_seed_same_shares_and_another_seed_others(kind: str, draw: str) -> None:
    shares = SHARE[kind](num_clients=5, draw=draw, seed=3)
    assert same(shares, SHARE[kind](num_clients=5, draw=draw, seed=3))
    others = SHARE[kind](num_clients=5, draw=draw, seed=4)
    assert not any(np.array_equal(a, b) for a, b in zip(shares, others, strict=True))
    assert all(share.dtype == np.int64 for share in shares)


@pytest.mark.parametrize("kind", SHARE)
def test_disjoint_gives_no_sample_to_two_clients(kind: str) -> None:
    everything = np.concatenate(SHARE[kind](num_clients=40, draw="disjoint", seed=0))
    assert len(np.unique(everything)) == len(everything)


@pytest.mark.parametrize("kind", SHARE)
def test_unique_repeats_nothing_within_a_client_but_lets_clients_overlap(kind: str) -> None:
    shares = SHARE[kind](num_clients=150, draw="unique", seed=0)
    assert all(len(np.unique(share)) == len(share) for share in shares)
    everything = np.concatenate(shares)
    assert len(np.unique(everything)) < len(everything)


def test_replacement_repeats_samples_within_a_client() -> None:
    labels = np.repeat([0, 1], 20)
    (share,) = dominant_label(labels, num_classes=2, num_clients=1, q=0.5, sizes=(500, 500), draw="replacement", seed=0)
    assert len(share) == 500
    assert set(share) == set(range(40))


@pytest.mark.parametrize("draw", DRAWS)
def test_skip_last_never_draws_the_last_image_of_a_class(draw: str) -> None:
    # Classes 0, 1, 0, 1, ...: the last images are 38 (class 0) and 39 (class 1).
    labels = np.tile([0, 1], 20)
    sizes = (19, 19) if draw == "unique" else (1, 5)
    options: dict[str, Any] = {"num_classes": 2, "q": 1.0, "sizes": sizes, "draw": draw, "seed": 0}
    clients = 5 if draw == "disjoint" else 300
    drawn = set(np.concatenate(dominant_label(labels, num_clients=clients, skip_last=True, **options)))
    assert drawn.isdisjoint({38, 39})
    if draw != "disjoint":
        assert drawn == set(range(38))
        assert set(np.concatenate(dominant_label(labels, num_clients=clients, **options))) == set(range(40))


@pytest.mark.parametrize("kind", SHARE)
def test_sizes_are_uniform_between_both_ends(kind: str) -> None:
    share = partial(SHARE[kind].func, *SHARE[kind].args, **(SHARE[kind].keywords | {"sizes": (3, 6)}))
    counts = np.bincount([len(client) for client in share(num_clients=2_000, draw="replacement", seed=1)])
    assert counts[:3].tolist() == [0, 0, 0]
    # 500 expected of each, standard deviation 19.4.
    assert np.all(np.abs(counts[3:] - 500) < 5 * 19.4)
    assert len(counts) == 7


def test_dominant_label_has_share_q_and_the_rest_is_equal() -> None:
    shares = dominant_label(LABELS, num_classes=10, num_clients=300, q=0.5, sizes=(400, 400), draw="unique", seed=0)
    proportions = np.array([np.bincount(LABELS[share], minlength=10) / 400 for share in shares])
    owner = proportions.argmax(axis=1)
    own = proportions[np.arange(300), owner]
    others = (1 - own).mean() / 9
    assert own.mean() == pytest.approx(0.5, abs=5 * np.sqrt(0.25 / 120_000))
    assert others == pytest.approx(0.5 / 9, abs=0.001)
    for label in range(10):
        assert proportions[owner != label, label].mean() == pytest.approx(0.5 / 9, abs=0.004)


def test_q_of_one_gives_one_label_and_q_of_zero_none_of_the_dominant() -> None:
    options: dict[str, Any] = {"num_classes": 10, "num_clients": 30, "sizes": (90, 90), "draw": "unique", "seed": 5}
    pure = dominant_label(LABELS, q=1.0, **options)
    without = dominant_label(LABELS, q=0.0, **options)
    for owned, rest in zip(pure, without, strict=True):
        (dominant,) = set(LABELS[owned])
        assert set(LABELS[rest]) <= set(range(10)) - {dominant}


def test_q_of_one_over_the_number_of_classes_is_iid() -> None:
    shares = dominant_label(LABELS, num_classes=10, num_clients=100, q=0.1, sizes=(1000, 1000), draw="unique", seed=0)
    proportions = np.array([np.bincount(LABELS[share], minlength=10) / 1000 for share in shares])
    assert proportions.max() < 0.1 + 6 * np.sqrt(0.09 / 1000)
    np.testing.assert_allclose(proportions.mean(axis=0), 0.1, atol=0.006)


def dominants(num_clients: int, **options: Any) -> list[int]:
    shares = dominant_label(
        LABELS, num_classes=10, num_clients=num_clients, q=1.0, sizes=(1, 3), draw="unique", **options
    )
    return [int(LABELS[share[0]]) for share in shares]


def test_balanced_deals_every_label_in_turn_in_a_seeded_order() -> None:
    labels = dominants(30, dominant="balanced", seed=0)
    assert sorted(labels[:10]) == list(range(10))
    assert labels[:10] == labels[10:20] == labels[20:]
    assert labels != dominants(30, dominant="balanced", seed=1)


def test_uniform_dominant_labels_may_leave_classes_without_owner() -> None:
    assert any(len(set(dominants(10, seed=seed))) < 10 for seed in range(5))
    counts = np.bincount(dominants(2_000, seed=0))
    # 200 expected of each, standard deviation 13.4.
    assert np.all(np.abs(counts - 200) < 5 * 13.4)


def test_balanced_changes_the_labels_but_not_the_sizes() -> None:
    uniform, balanced = (SHARE[kind](num_clients=20, draw="unique", seed=0) for kind in ("dominant", "balanced"))
    assert [len(share) for share in uniform] == [len(share) for share in balanced]


def test_dirichlet_goes_from_one_class_to_equal_shares() -> None:
    def classes(concentration: float) -> list[int]:
        options: dict[str, Any] = {"num_classes": 10, "num_clients": 20, "sizes": (200, 200), "seed": 0}
        return [len(set(LABELS[s])) for s in dirichlet(LABELS, concentration=concentration, **options)]

    for tiny in (1e-320, 1e-10):
        assert set(classes(tiny)) == {1}
    assert 2 < np.mean(classes(0.3)) < 9.5
    for huge in (1e6, 1.7e308):
        assert set(classes(huge)) == {10}


def test_dirichlet_proportions_have_the_right_spread() -> None:
    shares = dirichlet(LABELS, num_classes=10, num_clients=400, concentration=1.0, sizes=(400, 400), seed=0)
    proportions = np.array([np.bincount(LABELS[share], minlength=10) / 400 for share in shares])
    # Var p = (1/L)(1 - 1/L) / (L alpha + 1), plus the sampling noise E[p(1 - p)] / 400.
    expected = 0.09 / 11 + (0.1 - 0.01 - 0.09 / 11) / 400
    assert proportions.var() == pytest.approx(expected, rel=0.12)
    np.testing.assert_allclose(proportions.mean(axis=0), 0.1, atol=5 * np.sqrt(expected / 400))


def test_iid_without_sizes_shares_everything_out_equally() -> None:
    shares = iid(LABELS[:103], num_classes=10, num_clients=4, seed=0)
    assert [len(share) for share in shares] == [25, 25, 25, 25]
    assert len(np.unique(np.concatenate(shares))) == 100


def test_exhausted_class_is_named_with_need_and_have() -> None:
    labels = np.array([0] * 100 + [1] * 7)
    options: dict[str, Any] = {"num_classes": 2, "num_clients": 2, "q": 1.0, "sizes": (5, 5), "dominant": "balanced"}
    dominant_label(labels, seed=0, **options)
    with pytest.raises(
        DatasetError, match=r'class 1: needs 5 images, but 2 of 7 are left .*fewer clients, or draw="unique"'
    ):
        dominant_label(labels, seed=0, **(options | {"num_clients": 4}))
    dominant_label(labels, seed=0, draw="unique", **(options | {"num_clients": 4}))


def test_client_larger_than_a_class_needs_replacement() -> None:
    options: dict[str, Any] = {"num_classes": 2, "num_clients": 1, "q": 0.5, "sizes": (30, 30), "seed": 0}
    with pytest.raises(DatasetError, match=r'client 0, class \d: needs \d+ images, but 4 of 4 .*draw="replacement"'):
        dominant_label([0, 1] * 4, draw="unique", **options)
    assert len(dominant_label([0, 1] * 4, draw="replacement", **options)[0]) == 30


def test_class_without_images_cannot_be_drawn_even_with_replacement() -> None:
    with pytest.raises(DatasetError, match=r"class 1: needs .* but 0 of 0 .* nothing to draw from"):
        dominant_label([0, 0, 0], num_classes=2, num_clients=1, q=0.5, sizes=(9, 9), draw="replacement", seed=0)


def test_iid_that_asks_for_too_much_names_the_client() -> None:
    with pytest.raises(DatasetError, match="client 2: needs 4 images, but 2 of 10 are left"):
        iid([0, 1] * 5, num_classes=2, num_clients=3, sizes=(4, 4), seed=0)
    with pytest.raises(DatasetError, match="10 samples cannot be shared out to 11 clients"):
        iid([0, 1] * 5, num_classes=2, num_clients=11, seed=0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"q": 1.01}, r"q must be in \[0, 1\]; got 1\.01"),
        ({"q": float("nan")}, r"q must be in \[0, 1\]; got nan"),
        ({"num_clients": 0}, "num_clients must be a whole number of at least 1; got 0"),
        ({"num_clients": 2.0}, r"num_clients must be a whole number of at least 1; got 2\.0"),
        ({"num_classes": 1}, "num_classes must be a whole number of at least 2; got 1"),
        ({"sizes": (0, 5)}, "the smallest client size must be a whole number of at least 1; got 0"),
        ({"sizes": (6, 5)}, "the largest client size must be a whole number of at least 6; got 5"),
        ({"sizes": (6,)}, "sizes must be"),
        ({"draw": "disjiont"}, "draw: unknown 'disjiont'; did you mean 'disjoint'"),
        ({"dominant": "ballanced"}, "dominant: unknown 'ballanced'; did you mean 'balanced'"),
    ],
)
def test_bad_settings_are_config_errors(changes: dict[str, Any], message: str) -> None:
    options: dict[str, Any] = {"num_classes": 10, "num_clients": 2, "q": 0.5, "sizes": (1, 5), "seed": 0}
    with pytest.raises(ConfigError, match=message):
        dominant_label(LABELS, **(options | changes))


@pytest.mark.parametrize("concentration", [0.0, -1.0, float("inf"), float("nan")])
def test_concentration_must_be_positive_and_finite(concentration: float) -> None:
    with pytest.raises(ConfigError, match="concentration must be positive and finite"):
        dirichlet(LABELS, num_classes=10, num_clients=2, concentration=concentration, sizes=(1, 2), seed=0)


@pytest.mark.parametrize("share", [dominant_label, iid, dirichlet])
def test_labels_out_of_range_are_refused(share: Callable[..., Any]) -> None:
    extra = {dominant_label: {"q": 0.5}, dirichlet: {"concentration": 1.0}}.get(share, {})
    with pytest.raises(DatasetError, match=r"labels must be 0\.\.9; got 10 at index 1"):
        share([0, 10], num_classes=10, num_clients=1, sizes=(1, 1), seed=0, **extra)


@settings(max_examples=40)
@given(
    num_classes=st.integers(2, 6),
    num_clients=st.integers(1, 12),
    q=st.floats(0, 1),
    low=st.integers(1, 10),
    spread=st.integers(0, 10),
    seed=st.integers(0, 2**63),
    draw=st.sampled_from(DRAWS),
)
def test_any_setting_gives_indices_of_the_asked_sizes(
    *, num_classes: int, num_clients: int, q: float, low: int, spread: int, seed: int, draw: Any
) -> None:
    labels = np.repeat(np.arange(num_classes), 260)
    shares = dominant_label(
        labels,
        num_classes=num_classes,
        num_clients=num_clients,
        q=q,
        sizes=(low, low + spread),
        draw=draw,
        seed=seed,
    )
    assert len(shares) == num_clients
    for share in shares:
        assert low <= len(share) <= low + spread
        assert share.min() >= 0
        assert share.max() < len(labels)
