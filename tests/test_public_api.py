"""``from mabrfl import ...``: every public name, imported when it is first used."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import mabrfl

EXTEND = Path(__file__).parent.parent / "docs" / "extend.md"
COMMAND_LINE = {"click", "pydantic", "rich", "typer"}
NAMES = [name for name in mabrfl.__all__ if name != "__version__"]


def type_checking_imports() -> dict[str, str]:
    """Name to module, as type checkers and editors see it."""
    tree = ast.parse(Path(mabrfl.__file__).read_text(encoding="utf-8"))
    [block] = [node for node in tree.body if isinstance(node, ast.If)]
    return {
        alias.name: str(node.module) for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }


def test_type_checkers_see_the_names_that_the_package_has():
    assert sorted(type_checking_imports()) == sorted(NAMES)
    assert set(mabrfl.__all__) <= set(dir(mabrfl))


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_is_the_one_of_its_module(name):
    assert getattr(mabrfl, name) is getattr(import_module(type_checking_imports()[name]), name)


@pytest.mark.parametrize("name", ["krum", "Krumm", "__wrapped__"])
def test_an_unknown_name_is_an_attribute_error(name):
    with pytest.raises(AttributeError, match=f"module 'mabrfl' has no attribute '{name}'"):
        getattr(mabrfl, name)


def test_the_page_names_everything_that_a_rule_sees():
    table = EXTEND.read_text(encoding="utf-8").partition("| attribute of `Cohort` |")[2].partition("\n\n")[0]
    seen = {name for name in dir(mabrfl.Cohort) if not name.startswith("_")} | {*mabrfl.Cohort.__dataclass_fields__}
    assert set(re.findall(r"`(\w+)[`(]", table)) - {"num_malicious"} >= seen


def modules_after(code: str) -> set[str]:
    script = f"import sys\n{code}\nprint(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def test_importing_the_package_imports_none_of_its_dependencies():
    assert modules_after("import mabrfl") & {"numpy", "scipy", "torch", "matplotlib", "flwr", *COMMAND_LINE} == set()


def test_the_defense_of_a_server_imports_nothing_of_the_command_line_or_the_simulator():
    loaded = modules_after("from mabrfl import MabRfl, Updates, Krum, Uniform, Attack; MabRfl(seed=0)")
    assert loaded & {"torch", "sklearn", "matplotlib", "mabrfl.simulation", *COMMAND_LINE} == set()
