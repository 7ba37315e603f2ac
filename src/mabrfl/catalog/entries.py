"""The package's own names: one entry each.

To add a selector, a rule or an attack: write its file, export it from its folder, add its entry here. To add a data
set: write its reader and its entry. To add a preset: its options in :mod:`mabrfl.mab.presets` and its entry.
Targets are text, and imported when they are used: listing the catalogue does not import torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mabrfl.catalog.kinds import Conditions, DatasetDefaults, Entry, Kind

_AVERAGING, _DISTANCE = "mabrfl.aggregation.averaging", "mabrfl.aggregation.distance"
_COORDINATEWISE, _CLIPPING = "mabrfl.aggregation.coordinatewise", "mabrfl.aggregation.clipping"
_BEFORE = "mabrfl.aggregation.preaggregators"
_THOMPSON, _UNIFORM = "mabrfl.selection.thompson", "mabrfl.selection.uniform"
_OPTIMIZED, _COLLUDING = "mabrfl.attacks.optimized", "mabrfl.attacks.colluding"
_INDEPENDENT, _FRAMING = "mabrfl.attacks.independent", "mabrfl.attacks.framing"
_SYBILS, _WRAPPING = "mabrfl.attacks.sybils", "mabrfl.attacks.wrapping"
_BACKDOORS, _FAKE = "mabrfl.attacks.backdoor_variants", "mabrfl.attacks.fake_clients"
_DRIFTING = "mabrfl.attacks.drifting"
_MODELS, _PRESETS = "mabrfl.simulation.training.models:MODELS", "mabrfl.mab.presets:PRESETS"
_ORACLE, _LOAD = "mabrfl.simulation.oracle", "mabrfl.simulation.data.library:load"
_COUNT, _TRUTH = ("attackers",), ("truth",)

_DEFENSES: Mapping[str, Entry] = {
    "mab-rfl": Entry(target="mabrfl.mab.method:MabRfl", label="MAB-RFL", selector="acs", presets=True),
    "fedavg": Entry(
        target=f"{_AVERAGING}:FedAvg", label="FedAvg", colour="#777777", dashes="dotted", marker="h", baseline=True
    ),
    "fedavg-uniform": Entry(
        target=f"{_AVERAGING}:FedAvg",
        line="Federated averaging in which every client weighs the same.",
        fixed={"weighting": "uniform"},
        label="FedAvg uniform",
        baseline=True,
    ),
    "krum": Entry(
        target=f"{_DISTANCE}:Krum", label="Krum", colour="#D55E00", dashes="dotted", marker="X", needs=_COUNT
    ),
    "multi-krum": Entry(target=f"{_DISTANCE}:MultiKrum", label="Multi-Krum", needs=_COUNT),
    "faba": Entry(
        target=f"{_DISTANCE}:FABA", label="FABA", colour="#CC79A7", dashes="dashdot", marker="P", needs=_COUNT
    ),
    "median": Entry(target=f"{_COORDINATEWISE}:Median", label="Median", colour="#7A4B1E", dashes="dashed", marker="^"),
    "trimmed-mean": Entry(target=f"{_COORDINATEWISE}:TrimmedMean", label="Trimmed mean", needs=_COUNT),
    "dnc": Entry(
        target="mabrfl.aggregation.spectral:DnC",
        label="DnC",
        colour="#009E73",
        dashes="dashed",
        marker="s",
        needs=_COUNT,
    ),
    "centered-clip": Entry(
        target=f"{_CLIPPING}:CenteredClip",
        line="Centered clipping (Karimireddy et al., ICML 2021): from the last step, a mean of clipped differences.",
        label="CC",
        colour="#E69F00",
        dashes="dashdot",
        marker="v",
    ),
    "geometric-median": Entry(
        target=f"{_CLIPPING}:GeometricMedian",
        line="Geometric median (RFA; Pillutla et al., IEEE TSP 2022): the point with the least sum of distances.",
        label="Geometric median",
        revision=2,  # it goes on until it has converged
    ),
    "bulyan": Entry(target="mabrfl.aggregation.bulyan:Bulyan", label="Bulyan", needs=_COUNT),
    "meamed": Entry(target=f"{_COORDINATEWISE}:Meamed", label="Meamed", needs=_COUNT),
    "mda": Entry(target="mabrfl.aggregation.minimum_diameter:MDA", label="MDA", needs=_COUNT),
    "smea": Entry(target="mabrfl.aggregation.covariance:SMEA", label="SMEA", needs=_COUNT),
    "caf": Entry(target="mabrfl.aggregation.covariance:CAF", label="CAF", needs=_COUNT),
    "monna": Entry(target="mabrfl.aggregation.elimination:MoNNA", label="MoNNA", needs=_COUNT),
    "aksel": Entry(target="mabrfl.aggregation.elimination:Aksel", label="Aksel", needs=_COUNT),
    "cge": Entry(target="mabrfl.aggregation.elimination:CGE", label="CGE", needs=_COUNT),
    "median-of-means": Entry(
        target="mabrfl.aggregation.median_of_means:MedianOfMeans",
        label="Median of means",
        needs=_COUNT,
        revision=2,  # with the geometric median's
    ),
    "weighted-median": Entry(target="mabrfl.aggregation.weighted_coordinates:WeightedMedian", label="Weighted median"),
    "weighted-trimmed-mean": Entry(
        target="mabrfl.aggregation.weighted_coordinates:WeightedTrimmedMean",
        label="Weighted trimmed mean",
        needs=_COUNT,
    ),
    "robust-learning-rate": Entry(
        target="mabrfl.aggregation.learning_rates:RobustLearningRate", label="RLR", needs=_COUNT
    ),
    "noisy-norm-bound": Entry(target="mabrfl.aggregation.noisy_bound:NoisyNormBound", label="Norm bound + noise"),
    "flame": Entry(target="mabrfl.aggregation.flame:FLAME", label="FLAME", needs=("model",)),
    "signguard": Entry(target="mabrfl.aggregation.signguard:SignGuard", label="SignGuard"),
    "sign-majority": Entry(target="mabrfl.aggregation.sign_majority:SignMajority", label="Sign majority"),
    "clipped-clustering": Entry(
        target="mabrfl.aggregation.clipped_clustering:ClippedClustering", label="Clipped clustering"
    ),
    "rflbat": Entry(target="mabrfl.aggregation.rflbat:RFLBAT", label="RFLBAT"),
    "lasa": Entry(target="mabrfl.aggregation.lasa:LASA", label="LASA", needs=("layers",)),
    "alignins": Entry(target="mabrfl.aggregation.alignins:AlignIns", label="AlignIns", needs=("model",)),
    "lfighter": Entry(target="mabrfl.aggregation.lfighter:LFighter", label="LFighter", needs=("layers",)),
    "fldetector": Entry(target="mabrfl.aggregation.fldetector:FLDetector", label="FLDetector"),
    "fltrust": Entry(target="mabrfl.aggregation.fltrust:FLTrust", label="FLTrust", needs=("root-data",)),
    "foolsgold": Entry(target="mabrfl.aggregation.foolsgold:FoolsGold", label="FoolsGold"),
    "similarity-probe": Entry(
        target="mabrfl.aggregation.averaging:SimilarityProbe",
        line="No defense, only a measurement: federated averaging that reports how alike the updates are (Fig. 1b).",
        label="SimilarityProbe",
    ),
}

_PREAGGREGATORS: Mapping[str, Entry] = {
    "nnm": Entry(target=f"{_BEFORE}:NNM", label="NNM", needs=_COUNT),
    "bucketing": Entry(target=f"{_BEFORE}:Bucketing", label="Bucketing"),
    "norm-bound": Entry(target=f"{_BEFORE}:NormBound", label="Norm bound"),
    "arc": Entry(target=f"{_BEFORE}:ARC", label="ARC", needs=_COUNT),
}

_SELECTORS: Mapping[str, Entry] = {
    "acs": Entry(
        target=f"{_THOMPSON}:ACS", label="ACS", dashes="solid", marker="o", shade=0.35, learns=True, presets=True
    ),
    "thompson-top": Entry(target=f"{_THOMPSON}:ThompsonTop", label="Thompson", learns=True),
    "budgeted": Entry(target="mabrfl.selection.budget:Budgeted", learns=True),
    "uniform": Entry(target=f"{_UNIFORM}:Uniform", dashes="dotted", marker="^", shade=-0.45),
    "all": Entry(target=f"{_UNIFORM}:All", dashes="dashed", marker="s", shade=0.35),
    "honest-only": Entry(
        target=f"{_ORACLE}:HonestOnly",
        line="For comparison: some of the honest clients at random, by a server that knows who attacks (Fig. 1a).",
        label="HonestOnly",
        needs=_TRUTH,
    ),
}

_ATTACKS: Mapping[str, Entry] = {
    "none": Entry(target="", line="Nobody attacks.", label="—"),
    "label-flip": Entry(target="mabrfl.attacks.data_poisoning:LabelFlip", label="LF"),
    "lie": Entry(target=f"{_COLLUDING}:LIE", label="LIE"),
    "agr-krum": Entry(target=f"{_OPTIMIZED}:AgrKrum", label="AGRT"),
    "min-max": Entry(target=f"{_OPTIMIZED}:MinMax", label="Min-Max"),
    "min-sum": Entry(target=f"{_OPTIMIZED}:MinSum", label="Min-Sum"),
    "ipm": Entry(target=f"{_COLLUDING}:IPM", label="IPM"),
    "optimal-lie": Entry(target="mabrfl.attacks.optimal:OptimalLIE", label="Optimal LIE"),
    "optimal-ipm": Entry(target="mabrfl.attacks.optimal:OptimalIPM", label="Optimal IPM"),
    "fang-krum": Entry(target="mabrfl.attacks.fang:FangKrum", label="Fang (Krum)"),
    "fang-trim": Entry(target="mabrfl.attacks.fang:FangTrim", label="Fang (trim)"),
    "sign-flip": Entry(target=f"{_INDEPENDENT}:SignFlip", label="Sign flip"),
    "gaussian": Entry(target=f"{_INDEPENDENT}:Gaussian", label="Gaussian"),
    "nan-sender": Entry(target=f"{_FAKE}:NanSender"),
    "free-rider": Entry(target=f"{_FAKE}:FreeRider"),
    "mimic": Entry(target="mabrfl.attacks.mimic:Mimic", label="Mimic"),
    "bridge": Entry(target=f"{_FRAMING}:Bridge"),
    "hub": Entry(target=f"{_FRAMING}:Hub"),
    "frame": Entry(target=f"{_FRAMING}:Frame"),
    "split-sybils": Entry(target=f"{_SYBILS}:SplitSybils"),
    "jittered-sybils": Entry(target=f"{_SYBILS}:JitteredSybils"),
    "orthogonal-drift": Entry(target=f"{_SYBILS}:OrthogonalDrift"),
    "poisoned-fl": Entry(target=f"{_FAKE}:PoisonedFL", label="PoisonedFL"),
    "mpaf": Entry(target=f"{_FAKE}:MPAF", label="MPAF"),
    "trapsetter": Entry(target="mabrfl.attacks.trapping:Trapsetter", label="Trapsetter"),
    "decoy": Entry(target=f"{_SYBILS}:Decoy"),
    "magnitude": Entry(target=f"{_INDEPENDENT}:Magnitude"),
    "sleeper": Entry(target=f"{_WRAPPING}:Sleeper"),
    "on-off": Entry(target=f"{_WRAPPING}:OnOff"),
    "whitewash": Entry(target=f"{_WRAPPING}:Whitewash"),
    "braggart": Entry(target=f"{_WRAPPING}:Braggart"),
    "evade": Entry(target="mabrfl.attacks.evading:Evade"),
    "growing": Entry(target=f"{_DRIFTING}:Growing"),
    "statistical-mimicry": Entry(target=f"{_DRIFTING}:StatisticalMimicry"),
    "backdoor": Entry(target="mabrfl.attacks.backdoor:Backdoor"),
    "dba": Entry(target=f"{_BACKDOORS}:DBA", label="DBA"),
    "edge-case": Entry(target="mabrfl.attacks.edge_cases:EdgeCase"),
    "model-replacement": Entry(target=f"{_BACKDOORS}:ModelReplacement"),
    "constrain-and-scale": Entry(target=f"{_BACKDOORS}:ConstrainAndScale"),
    "neurotoxin": Entry(target=f"{_BACKDOORS}:Neurotoxin"),
    "agr-mab-rfl": Entry(target="mabrfl.attacks.tailored:AgrMabRfl"),
    "layer-choosing": Entry(target="mabrfl.attacks.layer_choosing:LayerChoosing"),
    "silent": Entry(
        target=f"{_ORACLE}:Silent",
        line="For comparison: attackers send nothing, as if the server knew who attacks and discarded their updates.",
        label="Silent",
    ),
}

_NETWORKS: Mapping[str, Entry] = {
    "mlp": Entry(
        target=f"{_MODELS}[mlp]", line="One hidden layer of 64 units; takes inputs of any shape.", stacked=True
    ),
    "mnist-cnn": Entry(
        target=f"{_MODELS}[mnist-cnn]", line="Two convolutions (30, 50) and two dense layers (100, 10)."
    ),
    "mnist-cnn-small": Entry(
        target=f"{_MODELS}[mnist-cnn-small]", line="The same with 16, 32 and 64: two and a half times as fast."
    ),
    "mnist-cnn-bn": Entry(
        target=f"{_MODELS}[mnist-cnn-bn]", line="Two convolutions with batch normalisation; no layer has a bias."
    ),
    "mnist-lstm": Entry(target=f"{_MODELS}[mnist-lstm]", line="A recurrent network that reads an image row by row."),
    "text-gru": Entry(target=f"{_MODELS}[text-gru]", line="A recurrent network that reads a text word by word."),
    "vgg-lite": Entry(
        target=f"{_MODELS}[vgg-lite]", line="The paper's simplified VGG16: six convolutions, 1,186,378 parameters."
    ),
    "vgg-tiny": Entry(target=f"{_MODELS}[vgg-tiny]", line="The same with a quarter of the widths."),
    "cifar-cnn": Entry(
        target=f"{_MODELS}[cifar-cnn]", line="Three convolutions, one dense layer: learns CIFAR-10 on two cores."
    ),
}

_LIKE_MNIST = DatasetDefaults(model="mnist-cnn", clients=50, rounds=100, sizes=(10, 500), draw="disjoint")
# 50 clients of this size cannot be disjoint: there are 50,000 images.
_LIKE_CIFAR10 = DatasetDefaults(model="vgg-lite", clients=50, rounds=100, sizes=(1200, 2000), draw="unique")
_DATASETS: Mapping[str, Entry] = {
    "digits": Entry(
        target=_LOAD,
        line="8x8 handwritten digits, 1,437 + 360 images; embedded, needs no download",
        fixed={"name": "digits"},
        # Clients this small make a handful of steps a round: with the paper's batches and learning rate they hardly
        # leave the starting point, and honest updates are so alike that they pass for sybils.
        defaults=DatasetDefaults(batch_size=16, learning_rate=1e-2),
    ),
    "clusters": Entry(
        target=_LOAD,
        line="24 features in 8 classes of clusters, 3,000 + 1,000 points; made here, needs no download",
        fixed={"name": "clusters"},
        defaults=DatasetDefaults(batch_size=16, learning_rate=1e-2),
    ),
    "reviews": Entry(
        target=_LOAD,
        line="opinions of up to 13 words, 4,000 + 1,000 texts; made here, needs no download",
        fixed={"name": "reviews"},
        defaults=DatasetDefaults(model="text-gru", batch_size=16, learning_rate=1e-2, sizes=(100, 300)),
    ),
    "mnist": Entry(
        target=_LOAD,
        line="28x28 handwritten digits, 60,000 + 10,000 images",
        fixed={"name": "mnist"},
        label="MNIST",
        defaults=_LIKE_MNIST,
    ),
    "fashion-mnist": Entry(
        target=_LOAD,
        line="28x28 articles of clothing, 60,000 + 10,000 images",
        fixed={"name": "fashion-mnist"},
        label="Fashion-MNIST",
        defaults=_LIKE_MNIST,
    ),
    "cifar10": Entry(
        target=_LOAD,
        line="32x32 colour photographs in 10 classes, 50,000 + 10,000 images",
        fixed={"name": "cifar10"},
        label="CIFAR-10",
        defaults=_LIKE_CIFAR10,
    ),
    "cifar100": Entry(
        target=_LOAD,
        line="32x32 colour photographs in 100 classes, 50,000 + 10,000 images",
        fixed={"name": "cifar100"},
        label="CIFAR-100",
        defaults=_LIKE_CIFAR10,
    ),
    "svhn": Entry(
        target=_LOAD,
        line="32x32 colour house numbers, one digit each, 73,257 + 26,032 images",
        fixed={"name": "svhn"},
        label="SVHN",
        defaults=_LIKE_CIFAR10,
    ),
    "emnist-balanced": Entry(
        target=_LOAD,
        line="28x28 handwritten digits and letters in 47 classes, 112,800 + 18,800 images",
        fixed={"name": "emnist-balanced"},
        label="EMNIST balanced",
        defaults=_LIKE_MNIST,
    ),
    "emnist-byclass": Entry(
        target=_LOAD,
        line="28x28 handwritten digits and letters in 62 classes, 697,932 + 116,323 images",
        fixed={"name": "emnist-byclass"},
        label="EMNIST by class",
        defaults=_LIKE_MNIST,
    ),
    "emnist-digits": Entry(
        target=_LOAD,
        line="28x28 handwritten digits, 240,000 + 40,000 images",
        fixed={"name": "emnist-digits"},
        label="EMNIST digits",
        defaults=_LIKE_MNIST,
    ),
    "emnist-letters": Entry(
        target=_LOAD,
        line="28x28 handwritten letters, 124,800 + 20,800 images",
        fixed={"name": "emnist-letters"},
        label="EMNIST letters",
        defaults=_LIKE_MNIST,
    ),
}

_ADAPTERS = "mabrfl.simulation.data.adapters"
ADAPTERS: Mapping[str, str] = {
    "hf": f"{_ADAPTERS}:hugging_face",
    "torchvision": f"{_ADAPTERS}:torchvision",
    "flwr-datasets": f"{_ADAPTERS}:flower_datasets",
}
"""Other libraries of data sets: ``PREFIX:NAME`` is the data set NAME there."""

_OF_MAB_RFL: Mapping[str, Entry] = {
    "paper": Entry(
        target=f"{_PRESETS}[paper]",
        line="MAB-RFL as the text of the paper has it, line by line.",
        colour="#0072B2",
        dashes="solid",
        marker="o",
        in_paper=True,
    ),
    "reference": Entry(
        target=f"{_PRESETS}[reference]",
        line="MAB-RFL, and the conditions of the run, as the authors' released code behaves.",
        colour="#56B4E9",
        dashes="dashed",
        marker="D",
        in_paper=True,
        conditions=Conditions(optimizer_state="kept", attackers_chosen="last", draw="replacement", skip_last=True),
    ),
    "hardened": Entry(
        target=f"{_PRESETS}[hardened]",
        revision=5,  # large opposed groups; backdoors in a small first layer that the whole update backs
        line="The default: no threshold to tune, reputation that reacts, bounded influence (docs/hardening.md).",
        colour="#000000",
        dashes="solid",
        marker="*",
    ),
}


_OBSERVERS: Mapping[str, Entry] = {
    "tensorboard": Entry(target="mabrfl.runs.trackers:TensorBoard"),
    "mlflow": Entry(target="mabrfl.runs.trackers:MLflow"),
    "wandb": Entry(target="mabrfl.runs.trackers:WandB"),
}


def _with_labels(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    return {name: replace(found, label=found.label or name) for name, found in entries.items()}


BUILT_IN: Mapping[Kind, Mapping[str, Entry]] = {
    "defenses": _with_labels(_DEFENSES),
    "selectors": _with_labels(_SELECTORS),
    "attacks": _with_labels(_ATTACKS),
    "models": _with_labels(_NETWORKS),
    "datasets": _with_labels(_DATASETS),
    "presets": _with_labels(_OF_MAB_RFL),
    "preaggregators": _with_labels(_PREAGGREGATORS),
    "observers": _with_labels(_OBSERVERS),
}

ALIASES: Mapping[str, Mapping[str, str]] = {
    "defenses": {"mabrfl.experiments.probes:SimilarityProbe": "similarity-probe"},
    "selectors": {"mabrfl.experiments.oracle:HonestOnly": "honest-only"},
    "datasets": {"emnist": "emnist-balanced"},
    "attacks": {"agrt": "agr-krum", "mabrfl.experiments.oracle:Silent": "silent"},
}
"""Other names, by kind: the paper's word for an attack, and the spellings of committed results."""
