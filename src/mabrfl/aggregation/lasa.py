"""LASA: each layer is averaged over the clients whose norm and signs in that layer are not unusual."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import numpy as np

from mabrfl import vectors
from mabrfl.aggregation.preaggregators import clip_factors
from mabrfl.aggregation.robust_scores import Spread, median_scores
from mabrfl.checks import check_choice, check_positive, outliers
from mabrfl.errors import ConfigError
from mabrfl.updates import Cohort, Decision


@dataclass(frozen=True, kw_only=True)
class LASA:
    r"""Layer-adaptive sparsified aggregation (Xu, Zhang and Hu, WACV 2025): a filter in each layer.

    1. Scale updates longer than the median norm down to it.
    2. Of each update look at the share 1 - s of coordinates with the largest magnitudes.
    3. In each tensor of the model: the norm, and the balance of signs
       :math:`\rho_i = \frac12 (1 + (1 - s) \sum \operatorname{sign} / \sum |\operatorname{sign}|)`. Clients whose
       distances to the medians of both are below :math:`\lambda_n` and :math:`\lambda_s` standard deviations pass.
    4. The tensor's step is the mean of the clipped (not sparsified) updates of those that pass; of all, if nobody does.

    FLPoison filters the updates before it clips them; the authors clip first. A client that passes in no tensor is
    reported as an outlier. Without a layout the whole vector is one tensor. Needs an honest majority.

    Parameters
    ----------
    sparsity
        s. The authors' code sparsifies weights only, biases not; here all coordinates are treated alike.
    norm_bound, sign_bound
        :math:`\lambda_n` and :math:`\lambda_s`.
    spread
        ``"std"`` (the authors), or ``"mad"``; see :func:`~mabrfl.aggregation.robust_scores.median_scores`.
    """

    sparsity: float = 0.3
    norm_bound: float = 1.0
    sign_bound: float = 1.0
    spread: Spread = "std"

    def __post_init__(self) -> None:
        check_positive("LASA sparsity", self.sparsity, or_zero=True)
        if self.sparsity >= 1:
            raise ConfigError(f"LASA sparsity must be less than 1; got {self.sparsity}")
        check_positive("LASA norm_bound", self.norm_bound)
        check_positive("LASA sign_bound", self.sign_bound)
        check_choice("LASA spread", self.spread, get_args(Spread))

    def __call__(self, cohort: Cohort, /) -> Decision:
        """Filter and average tensor by tensor."""
        n, width = cohort.matrix.shape
        tensors = {"all": slice(0, width)} if cohort.layout is None else cohort.layout.slices
        factors = clip_factors(cohort.norms, float(np.median(cohort.norms)))
        kept_count = max(int(width * (1 - self.sparsity)), 1)
        thresholds = vectors.magnitude_thresholds(cohort.matrix, kept_count)
        squares, balances = vectors.sparse_statistics(cohort.matrix, list(tensors.values()), thresholds)
        step = np.zeros(width, dtype=cohort.matrix.dtype)
        passed = np.zeros(n)
        for columns, square, balance in zip(tensors.values(), squares, balances, strict=True):
            norms = np.sqrt(square) * factors
            fine = median_scores(norms, self.spread) < self.norm_bound
            fine &= median_scores((1 - self.sparsity) * balance / 2, self.spread) < self.sign_bound
            passed += fine
            rows = fine if fine.any() else np.ones(n, dtype=bool)
            step[columns] = vectors.combine(rows / rows.sum() * factors, cohort.matrix[:, columns])
        shares = passed / len(tensors)
        nobody = not passed.any()
        return Decision(
            step=step,
            reasons=outliers(n, [] if nobody else np.flatnonzero(passed == 0)),
            evidence=[{"share_of_tensors": float(share)} for share in shares],
            events=("lasa-nobody-passed: all are averaged",) if nobody else (),
        )
