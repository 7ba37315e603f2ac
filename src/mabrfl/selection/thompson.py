"""Thompson-style selection from Beta beliefs (paper, Alg. 1 and Alg. 3)."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from mabrfl.checks import check_choice, check_whole
from mabrfl.errors import ConfigError
from mabrfl.rng import ClientId
from mabrfl.updates import Candidates, Selection


def beta_draws(candidates: Candidates, purpose: str = "belief") -> NDArray[np.float64]:
    r"""Draw :math:`p_k \sim \mathrm{Beta}(B_k, M_k)` for each candidate.

    By inversion of one uniform number per client, so that no client's draw depends on the others.
    """
    uniform = candidates.uniforms(purpose)
    return np.asarray(betaincinv(candidates.benign, candidates.malicious, uniform))


class ACS:
    r"""Adaptive client selection: client k takes part with probability p_k ~ Beta(B_k, M_k).

    Implements Alg. 3 of the paper. If nobody is drawn, a random non-empty subset takes part
    (lines 5-7), which is recorded as the event ``empty-selection``.

    Parameters
    ----------
    warmup_rounds, inclusion, always_from, never_to, empty_selection, first_round
        See :class:`mabrfl.mab.presets.MabRflOptions`.
    """

    def __init__(
        self,
        *,
        warmup_rounds: int = 0,
        inclusion: Literal["bernoulli", "cutoffs"] = "bernoulli",
        always_from: float = 0.9,
        never_to: float = 0.2,
        empty_selection: Literal["random-subset", "all"] = "random-subset",
        first_round: int = 1,
    ) -> None:
        check_choice("inclusion", inclusion, ("bernoulli", "cutoffs"))
        check_choice("empty_selection", empty_selection, ("random-subset", "all"))
        check_whole("warmup_rounds", warmup_rounds)
        check_whole("first_round", first_round, at_least=1)
        if not 0 <= never_to <= always_from <= 1:
            raise ConfigError(f"0 <= never_to <= always_from <= 1 must hold; got {never_to} and {always_from}")
        self.warmup_rounds = warmup_rounds
        self.inclusion = inclusion
        self.always_from = always_from
        self.never_to = never_to
        self.empty_selection = empty_selection
        self.first_round = first_round

    def __call__(self, candidates: Candidates) -> Selection:
        """Select; see the class."""
        ids = candidates.ids
        if candidates.round < self.first_round + self.warmup_rounds:
            return Selection(ids, events=("warm-up",))
        probability = beta_draws(candidates)
        drawn = candidates.uniforms("inclusion") < probability
        if self.inclusion == "cutoffs":
            drawn = (drawn & (probability > self.never_to)) | (probability >= self.always_from)
        if drawn.any() or not ids:
            return Selection(_those(ids, drawn))
        return Selection(self._when_empty(candidates), events=("empty-selection",))

    def _when_empty(self, candidates: Candidates) -> list[ClientId]:
        if self.empty_selection == "all":
            return list(candidates.ids)
        # Fair coins, thrown again while all show tails, are uniform over the non-empty subsets.
        attempt = 0
        while not (heads := candidates.uniforms(f"empty-selection-{attempt}") < 1 / 2).any():
            attempt += 1
        return _those(candidates.ids, heads)


class ThompsonTop:
    """Thompson sampling for several arms: the m clients with the largest draws from Beta(B_k, M_k).

    Alg. 1 of the paper, extended from one arm to m as its section on client selection discusses.

    Parameters
    ----------
    num_selected
        m, the number of clients per round; all of them if there are fewer.
    """

    def __init__(self, *, num_selected: int = 10) -> None:
        check_whole("num_selected", num_selected, at_least=1)
        self.num_selected = num_selected

    def __call__(self, candidates: Candidates) -> Selection:
        """Select; see the class."""
        draws = beta_draws(candidates)
        best = np.argsort(-draws, kind="stable")[: self.num_selected]
        return Selection([candidates.ids[k] for k in sorted(best)])


def _those(ids: tuple[ClientId, ...], mask: NDArray[np.bool_]) -> list[ClientId]:
    return [client for client, included in zip(ids, mask, strict=True) if included]
