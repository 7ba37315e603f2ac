"""The median of means: groups of clients are averaged, and the centre of the means is the step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from mabrfl.aggregation.clipping import GeometricMedian
from mabrfl.aggregation.coordinatewise import Median
from mabrfl.aggregation.mixing import Mixing, PreAggregated
from mabrfl.checks import check_choice, check_whole
from mabrfl.rng import uniforms
from mabrfl.updates import Cohort, Decision

Centre = Literal["geometric", "coordinate"]


@dataclass(frozen=True, kw_only=True)
class MedianOfMeans:
    """Median of means (Chen, Su and Xu, SIGMETRICS 2018): the geometric median of the means of k groups.

    The clients are dealt into k groups whose sizes differ by one at most, and each group is averaged. Up to f groups
    contain malicious clients, so that k > 2f is needed; the paper takes k = 2 (1 + epsilon) f. The paper's groups are
    fixed; here they are drawn anew each round from a stream named by seed and round. It is
    :class:`~mabrfl.aggregation.Bucketing` with a number of buckets instead of their size. Judges no client.

    Parameters
    ----------
    num_malicious
        Bound on the malicious clients of the whole population; f is the cohort's share of it.
    num_groups
        k; 2f + 1 if left out. At most one group per client.
    centre
        ``"geometric"`` median (the paper), or the ``"coordinate"``-wise median of the means.
    """

    num_malicious: int
    num_groups: int | None = None
    centre: Centre = "geometric"

    def __post_init__(self) -> None:
        check_whole("MedianOfMeans num_malicious", self.num_malicious)
        check_choice("MedianOfMeans centre", self.centre, get_args(Centre))
        if self.num_groups is not None:
            check_whole("MedianOfMeans num_groups", self.num_groups, at_least=1)

    def __call__(self, cohort: Cohort, /) -> Decision:
        """Average groups, and take the median of their means."""
        f = cohort.expected_malicious(self.num_malicious)
        wanted = 2 * f + 1 if self.num_groups is None else self.num_groups
        count = min(wanted, len(cohort))
        rule = GeometricMedian() if self.centre == "geometric" else Median()
        decision = PreAggregated(rule, [lambda rows: _groups(rows, count)])(cohort)
        if count > 2 * f:
            return decision
        few = f"median-of-means-precondition: k > 2f; k={count}, f={f}"
        return Decision(
            weights=decision.weights,
            step=decision.step,
            evidence=decision.evidence,
            events=(*decision.events, few),
            facts=decision.facts,
        )


def _groups(cohort: Cohort, count: int) -> Mixing:
    order = np.argsort(uniforms(cohort.seed, "median-of-means", cohort.round, cohort.ids), kind="stable")
    weights = np.zeros((count, len(cohort)))
    for group, members in enumerate(np.array_split(order, count)):
        weights[group, members] = 1.0 / len(members)
    return Mixing(weights, facts={"num_groups": count})
