"""Aggregation rules: maps from a cohort to a step, each as its paper defines it, with the known variants named.

Pre-aggregators, which change what a rule sees, are in :mod:`mabrfl.aggregation.preaggregators`.
"""

from mabrfl.aggregation.averaging import FedAvg, SimilarityProbe
from mabrfl.aggregation.bulyan import Bulyan
from mabrfl.aggregation.clipping import CenteredClip, GeometricMedian
from mabrfl.aggregation.coordinatewise import Meamed, Median, TrimmedMean
from mabrfl.aggregation.covariance import CAF, SMEA
from mabrfl.aggregation.distance import FABA, Krum, MultiKrum, krum_scores
from mabrfl.aggregation.elimination import CGE, MoNNA
from mabrfl.aggregation.foolsgold import FoolsGold
from mabrfl.aggregation.median_of_means import MedianOfMeans
from mabrfl.aggregation.minimum_diameter import MDA
from mabrfl.aggregation.mixing import Mixing, PreAggregated, PreAggregator
from mabrfl.aggregation.preaggregators import ARC, NNM, Bucketing, NormBound
from mabrfl.aggregation.spectral import DnC

__all__ = [
    "ARC",
    "CAF",
    "CGE",
    "FABA",
    "MDA",
    "NNM",
    "SMEA",
    "Bucketing",
    "Bulyan",
    "CenteredClip",
    "DnC",
    "FedAvg",
    "FoolsGold",
    "GeometricMedian",
    "Krum",
    "Meamed",
    "Median",
    "MedianOfMeans",
    "Mixing",
    "MoNNA",
    "MultiKrum",
    "NormBound",
    "PreAggregated",
    "PreAggregator",
    "SimilarityProbe",
    "TrimmedMean",
    "krum_scores",
]
