"""The options of the preset ``hardened``. No default depends on the data set."""

from __future__ import annotations

from dataclasses import dataclass, field

from mabrfl.checks import check_options

_MANY = 10**9
_TINY = 1e-9


@dataclass(frozen=True, kw_only=True)
class HardenedOptions:
    """All options of the hardened method.

    Attributes
    ----------
    warmup_rounds
        Rounds at the start in which every client is selected.
    budget
        Clients per round; 0 leaves the number to the selector's draws.
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
    memory
        Weight of the past in a client's momentum of unit updates, per round; 0 remembers nothing.
    panel_rounds
        Clients not selected this round take part in judging with a momentum at most this old.
    separation_whole, separation_first, separation_last, separation_labels
        Excess separation from which a group of clients is rejected, if it stands out: in the whole update, in the
        first layer, in the last layer, and in the part of the last layer that labels do not explain. 0 switches
        that test off. The last three need the layout of the model. In a first layer of fewer than 1,000 numbers a group
        that hardly differs in the whole update needs twice as much.
    suspicion
        How much less separation is asked of a group without any reputation than of one with as much as
        the others.
    opposed
        A single client is rejected if the cosine between its momentum and the mean of all others is -``opposed``
        or less (in a block of fewer than 144 numbers, three deviations of chance or less), it is negative in the last
        layer as well, and the others agree; 0 switches the test off.
    claims
        Votes in the step grow with the number of examples that a client claims, up to so many times the
        median, by reputation, of what all who are not rejected claimed last; 0 ignores what they claim.
    clip
        At how many times the typical length lengths are clipped.
    """

    warmup_rounds: int = 1
    budget: int = 0
    prior_benign: float = 2.0
    prior_malicious: float = 1.0
    newcomer_benign: float = 0.5
    newcomer_malicious: float = 1.0
    keep_good: float = 0.9
    strike: float = 0.7
    forgive: float = 0.9
    copy_similarity: float = 0.9
    memory: float = 0.8
    panel_rounds: int = 20
    separation_whole: float = 0.45
    separation_first: float = field(default=0.6, metadata={"neutral": 0.8})
    separation_last: float = 0.35
    separation_labels: float = 0.16
    suspicion: float = 0.3
    opposed: float = 0.25
    claims: float = 1.0
    clip: float = 1.5

    def __post_init__(self) -> None:
        check_options(self, _RANGES)


_RANGES: tuple[tuple[str, float, float], ...] = (
    ("warmup_rounds", 0, _MANY),
    ("budget", 0, _MANY),
    ("prior_benign", _TINY, _MANY),
    ("prior_malicious", _TINY, _MANY),
    ("newcomer_benign", _TINY, _MANY),
    ("newcomer_malicious", _TINY, _MANY),
    ("keep_good", _TINY, 1),
    ("strike", _TINY, 1),
    ("forgive", _TINY, 1),
    ("copy_similarity", 0, 1),
    ("memory", 0, 1 - _TINY),
    ("panel_rounds", 0, _MANY),
    ("separation_whole", 0, 4),
    ("separation_first", 0, 4),
    ("separation_last", 0, 4),
    ("separation_labels", 0, 4),
    ("suspicion", 0, 1),
    ("opposed", 0, 1),
    ("claims", 0, _MANY),
    ("clip", _TINY, _MANY),
)
