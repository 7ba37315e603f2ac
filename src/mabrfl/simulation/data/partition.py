"""The training samples of each client: the paper's dominant-label rule, IID and Dirichlet partitions.

Every client draws from its own named random stream, in order of the clients' index, so adding a client never
changes the samples of the others. The functions take labels and return, per client, the indices of its samples.

All of them can draw the samples of a class in three ways:

``"disjoint"``
    No two clients have the same sample (a partition in the strict sense). Needs enough data.
``"unique"``
    No sample twice within a client; clients may overlap. With 50 clients of 1,200 to 2,000 samples this is
    the strictest that CIFAR-10's 50,000 training images allow.
``"replacement"``
    With replacement, as in the paper's released code.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mabrfl.errors import ConfigError, DatasetError, suggest
from mabrfl.rng import generator
from mabrfl.simulation.data.dataset import checked_labels

Draw = Literal["disjoint", "unique", "replacement"]
Dominant = Literal["uniform", "balanced"]
Indices = NDArray[np.int64]

_ADVICE = {
    "disjoint": 'use smaller clients, fewer clients, or draw="unique"',
    "unique": 'use smaller clients or draw="replacement"',
    "replacement": "there is nothing to draw from",
}


def dominant_label(
    labels: ArrayLike,
    *,
    num_classes: int,
    num_clients: int,
    q: float,
    sizes: tuple[int, int],
    draw: Draw = "disjoint",
    dominant: Dominant = "uniform",
    skip_last: bool = False,
    seed: int,
) -> list[Indices]:
    r"""Return each client's sample indices under the paper's non-IID rule.

    Client k has a dominant label :math:`l_k` and :math:`n_k` samples, the latter uniform in ``sizes``. Each
    of its samples has label

    .. math:: P(l) = q \text{ if } l = l_k, \text{ else } \frac{1-q}{L-1},

    so that :math:`q = 1/L` is the IID case. MAB-RFL (Wan et al., IJCAI 2022), section on the experimental
    setup: q = 0.5; clients of 10 to 500 samples (MNIST) or 1,200 to 2,000 (CIFAR-10).

    Parameters
    ----------
    labels
        The label of every training sample.
    num_classes
        L in the paper.
    num_clients
        K in the paper.
    q
        The degree of non-IID, in [0, 1].
    sizes
        Smallest and largest number of samples of a client, both inclusive.
    draw
        How images of a class are drawn, see the module's text.
    dominant
        ``"uniform"``: each client's dominant label is random, so a class may have no owner (the paper);
        ``"balanced"``: labels are dealt in turn, in a seeded order.
    skip_last
        Never draw the last image of a class (an off-by-one of the paper's released code).
    seed
        Root of the random streams.

    Raises
    ------
    ConfigError
        If a setting is out of range.
    DatasetError
        If a class has too few images.

    Examples
    --------
    >>> labels = np.repeat([0, 1], 50)
    >>> parts = dominant_label(labels, num_classes=2, num_clients=3, q=1.0, sizes=(5, 9), seed=0)
    >>> [len(np.unique(labels[part])) for part in parts]
    [1, 1, 1]
    """
    if not 0.0 <= q <= 1.0:
        raise ConfigError(f"q must be in [0, 1]; got {q}")
    _choice("dominant", dominant, get_args(Dominant))
    check_at_least("num_classes", num_classes, 2)
    order = generator(seed, "partition-dominant").permutation(num_classes)

    def choose_labels(rng: np.random.Generator, size: int, client: int) -> Indices:
        # Drawn in both cases, so that "balanced" changes nothing else about the client.
        main_label = rng.integers(num_classes)
        if dominant == "balanced":
            main_label = order[client % num_classes]
        other = rng.integers(num_classes - 1, size=size)
        return np.where(rng.random(size) < q, main_label, other + (other >= main_label))

    return _draw_samples(
        labels,
        choose_labels,
        num_classes=num_classes,
        num_clients=num_clients,
        sizes=sizes,
        draw=draw,
        skip_last=skip_last,
        seed=seed,
    )


def dirichlet(
    labels: ArrayLike,
    *,
    num_classes: int,
    num_clients: int,
    concentration: float,
    sizes: tuple[int, int],
    draw: Draw = "unique",
    seed: int,
) -> list[Indices]:
    r"""Return each client's sample indices with label proportions :math:`p_k \sim \mathrm{Dir}(\alpha \mathbf{1})`.

    As in Hsu, Qi and Brown, *Measuring the Effects of Non-Identical Data Distribution for Federated Visual
    Classification* (2019), with a uniform prior: a small concentration :math:`\alpha` gives clients of
    almost one class, a large one the IID case. The other parameters are those of :func:`dominant_label`.

    Examples
    --------
    >>> labels = np.tile(np.arange(4), 100)
    >>> parts = dirichlet(labels, num_classes=4, num_clients=2, concentration=1e6, sizes=(80, 80), seed=0)
    >>> [len(part) for part in parts]
    [80, 80]
    """
    if not (concentration > 0 and math.isfinite(concentration)):
        raise ConfigError(f"concentration must be positive and finite; got {concentration}")
    check_at_least("num_classes", num_classes, 2)

    def choose_labels(rng: np.random.Generator, size: int, _: int) -> Indices:
        proportions = rng.dirichlet(np.full(num_classes, concentration))
        # At the ends of the float range the sampler breaks down; its limits there are one class and equal shares.
        if not np.isclose(proportions.sum(), 1.0):
            limit = np.eye(num_classes)[rng.integers(num_classes)] if concentration < 1 else np.ones(num_classes)
            proportions = limit / limit.sum()
        return rng.choice(num_classes, size=size, p=proportions)

    return _draw_samples(
        labels, choose_labels, num_classes=num_classes, num_clients=num_clients, sizes=sizes, draw=draw, seed=seed
    )


def iid(
    labels: ArrayLike,
    *,
    num_classes: int,
    num_clients: int,
    sizes: tuple[int, int] | None = None,
    draw: Draw = "disjoint",
    seed: int,
) -> list[Indices]:
    """Return each client's sample indices, drawn from all samples alike.

    Parameters
    ----------
    labels, num_classes, num_clients, draw, seed
        As for :func:`dominant_label`; of the labels only the number matters.
    sizes
        Smallest and largest client, inclusive; if left out, all samples are shared out equally (then the
        size of every client follows from how many there are).

    Examples
    --------
    >>> parts = iid(np.tile([0, 1], 50), num_classes=2, num_clients=4, seed=0)
    >>> sorted(np.concatenate(parts)) == list(range(100))
    True
    """
    everything = np.zeros(checked_labels(labels, num_classes).size, dtype=np.int64)
    check_at_least("num_clients", num_clients, 1)
    if sizes is None:
        share = everything.size // num_clients
        if share == 0:
            raise DatasetError(f"{everything.size} samples cannot be shared out to {num_clients} clients")
        sizes = (share, share)

    def choose_labels(_rng: np.random.Generator, size: int, _: int) -> Indices:
        return np.zeros(size, dtype=np.int64)

    return _draw_samples(
        everything, choose_labels, num_classes=1, num_clients=num_clients, sizes=sizes, draw=draw, seed=seed
    )


def _draw_samples(
    labels: ArrayLike,
    choose_labels: Callable[[np.random.Generator, int, int], Indices],
    *,
    num_classes: int,
    num_clients: int,
    sizes: tuple[int, int],
    draw: Draw,
    skip_last: bool = False,
    seed: int,
) -> list[Indices]:
    """Choose labels for every client, ``choose_labels(rng, size, client)``, then draw samples with those labels."""
    _choice("draw", draw, get_args(Draw))
    check_at_least("num_clients", num_clients, 1)
    low, high = checked_sizes(sizes)
    known = checked_labels(labels, num_classes)
    pools = [np.flatnonzero(known == label) for label in range(num_classes)]
    if skip_last:
        pools = [pool[:-1] for pool in pools]
    if draw == "disjoint":
        pools = [generator(seed, "partition-class", label).permutation(pool) for label, pool in enumerate(pools)]
    taken = np.zeros(num_classes, dtype=np.int64)
    clients = []
    for client in range(num_clients):
        rng = generator(seed, "partition", client)
        size = int(rng.integers(low, high, endpoint=True))
        chosen = choose_labels(rng, size, client)
        samples = np.empty(size, dtype=np.int64)
        for label in np.unique(chosen):
            places = np.flatnonzero(chosen == label)
            start = int(taken[label]) if draw == "disjoint" else 0
            who = f"client {client}, class {label}" if num_classes > 1 else f"client {client}"
            samples[places] = _pick(pools[label], places.size, start=start, draw=draw, rng=rng, who=who)
            taken[label] += places.size
        clients.append(samples)
    return clients


def _pick(pool: Indices, count: int, *, start: int, draw: Draw, rng: np.random.Generator, who: str) -> Indices:
    left = pool.size - start
    if left < (1 if draw == "replacement" else count):
        raise DatasetError(
            f'{who}: needs {count} images, but {left} of {pool.size} are left with draw="{draw}"; {_ADVICE[draw]}'
        )
    match draw:
        case "disjoint":
            return pool[start : start + count]
        case "unique":
            return rng.choice(pool, size=count, replace=False)
        case "replacement":
            return pool[rng.integers(pool.size, size=count)]


def checked_sizes(sizes: tuple[int, int]) -> tuple[int, int]:
    """Return the smallest and the largest number of samples of a client, or say what is wrong with them."""
    if len(sizes) != 2:
        raise ConfigError(f"sizes must be (smallest, largest); got {sizes!r}")
    low, high = sizes
    check_at_least("the smallest client size", low, 1)
    check_at_least("the largest client size", high, low)
    return low, high


def check_at_least(what: str, value: Any, least: int) -> None:
    """Refuse a value that is no whole number of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ConfigError(f"{what} must be a whole number of at least {least}; got {value!r}")


def _choice(what: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ConfigError(f"{what}: unknown '{value}'{suggest(str(value), known)}")
