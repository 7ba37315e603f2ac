"""The walls of the house, checked on the source itself: who may import whom, and what nobody may do."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

import mabrfl

PACKAGE = Path(mabrfl.__file__).parent

CORE = (
    "mabrfl.aggregation",
    "mabrfl.defense",
    "mabrfl.errors",
    "mabrfl.explaining",
    "mabrfl.global_model",
    "mabrfl.layout",
    "mabrfl.mab",
    "mabrfl.protocols",
    "mabrfl.reputation",
    "mabrfl.rng",
    "mabrfl.screening",
    "mabrfl.selection",
    "mabrfl.updates",
    "mabrfl.vectors",
)
CORE_MUST_NOT_REACH = (
    "flwr",
    "mabrfl.attacks",
    "mabrfl.recording.evaluation",
    "mabrfl.simulation",
    "matplotlib",
    "torch",
)
ATTACKS_MUST_NOT_REACH = ("mabrfl.defense", "mabrfl.screening", "mabrfl.selection", "mabrfl.simulation", "torch")

UNSAFE_MODULES = ("cloudpickle", "dill", "joblib", "marshal", "pickle", "random", "shelve")
RANDOM_TYPES = {"BitGenerator", "Generator"}
"""Of ``numpy.random`` only these names may be used outside ``rng.py``: as types."""


def name_of(path: Path, root: Path = PACKAGE) -> str:
    parts = path.relative_to(root.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def within(name: str, places: Iterable[str]) -> bool:
    return any(name == place or name.startswith(place + ".") for place in places)


@cache
def sources() -> dict[str, Path]:
    return {name_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imports(tree: ast.AST, module: str, *, is_package: bool = False) -> Iterator[str]:
    """Every name imported anywhere in a module, absolute; ``from a import b`` yields ``a.b``."""
    base = module.split(".") if is_package else module.split(".")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = base[: len(base) - node.level + 1] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{origin}.{alias.name}" for alias in node.names)


@cache
def import_graph() -> dict[str, set[str]]:
    """Module -> what it imports; our own names are cut down to the module they are found in."""
    files = sources()

    def home(name: str) -> str:
        while within(name, ["mabrfl"]) and name not in files:
            name = name.rpartition(".")[0]
        return name

    return {
        module: {home(name) for name in imports(tree_of(path), module, is_package=path.name == "__init__.py")}
        for module, path in files.items()
    }


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def ways_to(graph: dict[str, set[str]], start: str, forbidden: Iterable[str]) -> list[str]:
    """Chains of imports that lead from a module to a forbidden one, e.g. ``a -> b -> torch``.

    The top ``mabrfl`` package is not followed: it re-exports everything, lazily where that is heavy,
    which the test in a fresh interpreter below is about.
    """
    chains = {start: start}
    queue = [start]
    found = []
    for module in queue:
        for name in sorted(graph.get(module, ())):
            if within(name, forbidden):
                found.append(f"{chains[module]} -> {name}")
            elif name in graph and name not in chains and name != "mabrfl":
                chains[name] = f"{chains[module]} -> {name}"
                queue.append(name)
    return found


def dotted(node: ast.AST) -> str:
    """``np.random.seed`` for the expression of that name, else an empty string."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        front = dotted(node.value)
        return f"{front}.{node.attr}" if front else ""
    return ""


def offences(tree: ast.Module, module: str) -> list[str]:
    """What nobody may do: run code from data, or draw from a stream without a name."""
    return [
        *(f"imports {name}" for name in imports(tree, module) if within(name, [*UNSAFE_MODULES, "torch.load"])),
        *(f"imports {name}" for name in imports(tree, module) if _is_nameless_stream(name, module)),
        *(found for node in ast.walk(tree) for found in _offences_of(node, module)),
    ]


def _is_nameless_stream(name: str, module: str) -> bool:
    front, _, last = name.replace("np.", "numpy.", 1).rpartition(".")
    return front == "numpy.random" and last not in RANDOM_TYPES and module != "mabrfl.rng"


def _offences_of(node: ast.AST, module: str) -> Iterator[str]:
    if isinstance(node, ast.Attribute):
        name = dotted(node)
        if name == "torch.load" or _is_nameless_stream(name, module):
            yield f"line {node.lineno}: {name}"
    elif isinstance(node, ast.Call):
        if dotted(node.func) in {"eval", "exec", "builtins.eval", "builtins.exec", "compile"}:
            yield f"line {node.lineno}: {dotted(node.func)}"
        for keyword in node.keywords:
            refused = isinstance(keyword.value, ast.Constant) and keyword.value.value is False
            if keyword.arg in {"allow_pickle", "shell"} and not refused:
                yield f"line {node.lineno}: {keyword.arg}={ast.unparse(keyword.value)}"


def modules_in(places: Iterable[str]) -> list[str]:
    return [module for module in sources() if within(module, places)]


@pytest.mark.parametrize("module", modules_in(CORE))
def test_defense_core_reaches_neither_torch_nor_the_truth(module):
    assert ways_to(import_graph(), module, CORE_MUST_NOT_REACH) == []


@pytest.mark.parametrize("module", modules_in(["mabrfl.attacks"]))
def test_attacks_reach_neither_torch_nor_the_defense(module):
    assert ways_to(import_graph(), module, ATTACKS_MUST_NOT_REACH) == []


@pytest.mark.parametrize("module", [name for name in sources() if not within(name, ["mabrfl.flower"])])
def test_only_the_adapter_knows_flower(module):
    assert [name for name in import_graph()[module] if within(name, ["flwr", "mabrfl.flower"])] == []


@pytest.mark.parametrize("module", [name for name in sources() if name != "mabrfl.sweeps.ray_cluster"])
def test_one_module_knows_ray(module):
    assert [name for name in import_graph()[module] if within(name, ["ray"])] == []


@pytest.mark.parametrize("module", [name for name in sources() if name != "mabrfl.nvflare.components"])
def test_one_module_knows_nvflare(module):
    beside = [] if within(module, ["mabrfl.nvflare"]) else ["mabrfl.nvflare"]
    assert [name for name in import_graph()[module] if within(name, ["nvflare", *beside])] == []


_BESIDE_SERVERS = ("simulation", "attacks", "runs", "sweeps", "reports", "live", "arena", "cli", "testing")
LATER: dict[str, tuple[str, ...]] = {
    "mabrfl.catalog": ("config", "recording", "runs", "sweeps", "reports", "live", "arena", "cli"),
    "mabrfl.config": ("recording", "runs", "sweeps", "reports", "live", "arena", "cli", "testing"),
    "mabrfl.recording": ("simulation", "runs", "sweeps", "reports", "live", "arena", "cli", "testing"),
    "mabrfl.simulation": ("runs", "sweeps", "reports", "live", "arena", "cli", "testing"),
    "mabrfl.runs": ("sweeps", "reports", "live", "arena", "cli", "testing"),
    "mabrfl.sweeps": ("reports", "live", "arena", "cli", "testing"),
    "mabrfl.reports": ("live", "arena", "cli", "testing"),
    "mabrfl.arena": ("live", "cli", "testing"),
    "mabrfl.live": ("simulation", "reports", "arena", "flower", "nvflare", "cli", "testing"),
    "mabrfl.flower": ("nvflare", *_BESIDE_SERVERS),
    "mabrfl.nvflare": ("flower", *_BESIDE_SERVERS),
}
"""The rooms that a room may not use: they are built on it, or beside it."""

AT_THE_NODES = "mabrfl.flower.attacking_node"
"""It runs at nodes that attack, and the only module of its room that may use the attacks."""


@pytest.mark.parametrize(("room", "later"), LATER.items(), ids=LATER)
def test_a_room_does_not_use_those_that_are_built_on_it(room: str, later: tuple[str, ...]) -> None:
    graph, forbidden = import_graph(), [f"mabrfl.{name}" for name in later]
    used = {f"{module} -> {name}" for module in modules_in([room]) for name in graph[module] if within(name, forbidden)}
    assert {use for use in used if not use.startswith(f"{AT_THE_NODES} -> mabrfl.attacks")} == set()


def test_every_room_says_what_it_offers() -> None:
    rooms = {path for name, path in sources().items() if path.name == "__init__.py" and name != "mabrfl"}
    silent = [path.parent.name for path in rooms if len((ast.get_docstring(tree_of(path)) or "").split()) < 8]
    assert silent == []


def test_at_most_a_dozen_modules_lie_loose_at_the_top() -> None:
    loose = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__", "__main__", "_version"}
    assert len(loose) <= 12, sorted(loose)


def test_no_two_files_share_a_name() -> None:
    """The files of the command line are named after their commands."""
    stems = Counter(path.stem for name, path in sources().items() if not within(name, ["mabrfl.cli"]))
    assert {stem for stem, number in stems.items() if number > 1} == {"__init__"}


def test_no_two_public_classes_share_a_name() -> None:
    classes = Counter(
        node.name
        for path in sources().values()
        for node in tree_of(path).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert {name for name, number in classes.items() if number > 1} == set()


@pytest.mark.parametrize("module", sorted(sources()))
def test_no_module_runs_code_from_data_or_draws_without_a_name(module):
    assert offences(tree_of(sources()[module]), module) == []


@pytest.mark.parametrize("room", [*CORE, "mabrfl.attacks"])
def test_every_room_with_walls_exists(room):
    assert modules_in([room]), f"{room} is guarded here but there is no such module: was it renamed?"


def test_importing_the_package_does_not_import_what_is_heavy():
    script = "import sys, mabrfl; print(*sorted({'torch', 'matplotlib', 'flwr', 'typer'} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []


def test_importing_the_adapter_imports_neither_torch_nor_what_knows_the_truth():
    script = (
        "import sys, mabrfl.flower; "
        "print(*sorted({'torch', 'ray', 'mabrfl.attacks', 'mabrfl.simulation.simulator'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from pickle import loads",
        "import random",
        "from torch import load",
        "import torch\ntorch.load('x')",
        "import numpy as np\nnp.load('x', allow_pickle=True)",
        "import numpy as np\nnp.load('x', allow_pickle=trusted)",
        "eval('1')",
        "import builtins\nbuiltins.exec('1')",
        "import numpy as np\nnp.random.seed(0)",
        "import numpy\nnumpy.random.normal()",
        "import numpy as np\nnp.random.default_rng(0)",
        "from numpy.random import default_rng",
        "import subprocess\nsubprocess.run('ls', shell=True)",
    ],
)
def test_an_offence_is_found(code):
    assert len(offences(ast.parse(code), "mabrfl.somewhere")) == 1


@pytest.mark.parametrize(
    "code",
    [
        "model.eval()",
        "import numpy as np\nnp.load('x', allow_pickle=False)",
        "import numpy as np\ndef f(rng: np.random.Generator) -> None: ...",
        "from mabrfl.rng import generator\ngenerator(0, 'x').normal()",
        "import re\nre.compile('x')",
    ],
)
def test_ordinary_code_is_no_offence(code):
    assert offences(ast.parse(code), "mabrfl.somewhere") == []


def test_only_the_module_of_named_streams_may_make_a_generator():
    tree = ast.parse("import numpy as np\nnp.random.PCG64(1)")
    assert offences(tree, "mabrfl.rng") == []
    assert offences(tree, "mabrfl.vectors") == ["line 2: np.random.PCG64"]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import torch.nn as nn", ["torch.nn"]),
        ("from mabrfl import vectors", ["mabrfl.vectors"]),
        ("from . import view", ["mabrfl.attacks.view"]),
        ("from ..screening.sybil import groups", ["mabrfl.screening.sybil.groups"]),
        ("def f():\n    import torch", ["torch"]),
        ("if TYPE_CHECKING:\n    from torch import Tensor", ["torch.Tensor"]),
    ],
)
def test_an_import_is_found_wherever_and_however_it_is_written(code, expected):
    assert list(imports(ast.parse(code), "mabrfl.attacks.lie")) == expected


def test_a_forbidden_module_is_found_behind_another():
    graph = {"mabrfl.a": {"mabrfl.b", "mabrfl"}, "mabrfl.b": {"torch.nn"}, "mabrfl": {"flwr"}}
    assert ways_to(graph, "mabrfl.a", ["torch", "flwr"]) == ["mabrfl.a -> mabrfl.b -> torch.nn"]
