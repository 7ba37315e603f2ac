"""Shards, quantity skew and gamma-similarity."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from mabrfl.config import RunConfig, resolve
from mabrfl.errors import ConfigError, DatasetError
from mabrfl.simulation.client_data import partition_of
from mabrfl.simulation.data import load
from mabrfl.simulation.data.dealing import gamma_similarity, quantity_skew, shards

LABELS = np.tile(np.arange(10), 600)

DEAL: dict[str, Callable[..., list[np.ndarray]]] = {
    "shards": partial(shards, LABELS, num_classes=10),
    "quantity-skew": partial(quantity_skew, LABELS, num_classes=10, concentration=0.5),
    "gamma-similarity": partial(gamma_similarity, LABELS, num_classes=10, gamma=0.5),
}


@pytest.mark.parametrize("kind", DEAL)
def test_no_sample_goes_to_two_clients_and_the_seed_decides(kind: str) -> None:
    first, again, other = (DEAL[kind](num_clients=13, seed=seed) for seed in (1, 1, 2))
    everything = np.concatenate(first)
    assert len(np.unique(everything)) == len(everything) > len(LABELS) - 13
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))
    assert all(len(client) and client.dtype == np.int64 for client in first)


@pytest.mark.parametrize("kind", DEAL)
def test_sizes_limit_what_a_client_keeps_of_its_own_samples(kind: str) -> None:
    whole = DEAL[kind](num_clients=13, seed=1)
    limited = DEAL[kind](num_clients=13, sizes=(20, 40), seed=1)
    for large, small in zip(whole, limited, strict=True):
        assert set(small) <= set(large)
        assert min(20, len(large)) <= len(small) <= 40


@pytest.mark.parametrize("kind", DEAL)
@pytest.mark.parametrize("clients", [0, -1, 6_001])
def test_a_number_of_clients_that_cannot_be_served_is_refused(kind: str, clients: int) -> None:
    with pytest.raises(DatasetError if clients > 0 else ConfigError, match=r"6000 samples|num_clients"):
        DEAL[kind](num_clients=clients, seed=0)


def test_two_shards_of_300_for_100_clients_as_in_the_paper_of_fedavg() -> None:
    """Second opinion: McMahan et al. (AISTATS 2017), section 3: 200 shards of 300, so at most two digits for most."""
    labels = np.repeat(np.arange(10), 6_000)
    clients = shards(labels, num_classes=10, num_clients=100, seed=0)
    assert {len(client) for client in clients} == {600}
    assert max(len(np.unique(labels[client])) for client in clients) == 2
    assert np.mean([len(np.unique(labels[client])) for client in clients]) > 1.8


def test_a_shard_is_a_piece_of_the_data_sorted_by_label() -> None:
    labels = np.array([1, 0, 1, 0, 2, 2])
    clients = shards(labels, num_classes=3, num_clients=3, per_client=1, seed=0)
    assert sorted(labels[client].tolist() for client in clients) == [[0, 0], [1, 1], [2, 2]]


def test_quantity_skew_is_uneven_for_a_small_concentration_and_even_for_a_large_one() -> None:
    def spread(concentration: float) -> float:
        sizes = [
            len(client)
            for seed in range(20)
            for client in quantity_skew(LABELS, num_classes=10, num_clients=20, concentration=concentration, seed=seed)
        ]
        return float(np.std(sizes) / np.mean(sizes))

    # The standard deviation of a share of a symmetric Dirichlet over its mean: sqrt((K - 1) / (K alpha + 1)).
    assert spread(0.5) == pytest.approx(np.sqrt(19 / 11), rel=0.1)
    assert spread(50.0) == pytest.approx(np.sqrt(19 / 1001), rel=0.1)
    assert spread(1e-9) == pytest.approx(np.sqrt(19), rel=0.01)  # one client has nearly everything


def test_quantity_skew_leaves_the_labels_iid() -> None:
    clients = quantity_skew(LABELS, num_classes=10, num_clients=4, concentration=5.0, seed=0)
    for client in clients:
        shares = np.bincount(LABELS[client], minlength=10) / len(client)
        assert np.all(np.abs(shares - 0.1) < 5 * np.sqrt(0.09 / len(client)))


@pytest.mark.parametrize(("gamma", "classes"), [(0.0, 1), (1.0, 10)])
def test_gamma_of_zero_sorts_everything_and_of_one_nothing(gamma: float, classes: int) -> None:
    """Second opinion: gamma = 0 is ByzFL's extreme_niid, which gives each of ten clients one digit."""
    clients = gamma_similarity(LABELS, num_classes=10, num_clients=10, gamma=gamma, seed=0)
    assert {len(client) for client in clients} == {600}
    assert all(len(np.unique(LABELS[client])) == classes for client in clients)


def test_a_share_gamma_of_each_client_is_iid() -> None:
    clients = gamma_similarity(LABELS, num_classes=10, num_clients=10, gamma=0.4, seed=0)
    for number, client in enumerate(clients):
        shares = np.bincount(LABELS[client], minlength=10) / len(client)
        # 60 % of the client's own class, and a tenth of the rest.
        assert shares.argmax() == number
        assert shares[number] == pytest.approx(0.64, abs=0.12)


def test_every_sample_is_dealt_out_even_if_the_numbers_do_not_divide() -> None:
    for gamma in (0.0, 0.3, 0.77, 1.0):
        clients = gamma_similarity(LABELS[:101], num_classes=10, num_clients=7, gamma=gamma, seed=0)
        assert sorted(np.concatenate(clients)) == list(range(101))
        assert {len(client) for client in clients} == {14, 15}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (partial(DEAL["shards"], per_client=0), "shards must be a whole number of at least 1; got 0"),
        (partial(quantity_skew, LABELS, num_classes=10, concentration=0.0), "concentration must be positive"),
        (partial(gamma_similarity, LABELS, num_classes=10, gamma=1.1), r"gamma must be in \[0, 1\]; got 1.1"),
        (partial(DEAL["shards"], sizes=(5, 3)), "largest client size"),
    ],
)
def test_wrong_settings_are_named(call: Callable[..., object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        call(num_clients=5, seed=0)


@pytest.mark.parametrize("kind", DEAL)
def test_a_run_deals_out_all_data_whatever_its_preset_draws(kind: str) -> None:
    run = resolve(RunConfig(preset="reference", partition={"kind": kind}))
    assert (run.partition.sizes, run.partition.draw, run.partition.skip_last) == (None, "disjoint", False)
    data = load("digits")
    parts = partition_of(run, data)
    assert len(parts) == 20
    assert sum(map(len, parts)) > len(data.train_labels) - 20
    assert resolve(RunConfig(**run.model_dump())) == run  # a recorded configuration means the same again


def test_a_run_that_deals_out_all_data_refuses_another_draw() -> None:
    with pytest.raises(ValueError, match="draw must be 'disjoint' for kind 'shards'; got 'unique'"):
        RunConfig(partition={"kind": "shards", "draw": "unique"})
