"""Make the golden vectors anew: inputs, and what other libraries make of them. Needs those libraries; no test does.

    python -m venv peers && peers/bin/pip install byzfl byzpy krum blades==0.0.13 qora-fl flwr scipy numpy torch
    PYTHONPATH=src:tests peers/bin/python tests/conformance_peers.py

The results of a library that is not installed stay as they are in the file, and a line says what is missing.
FLPoison, FL-Byzantine-Library and fedlib are not on the index: ``conformance_checkouts.py`` says how to get them. krum
asks for Python 3.12 and runs on 3.11, too (``pip install --ignore-requires-python``). byzfl is imported without its
benchmark, which needs torchvision, and blades without its clients, which need Ray; 0.0.13 is its last version on the
index that has the rules.
"""

from __future__ import annotations

import importlib
import json
import math
import random
import sys
import types
from collections.abc import Callable, Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import conformance_checkouts as checkouts
from conformance_peer_attacks import ATTACKS, Attack

Rows = np.ndarray[Any, Any]
Rule = Callable[[Rows, int], Any]

GOLDEN = Path(__file__).parent / "golden" / "peers.npz"
WIDTH, COUNT, MOST_SUBSETS = 24, 50, 400
CLIP = 3.0
KINDS = ("honest", "near copies", "far noise", "flipped mean", "orthogonal push")


def inputs() -> Iterator[tuple[Rows, int]]:
    """Yield 50 matrices and the number f of attackers in each: five kinds of attack, f from 1 to (n - 3) // 2."""
    for number in range(COUNT):
        rng = np.random.default_rng([20261118, number])
        n = int(rng.integers(8, 26))
        f = int(rng.integers(1, (n - 3) // 2 + 1))
        honest = rng.normal(size=WIDTH) + rng.normal(size=(n - f, WIDTH))
        yield np.round(np.vstack([honest, attack(KINDS[number % len(KINDS)], honest, f, rng)]), 3), f


def attack(kind: str, honest: Rows, f: int, rng: np.random.Generator) -> Rows:
    """Return the rows of f attackers."""
    noise = rng.normal(size=(f, WIDTH))
    mean, spread = honest.mean(axis=0), honest.std(axis=0)
    if kind == "near copies":
        return mean - 0.7 * spread + 0.01 * noise
    if kind == "far noise":
        return 30 * noise
    if kind == "flipped mean":
        return -3 * mean + 0.1 * noise
    if kind == "orthogonal push":
        push = rng.normal(size=WIDTH)
        push -= mean * (push @ mean) / (mean @ mean)
        return mean + 1.5 * push + 0.2 * noise
    return mean + noise


def byzfl_rules() -> dict[str, Rule]:
    """Rules of ByzFL, with NumPy arrays."""
    without_parts("byzfl")
    byzfl: Any = importlib.import_module("byzfl.aggregators.aggregators")
    before: Any = importlib.import_module("byzfl.aggregators.preaggregators")

    def mixed(step: Callable[[int], Any], rule: Callable[[int], Any]) -> Rule:
        return lambda rows, f: rule(f)(step(f)(rows.copy()))

    return {
        "Average": lambda rows, f: byzfl.Average()(rows),
        "Median": lambda rows, f: byzfl.Median()(rows),
        "TrMean": lambda rows, f: byzfl.TrMean(f)(rows),
        "GeometricMedian": lambda rows, f: byzfl.GeometricMedian(T=3)(rows),
        "Krum": lambda rows, f: byzfl.Krum(f)(rows),
        "MultiKrum": lambda rows, f: byzfl.MultiKrum(f)(rows),
        "CenteredClipping": lambda rows, f: byzfl.CenteredClipping(tau=CLIP)(rows),
        "MDA": few_subsets(lambda rows, f: byzfl.MDA(f)(rows)),
        "MoNNA": lambda rows, f: byzfl.MoNNA(f, 0)(rows),
        "Meamed": lambda rows, f: byzfl.Meamed(f)(rows),
        "CAF": seeded(lambda rows, f: byzfl.CAF(f)(rows)),
        "SMEA": few_subsets(seeded(lambda rows, f: byzfl.SMEA(f)(rows))),
        "NNM + Average": mixed(before.NNM, lambda f: byzfl.Average()),
        "NNM + Median": mixed(before.NNM, lambda f: byzfl.Median()),
        "ARC + Average": mixed(before.ARC, lambda f: byzfl.Average()),
        "Clipping + Average": mixed(lambda f: before.Clipping(CLIP), lambda f: byzfl.Average()),
        "Bucketing + Average": checkouts.where_even(
            seeded(mixed(lambda f: before.Bucketing(2), lambda f: byzfl.Average()))
        ),
    }


def krum_rules() -> dict[str, Rule]:
    """Rules of krum, with tensors in double precision."""
    import torch
    from krum.primitives.aggregators import (
        aksel,
        average,
        brute,
        bulyan,
        geometric_median,
        krum,
        median,
        multikrum,
        trimmed_mean,
    )
    from krum.primitives.aggregators import medoid as medoid_rule
    from krum.primitives.aggregators import nearest_neighbor_average as nearest

    def call(kind: Any, **settings: Any) -> Rule:
        def rule(rows: Rows, f: int) -> Any:
            tensors = torch.from_numpy(rows.copy())
            own = {name: value(rows, f, tensors) if callable(value) else value for name, value in settings.items()}
            return kind.aggregate(list(tensors), n=len(rows), f=f, **own).numpy()

        return rule

    return {
        "Average": call(average.Average),
        "Median": call(median.Median),
        "TrimmedMean": call(trimmed_mean.TrimmedMean),
        "Krum": call(krum.Krum),
        "MultiKrum": call(multikrum.MultiKrum, m=lambda rows, f, tensors: len(rows) - f),
        "GeometricMedian": call(geometric_median.GeometricMedian),
        "Brute": few_subsets(call(brute.Brute)),
        "Aksel": call(aksel.Aksel),
        "Medoid": call(medoid_rule.Medoid),
        "Bulyan": checkouts.where_bulyan_may(call(bulyan.Bulyan)),
        "NearestNeighborAverage": call(
            nearest.NearestNeighborAverage,
            num_closest=lambda rows, f, tensors: len(rows) - f,
            pivot=lambda rows, f, tensors: tensors[0],
        ),
    }


def byzpy_rules() -> dict[str, Rule]:
    """Rules of byzpy, with tensors in double precision."""
    import torch
    from byzpy.aggregators.coordinate_wise.mean_of_medians import MeanOfMedians
    from byzpy.aggregators.coordinate_wise.median import CoordinateWiseMedian
    from byzpy.aggregators.coordinate_wise.trimmed_mean import CoordinateWiseTrimmedMean
    from byzpy.aggregators.geometric_wise.geometric_median import GeometricMedian
    from byzpy.aggregators.geometric_wise.krum import Krum, MultiKrum
    from byzpy.aggregators.geometric_wise.minimum_diameter_average import MinimumDiameterAveraging
    from byzpy.aggregators.geometric_wise.monna import MoNNA
    from byzpy.aggregators.geometric_wise.smea import SMEA
    from byzpy.aggregators.norm_wise.caf import CAF
    from byzpy.aggregators.norm_wise.center_clipping import CenteredClipping
    from byzpy.aggregators.norm_wise.comparative_gradient_elimination import ComparativeGradientElimination
    from byzpy.pre_aggregators.arc import ARC
    from byzpy.pre_aggregators.bucketing import Bucketing
    from byzpy.pre_aggregators.clipping import Clipping
    from byzpy.pre_aggregators.nnm import NearestNeighborMixing

    def call(make: Callable[[int], Any]) -> Rule:
        return lambda rows, f: make(f).aggregate(list(torch.from_numpy(rows.copy()))).numpy()

    def mixed(make: Callable[[int], Any]) -> Rule:
        return lambda rows, f: torch.stack(make(f).pre_aggregate(list(torch.from_numpy(rows.copy())))).mean(0).numpy()

    return {
        "CoordinateWiseMedian": call(lambda f: CoordinateWiseMedian()),
        "CoordinateWiseTrimmedMean": call(CoordinateWiseTrimmedMean),
        "MeanOfMedians": call(MeanOfMedians),
        "GeometricMedian": call(lambda f: GeometricMedian()),
        "Krum": call(Krum),
        "MultiKrum": lambda rows, f: call(lambda f: MultiKrum(f, len(rows) - f))(rows, f),
        "MinimumDiameterAveraging": few_subsets(call(MinimumDiameterAveraging)),
        "MoNNA": call(MoNNA),
        "SMEA": few_subsets(seeded(call(SMEA))),
        "CAF": seeded(call(CAF)),
        "ComparativeGradientElimination": call(ComparativeGradientElimination),
        "NearestNeighborMixing + mean": mixed(NearestNeighborMixing),
        "ARC + mean": mixed(ARC),
        "CenteredClipping": call(lambda f: CenteredClipping(c_tau=CLIP)),
        "Clipping + mean": mixed(lambda f: Clipping(CLIP)),
        "Bucketing + mean": checkouts.where_even(mixed(lambda f: Bucketing(2, rng=random.Random(0)))),
    }


def flwr_rules() -> dict[str, Rule]:
    """Rules of Flower's strategies: the functions that they call."""
    from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict
    from flwr.serverapp.strategy.bulyan import aggregate_n_closest_weights
    from flwr.serverapp.strategy.fedtrimmedavg import trim_mean
    from flwr.serverapp.strategy.multikrum import select_multikrum

    def chosen(rows: Rows, f: int, count: int) -> Rows:
        contents = [
            RecordDict({"arrays": ArrayRecord({"w": Array(row)}), "metrics": MetricRecord({"num-examples": 1})})
            for row in rows
        ]
        picked = select_multikrum(contents, num_malicious_nodes=f, num_nodes_to_select=count)
        return np.stack([content["arrays"]["w"].numpy() for content in picked])

    def bulyan(rows: Rows, f: int) -> Any:
        count = len(rows) - 2 * f
        candidates = chosen(rows, f, count)
        middle = [np.median(candidates, axis=0)]
        return aggregate_n_closest_weights(middle, [[row] for row in candidates], count - 2 * f)[0]

    return {
        "Krum": lambda rows, f: chosen(rows, f, 1)[0],
        "MultiKrum": lambda rows, f: chosen(rows, f, len(rows) - f).mean(axis=0),
        "FedMedian": lambda rows, f: np.median(rows, axis=0),
        "FedTrimmedAvg": lambda rows, f: trim_mean(rows, cut_fraction=f / len(rows)),
        "Bulyan": checkouts.where_bulyan_may(bulyan),
    }


def without_parts(name: str, **parts: Any) -> None:
    """Make a package whose own ``__init__`` is not run, with stand-ins for some of its modules."""
    found = find_spec(name)
    if found is None:
        raise ImportError(f"No module named '{name}'")
    package = types.ModuleType(name)
    package.__path__ = list(found.submodule_search_locations or ())
    sys.modules[name] = package
    for part, contents in parts.items():
        module = types.ModuleType(f"{name}.{part}")
        vars(module).update(contents)
        sys.modules[module.__name__] = module


def blades_rules() -> dict[str, Rule]:
    """Rules of Blades 0.0.13, with tensors in double precision."""
    import torch

    without_parts("blades", client={"BladesClient": type("BladesClient", (), {})}, aggregators={})
    folder = Path(str(sys.modules["blades"].__path__[0])) / "aggregators"
    sys.modules["blades.aggregators"].__path__ = [str(folder)]

    # What it imports from older releases of torch and scikit-learn: a module of the first, a name of the second.
    sys.modules["torch._six"] = types.ModuleType("torch._six")
    vars(sys.modules["torch._six"])["inf"] = math.inf
    clusters: Any = importlib.import_module("sklearn.cluster")
    own = clusters.AgglomerativeClustering
    clusters.AgglomerativeClustering = lambda affinity, **options: own(metric=affinity, **options)

    def module(name: str) -> Any:
        return importlib.import_module(f"blades.aggregators.{name}")

    def call(make: Callable[[int, int], Any]) -> Rule:
        return lambda rows, f: make(len(rows), f)(torch.from_numpy(rows.copy())).numpy()

    def clipped(rows: Rows, f: int) -> Any:
        clients = [types.SimpleNamespace(get_update=row.clone) for row in torch.from_numpy(rows.copy())]
        return module("centeredclipping").Centeredclipping(tau=CLIP)(clients).numpy()

    return {
        "Mean": call(lambda n, f: module("mean").Mean()),
        "Median": call(lambda n, f: module("median").Median()),
        "Trimmedmean": call(lambda n, f: module("trimmedmean").Trimmedmean(nb=f)),
        "Krum": call(lambda n, f: module("krum").Krum(num_clients=n, num_byzantine=f)),
        "Geomed": call(lambda n, f: module("geomed").Geomed()),
        "Centeredclipping": clipped,
        "Clippedclustering": call(lambda n, f: module("clippedclustering").Clippedclustering()),
    }


def qora_rules() -> dict[str, Rule]:
    """Rules of qora-fl, in single precision, the only one it has."""
    import qora

    def call(method: Callable[[int], str], trim: Callable[[int, int], float] = lambda n, f: 0.0) -> Rule:
        def rule(rows: Rows, f: int) -> Any:
            aggregator = qora.ByzantineAggregator(method(f), trim(len(rows), f))
            return aggregator.aggregate([row[None].astype(np.float32) for row in rows])[0]

        return rule

    return {
        "fedavg": call(lambda f: "fedavg"),
        "median": call(lambda f: "median"),
        "trimmed_mean": call(lambda f: "trimmed_mean", lambda n, f: (f - 0.5) / n),  # they round up
        "krum": call(lambda f: f"krum:{f}"),
    }


def few_subsets(rule: Rule) -> Rule:
    """Leave out inputs for which all subsets cannot be tried."""
    return lambda rows, f: rule(rows, f) if math.comb(len(rows), f) <= MOST_SUBSETS else None


def seeded(rule: Rule) -> Rule:
    """Fix the random start of a power iteration."""

    def call(rows: Rows, f: int) -> Any:
        np.random.seed(0)  # noqa: NPY002 (their generator)
        return rule(rows, f)

    return call


LIBRARIES: dict[str, Callable[[], dict[str, Rule]]] = {
    "byzfl": byzfl_rules,
    "krum": krum_rules,
    "byzpy": byzpy_rules,
    "flwr": flwr_rules,
    "blades": blades_rules,
    "qora-fl": qora_rules,
    **checkouts.RULES,
}


def with_a_nan_row(rule: Rule, rows: Rows, f: int, without: Any) -> str:
    """Say what one row of NaN does to a rule: nothing, another finite result, NaN, or an error."""
    try:
        result = np.asarray(rule(np.vstack([rows, np.full((1, WIDTH), np.nan)]), f), dtype=np.float64)
    except Exception as error:  # noqa: BLE001 (whatever a library raises)
        return f"raises {type(error).__name__}"
    if not np.all(np.isfinite(result)):
        return "NaN"
    return "the same" if np.allclose(result, without, rtol=1e-9) else "changed"


def main() -> None:
    """Write the file."""
    cases = list(inputs())
    arrays, about = earlier(cases)
    for library, rules in LIBRARIES.items():
        try:
            found = rules()
        except ImportError as error:
            sys.stderr.write(f"{library} stays as it is: {error}\n")
            continue
        about["versions"][library] = checkouts.VERSIONS.get(library) or version(library)
        for name, rule in found.items():
            arrays[f"{library}: {name}"] = results = results_of(rule, cases)
            number = next(each for each, (rows, f) in enumerate(cases) if math.comb(len(rows) + 1, f) <= MOST_SUBSETS)
            about["nan"][f"{library}: {name}"] = with_a_nan_row(rule, *cases[number], results[number])
        attacks = {**ATTACKS, **checkouts.ATTACKS}
        for name, attack_of in attacks[library]().items() if library in attacks else ():

            def attacked(rows: Rows, f: int, attack_of: Attack = attack_of) -> Any:
                return attack_of(rows[: len(rows) - f], len(rows), f)

            arrays[f"{library} attack: {name}"] = results_of(attacked, cases)
    arrays["about"] = np.array(json.dumps(about, sort_keys=True))
    GOLDEN.parent.mkdir(exist_ok=True)
    np.savez_compressed(GOLDEN, **arrays)


def earlier(cases: list[tuple[Rows, int]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arrays in the file and what is known of the libraries, if it was made from the same inputs."""
    arrays: dict[str, Any] = {f"input {number}": rows for number, (rows, _) in enumerate(cases)}
    arrays["attackers"] = np.array([f for _, f in cases])
    about: dict[str, Any] = {"versions": {}, "nan": {}}
    if GOLDEN.exists():
        with np.load(GOLDEN, allow_pickle=False) as file:
            if all(name in file and np.array_equal(file[name], own) for name, own in arrays.items()):
                about = json.loads(str(file["about"]))
                arrays = {**{name: file[name] for name in file.files}, **arrays}
    about["versions"]["numpy"] = np.__version__
    return arrays, about


def results_of(rule: Rule, cases: list[tuple[Rows, int]]) -> Rows:
    """Return what a rule makes of each input; NaN where it has no result."""
    results = np.full((COUNT, WIDTH), np.nan)
    for number, (rows, f) in enumerate(cases):
        result = rule(rows.copy(), f)
        if result is not None:
            results[number] = np.asarray(result, dtype=np.float64)
    return results


if __name__ == "__main__":
    main()
