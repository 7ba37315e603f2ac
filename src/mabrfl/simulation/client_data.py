"""The training data of each client and of the server, from the settings of a run."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mabrfl import catalog
from mabrfl.config import ResolvedConfig
from mabrfl.errors import ConfigError
from mabrfl.rng import generator
from mabrfl.simulation.data import Dataset
from mabrfl.simulation.data.dealing import gamma_similarity, quantity_skew, shards
from mabrfl.simulation.data.local_data import PoorData, localised
from mabrfl.simulation.data.partition import Indices, dirichlet, dominant_label, iid

ROOT_EXAMPLES = 100
"""The size of the server's own data, unless the defense has an option ``root_examples``."""


def client_data(
    run: ResolvedConfig, dataset: Dataset, attackers: Collection[int]
) -> tuple[Dataset, list[Indices], Indices | None]:
    """Return the data set, which examples each client has, and which the server has.

    It is another data set than the given one if the run has a feature shift or label noise.
    """
    partition = partition_of(run, dataset)
    root = root_of(run, dataset, partition)
    poor = PoorData(**run.partition.model_dump(include={each.name for each in fields(PoorData)}))
    return localised(dataset, partition, root, poor, attackers=attackers, seed=run.seed)


def partition_of(run: ResolvedConfig, dataset: Dataset) -> list[Indices]:
    """Return which training examples each client of a run has."""
    chosen, labels = run.partition, dataset.train_labels
    shared: dict[str, Any] = {
        "num_classes": dataset.num_classes,
        "num_clients": run.clients,
        "sizes": chosen.sizes,
        "seed": run.seed,
    }
    match chosen.kind:
        case "shards":
            return shards(labels, per_client=chosen.shards, **shared)
        case "quantity-skew":
            return quantity_skew(labels, concentration=chosen.concentration, **shared)
        case "gamma-similarity":
            return gamma_similarity(labels, gamma=chosen.gamma, **shared)
        case "iid":
            return iid(labels, draw=chosen.draw, **shared)
        case "dirichlet":
            return dirichlet(labels, concentration=chosen.concentration, draw=chosen.draw, **shared)
        case "dominant-label":
            options: dict[str, Any] = {"draw": chosen.draw, "skip_last": chosen.skip_last}
            return dominant_label(labels, q=chosen.q, dominant=chosen.dominant, **options, **shared)


def root_of(run: ResolvedConfig, dataset: Dataset, partition: Sequence[NDArray[np.int64]]) -> NDArray[np.int64] | None:
    """Return the server's own training examples, which no client has; None if the defense of a run needs none.

    Raises
    ------
    ConfigError
        If too few examples are left.
    """
    if "root-data" not in catalog.entry("defenses", run.defense).needs:
        return None
    wanted = run.defense_options.get("root_examples", ROOT_EXAMPLES)
    left = np.setdiff1d(np.arange(len(dataset.train_labels)), np.concatenate(partition))
    if not isinstance(wanted, int) or wanted < 1 or len(left) < wanted:
        raise ConfigError(
            f"defense '{run.defense}' needs {wanted} training examples that no client has; "
            f"{len(left)} of {len(dataset.train_labels)} are left (fewer clients or smaller partition.sizes leave more)"
        )
    chosen = generator(run.seed, "root").choice(left, wanted, replace=False)
    return np.sort(chosen).astype(np.int64)
