"""Bulyan: Krum again and again for the candidates, then a mean around the median in every coordinate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from mabrfl import vectors
from mabrfl.aggregation.coordinatewise import mean_around_median
from mabrfl.aggregation.distance import krum_scores, repeated_krum
from mabrfl.checks import check_choice, check_whole, outliers, quorum
from mabrfl.updates import Cohort, Decision

Candidacy = Literal["repeated", "single-pass"]


@dataclass(frozen=True, kw_only=True)
class Bulyan:
    r"""Bulyan (El Mhamdi et al., ICML 2018): repeated Krum, then a mean around the median of each coordinate.

    1. Krum chooses one update, which is set aside; again among the others, until :math:`\theta = n - 2f` are chosen.
    2. Coordinate j of the step is the mean of the :math:`\beta = \theta - 2f` values nearest to the median of the
       chosen updates' j-th coordinates.

    The theorem asks for n >= 4f + 3 updates. With fewer the rule goes on, with at least one value per coordinate, and
    records it. Of two updates with the same score, the one nearer to all others wins. As in Krum, the f highest scores
    of the first pass are reported as outliers, unless they were chosen.

    Public code deviates: Flower takes the :math:`\theta` best of a single pass, which is ``selection="single-pass"``;
    FLPoison keeps positions in the shrinking array as if they were those of clients; the package krum has
    :math:`\theta = n - 2f - 2` and a trimmed mean at the end.

    Parameters
    ----------
    num_malicious
        Bound on the malicious clients of the whole population; f is the cohort's share of it.
    selection
        ``"repeated"`` (the paper) or ``"single-pass"``.
    strict
        Raise :class:`~mabrfl.errors.QuorumError` instead of recording an event unless n >= 4f + 3.
    """

    num_malicious: int
    selection: Candidacy = "repeated"
    strict: bool = False

    def __post_init__(self) -> None:
        check_whole("Bulyan num_malicious", self.num_malicious)
        check_choice("Bulyan selection", self.selection, get_args(Candidacy))

    def __call__(self, cohort: Cohort, /) -> Decision:
        """Choose the candidates, and average what is nearest to their median."""
        events = quorum("bulyan", "n >= 4f+3", cohort, self.num_malicious, excess=3, strict=self.strict, times=4)
        n, f = len(cohort), cohort.expected_malicious(self.num_malicious)
        count = n - 2 * f
        scores = krum_scores(cohort.squared_distances, f)
        order = np.argsort(scores, kind="stable")
        chosen = order[:count]
        if self.selection == "repeated":
            chosen = repeated_krum(cohort.squared_distances, f, count, ties="nearest")
        rows, kept = np.sort(chosen), max(count - 2 * f, 1)
        return Decision(
            step=vectors.coordinatewise(cohort.matrix, lambda part: mean_around_median(part[rows], kept)),
            reasons=outliers(n, np.setdiff1d(order[n - f :], chosen)),
            evidence=[{"score": float(score), "chosen": int(row in chosen)} for row, score in enumerate(scores)],
            events=events,
            facts={"num_chosen": count, "num_averaged": kept},
        )
