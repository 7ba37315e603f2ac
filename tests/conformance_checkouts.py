"""Rules and attacks of libraries that are not on the package index, from a checkout of each, for the golden vectors.

    git clone https://github.com/vio1etus/FLPoison && git -C FLPoison checkout eb74fb2
    git clone https://github.com/CRYPTO-KU/FL-Byzantine-Library && git -C FL-Byzantine-Library checkout 327adf0
    git clone https://github.com/fedlib/fedlib && git -C fedlib checkout 132253f
    FLPOISON=FLPoison FLBYZ=FL-Byzantine-Library FEDLIB=fedlib PYTHONPATH=src:tests python tests/conformance_peers.py

fedlib has the rules of today's Blades. They need torch, scipy, scikit-learn and hdbscan. Of each library only the files
with rules and attacks are imported: their clients, data and models need more, and have stand-ins here.
"""

from __future__ import annotations

import importlib
import os
import random
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

Rows = np.ndarray[Any, Any]
Rule = Callable[[Rows, int], Any]
Attack = Callable[[Rows, int, int], Any]

VERSIONS = {"FLPoison": "eb74fb2", "FL-Byzantine-Library": "327adf0", "fedlib": "132253f"}
"""The commits for which these functions were written.

The committed vectors were made from the text of these files in an index of public code, without comments and reports.
There each file has the commit of one stored version: for fedlib also 3aac843 (Krum, SignGuard, centered clipping) and
0880217 (its clipping function).
"""

CLIP = 3.0


def checkout(variable: str) -> Path:
    """Return the folder that an environment variable names."""
    folder = Path(os.environ.get(variable, ""))
    if not os.environ.get(variable) or not folder.is_dir():
        raise ImportError(f"set {variable} to the folder of a checkout, see {Path(__file__).name}")
    return folder


def stand_in(name: str, folder: Path | None = None, **contents: Any) -> None:
    """Put a module in place of one of theirs; with a folder, a package whose own ``__init__`` is not run."""
    module = types.ModuleType(name)
    if folder is not None:
        module.__path__ = [str(folder)]
    vars(module).update(contents)
    sys.modules[name] = module


class Registry(dict[str, Any]):
    """Their registry of classes by name."""

    def __call__(self, kind: Any) -> Any:
        """Remember a class and return it."""
        self[kind.__name__] = kind
        return kind


class FLPoisonClient:
    """Their client, without data and training."""

    category = "attacker"

    def __init__(self, args: Any, *others: Any) -> None:
        self.args = args

    def load_global_model(self, weights: Any) -> None:
        """Do nothing: the update is given."""

    def local_training(self) -> None:
        """Do nothing: the update is given."""

    def fetch_updates(self, benign_flag: bool) -> None:
        """Do nothing: the update is given."""


class Writable(np.ndarray[Any, Any]):
    """An array whose ``data`` can be set, as NumPy's could."""

    @property
    def data(self) -> Any:  # type: ignore[override]
        """The array itself."""
        return self

    @data.setter
    def data(self, values: Any) -> None:
        self[...] = values


def for_older_numpy(module: Any) -> None:
    """Give a module what it uses of older releases: ``int`` of an array with one number, and ``array.data = ...``."""
    module.int = lambda number: int(np.asarray(number).item())
    if hasattr(module, "vec2state"):
        own = module.vec2state
        module.vec2state = lambda *args, **options: {
            name: array.view(Writable) for name, array in own(*args, **options).items()
        }


def flpoison(name: str) -> Any:
    """Import one of their modules."""
    folder = checkout("FLPOISON")
    if "aggregators" not in sys.modules:
        stand_in("aggregators", folder / "aggregators", aggregator_registry=Registry())
        stand_in("attackers", folder / "attackers", attacker_registry=Registry())
        stand_in("fl", folder / "fl")
        stand_in("fl.models", folder / "fl" / "models")
        stand_in("fl.client", Client=FLPoisonClient)
        stand_in("global_utils", actor=lambda *kinds: lambda kind: kind)
        stand_in("datapreprocessor", folder / "datapreprocessor")
        stand_in("datapreprocessor.data_utils", dataset_class_indices=None, subset_by_idx=None)
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(folder))


def flpoison_rules() -> dict[str, Rule]:
    """Rules of FLPoison. Their share of clients is half a client larger, so that rounding does not change the count."""
    flpoison("aggregators.krum")
    import torch

    def make(name: str, rows: Rows, f: int, **options: Any) -> Any:
        args = types.SimpleNamespace(
            num_clients=len(rows), num_adv=f, algorithm="FedSGD", defense_params=options or None
        )
        module = flpoison(f"aggregators.{name.lower()}")
        if name in {"SignGuard", "LASA"} and not hasattr(module, "int"):
            for_older_numpy(module)
        if name == "FLTrust":
            rule = module.FLTrust.__new__(module.FLTrust)
            rule.args, rule.server_client = args, FLPoisonClient(args)
            rule.server_client.update = rows[0]
            return rule
        return getattr(module, name)(args)

    def call(name: str, layers: Callable[[], Any] | None = None, **options: Any) -> Rule:
        def rule(rows: Rows, f: int) -> Any:
            own = {key: value(len(rows), f) if callable(value) else value for key, value in options.items()}
            np.random.seed(0)  # noqa: NPY002 (their generator)
            random.seed(0)
            model = (layers or (lambda: torch.nn.Linear(rows.shape[1], 1, bias=False)))().double()
            for weights in model.parameters():
                weights.data.zero_()
            return make(name, rows, f, **own).aggregate(rows.copy(), last_global_model=model, global_weights_vec=None)

        return rule

    flpoison("aggregators.mean")
    return {
        "Mean": call("Mean"),
        "Median": call("Median"),
        "TrimmedMean": call("TrimmedMean", beta=lambda n, f: (f + 0.5) / n),
        "Krum": call("Krum"),
        "MultiKrum": call("MultiKrum", avg_percentage=lambda n, f: (n - f + 0.5) / n),
        "Bulyan": where_bulyan_may(call("Bulyan")),
        "RFA": call("RFA"),
        "CenteredClipping": call("CenteredClipping", norm_threshold=CLIP),
        "DnC": call("DnC", subsample_frac=1.0),
        "NormClipping": call("NormClipping", norm_threshold=CLIP),
        "SignGuard": where_it_finds_a_cluster(call("SignGuard", selection_fraction=1.0)),
        "SignGuard (MeanShift)": call("SignGuard", selection_fraction=1.0, clustering="MeanShift"),
        "FoolsGold": call("FoolsGold", lambda: torch.nn.Linear(5, 4)),
        "FLTrust": call("FLTrust"),
        "FLAME": call("FLAME", gamma=0.0),
        "LASA": call("LASA", norm_bound=1),
        "Bucketing + Mean": where_even(call("Bucketing", selected_aggregator="Mean")),
    }


def flpoison_attacks() -> dict[str, Attack]:
    """Attacks of FLPoison."""

    def call(module: str, name: str) -> Attack:
        def attack(honest: Rows, n: int, f: int) -> Any:
            args = types.SimpleNamespace(num_clients=n, num_adv=f, algorithm="FedSGD", attack_params=None)
            attacker = getattr(flpoison(f"attackers.{module}"), name)(args, 0, None, None)
            clients = [types.SimpleNamespace(update=row, category="benign") for row in honest]
            return attacker.omniscient(clients)[0]

        return attack

    def sign_flip(honest: Rows, n: int, f: int) -> Any:
        attacker = flpoison("attackers.signflipping").SignFlipping(None, 0, None, None)
        attacker.update = honest[0]
        return attacker.non_omniscient()

    return {
        "ALIE": call("alie", "ALIE"),
        "IPM": call("ipm", "IPM"),
        "MinMax": call("min", "MinMax"),
        "MinSum": call("min", "MinSum"),
        "Mimic": call("mimic", "Mimic"),
        "SignFlipping": sign_flip,
    }


def flbyz(name: str) -> Any:
    """Import one of the modules of FL-Byzantine-Library; its packages get names of their own."""
    folder = checkout("FLBYZ")
    if "flbyz" not in sys.modules:
        stand_in("flbyz")
        for part in ("aggregators", "attacks"):
            stand_in(f"flbyz.{part}", folder / part)

        class Client:
            def __init__(self, args: Any, device: str) -> None:
                self.args, self.device = args, device

        stand_in("client", client=Client)
        stand_in("utils")
    return importlib.import_module(f"flbyz.{name}")


def flbyz_rules() -> dict[str, Rule]:
    """Rules of FL-Byzantine-Library, with tensors in double precision."""
    krum, base = flbyz("aggregators.krum"), flbyz("aggregators.base")
    import torch

    def call(make: Callable[[int, int], Any]) -> Rule:
        def rule(rows: Rows, f: int) -> Any:
            np.random.seed(0)  # noqa: NPY002 (their generator)
            torch.manual_seed(0)
            return make(len(rows), f)(list(torch.from_numpy(rows.copy()))).numpy()

        return rule

    def trust(rows: Rows, f: int) -> Any:
        kind = flbyz("aggregators.fl_trust").FL_trust
        rule = kind.__new__(kind)
        rule.loader, rule.momentum = (), torch.from_numpy(rows[0])
        return rule(list(torch.from_numpy(rows.copy()))).numpy()

    def signguard(rows: Rows, f: int) -> Any:
        # With a column of zeros at the end, the only place for their window is that of all other columns.
        wide = np.hstack([rows, np.zeros((len(rows), 1))])
        module = flbyz("aggregators.signguard")
        for_older_numpy(module)
        return call(lambda n, f: module.SignGuard(n, sparsity_ratio=rows.shape[1] / wide.shape[1] + 1e-9))(wide, f)[:-1]

    def bucketed(rows: Rows, f: int) -> Any:
        np.random.seed(0)  # noqa: NPY002 (their generator)
        buckets = flbyz("aggregators.Bucketing").Bucketing(2)(list(torch.from_numpy(rows.copy())), None)
        return torch.stack(buckets).mean(dim=0).numpy()

    return {
        "Mean": call(lambda n, f: base.Mean()),
        "CM": call(lambda n, f: flbyz("aggregators.cm").CM()),
        "TM": call(lambda n, f: flbyz("aggregators.trimmed_mean").TM(f)),
        "Krum": call(lambda n, f: krum.Krum(n, f, mk=False)),
        "Krum (m = n - f)": call(lambda n, f: krum.Krum(n, f, n - f)),
        "Bulyan": where_bulyan_may(call(lambda n, f: flbyz("aggregators.bulyan").Bulyan(n, f))),
        "RFA": call(lambda n, f: flbyz("aggregators.rfa").RFA(3)),
        "Clipping": call(lambda n, f: flbyz("aggregators.clipping").Clipping(CLIP)),
        "DnC": call(lambda n, f: flbyz("aggregators.dnc").DnC(n, f)),
        "SignGuard": signguard,
        "FoolsGold": call(lambda n, f: flbyz("aggregators.foolsGold").FoolsGold(n)),
        "FL_trust": trust,
        "Flame": call(lambda n, f: flbyz("aggregators.flame").Flame(add_noise=False)),
        "SignSGD": call(lambda n, f: flbyz("aggregators.sign_sgd").SignSGD()),
        "Bucketing + mean": where_even(bucketed),
    }


def flbyz_attacks() -> dict[str, Attack]:
    """Attacks of FL-Byzantine-Library."""
    import torch

    def call(make: Callable[..., Any], **options: Any) -> Attack:
        def attack(honest: Rows, n: int, f: int) -> Any:
            args = types.SimpleNamespace(alie_z_max=None, MITM=True, **options)
            attacker = make(n, f)(args=args, device="cpu")
            attacker.omniscient_callback(list(torch.from_numpy(honest.copy())))
            return attacker.adv_momentum.numpy()

        return attack

    def of(module: str, name: str) -> Callable[[int, int], Any]:
        kind = getattr(flbyz(f"attacks.{module}"), name)
        return lambda n, f: lambda **given: kind(n, f, **given)

    ipm = flbyz("attacks.ipm").IPMAttack
    return {
        "alie": call(of("alie", "alie")),
        "IPMAttack": call(lambda n, f: lambda **given: ipm(0.5, **given)),
        "minmax": call(of("minmax", "minmax"), pert_vec="std"),
        "minsum": call(of("minsum", "minsum"), pert_vec="std"),
        "fang (krum)": call(of("fang", "fang"), aggr="krum"),
        "fang (tm)": call(of("fang", "fang"), aggr="tm"),
    }


def fedlib_rules() -> dict[str, Rule]:
    """Rules of fedlib, with tensors in double precision; of Ray it needs a few names only."""
    folder = checkout("FEDLIB") / "fedlib"
    import torch

    stand_in("fedlib", folder)
    stand_in("fedlib.aggregators", folder / "aggregators")
    stand_in("fedlib.utils", folder / "utils")
    with mock.patch.dict(sys.modules):
        for name in ("ray", "ray.rllib", "ray.rllib.utils"):
            stand_in(name, folder)
        stand_in("ray.rllib.utils.annotations", PublicAPI=lambda own: own, Deprecated=lambda **_: lambda own: own)
        stand_in("ray.rllib.utils.framework", try_import_torch=lambda: (torch, torch.nn))
        stand_in("ray.rllib.utils.typing", LocalOptimizer=None, TensorStructType=None, TensorType=None)
        clipping = importlib.import_module("fedlib.utils.torch_utils")
    sys.modules["fedlib.utils"].torch_utils = clipping  # type: ignore[attr-defined]

    def call(module: str, name: str, options: Callable[[int, int], dict[str, Any]] = lambda n, f: {}) -> Rule:
        kind = getattr(importlib.import_module(f"fedlib.aggregators.{module}"), name)

        def rule(rows: Rows, f: int) -> Any:
            torch.manual_seed(0)
            return kind(**options(len(rows), f))(list(torch.from_numpy(rows.copy()))).numpy()

        return rule

    return {
        "Mean": call("aggregators", "Mean"),
        "Median": call("aggregators", "Median"),
        "Trimmedmean": call("aggregators", "Trimmedmean", lambda n, f: {"num_byzantine": f}),
        "GeoMed": call("aggregators", "GeoMed"),
        "DnC": call("aggregators", "DnC", lambda n, f: {"num_byzantine": f}),
        "Multikrum": call("multikrum", "Multikrum", lambda n, f: {"num_byzantine": f}),
        "Multikrum (k = n - f)": call("multikrum", "Multikrum", lambda n, f: {"num_byzantine": f, "k": n - f}),
        "Centeredclipping": call("centeredclipping", "Centeredclipping", lambda n, f: {"tau": CLIP}),
        "Clippedclustering": call("clippedclustering", "Clippedclustering"),
        "Signguard": call("signguard", "Signguard"),
    }


def where_bulyan_may(rule: Rule) -> Rule:
    """Leave out inputs for which Bulyan's condition does not hold."""
    return lambda rows, f: rule(rows, f) if len(rows) >= 4 * f + 3 else None


def where_it_finds_a_cluster(rule: Rule) -> Rule:
    """Leave out inputs for which a rule ends in an error, since there is no cluster."""

    def call(rows: Rows, f: int) -> Any:
        try:
            return rule(rows, f)
        except ValueError:
            return None

    return call


def where_even(rule: Rule) -> Rule:
    """Leave out inputs with an odd number of rows: the mean of means of two is the mean of all for the others."""
    return lambda rows, f: rule(rows, f) if len(rows) % 2 == 0 else None


RULES: dict[str, Callable[[], dict[str, Rule]]] = {
    "FLPoison": flpoison_rules,
    "FL-Byzantine-Library": flbyz_rules,
    "fedlib": fedlib_rules,
}
ATTACKS: dict[str, Callable[[], dict[str, Attack]]] = {
    "FLPoison": flpoison_attacks,
    "FL-Byzantine-Library": flbyz_attacks,
}
