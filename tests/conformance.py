"""Our rules beside those of other libraries on the golden vectors, and the page that says so.

``python tests/conformance.py`` writes ``docs/conformance.md``. The vectors are in ``golden/peers.npz``; see
``conformance_peers.py`` for how they are made.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from helpers import make_cohort, step_of
from mabrfl.aggregation import PreAggregated
from mabrfl.attacks import craft
from mabrfl.catalog import build_attack, build_before, build_rule
from mabrfl.errors import QuorumError
from mabrfl.testing import make_view

GOLDEN = Path(__file__).parent / "golden" / "peers.npz"
PAGE = Path(__file__).parent.parent / "docs" / "conformance.md"
TOLERANCE = 2e-5
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
        note="they stop after three steps, RFA's budget",
    ),
    Pair("centered-clip", "byzfl: CenteredClipping", 50, options=_CENTRE),
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
    Pair(_MEAN, "blades: Mean", 50),
    Pair("median", "blades: Median", 50),
    Pair("trimmed-mean", "blades: Trimmedmean", 50),
    Pair("krum", "blades: Krum", 43, note="they sum the fourth power of the distances, the paper the square"),
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
)


_ATTACKS_HEAD = """
## Attacks

The honest rows of the same matrices, and what each library's attackers send. Every difference between the libraries
is a named option of ours: the sign, the degrees of freedom and the factor of LIE, the factor of IPM. What ByzFL and
krum call sign flip is IPM with factor 1; our `sign-flip` reverses each attacker's own update.

| mabrfl | other | equal | largest difference | note |
|---|---|--:|--:|---|"""

_NOT_THERE = """
## Libraries that are not on the package index

From a reading of their sources, and from runs of single functions of them on 50 other matrices, in November 2026. No
vectors of them are committed, so no test repeats this.

| library | rule or attack | finding |
|---|---|---|"""

_FINDINGS: tuple[tuple[str, str, str], ...] = (
    (
        "FLPoison (368c940)",
        "Krum",
        'n - f - 1 neighbours, not squared: `neighbours = "n-f-1"`, `power = 1` is equal on 47 of 50; others are ties',
    ),
    (
        "FLPoison",
        "trimmed mean",
        "`int(n * beta)` loses one to rounding for some n and f; if it is 0, the result is the zero vector",
    ),
    ("FLPoison", "geometric median (RFA)", "three steps from zero, RFA's budget: equal on 7 of 50"),
    ("FLPoison", "LIE", "`sign = 1` is equal"),
    ("FLPoison", "sign flip", "each attacker's own update, as ours: equal"),
    ("FLPoison", "a NaN row", "NaN from median, trimmed mean, RFA and Multi-Krum; Krum chooses another client"),
    ("FLPoison", "bucketing", "`random.shuffle` on a matrix doubles some rows"),
    ("FLPoison", "FLTrust", "its root data are training data that clients have, too"),
    ("FLPoison", "FLDetector", "an off-by-one: never fewer than two clusters, so it always rejects somebody"),
    ("FL-Byzantine-Library (32922ca)", "Krum", "equal on 50 of 50"),
    ("FL-Byzantine-Library", "centered clipping, same radius, two rounds", "equal on 50 of 50"),
    ("FL-Byzantine-Library", "DnC, five passes", "equal on 50 of 50: below 10,000 coordinates all passes are the same"),
    ("FL-Byzantine-Library", "geometric median (RFA)", "three steps: equal on 7 of 50"),
    ("FL-Byzantine-Library", "LIE", "`ddof = 1` is equal"),
    ("Blades (711e8df, with fedlib 8428019)", "mean, median, trimmed mean, DnC", "equal on 50 of 50"),
    ("Blades (711e8df)", "Krum", "fourth power: `power = 4` is equal on 50 of 50"),
    ("Blades (711e8df)", "geometric median", "converges: equal on 44 of 50, the largest difference is 2e-4"),
)


@cache
def golden() -> dict[str, Any]:
    """Return the arrays of the file."""
    with np.load(GOLDEN, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


@cache
def about() -> dict[str, Any]:
    """Return the versions of the libraries, and what a row of NaN does to their rules."""
    document: dict[str, Any] = json.loads(str(golden()["about"]))
    return document


def our_step(pair: Pair, number: int) -> Any:
    """Return our result on one of the inputs; None where our rule refuses it."""
    rows, f = golden()[f"input {number}"], int(golden()["attackers"][number])
    rule = build_rule(pair.ours, pair.options, num_malicious=f)
    if pair.before:
        rule = PreAggregated(rule, build_before(pair.before.split("+"), pair.before_options, num_malicious=f))
    cohort = make_cohort(rows)
    try:
        return step_of(cohort, rule(cohort))
    except QuorumError:
        return None


def differences(pair: Pair) -> list[float]:
    """Return, for each input that the peer has a result for, the largest difference relative to the largest entry."""
    found = []
    for number, theirs in enumerate(golden()[pair.peer]):
        if np.isnan(theirs).all():
            continue
        ours = our_step(pair, number)
        found.append(np.inf if ours is None else float(np.abs(ours - theirs).max() / np.abs(theirs).max()))
    return found


def attack_differences(pair: AttackPair) -> list[float]:
    """Return, for each input on which both attack, the largest difference relative to the largest entry."""
    found = []
    for number, theirs in enumerate(golden()[pair.peer]):
        rows, f = golden()[f"input {number}"], int(golden()["attackers"][number])
        attack = build_attack(pair.ours, pair.options, num_malicious=f, num_clients=len(rows))
        assert attack is not None
        ours = craft(attack, make_view(rows[: len(rows) - f], attackers=f, knowledge=attack.knowledge))
        if ours is not None and not np.isnan(theirs).all():
            found.append(float(np.abs(ours[0] - theirs).max() / np.abs(theirs).max()))
    return found


def result(pair: Pair | AttackPair) -> tuple[int, int, float]:
    """Return the number of equal inputs, the number of inputs, and the largest difference."""
    found = differences(pair) if isinstance(pair, Pair) else attack_differences(pair)
    return sum(each < TOLERANCE for each in found), len(found), max(found)


def page() -> str:
    """Return the page of the documentation."""
    versions = ", ".join(f"{name} {number}" for name, number in about()["versions"].items() if name != "numpy")
    lines = [
        *f"""# Conformance with other libraries

Written by `python tests/conformance.py`; `tests/test_conformance.py` checks it. Our rules and those of other
libraries on the same 50 matrices ({versions}): 8 to 25 clients, 24 coordinates, 1 to (n - 3) / 2 attackers of five
kinds (honest, near copies, far noise, flipped mean, orthogonal push). *Equal*: the largest difference is below
{TOLERANCE:g} of the largest entry. MDA and SMEA are compared where there are at most 400 subsets, Bulyan where n ≥
4f + 3.

The inputs and the results of the others are in [`peers.npz`](../tests/golden/peers.npz), so that the check needs
none of them. [`conformance_peers.py`](../tests/conformance_peers.py) makes the file anew where they are installed.
Of Blades the package index has 0.0.13, which is compared here, and 0.1.1234, whose rules are in a package (`fllib`)
that is not there. FLPoison and FL-Byzantine-Library are not there either, so there are no golden vectors of them.
[At the end](#libraries-that-are-not-on-the-package-index) is what a reading of their sources found.

Where results differ, the note says why. Except for the geometric median of krum, where both converge, ours is the
definition of the paper; theirs is a named option where it chooses other clients. The last column says what one row
of NaN does to *their* rule: nothing, another result, NaN, or an error. Ours quarantines the client that sent it,
and the result for the others does not change by a bit.
""".splitlines(),
        "",
        "| mabrfl | other | equal | largest difference | note | a NaN row (theirs) |",
        "|---|---|--:|--:|---|---|",
    ]
    for pair in PAIRS:
        equal, of, largest = result(pair)
        size = "0" if largest == 0 else f"{largest:.0e}"
        cells = (pair.label, pair.peer, f"{equal} of {of}", size, pair.note, about()["nan"][pair.peer])
        lines.append(f"| {' | '.join(cells)} |")
    lines += _ATTACKS_HEAD.splitlines()
    for attack in ATTACK_PAIRS:
        equal, of, largest = result(attack)
        size = "0" if largest == 0 else f"{largest:.0e}"
        cells = (attack.label, attack.peer.replace(" attack", ""), f"{equal} of {of}", size, attack.note)
        lines.append(f"| {' | '.join(cells)} |")
    findings = [f"| {' | '.join(cells)} |" for cells in _FINDINGS]
    return "\n".join([*lines, *_NOT_THERE.splitlines(), *findings]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
