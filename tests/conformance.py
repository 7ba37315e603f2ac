"""Our rules beside those of other libraries on the golden vectors, and the page that says so.

``python tests/conformance.py`` writes ``docs/conformance.md``. The vectors are in ``golden/peers.npz``; see
``conformance_peers.py`` for how they are made.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from conformance_pairs import ATTACK_PAIRS, PAIRS, AttackPair, Pair
from helpers import make_cohort, step_of
from mabrfl.aggregation import PreAggregated
from mabrfl.attacks import craft
from mabrfl.catalog import build_attack, build_before, build_rule
from mabrfl.errors import QuorumError
from mabrfl.testing import make_view

GOLDEN = Path(__file__).parent / "golden" / "peers.npz"
PAGE = Path(__file__).parent.parent / "docs" / "conformance.md"
TOLERANCE = 2e-5

_ATTACKS_HEAD = """
## Attacks

The honest rows of the same matrices, and what each library's attackers send. Every difference between the libraries
is a named option of ours, but for Fang's attacks: the sign, the degrees of freedom and the factor of LIE, the factor
of IPM, the direction and the bound of Min-Max and Min-Sum. What ByzFL and krum call sign flip is IPM with factor 1;
our `sign-flip` reverses each attacker's own update.

| mabrfl | other | equal | largest difference | note |
|---|---|--:|--:|---|"""

_READ = """
## Read, not run

Found in their sources, in November 2026. No vectors of these are committed, so no test repeats this.

| library | rule | finding |
|---|---|---|"""

_FINDINGS: tuple[tuple[str, str, str], ...] = (
    ("FLPoison (eb74fb2)", "trimmed mean", "if `int(n * beta)` is 0, the result is the zero vector"),
    ("FLPoison", "FLTrust", "its root data are training data that clients have, too"),
    ("FLPoison", "FLDetector", "an off-by-one: never fewer than two clusters, so it always rejects somebody"),
    ("FLPoison", "FoolsGold", "of ten classes it looks at one weight each; of fewer than ten, at all"),
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
    cohort = make_cohort(rows, root_update=rows[0] if pair.ours == "fltrust" else None)
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
        honest = rows[: len(rows) - f]
        attack = build_attack(pair.ours, pair.options, num_malicious=f, num_clients=len(rows))
        assert attack is not None
        ours = craft(
            attack, make_view(honest, own=honest[:1].repeat(f, axis=0), attackers=f, knowledge=attack.knowledge)
        )
        if ours is not None and np.any(theirs) and not np.isnan(theirs).all():
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
FLPoison, FL-Byzantine-Library and fedlib are not on the package index: their versions are commits of their
repositories, and [`conformance_checkouts.py`](../tests/conformance_checkouts.py) says what it needs. Of Blades the
index has 0.0.13; fedlib has the rules of today's Blades.

Where results differ, the note says why. Ours is the definition of the paper, with four exceptions: the geometric
median of krum and fedlib, where both converge; FoolsGold and sign majority, where ours has the length of a mean (the
papers add up, or leave the length to the learning rate); SignGuard, where the paper says mean shift and not from where
it begins. Theirs is a named option where it chooses other clients. The last column says what one row of NaN does to
*their* rule: nothing, another result, NaN, or an error. Ours quarantines the client that sent it, and the result for
the others does not change by a bit.
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
    return "\n".join([*lines, *_READ.splitlines(), *findings]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
