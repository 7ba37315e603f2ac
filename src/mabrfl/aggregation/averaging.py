"""Federated averaging: the rule without a defense, and a variant that measures the updates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mabrfl.checks import check_choice
from mabrfl.updates import Cohort, Decision


def example_weights(num_examples: NDArray[Any]) -> NDArray[np.float64]:
    """Return each client's share of all examples, ``n_k / n``; equal shares if there are none.

    A count that is negative or not finite counts as zero.

    Examples
    --------
    >>> example_weights(np.array([10, 30, 60]))
    array([0.1, 0.3, 0.6])
    >>> example_weights(np.array([0, 0]))
    array([0.5, 0.5])
    """
    counts = np.asarray(num_examples, dtype=np.float64)
    counts = np.where(np.isfinite(counts) & (counts > 0), counts, 0.0)
    largest = counts.max(initial=0.0)
    if largest == 0:
        return np.full(len(counts), 1.0 / len(counts))
    # Scaling by the largest first: the sum of a few absurd counts must not overflow.
    counts = counts / largest
    return np.asarray(counts / counts.sum())


@dataclass(frozen=True, kw_only=True)
class FedAvg:
    r"""Federated averaging (McMahan et al., AISTATS 2017; Eq. 1 of the MAB-RFL paper).

    .. math:: g = \sum_k w_k g_k, \qquad w_k = n_k / \textstyle\sum_j n_j
       \quad\text{or}\quad w_k = 1/n

    It believes everybody, and everybody's word about the number of examples too: under
    ``weighting="examples"`` a client that claims many examples has that much more influence.

    Parameters
    ----------
    weighting
        ``"examples"`` (Eq. 1) or ``"uniform"``.
    """

    weighting: Literal["examples", "uniform"] = "examples"

    def __post_init__(self) -> None:
        check_choice("FedAvg weighting", self.weighting, ("examples", "uniform"))

    def __call__(self, cohort: Cohort, /) -> Decision:
        """Average the cohort."""
        counts = cohort.num_examples if self.weighting == "examples" else np.ones(len(cohort))
        weights = example_weights(counts)
        events = () if np.any(counts > 0) else ("no-examples: every client weighs the same",)
        return Decision(weights=weights, evidence=[{"weight": float(w)} for w in weights], events=events)


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
