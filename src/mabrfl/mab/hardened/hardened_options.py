"""The options of the preset ``hardened``. No default depends on the data set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mabrfl.checks import check_options

_MANY = 10**9
_TINY = 1e-9


@dataclass(frozen=True, kw_only=True)
class HardenedOptions:
    """All options of the hardened method. Each mechanism can be switched off by itself.

    Attributes
    ----------
    warmup_rounds
        Rounds at the start in which every client is selected.
    inclusion, always_from, never_to, empty_selection, first_round
        Of the selector, as in :class:`mabrfl.mab.presets.MabRflOptions`.
    budget
        Clients per round; 0 leaves the number to the selector's draws.
    explore
        Share of the budget that goes to the clients judged least often.
    prior_benign, prior_malicious
        Belief in a client that was there from the start, before it was ever judged.
    newcomer_benign, newcomer_malicious
        Belief in a client that joins later: on probation.
    keep_good
        What is left of B after each acceptance, before 1 is added; 1 never forgets.
    strike
        What is left of B after each rejection; 1 is the paper's rule.
    forgive
        What is left of M after each acceptance; 1 never forgives.
    copy_similarity
        Two updates are copies if the cosine of their residuals is at least this; 0 switches the test off.
    copy_vectors
        Compare the ``residual`` of each update (less the trusted mean of all), or the ``raw`` update.
    grouping
        Copies are groups in which ``all-pairs`` are alike (complete linkage), or ``chains``
        (connected components, as in the paper).
    majority_guard
        Reject and blame nobody as a copy or as foreign if most of the reputation, or most of the rest of
        it, is in such groups.
    copies
        ``collapse``: a group of copies has one vote, as long as one of them is more likely honest than
        not. ``reject``: it has none.
    representative_margin
        A client represents its group of copies if the cosine of its update with its own past is larger than
        that of every other member by this much; 0 switches this off.
    memory
        Weight of the past in a client's momentum of unit updates, per round; 0 remembers nothing.
    panel_rounds
        Clients not selected this round take part in judging with a momentum at most this old.
    panel_size
        At most so many of them, the most recent ones.
    separation
        Squared distance between the mean directions of two groups from which the group with less
        reputation is rejected, if large; 0 switches the test off.
    small_group
        How much more is asked of small groups: this times ln(panel) / size.
    aligned
        Groups whose mean directions have at least this cosine are never foreign to each other.
    suspicion
        How much less separation is asked of a group without any reputation than of one with as much as
        the others.
    groups
        Examine ``every`` group of the hierarchical clustering, or only its ``first`` division.
    at_once
        Look for foreign groups among what was sent this round as well, not only among momenta; nobody is rejected
        for that unless those who are left are present and hold most of the reputation of all.
    majority
        Groups are weighed by ``reputation`` or by ``heads``.
    claims
        Votes in the step grow with the number of examples that a client claims, up to so many times the
        median, by reputation, of what all who are not rejected claimed last; 0 ignores what they claim.
    independence
        Clients whose residuals agree, of their momenta or of this round's updates, share their vote in the step.
    trust_weights
        Weigh clients in the step by their reputation.
    step_size
        Lengths in the step: ``clipped``, all the ``typical`` one (the median, by reputation, of what all who are
        not rejected sent last), or all the ``mean`` of this round's.
    clip
        At how many times the typical length lengths are clipped.
    """

    warmup_rounds: int = 1
    inclusion: Literal["bernoulli", "cutoffs"] = "bernoulli"
    always_from: float = 0.9
    never_to: float = 0.2
    empty_selection: Literal["random-subset", "all"] = "random-subset"
    first_round: int = 1
    budget: int = 0
    explore: float = 0.1
    prior_benign: float = 2.0
    prior_malicious: float = 1.0
    newcomer_benign: float = 0.5
    newcomer_malicious: float = 1.0
    keep_good: float = 0.9
    strike: float = 0.7
    forgive: float = 0.9
    copy_similarity: float = 0.9
    copy_vectors: Literal["residual", "raw"] = "residual"
    grouping: Literal["all-pairs", "chains"] = "all-pairs"
    majority_guard: bool = True
    copies: Literal["collapse", "reject"] = "collapse"
    representative_margin: float = 0.1
    memory: float = 0.8
    panel_rounds: int = 20
    panel_size: int = 256
    separation: float = 0.5
    small_group: float = 0.4
    aligned: float = 0.8
    suspicion: float = 0.3
    groups: Literal["every", "first"] = "every"
    at_once: bool = True
    majority: Literal["reputation", "heads"] = "reputation"
    claims: float = 1.0
    independence: bool = True
    trust_weights: bool = True
    step_size: Literal["clipped", "typical", "mean"] = "clipped"
    clip: float = 1.5

    def __post_init__(self) -> None:
        check_options(self, _RANGES)


_RANGES: tuple[tuple[str, float, float], ...] = (
    ("warmup_rounds", 0, _MANY),
    ("always_from", 0, 1),
    ("never_to", 0, 1),
    ("first_round", 1, _MANY),
    ("budget", 0, _MANY),
    ("explore", 0, 1),
    ("prior_benign", _TINY, _MANY),
    ("prior_malicious", _TINY, _MANY),
    ("newcomer_benign", _TINY, _MANY),
    ("newcomer_malicious", _TINY, _MANY),
    ("keep_good", _TINY, 1),
    ("strike", _TINY, 1),
    ("forgive", _TINY, 1),
    ("copy_similarity", 0, 1),
    ("representative_margin", 0, 2),
    ("memory", 0, 1 - _TINY),
    ("panel_rounds", 0, _MANY),
    ("panel_size", 0, _MANY),
    ("separation", 0, 4),
    ("small_group", 0, _MANY),
    ("aligned", -1, 1),
    ("suspicion", 0, 1),
    ("claims", 0, _MANY),
    ("clip", _TINY, _MANY),
)
