"""Aggregation rules: maps from a cohort to a step, each as its paper defines it, with the known variants named."""

from mabrfl.aggregation.averaging import FedAvg, SimilarityProbe
from mabrfl.aggregation.clipping import CenteredClip, GeometricMedian
from mabrfl.aggregation.coordinatewise import Median, TrimmedMean
from mabrfl.aggregation.distance import FABA, Krum, MultiKrum, krum_scores
from mabrfl.aggregation.mixing import Mixing, PreAggregated, PreAggregator
from mabrfl.aggregation.preaggregators import ARC, NNM, Bucketing, NormBound
from mabrfl.aggregation.spectral import DnC

__all__ = [
    "ARC",
    "FABA",
    "NNM",
    "Bucketing",
    "CenteredClip",
    "DnC",
    "FedAvg",
    "GeometricMedian",
    "Krum",
    "Median",
    "Mixing",
    "MultiKrum",
    "NormBound",
    "PreAggregated",
    "PreAggregator",
    "SimilarityProbe",
    "TrimmedMean",
    "krum_scores",
]
