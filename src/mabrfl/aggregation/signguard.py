"""SignGuard: updates with unusual norms or unusual shares of signs are left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from mabrfl.aggregation.clusters import estimate_bandwidth, mean_shift
from mabrfl.aggregation.kept_clients import mean_of_kept
from mabrfl.aggregation.preaggregators import clip_factors
from mabrfl.checks import check_choice, check_positive
from mabrfl.updates import Cohort, Decision

Coordinates = Literal["random", "window"]
Likeness = Literal["none", "cosine"]


@dataclass(frozen=True, kw_only=True)
class SignGuard:
    r"""SignGuard (Xu et al., ICDCS 2022): filters by norm and by the shares of positive, zero and negative signs.

    1. Keep clients with :math:`L \cdot m < \lVert x_i \rVert < R \cdot m`, m being the median norm.
    2. On a random tenth of the coordinates, count each client's shares of +, 0 and - signs, divide each share by its
       largest value, and cluster by mean shift with the bandwidth of half of the clients. Keep the largest cluster.
    3. Average those that both filters keep, each scaled to norm m at most.

    Needs an honest majority. If nobody is left, the norm filter alone decides, and the event ``signguard-disjoint`` is
    recorded. Public code differs in the clustering: FLPoison has DBSCAN by default, Blades 2-means. The authors' mean
    shift begins on a grid (``bin_seeding``), ours at every client: 39 of 50 inputs of ``docs/conformance.md`` are
    equal. The authors and FL-Byzantine-Library clip to the lower median of an even number of norms.

    Parameters
    ----------
    lower, upper
        L and R.
    share
        The share of the coordinates that is looked at.
    coordinates
        ``"random"`` ones (the paper), or a ``"window"`` of neighbours at a random place, as in the authors' code.
    likeness
        ``"cosine"`` adds the median cosine to the other clients as a feature, cut to its median and divided by five
        times that (SignGuard-Sim; after the first rounds the authors compare with the last step instead).
    """

    lower: float = 0.1
    upper: float = 3.0
    share: float = 0.1
    coordinates: Coordinates = "random"
    likeness: Likeness = "none"

    def __post_init__(self) -> None:
        check_positive("SignGuard lower", self.lower, or_zero=True)
        check_positive("SignGuard upper", self.upper)
        check_positive("SignGuard share", self.share)
        check_choice("SignGuard coordinates", self.coordinates, get_args(Coordinates))
        check_choice("SignGuard likeness", self.likeness, get_args(Likeness))

    def __call__(self, cohort: Cohort, /) -> Decision:
        """Filter, clip, average."""
        middle = float(np.median(cohort.norms))
        by_norm = (cohort.norms > self.lower * middle) & (cohort.norms < self.upper * middle)
        if not by_norm.any():  # all norms are zero
            by_norm = np.ones(len(cohort), dtype=bool)
        features = self._features(cohort)
        bandwidth = estimate_bandwidth(features, 0.5)
        by_sign = np.ones(len(cohort), dtype=bool)
        if bandwidth > 0:
            labels = mean_shift(features, bandwidth)
            by_sign = labels == np.argmax(np.bincount(labels[labels >= 0]))
        kept = by_norm & by_sign
        events: tuple[str, ...] = ()
        if not kept.any():
            kept, events = by_norm, ("signguard-disjoint: only the norm filter is used",)
        return mean_of_kept(
            kept,
            scale=clip_factors(cohort.norms, middle),
            scores={"norm": cohort.norms, "positive": features[:, 0], "negative": features[:, 2]},
            events=events,
            facts={"rejected_by_norm": int(np.sum(~by_norm)), "rejected_by_sign": int(np.sum(~by_sign))},
        )

    def _features(self, cohort: Cohort) -> NDArray[np.float64]:
        width = cohort.matrix.shape[1]
        count = min(max(int(self.share * width), 1), width)
        rng = cohort.rng("signguard")
        if self.coordinates == "window":
            first = int(rng.integers(0, width - count + 1))
            sample = cohort.matrix[:, first : first + count]
        else:
            chosen = np.sort(rng.choice(width, count, replace=False, shuffle=False))
            sample = np.take(cohort.matrix, chosen, axis=1)
        kinds = (sample > 0, sample == 0, sample < 0)
        shares = np.stack([kind.mean(axis=1) for kind in kinds], axis=1)
        features = shares / (shares.max(axis=0) + 1e-8)
        if self.likeness == "none":
            return np.asarray(features)
        likeness = np.median(cohort.cosines, axis=1)
        middle = float(np.median(likeness))
        return np.column_stack([features, np.clip(likeness, 0, max(middle, 0)) / (5 * max(middle, 0) + 1e-8)])
