"""Which of our rules and attacks are compared with which of other libraries, and on how many inputs they are equal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

CLIP = 3.0

_CLIP: Mapping[str, Any] = {"bound": CLIP, "bound_unit": "absolute"}
_CENTRE: Mapping[str, Any] = {"radius": CLIP, "radius_unit": "absolute"}


@dataclass(frozen=True)
class Pair:
    """One of our rules with its options, a peer's rule, how many of the inputs must be equal, and why not all are.

    ``equal`` is the number of inputs on which both agree, of those for which the peer has a result.
    """

    ours: str
    peer: str
    equal: int
    of: int = 50
    note: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    before: str = ""
    before_options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Our rule in a few words."""
        settings = [f"{name}={value}" for name, value in {**self.before_options, **self.options}.items()]
        name = f"{self.before} + {self.ours}" if self.before else self.ours
        return f"{name} ({', '.join(settings)})" if settings else name


_NEIGHBOURS: Mapping[str, Any] = {"neighbours": "n-f-1"}
_FIRST: Mapping[str, Any] = {"pivot": 0}
_OFF_BY_ONE = "they count n - f - 1 neighbours, the paper n - f - 2"
_SAME_DIAMETER = "subsets of the same diameter: they take the first, we the tighter one"
_POWER = "they iterate {} from a random start; ours is the exact eigenvector of the paper"
_BLOCKS = "their distances of 16 bits have another unit for each pair; they choose clients of up to rank 9"
_MEAN = "fedavg-uniform"
_FLPOISON_KRUM: Mapping[str, Any] = {**_NEIGHBOURS, "power": 1}
_NOT_SQUARED = "they count n - f - 1 neighbours and do not square distances"
_FOURTH_POWER = "they sum the fourth power of the distances, the paper the square"
_THREE_STEPS = "they stop after three steps, RFA's budget"
_ALL_SIGNS: Mapping[str, Any] = {"share": 1.0}
_NO_NOISE: Mapping[str, Any] = {"compared": "updates", "noise": 0.0}
_GRID = "their mean shift begins on a grid, as the authors' code, ours at every client"
_LOWER_MEDIAN = "for even n they clip to the lower of the middle two norms"

PAIRS: tuple[Pair, ...] = (
    Pair(_MEAN, "byzfl: Average", 50),
    Pair(_MEAN, "krum: Average", 50),
    Pair("median", "byzfl: Median", 50),
    Pair("median", "krum: Median", 50),
    Pair("median", "flwr: FedMedian", 50),
    Pair("median", "byzpy: CoordinateWiseMedian", 32, note="for even n they take the lower of the middle two"),
    Pair("trimmed-mean", "byzfl: TrMean", 50),
    Pair("trimmed-mean", "krum: TrimmedMean", 50),
    Pair("trimmed-mean", "byzpy: CoordinateWiseTrimmedMean", 50),
    Pair("trimmed-mean", "flwr: FedTrimmedAvg", 50, note="their `int(f / n * n)` loses one for n = 44, f = 15"),
    Pair("krum", "krum: Krum", 50),
    Pair("krum", "flwr: Krum", 50),
    Pair("krum", "byzfl: Krum", 42, note=_OFF_BY_ONE),
    Pair("krum", "byzfl: Krum", 50, options=_NEIGHBOURS),
    Pair("krum", "byzpy: Krum", 42, note=_OFF_BY_ONE),
    Pair("krum", "byzpy: Krum", 50, options=_NEIGHBOURS),
    Pair("multi-krum", "krum: MultiKrum", 50, note="with their m = n - f; their default is n - 2f - 3"),
    Pair("multi-krum", "flwr: MultiKrum", 50),
    Pair("multi-krum", "byzfl: MultiKrum", 48, note=_OFF_BY_ONE),
    Pair("multi-krum", "byzfl: MultiKrum", 50, options=_NEIGHBOURS),
    Pair("multi-krum", "byzpy: MultiKrum", 50, options=_NEIGHBOURS),
    Pair("bulyan", "flwr: Bulyan", 5, 23, note="they choose in a single pass, the paper with removal"),
    Pair("bulyan", "flwr: Bulyan", 23, 23, options={"selection": "single-pass"}),
    Pair(
        "bulyan",
        "krum: Bulyan",
        0,
        23,
        note="they choose n - 2f - 2 averages and end in a trimmed mean",
    ),
    Pair("geometric-median", "byzpy: GeometricMedian", 50),
    Pair("geometric-median", "krum: GeometricMedian", 48, note="both converge; theirs smooths distances below 0.1"),
    Pair(
        "geometric-median",
        "byzfl: GeometricMedian",
        0,
        note=_THREE_STEPS,
    ),
    Pair("centered-clip", "byzfl: CenteredClipping", 50, options=_CENTRE),
    Pair(
        "centered-clip",
        "byzpy: CenteredClipping",
        50,
        options={**_CENTRE, "start": "mean", "num_iterations": 10},
        note="they begin at the mean of the updates, the paper at the last step",
    ),
    Pair("meamed", "byzfl: Meamed", 50),
    Pair("meamed", "byzpy: MeanOfMedians", 35, note="for even n their median is the lower of the middle two"),
    Pair("aksel", "krum: Aksel", 50),
    Pair("krum", "krum: Medoid", 50, options={"neighbours": "all", "power": 1}),
    Pair("monna", "byzfl: MoNNA", 50, options=_FIRST),
    Pair("monna", "krum: NearestNeighborAverage", 50, options=_FIRST),
    Pair("monna", "byzpy: MoNNA", 50, options=_FIRST),
    Pair("cge", "byzpy: ComparativeGradientElimination", 50),
    Pair("mda", "byzfl: MDA", 18, 21, note=_SAME_DIAMETER),
    Pair("mda", "krum: Brute", 18, 21, note=_SAME_DIAMETER),
    Pair("mda", "byzpy: MinimumDiameterAveraging", 18, 21, note=_SAME_DIAMETER),
    Pair("smea", "byzpy: SMEA", 21, 21),
    Pair("smea", "byzfl: SMEA", 5, 21, note=_POWER.format("once")),
    Pair("caf", "byzfl: CAF", 5, note=_POWER.format("once")),
    Pair("caf", "byzpy: CAF", 4, note=_POWER.format("three times")),
    Pair(_MEAN, "byzfl: NNM + Average", 50, before="nnm"),
    Pair("median", "byzfl: NNM + Median", 50, before="nnm"),
    Pair(_MEAN, "byzpy: NearestNeighborMixing + mean", 50, before="nnm"),
    Pair(_MEAN, "byzfl: ARC + Average", 50, before="arc", note="theirs also changes the caller's array"),
    Pair(_MEAN, "byzpy: ARC + mean", 50, before="arc"),
    Pair(
        _MEAN,
        "byzfl: Clipping + Average",
        50,
        before="norm-bound",
        before_options=_CLIP,
        note="theirs also changes the caller's array",
    ),
    Pair(_MEAN, "byzpy: Clipping + mean", 50, before="norm-bound", before_options=_CLIP),
    Pair(_MEAN, "byzfl: Bucketing + Average", 18, 18, before="bucketing"),
    Pair(_MEAN, "byzpy: Bucketing + mean", 18, 18, before="bucketing"),
    Pair(_MEAN, "blades: Mean", 50),
    Pair("median", "blades: Median", 50),
    Pair("trimmed-mean", "blades: Trimmedmean", 50),
    Pair("krum", "blades: Krum", 43, note=_FOURTH_POWER),
    Pair("krum", "blades: Krum", 50, options={"power": 4}),
    Pair(
        "geometric-median",
        "blades: Geomed",
        0,
        note="each of their steps multiplies the weights of the last one: they end at one of the updates",
    ),
    Pair("centered-clip", "blades: Centeredclipping", 50, options={**_CENTRE, "num_iterations": 5}),
    Pair("clipped-clustering", "blades: Clippedclustering", 50, options={"linkage": "complete"}),
    Pair(_MEAN, "qora-fl: fedavg", 50),
    Pair("median", "qora-fl: median", 50),
    Pair("trimmed-mean", "qora-fl: trimmed_mean", 50),
    Pair("krum", "qora-fl: krum", 40, note=_BLOCKS),
    Pair(_MEAN, "fedlib: Mean", 50),
    Pair("median", "fedlib: Median", 50),
    Pair("trimmed-mean", "fedlib: Trimmedmean", 50),
    Pair("krum", "fedlib: Multikrum", 43, note=_FOURTH_POWER),
    Pair("krum", "fedlib: Multikrum", 50, options={"power": 4}),
    Pair("multi-krum", "fedlib: Multikrum (k = n - f)", 50, options={"power": 4}),
    Pair("geometric-median", "fedlib: GeoMed", 49, note="both converge; theirs ends after 100 steps"),
    Pair("dnc", "fedlib: DnC", 50),
    Pair("centered-clip", "fedlib: Centeredclipping", 50, options={**_CENTRE, "num_iterations": 5}),
    Pair("clipped-clustering", "fedlib: Clippedclustering", 50),
    Pair(
        "signguard", "fedlib: Signguard", 9, options=_ALL_SIGNS, note="they clip before they filter, and have 2-means"
    ),
    Pair(_MEAN, "FLPoison: Mean", 50),
    Pair("median", "FLPoison: Median", 50),
    Pair("trimmed-mean", "FLPoison: TrimmedMean", 50, note="their `int(n * beta)` can lose one, as Flower's"),
    Pair("krum", "FLPoison: Krum", 39, note=_NOT_SQUARED),
    Pair("krum", "FLPoison: Krum", 50, options=_FLPOISON_KRUM),
    Pair("multi-krum", "FLPoison: MultiKrum", 47, note=_NOT_SQUARED),
    Pair("multi-krum", "FLPoison: MultiKrum", 50, options=_FLPOISON_KRUM),
    Pair(
        "bulyan",
        "FLPoison: Bulyan",
        0,
        23,
        note="they take numbers of those who are left for numbers of all clients, and end in a plain mean",
    ),
    Pair("geometric-median", "FLPoison: RFA", 0, note=_THREE_STEPS),
    Pair("centered-clip", "FLPoison: CenteredClipping", 50, options=_CENTRE),
    Pair("dnc", "FLPoison: DnC", 50, note="with all coordinates; their default is a fifth of them"),
    Pair(_MEAN, "FLPoison: NormClipping", 50, before="norm-bound", before_options=_CLIP),
    Pair("signguard", "FLPoison: SignGuard", 0, 48, options=_ALL_SIGNS, note="their default is DBSCAN"),
    Pair("signguard", "FLPoison: SignGuard (MeanShift)", 39, options=_ALL_SIGNS, note=_GRID),
    Pair(
        "foolsgold",
        "FLPoison: FoolsGold",
        0,
        note="they scale long updates to length 1 and add up; ours is the mean with the same weights",
    ),
    Pair("fltrust", "FLPoison: FLTrust", 50, note="if nobody is trusted, theirs is the mean, the paper's is zero"),
    Pair("flame", "FLPoison: FLAME", 50, options=_NO_NOISE),
    Pair("lasa", "FLPoison: LASA", 0, note="they filter before they clip, the authors after"),
    Pair(_MEAN, "FLPoison: Bucketing + Mean", 0, 18, before="bucketing", note="their `random.shuffle` doubles rows"),
    Pair(_MEAN, "FL-Byzantine-Library: Mean", 50),
    Pair("median", "FL-Byzantine-Library: CM", 50),
    Pair("trimmed-mean", "FL-Byzantine-Library: TM", 50),
    Pair("krum", "FL-Byzantine-Library: Krum", 50),
    Pair("multi-krum", "FL-Byzantine-Library: Krum (m = n - f)", 50),
    Pair(
        "bulyan",
        "FL-Byzantine-Library: Bulyan",
        0,
        23,
        options={"selection": "single-pass"},
        note="they choose in a single pass and end in a trimmed mean",
    ),
    Pair("geometric-median", "FL-Byzantine-Library: RFA", 0, note=_THREE_STEPS),
    Pair("centered-clip", "FL-Byzantine-Library: Clipping", 50, options=_CENTRE),
    Pair("dnc", "FL-Byzantine-Library: DnC", 50, note="five passes: below 10,000 coordinates all are the same"),
    Pair(
        "signguard",
        "FL-Byzantine-Library: SignGuard",
        25,
        options=_ALL_SIGNS,
        note=f"{_GRID}; {_LOWER_MEDIAN}",
    ),
    Pair("foolsgold", "FL-Byzantine-Library: FoolsGold", 46, note="they add 1e-5 inside the logarithm"),
    Pair("fltrust", "FL-Byzantine-Library: FL_trust", 50),
    Pair("flame", "FL-Byzantine-Library: Flame", 32, options=_NO_NOISE, note=_LOWER_MEDIAN),
    Pair(
        "sign-majority",
        "FL-Byzantine-Library: SignSGD",
        0,
        note="the same signs; theirs have length 1 for each coordinate, ours the median norm for all",
    ),
    Pair(_MEAN, "FL-Byzantine-Library: Bucketing + mean", 18, 18, before="bucketing"),
)


@dataclass(frozen=True)
class AttackPair:
    """One of our attacks with its options, a peer's, and on how many of the inputs both send the same row."""

    ours: str
    peer: str
    equal: int
    of: int = 50
    note: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Our attack in a few words."""
        settings = [f"{name}={value}" for name, value in self.options.items()]
        return f"{self.ours} ({', '.join(settings)})" if settings else self.ours


_UNIT: Mapping[str, Any] = {"direction": "unit", "gamma_init": 10.0}
_STD: Mapping[str, Any] = {"gamma_init": 10.0, "ddof": 1}
_Z = "z is not positive on the other inputs, and ours sends nothing there"
ATTACK_PAIRS: tuple[AttackPair, ...] = (
    AttackPair("lie", "byzfl attack: ALittleIsEnough", 50, options={"z": 1.5, "sign": 1, "ddof": 1}),
    AttackPair("lie", "krum attack: ALIEAttack", 47, 47, _Z, options={"z_rule": "baruch"}),
    AttackPair("lie", "byzpy attack: LittleAttack", 47, 47, _Z, options={"z_rule": "baruch", "sign": 1}),
    AttackPair("lie", "blades attack: AlieClient", 43, 43, _Z, options={"ddof": 1}),
    AttackPair("ipm", "byzfl attack: InnerProductManipulation", 50, options={"epsilon": 2.0}),
    AttackPair("ipm", "byzfl attack: SignFlipping", 50, options={"epsilon": 1.0}),
    AttackPair("ipm", "krum attack: SignFlipAttack", 50, options={"epsilon": 1.0}),
    AttackPair("ipm", "byzpy attack: EmpireAttack", 50, options={"epsilon": 1.0}),
    AttackPair("ipm", "blades attack: IpmClient", 50, options={"epsilon": 0.5}),
    AttackPair("mimic", "byzfl attack: Mimic", 50, options={"victim": 0}),
    AttackPair("mimic", "byzpy attack: MimicAttack", 50, options={"victim": 0}),
    AttackPair("sign-flip", "byzpy attack: SignFlipAttack", 50),
    AttackPair("lie", "FLPoison attack: ALIE", 43, 43, _Z, options={"sign": 1}),
    AttackPair("ipm", "FLPoison attack: IPM", 50, options={"epsilon": 0.1}),
    AttackPair("min-max", "FLPoison attack: MinMax", 50, options=_UNIT),
    AttackPair(
        "min-sum",
        "FLPoison attack: MinSum",
        0,
        options=_UNIT,
        note="their bound is the largest sum, the authors' the least",
    ),
    AttackPair("min-sum", "FLPoison attack: MinSum", 50, options={**_UNIT, "bound": "maximum"}),
    AttackPair("mimic", "FLPoison attack: Mimic", 50, options={"victim": 0}),
    AttackPair("sign-flip", "FLPoison attack: SignFlipping", 50),
    AttackPair("lie", "FL-Byzantine-Library attack: alie", 43, 43, _Z, options={"ddof": 1}),
    AttackPair("ipm", "FL-Byzantine-Library attack: IPMAttack", 50, options={"epsilon": 0.5}),
    AttackPair("min-max", "FL-Byzantine-Library attack: minmax", 50, options=_STD),
    AttackPair("min-sum", "FL-Byzantine-Library attack: minsum", 50, options=_STD),
    AttackPair(
        "fang-krum",
        "FL-Byzantine-Library attack: fang (krum)",
        0,
        38,
        note="the same direction; they bisect, the paper halves until Krum chooses it; they send zeros on 12 inputs",
    ),
    AttackPair(
        "fang-trim",
        "FL-Byzantine-Library attack: fang (tm)",
        0,
        options={"values": "updates"},
        note="they send the far end of the interval from which the paper's attackers draw",
    ),
)
