"""A fixed number of clients per round: the most credible ones, and some that are hardly known."""

from __future__ import annotations

import math

import numpy as np

from mabrfl.checks import check_whole
from mabrfl.errors import ConfigError
from mabrfl.selection.thompson import beta_draws
from mabrfl.updates import Candidates, Selection


class Budgeted:
    """m clients per round: those with the largest draws from Beta(B_k, M_k), and a share for the least known.

    Like :class:`~mabrfl.selection.thompson.ThompsonTop`, but a newcomer does not have to beat clients
    of long standing to be seen at all.

    Parameters
    ----------
    num_selected
        m, the number of clients per round; all of them if there are fewer.
    explore
        Share of the budget that does not go by draws (a fraction of a place is one place in that fraction of the
        rounds, by lot): in odd rounds to the clients about which
        least is known (the smallest B + M, among those not believed to be malicious, M <= 2 B; ties by
        lot), in even rounds by lot, so that nobody is shut out for good.
    """

    def __init__(self, *, num_selected: int = 10, explore: float = 0.1) -> None:
        check_whole("num_selected", num_selected, at_least=1)
        if isinstance(explore, bool) or not 0 <= explore <= 1:
            raise ConfigError(f"explore must lie in [0, 1]; got {explore!r}")
        self.num_selected = num_selected
        self.explore = explore

    def __call__(self, candidates: Candidates) -> Selection:
        """Select; see the class."""
        n = len(candidates.ids)
        budget = min(self.num_selected, n)
        known = candidates.benign + candidates.malicious
        lot = candidates.uniforms("explore")
        hopeful = np.flatnonzero(candidates.malicious <= 2 * candidates.benign)
        order = np.argsort(lot) if candidates.round % 2 == 0 else hopeful[np.lexsort((lot[hopeful], known[hopeful]))]
        places = math.floor(self.explore * budget + candidates.rng("explore-places").uniform())
        explored = order[: min(places, len(order))]
        draws = beta_draws(candidates)
        draws[explored] = np.inf
        best = np.argsort(-draws, kind="stable")[:budget]
        return Selection([candidates.ids[k] for k in sorted(best)])
