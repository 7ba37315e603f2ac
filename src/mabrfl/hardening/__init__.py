"""The preset ``hardened``: MAB-RFL for models and data that nobody has tuned it for.

One small function per mechanism, each with its option in :class:`HardenedOptions`; ``docs/hardening.md``
says what each stops, what it costs and what it does not stop.
"""

from mabrfl.hardening.copies import Group, copied_groups, representative, residual_cosines, similar_groups
from mabrfl.hardening.foreign import Suspicion, branches, foreign_clients, separations
from mabrfl.hardening.influence import clipped_lengths, independent_votes, too_long
from mabrfl.hardening.options import HardenedOptions
from mabrfl.hardening.panel import Panel
from mabrfl.hardening.rule import HardenedRule

__all__ = [
    "Group",
    "HardenedOptions",
    "HardenedRule",
    "Panel",
    "Suspicion",
    "branches",
    "clipped_lengths",
    "copied_groups",
    "foreign_clients",
    "independent_votes",
    "representative",
    "residual_cosines",
    "separations",
    "similar_groups",
    "too_long",
]
