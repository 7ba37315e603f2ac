"""Partitions that deal out the whole training set: shards, quantity skew, gamma-similarity.

Each sample goes to one client at most. Unlike the partitions of :mod:`mabrfl.simulation.data.partition`, these depend
on the number of clients: another client means other samples for all. ``sizes`` is optional. With it, the number of
samples of a client is uniform in ``sizes``, drawn from those that it was dealt; a client that was dealt fewer keeps
them all. What is left over can be root data of the server.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from mabrfl.errors import ConfigError, DatasetError
from mabrfl.rng import generator
from mabrfl.simulation.data.dataset import checked_labels
from mabrfl.simulation.data.partition import Indices, check_at_least, checked_sizes


def shards(
    labels: ArrayLike,
    *,
    num_classes: int,
    num_clients: int,
    per_client: int = 2,
    sizes: tuple[int, int] | None = None,
    seed: int,
) -> list[Indices]:
    """Return each client's sample indices in the pathological partition: a few shards of data sorted by label.

    The samples are sorted by label and cut into ``num_clients * per_client`` shards of one size (up to one sample).
    Each client gets ``per_client`` of them at random. With two shards, most clients have samples of two classes.

    McMahan et al., *Communication-efficient learning of deep networks from decentralized data* (AISTATS 2017): 100
    clients with two shards of 300 samples each. Samples of one class are in random order here.

    Parameters
    ----------
    labels, num_classes, num_clients, seed
        As for :func:`~mabrfl.simulation.data.partition.dominant_label`.
    per_client
        Shards of a client.
    sizes
        See the module's text.

    Examples
    --------
    >>> labels = np.tile([0, 1], 50)
    >>> parts = shards(labels, num_classes=2, num_clients=5, per_client=2, seed=0)
    >>> [len(part) for part in parts]
    [20, 20, 20, 20, 20]
    """
    check_at_least("shards", per_client, 1)
    check_at_least("num_clients", num_clients, 1)
    rng = generator(seed, "partition-shards")
    pieces = _pieces(_by_label(checked_labels(labels, num_classes), rng), num_clients * per_client, "shards")
    order = rng.permutation(len(pieces)).reshape(num_clients, per_client)
    return _limited([np.concatenate([pieces[piece] for piece in own]) for own in order], sizes, seed)


def quantity_skew(
    labels: ArrayLike,
    *,
    num_classes: int,
    num_clients: int,
    concentration: float,
    sizes: tuple[int, int] | None = None,
    seed: int,
) -> list[Indices]:
    r"""Return each client's sample indices if clients differ in how much they have, and not in what.

    .. math:: p \sim \mathrm{Dir}(\alpha \mathbf{1}), \qquad n_k = 1 + \lfloor p_k (N - K) \rfloor

    With N samples and K clients. Labels are IID. Li et al., *Federated learning on non-IID data silos: an experimental
    study* (ICDE 2022), draw p until every client has ten samples; here every client has at least one.

    Parameters
    ----------
    labels, num_classes, num_clients, seed
        As for :func:`~mabrfl.simulation.data.partition.dominant_label`; of the labels only the number matters.
    concentration
        :math:`\alpha`: small is more uneven.
    sizes
        See the module's text.

    Examples
    --------
    >>> parts = quantity_skew(np.tile([0, 1], 500), num_classes=2, num_clients=4, concentration=0.5, seed=1)
    >>> sum(map(len, parts)) > 990, min(map(len, parts)) >= 1
    (True, True)
    """
    if not (concentration > 0 and math.isfinite(concentration)):
        raise ConfigError(f"concentration must be positive and finite; got {concentration}")
    check_at_least("num_clients", num_clients, 1)
    total = checked_labels(labels, num_classes).size
    _check_enough(total, num_clients, "clients")
    rng = generator(seed, "partition-quantity")
    # Logarithms of gamma variables: with a tiny concentration the variables themselves are all zero.
    concentration = max(concentration, 1e-300)
    logs = np.log(rng.gamma(concentration + 1, size=num_clients)) + np.log(rng.random(num_clients)) / concentration
    weights = np.exp(logs - logs.max())
    counts = 1 + np.floor(weights / weights.sum() * (total - num_clients)).astype(np.int64)
    order = rng.permutation(total)
    return _limited(np.split(order, np.cumsum(counts))[:num_clients], sizes, seed)


def gamma_similarity(
    labels: ArrayLike,
    *,
    num_classes: int,
    num_clients: int,
    gamma: float,
    sizes: tuple[int, int] | None = None,
    seed: int,
) -> list[Indices]:
    r"""Return each client's sample indices if a share of its data is IID, and the rest is sorted by label.

    A share :math:`\gamma` of all samples is dealt out at random, in equal parts. The others are sorted by label, and
    each client gets one consecutive part. :math:`\gamma = 1` is IID; :math:`\gamma = 0` gives each client one or two
    classes (the "extreme" partition of ByzFL). Karimireddy et al., *SCAFFOLD* (ICML 2020), section 7.

    Parameters
    ----------
    labels, num_classes, num_clients, seed
        As for :func:`~mabrfl.simulation.data.partition.dominant_label`.
    gamma
        The share, in [0, 1].
    sizes
        See the module's text.

    Examples
    --------
    >>> labels = np.repeat([0, 1], 50)
    >>> parts = gamma_similarity(labels, num_classes=2, num_clients=2, gamma=0.0, seed=0)
    >>> [set(labels[part].tolist()) for part in parts]
    [{0}, {1}]
    """
    if not 0.0 <= gamma <= 1.0:
        raise ConfigError(f"gamma must be in [0, 1]; got {gamma}")
    check_at_least("num_clients", num_clients, 1)
    known = checked_labels(labels, num_classes)
    _check_enough(known.size, num_clients, "clients")
    rng = generator(seed, "partition-gamma")
    order = rng.permutation(known.size)
    alike, rest = np.split(order, [round(gamma * known.size)])
    # Places are taken in turn, so that a client with one sample less of the first kind has one more of the second.
    parts = [alike[client::num_clients] for client in range(num_clients)]
    wanted = np.array([known.size // num_clients + (k < known.size % num_clients) for k in range(num_clients)])
    ends = np.cumsum(wanted - [len(part) for part in parts])
    by_label = rest[np.argsort(known[rest], kind="stable")]
    return _limited(
        [np.concatenate(pair) for pair in zip(parts, np.split(by_label, ends[:-1]), strict=True)], sizes, seed
    )


def _by_label(labels: Indices, rng: np.random.Generator) -> Indices:
    """Return all samples sorted by label; those of one label in random order."""
    order = rng.permutation(labels.size)
    return order[np.argsort(labels[order], kind="stable")]


def _pieces(samples: Indices, count: int, what: str) -> list[Indices]:
    _check_enough(samples.size, count, what)
    return np.array_split(samples, count)


def _check_enough(samples: int, count: int, what: str) -> None:
    if samples < count:
        raise DatasetError(f"{samples} samples cannot be shared out to {count} {what}")


def _limited(clients: Sequence[Indices], sizes: tuple[int, int] | None, seed: int) -> list[Indices]:
    """Return each client's samples in random order, and no more of them than its number in ``sizes``."""
    limited = []
    for client, samples in enumerate(clients):
        rng = generator(seed, "partition", client)
        size = samples.size
        if sizes is not None:
            low, high = checked_sizes(sizes)
            size = int(rng.integers(low, high, endpoint=True))
        limited.append(rng.permutation(samples)[:size].astype(np.int64))
    return limited
