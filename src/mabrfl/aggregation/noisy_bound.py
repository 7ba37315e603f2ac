"""Norm bound with noise, also called weak differential privacy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import numpy as np

from mabrfl import vectors
from mabrfl.aggregation.clipping import RadiusUnit
from mabrfl.aggregation.flame import add_noise
from mabrfl.aggregation.preaggregators import clip_factors
from mabrfl.checks import check_choice, check_positive
from mabrfl.updates import Cohort, Decision


@dataclass(frozen=True, kw_only=True)
class NoisyNormBound:
    r"""Norm bound and noise, "weak DP" (Sun et al., 2019): clipped updates are averaged, and noise is added.

    .. math:: g = \frac1n \sum_i x_i \min(1, c / \lVert x_i \rVert) + N(0, \sigma^2)

    Made against backdoors by few and loud attackers. It judges no client, and a majority direction of attackers passes.
    Without noise it is :class:`~mabrfl.aggregation.NormBound` before the mean.

    Parameters
    ----------
    bound, bound_unit
        c; see :class:`~mabrfl.aggregation.NormBound`.
    noise
        The standard deviation of each coordinate in units of c. (The paper's c and sigma are numbers per task, sigma
        far too small for a guarantee of privacy.)
    """

    bound: float = 1.0
    bound_unit: RadiusUnit = "median-norm"
    noise: float = 0.001

    def __post_init__(self) -> None:
        check_positive("NoisyNormBound bound", self.bound)
        check_choice("NoisyNormBound bound_unit", self.bound_unit, get_args(RadiusUnit))
        check_positive("NoisyNormBound noise", self.noise, or_zero=True)

    def __call__(self, cohort: Cohort, /) -> Decision:
        """Clip, average, add noise."""
        bound = self.bound * (1.0 if self.bound_unit == "absolute" else float(np.median(cohort.norms)))
        factors = clip_factors(cohort.norms, bound)
        step = vectors.combine(factors / len(cohort), cohort.matrix)
        if self.noise:
            step = add_noise(step, self.noise * bound, cohort.rng("noisy-norm-bound"))
        evidence = [{"clip": float(factor)} for factor in factors]
        return Decision(step=step, evidence=evidence, facts={"bound": bound, "num_bounded": int(np.sum(factors < 1))})
