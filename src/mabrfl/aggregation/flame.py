"""FLAME: the majority cluster of directions, clipped to the median norm, with a little noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from mabrfl import vectors
from mabrfl.aggregation.clusters import majority_cluster
from mabrfl.aggregation.kept_clients import mean_of_kept
from mabrfl.aggregation.preaggregators import clip_factors
from mabrfl.checks import check_choice, check_positive
from mabrfl.errors import ConfigError
from mabrfl.updates import Cohort, Decision, Floats

Compared = Literal["models", "updates"]


def add_noise(step: Floats, deviation: float, rng: np.random.Generator) -> Floats:
    """Return the step with independent Gaussian noise of this standard deviation on each coordinate."""
    return np.asarray(step + (deviation * rng.standard_normal(step.shape)).astype(step.dtype), dtype=step.dtype)


def model_cosines(cohort: Cohort) -> NDArray[np.float64]:
    r"""Return the cosines between the clients' models, :math:`w + x_i`, from the Gram matrix of their updates.

    Raises
    ------
    ConfigError
        If the updates came without the global model.
    """
    if cohort.global_weights is None:
        raise ConfigError("the clients' models need the global one: Updates(ids, matrix, global_weights=...)")
    weights = cohort.global_weights
    across = vectors.products(cohort.matrix, weights, cohort.norms)
    square = float(vectors.row_norms(weights[None])[0]) ** 2
    return vectors.cosines(cohort.gram + across[:, None] + across + square)


@dataclass(frozen=True, kw_only=True)
class FLAME:
    r"""FLAME (Nguyen et al., USENIX Security 2022): cluster by cosine, clip to the median norm, add noise.

    1. HDBSCAN with a least cluster size of n / 2 + 1 on the cosine distances between the clients' *models*. It finds
       one cluster; the others are outliers. With this size it is single linkage until the first majority,
       :func:`~mabrfl.aggregation.clusters.majority_cluster`.
    2. Updates longer than :math:`S_t`, the median norm of all updates, are scaled to :math:`S_t`, and averaged.
    3. :math:`N(0, \sigma^2)` with :math:`\sigma = \lambda S_t` is added to each coordinate.

    Needs an honest majority. Cosines of whole models are near 1 when updates are small: ``compared="updates"`` looks at
    the updates themselves, as most public code does. (BackFed clusters the last layer only; FLPoison multiplies the
    noise by the standard deviation of each layer.)

    Parameters
    ----------
    compared
        ``"models"`` (the paper; needs the global model, which the simulator and the Flower strategy pass on) or
        ``"updates"``.
    noise
        :math:`\lambda`. The paper has 0.001 for images and text, and 0.01 for network traffic. In d coordinates the
        noise is :math:`\lambda \sqrt d` times as long as the median update. 0 adds none.
    """

    compared: Compared = "models"
    noise: float = 0.001

    def __post_init__(self) -> None:
        check_choice("FLAME compared", self.compared, get_args(Compared))
        check_positive("FLAME noise", self.noise, or_zero=True)

    def __call__(self, cohort: Cohort, /) -> Decision:
        """Keep the majority cluster, clip, average, and add noise."""
        n, bound = len(cohort), float(np.median(cohort.norms))
        cosines = model_cosines(cohort) if self.compared == "models" else cohort.cosines
        distances = np.clip(1 - cosines, 0, None)
        np.fill_diagonal(distances, 0.0)
        kept = majority_cluster(distances, n // 2 + 1)
        decision = mean_of_kept(
            kept,
            scale=clip_factors(cohort.norms, bound),
            scores={"norm": cohort.norms, "median_cosine": np.median(cosines, axis=1)},
            facts={"bound": bound, "num_kept": int(kept.sum())},
        )
        if not self.noise or decision.weights is None:
            return decision
        step = add_noise(vectors.combine(decision.weights, cohort.matrix), self.noise * bound, cohort.rng("flame"))
        return Decision(step=step, reasons=decision.reasons, evidence=decision.evidence, facts=decision.facts)
