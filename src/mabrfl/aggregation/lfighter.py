"""LFighter: two clusters of the output neurons that changed most."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mabrfl import vectors
from mabrfl.aggregation.clusters import k_means
from mabrfl.aggregation.kept_clients import mean_of_kept
from mabrfl.errors import ConfigError
from mabrfl.layout import Layout
from mabrfl.updates import Cohort, Decision


@dataclass(frozen=True, kw_only=True)
class LFighter:
    r"""LFighter (Jebreel, Domingo-Ferrer, Sánchez and Blanco-Justicia, Neural Networks 2024), against label flipping.

    1. In the output layer, find the two neurons whose weights and biases changed most, summed over clients: the source
       and the target class of a flip. (A layer of at most two neurons is taken whole.)
    2. Cluster the clients' changes of these neurons by 2-means.
    3. For each cluster: its share of the clients times :math:`1 - \overline{\min_j \cos_{ij}}`, the mean over its
       clients of the least cosine (0 at most) to the cluster. The cluster with the larger value is averaged: attackers
       are few, or alike.

    Needs attackers that are fewer than the honest clients, or more alike. It always splits: honest clients are rejected
    also when nobody attacks. The output layer is the last tensor of the layout with two dimensions or more; its bias is
    the vector behind it.
    """

    def __call__(self, cohort: Cohort, /) -> Decision:
        """Cluster by the output layer, keep one cluster."""
        changes, neurons = output_changes(cohort)
        largest = float(np.max(np.abs(changes), initial=0.0)) or 1.0
        changes = changes / largest
        labels, _ = k_means(changes, min(2, len(cohort)))
        if labels.max() == 0:
            return mean_of_kept(np.ones(len(cohort), dtype=bool))
        cosines = vectors.cosines(changes @ changes.T)
        values = [_dissimilarity(cosines, labels == label) for label in (0, 1)]
        kept = labels == int(values[0] < values[1])
        return mean_of_kept(
            kept,
            scores={"cluster": labels},
            facts={"neurons": [int(neuron) for neuron in neurons], "dissimilarities": values},
        )


def output_changes(cohort: Cohort) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Return each client's change of the two output neurons that changed most, and which these are."""
    if cohort.layout is None:
        raise ConfigError("LFighter needs the layers of the model: Updates(ids, matrix, layout=...)")
    columns, bias, outputs = output_layer(cohort.layout)
    weights = cohort.matrix[:, columns].astype(np.float64).reshape(len(cohort), outputs, -1)
    changed = np.linalg.norm(weights, axis=2).sum(axis=0)
    if bias is not None:
        changed = changed + np.abs(cohort.matrix[:, bias].astype(np.float64)).sum(axis=0)
    neurons = np.sort(np.argsort(changed, kind="stable")[-2:])
    return weights[:, neurons].reshape(len(cohort), -1), neurons


def output_layer(layout: Layout) -> tuple[slice, slice | None, int]:
    """Return the columns of the output layer's weights and of its bias, if any, and the number of its neurons."""
    names = list(layout.shapes)
    matrices = [name for name in names if len(layout.shapes[name]) >= 2 and 0 not in layout.shapes[name]]
    if not matrices:
        raise ConfigError("LFighter needs an output layer; no tensor of the layout has two dimensions")
    weight = matrices[-1]
    outputs, behind = layout.shapes[weight][0], names[names.index(weight) + 1 :]
    bias = layout.slices[behind[0]] if behind and layout.shapes[behind[0]] == (outputs,) else None
    return layout.slices[weight], bias, outputs


def _dissimilarity(cosines: NDArray[np.float64], members: NDArray[np.bool_]) -> float:
    inner = cosines[np.ix_(members, members)].copy()
    np.fill_diagonal(inner, 0.0)
    return float(members.mean() * (1 - inner.min(axis=1).mean()))
