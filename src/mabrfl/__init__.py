"""Federated learning that keeps working when some of its clients lie.

An implementation of *Shielding Federated Learning: Robust Aggregation with Adaptive Client Selection*
(MAB-RFL, IJCAI 2022), its baselines and its attacks. Importing this package does not import torch.
"""

from mabrfl._version import __version__
from mabrfl.defense import Defense
from mabrfl.errors import MabRflError
from mabrfl.mab.hardened import HardenedOptions
from mabrfl.mab.method import MabRfl
from mabrfl.mab.presets import MabRflOptions
from mabrfl.updates import Candidates, Cohort, Decision, Outcome, Selection, Updates, Verdict

__all__ = [
    "Candidates",
    "Cohort",
    "Decision",
    "Defense",
    "HardenedOptions",
    "MabRfl",
    "MabRflError",
    "MabRflOptions",
    "Outcome",
    "Selection",
    "Updates",
    "Verdict",
    "__version__",
]
