"""The robust learning rate: coordinates on whose sign too few clients agree go the other way."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mabrfl import vectors
from mabrfl.checks import check_whole
from mabrfl.updates import Cohort, Decision, Floats


def signed_mean(part: Floats, threshold: int) -> Floats:
    """Return the mean of each column, negated where the signs add up to less than the threshold.

    Examples
    --------
    >>> signed_mean(np.array([[1.0, 1.0], [2.0, -4.0], [3.0, 0.0]]), 2)
    array([2., 1.])
    """
    agreement = np.abs(np.sign(part).sum(axis=0))
    mean = np.mean(part, axis=0, dtype=np.float64)
    return np.asarray(np.where(agreement >= threshold, mean, -mean), dtype=part.dtype)


@dataclass(frozen=True, kw_only=True)
class RobustLearningRate:
    r"""Robust learning rate (Ozdayi, Kantarcioglu and Gel, AAAI 2021): disputed coordinates are stepped backwards.

    .. math:: g[j] = \eta_j \frac1n \sum_i x_i[j], \qquad
       \eta_j = 1 \text{ if } \Big| \sum_i \operatorname{sign} x_i[j] \Big| \ge \theta, \text{ else } -1

    Made against backdoors by a few clients: on the coordinates that carry it only they agree. The mean itself is not
    bounded: the paper combines it with a norm bound and noise (``--before norm-bound``). Judges no client.

    Parameters
    ----------
    num_malicious
        Bound on the malicious clients of the whole population; f is the cohort's share of it.
    threshold
        :math:`\theta`. The paper recommends f + 1 to n - f; f + 1 if left out.
    """

    num_malicious: int
    threshold: int | None = None

    def __post_init__(self) -> None:
        check_whole("RobustLearningRate num_malicious", self.num_malicious)
        if self.threshold is not None:
            check_whole("RobustLearningRate threshold", self.threshold)

    def __call__(self, cohort: Cohort, /) -> Decision:
        """Average, and reverse what too few agree on."""
        f = cohort.expected_malicious(self.num_malicious)
        threshold = f + 1 if self.threshold is None else self.threshold
        step = vectors.coordinatewise(cohort.matrix, lambda part: signed_mean(part, threshold))
        return Decision(step=step, facts={"threshold": threshold})
