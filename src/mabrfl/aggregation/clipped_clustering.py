"""Clipped clustering: updates clipped to the median norm so far, and the larger of two clusters by cosine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from mabrfl.aggregation.kept_clients import mean_of_kept
from mabrfl.aggregation.preaggregators import clip_factors
from mabrfl.checks import check_choice
from mabrfl.errors import StateError
from mabrfl.updates import Cohort, Decision

Linkage = Literal["average", "complete", "single"]


def larger_of_two(distances: NDArray[np.float64], method: Linkage) -> NDArray[np.bool_]:
    """Mark the larger of two clusters; of clusters of one size the one whose members are nearer to each other.

    Examples
    --------
    >>> points = np.array([0.0, 1.0, 2.0, 9.0, 10.0])
    >>> larger_of_two(np.abs(points[:, None] - points), "average")
    array([ True,  True,  True, False, False])
    """
    if len(distances) <= 2 or not distances.any():
        return np.ones(len(distances), dtype=bool)
    labels = fcluster(linkage(squareform(distances, checks=False), method), 2, "maxclust")
    groups = [labels == label for label in np.unique(labels)]
    return max(groups, key=lambda group: (group.sum(), -distances[np.ix_(group, group)].mean()))


@dataclass(kw_only=True)
class ClippedClustering:
    """Clipped clustering (Li, Ngai and Voigt, IEEE Trans. on Big Data 2023): the larger of two clusters by cosine.

    1. Updates longer than the median of all norms so far, of this round and of earlier ones, are scaled down to it.
    2. Hierarchical clustering of the cosine distances ends at two clusters. The mean of the larger one is the step.

    Clipping does not change cosines, so the clusters are those of the updates themselves. It always rejects somebody,
    also where nobody attacks, and needs an honest majority of clients that are alike.

    Parameters
    ----------
    linkage
        ``"average"``; ``"complete"`` as in Blades 0.0.13, or ``"single"``.
    """

    linkage: Linkage = "average"
    _norms: list[float] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_choice("ClippedClustering linkage", self.linkage, get_args(Linkage))

    def __call__(self, cohort: Cohort, /) -> Decision:
        """Cluster, clip and average."""
        self._norms += cohort.norms.tolist()
        bound = float(np.median(self._norms))
        distances = np.clip(1 - cohort.cosines, 0, 2)
        np.fill_diagonal(distances, 0.0)
        kept = larger_of_two(distances, self.linkage)
        return mean_of_kept(
            kept,
            scale=clip_factors(cohort.norms, bound),
            scores={"norm": cohort.norms, "median_cosine": np.median(cohort.cosines, axis=1)},
            facts={"bound": bound, "num_kept": int(kept.sum())},
        )

    def state_dict(self) -> dict[str, Any]:
        """Return all norms so far."""
        return {"norms": np.array(self._norms)}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Restore what :meth:`state_dict` returned."""
        norms = np.asarray(state.get("norms"))
        if set(state) != {"norms"} or norms.ndim != 1 or norms.dtype.kind != "f" or not np.all(norms >= 0):
            raise StateError(f"ClippedClustering: the state must have 'norms', numbers from 0; got {sorted(state)}")
        self._norms = norms.tolist()
