"""The preset ``hardened``: MAB-RFL for models and data that nobody has tuned it for.

One small function per test; ``docs/hardening.md`` says what each stops, what it costs and what it does not stop.
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
from mabrfl.mab.hardened.dendrogram import Branches, branches
from mabrfl.mab.hardened.groups import Group, outlying_groups, separations
from mabrfl.mab.hardened.hardened_options import HardenedOptions
from mabrfl.mab.hardened.influence import bounded_claims, bounded_shares, clipped_lengths, weighted_median
from mabrfl.mab.hardened.opposed import Opposed, opposed_clients
from mabrfl.mab.hardened.panel import Panel
from mabrfl.mab.hardened.rule import HardenedRule
from mabrfl.mab.hardened.views import Blocks, views

__all__ = [
    "Blocks",
    "Branches",
    "Group",
    "HardenedOptions",
    "HardenedRule",
    "Opposed",
    "Panel",
    "bounded_claims",
    "bounded_shares",
    "branches",
    "clipped_lengths",
    "copy_blame",
    "disjoint",
    "majority_is_coherent",
    "minority",
    "opposed_clients",
    "outlying_groups",
    "representative",
    "residual_cosines",
    "separations",
    "similar_groups",
    "views",
    "weighted_median",
]
