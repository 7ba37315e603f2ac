"""Stage 4, screen: which updates are accepted. Intake first, then sybils (ISA), then outliers (INSA)."""

from mabrfl.screening.intake import Intake, inspect
from mabrfl.screening.momentum import MomentumMemory
from mabrfl.screening.non_sybil import Split, cluster_cosine, principal_scores, two_clusters
from mabrfl.screening.sybil import components, largest_components, similarity_threshold

__all__ = [
    "Intake",
    "MomentumMemory",
    "Split",
    "cluster_cosine",
    "components",
    "inspect",
    "largest_components",
    "principal_scores",
    "similarity_threshold",
    "two_clusters",
]
