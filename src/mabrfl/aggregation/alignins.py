"""AlignIns: clients whose direction or principal signs are unusual are left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from mabrfl import vectors
from mabrfl.aggregation.kept_clients import mean_of_kept
from mabrfl.aggregation.preaggregators import clip_factors
from mabrfl.aggregation.robust_scores import Spread, median_scores
from mabrfl.checks import check_choice, check_positive
from mabrfl.errors import ConfigError
from mabrfl.updates import Cohort, Decision


@dataclass(frozen=True, kw_only=True)
class AlignIns:
    r"""Alignment inspection (Xu, Zhang and Hu, CVPR 2025): two measures of direction, then clipping.

    1. Temporal direction: the cosine between each update and the global model's weights.
    2. Principal signs: among the share s of each update's coordinates with the largest magnitudes, the share whose sign
       is that of the majority of all updates.
    3. Clients whose distance to the median is below :math:`\lambda` standard deviations in both are kept. They are
       scaled to the median of their norms and averaged.

    If nobody is kept (with two clients nobody ever is) those with the least of the larger score are, and the event
    ``alignins-nobody-kept`` is recorded; the authors' code makes no step then. Needs an honest majority.

    Parameters
    ----------
    share
        s, called sparsity by the authors.
    direction_bound, sign_bound
        :math:`\lambda_c` and :math:`\lambda_s`.
    spread
        ``"std"`` (the authors), or ``"mad"``; see :func:`~mabrfl.aggregation.robust_scores.median_scores`.
    """

    share: float = 0.3
    direction_bound: float = 1.0
    sign_bound: float = 1.0
    spread: Spread = "std"

    def __post_init__(self) -> None:
        check_positive("AlignIns share", self.share)
        check_positive("AlignIns direction_bound", self.direction_bound)
        check_positive("AlignIns sign_bound", self.sign_bound)
        check_choice("AlignIns spread", self.spread, get_args(Spread))

    def __call__(self, cohort: Cohort, /) -> Decision:
        """Keep clients that are usual in both measures."""
        directions = weight_cosines(cohort)
        width = cohort.matrix.shape[1]
        thresholds = vectors.magnitude_thresholds(cohort.matrix, min(max(int(width * self.share), 1), width))
        signs = vectors.sign_agreement(cohort.matrix, thresholds)
        scores = median_scores(directions, self.spread) / self.direction_bound
        scores = np.maximum(scores, median_scores(signs, self.spread) / self.sign_bound)
        kept = scores < 1
        events: tuple[str, ...] = ()
        if not kept.any():
            kept = scores <= scores.min() * (1 + 1e-9)
            events = ("alignins-nobody-kept: those nearest to the medians are averaged",)
        return mean_of_kept(
            kept,
            scale=clip_factors(cohort.norms, float(np.median(cohort.norms[kept]))),
            scores={"direction": directions, "sign_agreement": signs, "score": scores},
            events=events,
        )


def weight_cosines(cohort: Cohort) -> NDArray[np.float64]:
    """Return the cosine of each update with the global model's weights; 0 where either is zero."""
    if cohort.global_weights is None:
        raise ConfigError("AlignIns needs the global model: Updates(ids, matrix, global_weights=...)")
    length = float(vectors.row_norms(cohort.global_weights[None])[0])
    across = vectors.products(cohort.matrix, cohort.global_weights, cohort.norms)
    sizes = cohort.norms * length
    return np.divide(across, sizes, out=np.zeros(len(cohort)), where=sizes > 0)
