"""Names and what they stand for: the package's own, those of entry points, and ``module:Name``.

Targets are written as text and imported when asked for, so that listing the catalogue costs nothing and
does not import torch.
"""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

from mabrfl.errors import ConfigError, MabRflError, suggest
from mabrfl.simulation.data.library import DATASETS

Kind = Literal["defenses", "selectors", "attacks", "models", "datasets"]
KINDS: tuple[Kind, ...] = get_args(Kind)
SINGULAR: Mapping[str, str] = {
    "defenses": "defense",
    "selectors": "selector",
    "attacks": "attack",
    "models": "model",
    "datasets": "data set",
}

_PACKAGE = Path(__file__).resolve().parents[1]
_TARGET = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


@dataclass(frozen=True)
class Entry:
    """One name of the package's own.

    Attributes
    ----------
    target
        ``module:Name``; for the members of a table ``module:TABLE[key]``.
    line
        What it is; the first line of the target's docstring if left out.
    fixed
        Arguments that the name stands for.
    """

    target: str
    line: str = ""
    fixed: Mapping[str, Any] = field(default_factory=dict)


_AVERAGING, _DISTANCE = "mabrfl.aggregation.averaging", "mabrfl.aggregation.distance"
_COORDINATEWISE, _CLIPPING = "mabrfl.aggregation.coordinatewise", "mabrfl.aggregation.clipping"
_MODELS = "mabrfl.simulation.training.models"

BUILT_IN: Mapping[Kind, Mapping[str, Entry]] = {
    "defenses": {
        "mab-rfl": Entry("mabrfl.mab.method:MabRfl"),
        "fedavg": Entry(f"{_AVERAGING}:FedAvg"),
        "fedavg-uniform": Entry(
            f"{_AVERAGING}:FedAvg",
            "Federated averaging in which every client weighs the same.",
            {"weighting": "uniform"},
        ),
        "krum": Entry(f"{_DISTANCE}:Krum"),
        "multi-krum": Entry(f"{_DISTANCE}:MultiKrum"),
        "faba": Entry(f"{_DISTANCE}:FABA"),
        "median": Entry(f"{_COORDINATEWISE}:Median"),
        "trimmed-mean": Entry(f"{_COORDINATEWISE}:TrimmedMean"),
        "dnc": Entry("mabrfl.aggregation.spectral:DnC"),
        "centered-clip": Entry(
            f"{_CLIPPING}:CenteredClip",
            "Centered clipping (Karimireddy et al., ICML 2021): from the last step, a mean of clipped differences.",
        ),
        "geometric-median": Entry(
            f"{_CLIPPING}:GeometricMedian",
            "Geometric median (RFA; Pillutla et al., IEEE TSP 2022): the point with the least sum of distances.",
        ),
    },
    "selectors": {
        "acs": Entry("mabrfl.selection.thompson:ACS"),
        "thompson-top": Entry("mabrfl.selection.thompson:ThompsonTop"),
        "budgeted": Entry("mabrfl.selection.budget:Budgeted"),
        "uniform": Entry("mabrfl.selection.uniform:Uniform"),
        "all": Entry("mabrfl.selection.uniform:All"),
    },
    "attacks": {
        "none": Entry("", "Nobody attacks."),
        "label-flip": Entry("mabrfl.attacks.data_poisoning:LabelFlip"),
        "lie": Entry("mabrfl.attacks.colluding:LIE"),
        "agr-krum": Entry("mabrfl.attacks.optimized:AgrKrum"),
        "min-max": Entry("mabrfl.attacks.optimized:MinMax"),
        "min-sum": Entry("mabrfl.attacks.optimized:MinSum"),
        "ipm": Entry("mabrfl.attacks.colluding:IPM"),
        "sign-flip": Entry("mabrfl.attacks.independent:SignFlip"),
        "gaussian": Entry("mabrfl.attacks.independent:Gaussian"),
        "mimic": Entry("mabrfl.attacks.mimic:Mimic"),
        "bridge": Entry("mabrfl.attacks.framing:Bridge"),
        "hub": Entry("mabrfl.attacks.framing:Hub"),
        "frame": Entry("mabrfl.attacks.framing:Frame"),
        "split-sybils": Entry("mabrfl.attacks.sybils:SplitSybils"),
        "jittered-sybils": Entry("mabrfl.attacks.sybils:JitteredSybils"),
        "orthogonal-drift": Entry("mabrfl.attacks.sybils:OrthogonalDrift"),
        "decoy": Entry("mabrfl.attacks.sybils:Decoy"),
        "magnitude": Entry("mabrfl.attacks.independent:Magnitude"),
        "sleeper": Entry("mabrfl.attacks.wrapping:Sleeper"),
        "on-off": Entry("mabrfl.attacks.wrapping:OnOff"),
        "whitewash": Entry("mabrfl.attacks.wrapping:Whitewash"),
        "braggart": Entry("mabrfl.attacks.wrapping:Braggart"),
        "backdoor": Entry("mabrfl.attacks.backdoor:Backdoor"),
        "agr-mab-rfl": Entry("mabrfl.attacks.tailored:AgrMabRfl"),
    },
    "models": {
        "mlp": Entry(f"{_MODELS}:MODELS[mlp]", "One hidden layer of 64 units; takes inputs of any shape."),
        "mnist-cnn": Entry(f"{_MODELS}:MODELS[mnist-cnn]", "Two convolutions (30, 50) and two dense layers (100, 10)."),
        "mnist-cnn-small": Entry(
            f"{_MODELS}:MODELS[mnist-cnn-small]", "The same with 16, 32 and 64: two and a half times as fast."
        ),
        "vgg-lite": Entry(
            f"{_MODELS}:MODELS[vgg-lite]", "The paper's simplified VGG16: six convolutions, 1,186,378 parameters."
        ),
        "vgg-tiny": Entry(f"{_MODELS}:MODELS[vgg-tiny]", "The same with a quarter of the widths."),
    },
    "datasets": {name: Entry("mabrfl.simulation.data.library:load") for name in ("digits", "mnist", "fashion-mnist", "cifar10")},
}

ALIASES: Mapping[Kind, Mapping[str, str]] = {"attacks": {"agrt": "agr-krum"}}
"""Other names in use, by kind."""


def known_name(kind: Kind, name: str) -> str:
    """Return the name by which the catalogue knows something; an alias becomes the name it stands for.

    Raises
    ------
    ConfigError
        If there is no such name; with the nearest one.
    """
    name = ALIASES.get(kind, {}).get(name, name)
    if name in BUILT_IN[kind] or _TARGET.fullmatch(name) or name in _entry_points(kind):
        return name
    if ":" in name:
        raise ConfigError(f"{SINGULAR[kind]} '{name}' is not of the form module:Name")
    names = [*BUILT_IN[kind], *ALIASES.get(kind, {}), *_entry_points(kind)]
    raise ConfigError(f"unknown {SINGULAR[kind]} '{name}'{suggest(name, names)}")


def resolve_name(kind: Kind, name: str) -> Any:
    """Return what a name stands for: a class, a function, or an object.

    Names of the package come first, then those of installed packages' entry points in the group
    ``mabrfl.<kind>``, then ``module:Name``.

    Raises
    ------
    ConfigError
        If the name is unknown or what it stands for cannot be imported.
    """
    name = known_name(kind, name)
    if name in BUILT_IN[kind]:
        return _imported(BUILT_IN[kind][name].target)
    points = _entry_points(kind)
    target = points[name].value if name in points else name
    try:
        return _imported(target)
    except MabRflError:
        raise
    except Exception as error:  # the user's module may raise anything while it is imported
        raise ConfigError(_import_failure(kind, name, target, error)) from error


def describe(kind: Kind) -> list[tuple[str, str]]:
    """Return every name of a kind with one line on what it is: the package's own, then entry points."""
    lines = [(name, entry.line or _own_line(kind, name)) for name, entry in BUILT_IN[kind].items()]
    for name, point in sorted(_entry_points(kind).items()):
        if name not in BUILT_IN[kind]:
            lines.append((name, f"{_imported_line(kind, name)} [{point.value}]"))
    return lines


def _entry_points(kind: Kind) -> dict[str, importlib.metadata.EntryPoint]:
    return {point.name: point for point in importlib.metadata.entry_points(group=f"mabrfl.{kind}")}


def _imported(target: str) -> Any:
    """Return ``module:Name`` or ``module:TABLE[key]``."""
    module_name, _, path = target.partition(":")
    path, bracket, key = path.partition("[")
    found: Any = importlib.import_module(module_name)
    for part in path.split("."):
        if not hasattr(found, part):
            public = [name for name in dir(found) if not name.startswith("_")]
            raise ConfigError(f"module '{module_name}' has no '{path}'{suggest(path, public)}")
        found = getattr(found, part)
    return found[key.rstrip("]")] if bracket else found


def _import_failure(kind: Kind, name: str, target: str, error: Exception) -> str:
    module = target.partition(":")[0]
    missing = isinstance(error, ModuleNotFoundError) and error.name in (module, module.partition(".")[0])
    cause = (
        "there is no such module in the current folder or among the installed packages"
        if missing
        else f"{type(error).__name__}: {' '.join(str(error).split())}"
    )
    return f"{SINGULAR[kind]} '{name}': cannot import '{module}': {cause}"


def _imported_line(kind: Kind, name: str) -> str:
    try:
        return first_line(resolve_name(kind, name).__doc__)
    except ConfigError as error:
        return f"cannot be used: {error}"


def _own_line(kind: Kind, name: str) -> str:
    """Return what something of this package is, by reading docstrings in the source, not importing it."""
    if kind == "datasets":
        return DATASETS[name]
    module, _, name = BUILT_IN[kind][name].target.partition(":")
    path = _PACKAGE.joinpath(*module.split(".")[1:]).with_suffix(".py")
    return first_line(_docstrings(path).get(name))


@cache
def _docstrings(path: Path) -> dict[str, str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        node.name: ast.get_docstring(node) or ""
        for node in tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef)
    }


def first_line(docstring: str | None) -> str:
    """Return a docstring's first sentence or line; of rst markup only the text."""
    line = (docstring or "").strip().partition("\n\n")[0]
    return re.sub(r":\w+:`~?([^`]*)`|`+([^`]*)`+", lambda match: match[1] or match[2], " ".join(line.split()))
