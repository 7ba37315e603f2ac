"""The preset ``hardened``: MAB-RFL for models and data that nobody has tuned it for.

One small function per mechanism, each with its option in :class:`HardenedOptions`; ``docs/hardening.md``
says what each stops, what it costs and what it does not stop.
"""

from mabrfl.mab.hardened.copies import (
    copy_blame,
    disjoint,
    majority_is_coherent,
    minority,
    representative,
    residual_cosines,
    similar_groups,
)
from mabrfl.mab.hardened.foreign import Suspicion, branches, foreign_clients, separations
from mabrfl.mab.hardened.hardened_options import HardenedOptions
from mabrfl.mab.hardened.influence import bounded_claims, clipped_lengths, independent_votes, weighted_median
from mabrfl.mab.hardened.panel import Panel
from mabrfl.mab.hardened.rule import HardenedRule

__all__ = [
    "HardenedOptions",
    "HardenedRule",
    "Panel",
    "Suspicion",
    "bounded_claims",
    "branches",
    "clipped_lengths",
    "copy_blame",
    "disjoint",
    "foreign_clients",
    "independent_votes",
    "majority_is_coherent",
    "minority",
    "representative",
    "residual_cosines",
    "separations",
    "similar_groups",
    "weighted_median",
]
