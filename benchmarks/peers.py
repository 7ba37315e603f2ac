"""Other frameworks and libraries beside mabrfl, in an environment that has them all: ``make bench-peers``.

Rounds: CPU seconds of all processes of a framework, and wall seconds, after the first round, best of two turns. Rules:
CPU seconds of one aggregation of 50 updates of 1,186,378 parameters. What is not installed is named and left out.
"""

from __future__ import annotations

import itertools
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import numpy as np

from mabrfl import Updates, __version__
from mabrfl.catalog import build_defense
from peer_rounds import FRAMEWORKS, WORKS

ROOT = Path(__file__).parent.parent
MARK = "MABRFL_BENCH_PEERS"
TURNS, ROUNDS = 2, {"mnist": 3, "digits": 30}
ATTACKERS, SHAPE, REPEATS = 15, (50, 1_186_378), 2
FEWER_ATTACKERS = 11
"""For Bulyan, whose condition is n >= 4f + 3."""
POISON, BYZ = "FLPoison", "FL-Byzantine-Library"
RULES = {
    "fedavg": {"byzfl": "Average", "krum": "Average"},
    "krum": {"byzfl": "Krum", "krum": "Krum", "flwr": "Krum", "byzpy": "Krum"},
    "multi-krum": {"byzfl": "MultiKrum", "krum": "MultiKrum", "flwr": "MultiKrum", "byzpy": "MultiKrum"},
    "geometric-median": {"byzfl": "GeometricMedian", "krum": "GeometricMedian"},
    "monna": {"byzfl": "MoNNA", "krum": "NearestNeighborAverage", "byzpy": "MoNNA"},
    "caf": {"byzfl": "CAF", "byzpy": "CAF"},
    "cge": {"byzpy": "ComparativeGradientElimination"},
    "dnc": {BYZ: "DnC"},
    "signguard": {POISON: "SignGuard (MeanShift)"},
    "fltrust": {POISON: "FLTrust", BYZ: "FL_trust"},
    "centered-clip": {"byzfl": "CenteredClipping", POISON: "CenteredClipping", BYZ: "Clipping"},
    "median": {"byzfl": "Median", "krum": "Median", "flwr": "FedMedian", BYZ: "CM"},
    "trimmed-mean": {"byzfl": "TrMean", "krum": "TrimmedMean", "flwr": "FedTrimmedAvg", BYZ: "TM"},
    "meamed": {"byzfl": "Meamed", "byzpy": "MeanOfMedians"},
    "bulyan": {"krum": "Bulyan", "flwr": "Bulyan", BYZ: "Bulyan"},
    "aksel": {"krum": "Aksel"},
    "noisy-norm-bound": {"byzfl": "Clipping + Average", POISON: "NormClipping"},
    "foolsgold": {POISON: "FoolsGold", BYZ: "FoolsGold"},
    "flame": {BYZ: "Flame"},
    "lasa": {POISON: "LASA"},
    "sign-majority": {BYZ: "SignSGD"},
}
"""Our rules, and their names in other libraries. MDA and SMEA of the others try 2.3e12 subsets; they are left out.

Nobody else has the weighted median and trimmed mean, robust learning rate, RFLBAT, AlignIns and LFighter."""


class Shared(np.ndarray[Any, Any]):
    """An array that is not copied: the rules of others are called as they are, without the adapters' copies."""

    def copy(self, order: Any = "C") -> Any:  # noqa: ARG002 (as NumPy's)
        """Return the array itself."""
        return self


def cpu_of(mark: str) -> float:
    """Return the CPU seconds so far of all processes that have inherited a mark, on Linux."""
    ticks = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (process / "environ").read_bytes():
                fields = (process / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
                ticks += sum(int(field) for field in fields[11:15])  # its own, and those of children that have ended
        except OSError:
            continue  # it has ended, or is not ours
    return ticks / os.sysconf("SC_CLK_TCK")


def rounds(framework: str, work: str) -> tuple[float, float, float]:
    """Run some rounds; return CPU and wall seconds of one, the first left out, and the wall seconds until its end."""
    mark = secrets.token_hex(8)
    paths = os.pathsep.join([str(ROOT / "benchmarks"), str(ROOT / "src")])
    script = "from peer_rounds import main; main()"  # not as a script: Ray's processes import it by name
    cpu, wall = [], []
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as errors,
        subprocess.Popen(
            [sys.executable, "-c", script, framework, work, str(ROUNDS[work])],
            env={**os.environ, MARK: mark, "PYTHONPATH": paths},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        began = time.monotonic()
        for line in process.stdout or ():
            if line.strip() == "round" and process.stdin is not None:
                wall.append(time.monotonic() - began)
                cpu.append(cpu_of(mark))
                process.stdin.write("\n")
                process.stdin.flush()
                began = time.monotonic()
        process.wait()
        errors.seek(0)
        said = errors.read().strip().splitlines()
    if process.returncode or len(cpu) != ROUNDS[work]:
        raise RuntimeError(said[-1] if said else f"{len(cpu)} of {ROUNDS[work]} rounds")
    return (cpu[-1] - cpu[0]) / (len(cpu) - 1), min(wall[1:]), wall[0]


def compare_rounds() -> None:
    """Print a table for each work; the frameworks take turns."""
    for work, about in WORKS.items():
        best: dict[str, np.ndarray[Any, Any]] = {}
        for _ in range(TURNS):
            for name in FRAMEWORKS:
                try:
                    best[name] = np.minimum(best.get(name, np.inf), rounds(name, work))
                except RuntimeError as error:
                    print(f"!! {name} is left out: {error}", flush=True)
        print(
            f"\nA round of 50 clients x {about.examples} examples ({work}), {about.epochs} epochs, batch {about.batch}"
        )
        print(f"  {'':<22} {'CPU s':>8} {'x mabrfl':>9} {'wall s':>8} {'until the first round, s':>25}")
        for name, (cpu, wall, start) in best.items():
            print(f"  {name:<22} {cpu:8.3f} {cpu / best['mabrfl'][0]:9.2f} {wall:8.3f} {start:25.1f}", flush=True)


def libraries() -> Iterator[tuple[str, dict[str, Callable[..., Any]]]]:
    """Yield the rules of each library that is installed."""
    import conformance_peers  # noqa: PLC0415 (needs some of them)

    for name in ("byzfl", "krum", "flwr", "byzpy", POISON, BYZ):
        try:
            yield name, conformance_peers.LIBRARIES[name]()
        except ImportError as error:
            print(f"!! {name} is left out: {error}", flush=True)


def compare_rules() -> None:
    """Print a table of rules."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal(SHAPE, dtype=np.float32)
    theirs = dict(libraries())
    print(f"\nRules, CPU s of one aggregation of {SHAPE[0]} x {SHAPE[1]:,}, {ATTACKERS} attackers, one thread")
    print(f"  {'':<18} {'mabrfl':>8} " + " ".join(f"{name:>8}" for name in theirs) + "  fastest of them = 1")
    for rule, names in RULES.items():
        f = FEWER_ATTACKERS if rule == "bulyan" else ATTACKERS
        candidates: dict[str, Callable[[], Any]] = {"mabrfl": aggregations(rule, rows, f)}
        for library, name in names.items():
            if library in theirs:
                candidates[library] = lambda call=theirs[library][name], f=f: call(rows.view(Shared), f)  # type: ignore[misc]
        candidates["mabrfl"]()
        seconds: dict[str, float] = dict.fromkeys(candidates, np.inf)
        for _ in range(REPEATS):
            for library, work in candidates.items():
                seconds[library] = min(seconds[library], cpu_seconds(work))
        shown = " ".join(
            f"{seconds[name]:{max(len(name), 8)}.3f}" if name in seconds else " " * max(len(name), 8) for name in theirs
        )
        fastest = min((value for name, value in seconds.items() if name != "mabrfl"), default=np.nan)
        print(f"  {rule:<18} {seconds['mabrfl']:8.3f} {shown}  {seconds['mabrfl'] / fastest:.2f}", flush=True)


def aggregations(rule: str, rows: np.ndarray[Any, Any], f: int) -> Callable[[], object]:
    """Return a server step by a rule of ours, every time for the next round."""
    defense, clock = build_defense(rule, num_malicious=f), itertools.count(1)
    sent = Updates(range(len(rows)), rows, global_weights=np.zeros(rows.shape[1], rows.dtype), root_update=rows[0])
    return lambda: defense.aggregate(sent, round=next(clock))


def cpu_seconds(work: Callable[[], object]) -> float:
    """Return the CPU seconds of a call."""
    began = time.process_time()
    work()
    return time.process_time() - began


def versions() -> None:
    """Print what is installed."""
    print(f"Python {sys.version.split()[0]}, mabrfl {__version__}", end="")
    for package in ("torch", "numpy", "flwr", "ray", "fluke-fl", "fedlab", "byzfl", "krum", "byzpy"):
        try:
            print(f", {package} {version(package)}", end="")
        except PackageNotFoundError:
            print(f"\n!! {package} is not installed: what needs it is left out", end="")
    print(flush=True)


if __name__ == "__main__":
    versions()
    compare_rules()
    compare_rounds()
