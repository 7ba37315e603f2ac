"""Aggregation rules: maps from a cohort to a step, each as its paper defines it, with the known variants named.

Pre-aggregators, which change what a rule sees, are in :mod:`mabrfl.aggregation.preaggregators`.
"""

from mabrfl.aggregation.alignins import AlignIns
from mabrfl.aggregation.averaging import FedAvg, SimilarityProbe
from mabrfl.aggregation.bulyan import Bulyan
from mabrfl.aggregation.clipped_clustering import ClippedClustering
from mabrfl.aggregation.clipping import CenteredClip, GeometricMedian
from mabrfl.aggregation.coordinatewise import Meamed, Median, TrimmedMean
from mabrfl.aggregation.covariance import CAF, SMEA
from mabrfl.aggregation.distance import FABA, Krum, MultiKrum, krum_scores
from mabrfl.aggregation.elimination import CGE, Aksel, MoNNA
from mabrfl.aggregation.flame import FLAME
from mabrfl.aggregation.fldetector import FLDetector
from mabrfl.aggregation.fltrust import FLTrust
from mabrfl.aggregation.foolsgold import FoolsGold
from mabrfl.aggregation.lasa import LASA
from mabrfl.aggregation.learning_rates import RobustLearningRate
from mabrfl.aggregation.lfighter import LFighter
from mabrfl.aggregation.median_of_means import MedianOfMeans
from mabrfl.aggregation.minimum_diameter import MDA
from mabrfl.aggregation.mixing import Mixing, PreAggregated, PreAggregator
from mabrfl.aggregation.noisy_bound import NoisyNormBound
from mabrfl.aggregation.preaggregators import ARC, NNM, Bucketing, NormBound
from mabrfl.aggregation.rflbat import RFLBAT
from mabrfl.aggregation.sign_majority import SignMajority
from mabrfl.aggregation.signguard import SignGuard
from mabrfl.aggregation.spectral import DnC
from mabrfl.aggregation.weighted_coordinates import WeightedMedian, WeightedTrimmedMean

__all__ = [
    "ARC",
    "CAF",
    "CGE",
    "FABA",
    "FLAME",
    "LASA",
    "MDA",
    "NNM",
    "RFLBAT",
    "SMEA",
    "Aksel",
    "AlignIns",
    "Bucketing",
    "Bulyan",
    "CenteredClip",
    "ClippedClustering",
    "DnC",
    "FLDetector",
    "FLTrust",
    "FedAvg",
    "FoolsGold",
    "GeometricMedian",
    "Krum",
    "LFighter",
    "Meamed",
    "Median",
    "MedianOfMeans",
    "Mixing",
    "MoNNA",
    "MultiKrum",
    "NoisyNormBound",
    "NormBound",
    "PreAggregated",
    "PreAggregator",
    "RobustLearningRate",
    "SignGuard",
    "SignMajority",
    "SimilarityProbe",
    "TrimmedMean",
    "WeightedMedian",
    "WeightedTrimmedMean",
    "krum_scores",
]
