"""Rules that measure: plain averaging that also reports on the updates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mabrfl.aggregation.averaging import FedAvg
from mabrfl.updates import Cohort, Decision


@dataclass(frozen=True, kw_only=True)
class SimilarityProbe:
    r"""Federated averaging that reports the similarity of the updates (Fig. 1b of the paper).

    The facts are, over all pairs of updates g_i, g_j: ``largest_cosine`` and ``mean_cosine``; ``largest_distance``
    and ``mean_distance``, the Euclidean distance :math:`\|g_i - g_j\|`; ``smallest_unit_distance`` and
    ``mean_unit_distance``, the same between unit vectors, which follows from the cosine:
    :math:`\|u_i - u_j\| = \sqrt{2 - 2 \cos_{ij}}`.

    Parameters
    ----------
    weighting
        Of the average, see :class:`~mabrfl.aggregation.FedAvg`.
    """

    weighting: Literal["examples", "uniform"] = "examples"

    def __post_init__(self) -> None:
        FedAvg(weighting=self.weighting)

    def __call__(self, cohort: Cohort, /) -> Decision:
        """Average the cohort, and measure it."""
        return replace(FedAvg(weighting=self.weighting)(cohort), facts=similarity(cohort))


def similarity(cohort: Cohort) -> dict[str, float]:
    """Return the similarity of a cohort's updates; nothing if fewer than two have a direction."""
    pairs = np.triu_indices(len(cohort), k=1)
    cosines: NDArray[np.float64] = cohort.cosines[pairs]
    usable = np.isfinite(cosines)
    if not usable.any():
        return {}
    cosines = np.clip(cosines[usable], -1.0, 1.0)
    distances = np.sqrt(np.maximum(cohort.squared_distances[pairs][usable], 0.0))
    between_units = np.sqrt(2.0 - 2.0 * cosines)
    return {
        "largest_cosine": float(cosines.max()),
        "mean_cosine": float(cosines.mean()),
        "largest_distance": float(distances.max()),
        "mean_distance": float(distances.mean()),
        "smallest_unit_distance": float(between_units.min()),
        "mean_unit_distance": float(between_units.mean()),
    }
