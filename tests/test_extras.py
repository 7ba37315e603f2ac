"""The core works without the optional packages; whatever needs one of them says which extra installs it."""

from __future__ import annotations

import json
import re
import shlex
import tomllib

import pytest
from packaging.requirements import Requirement

from mabrfl.errors import EXTRAS, MissingExtraError, extra_needed
from without_extras import ROOT, SIM, run_without

EXIT_CODE = MissingExtraError.exit_code
FIGURE = str(ROOT / "results" / "figure1b.json.gz")
NEEDS_TORCH = "the simulator needs torch: pip install 'mabrfl[sim]'"

IMPORT_ALL = """
import importlib, pkgutil, mabrfl

for module in pkgutil.walk_packages(mabrfl.__path__, "mabrfl."):
    if module.name.endswith("__main__") or module.name == "mabrfl.sweeps.preload":
        continue
    try:
        importlib.import_module(module.name)
    except ImportError as error:
        print(module.name, str(error).partition(": ")[2])
"""

STRATEGY = """
from flower_grid import MemoryGrid, honest, model, pretend_a_task
from mabrfl.flower import MabRflStrategy

pretend_a_task()
strategy = MabRflStrategy(seed=3, min_available_nodes=10, fraction_evaluate=0.0, state_dir="state")
strategy.start(MemoryGrid({node: honest(node) for node in range(1, 11)}), model(), num_rounds=2, timeout=600.0)
print(len(strategy.defense.reputation))
"""


COMMANDS = """
import contextlib, io, json, os, sys
from mabrfl.cli.main import main

for arguments in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = main(arguments)
    print(json.dumps([code, out.getvalue(), err.getvalue(), sorted(os.listdir())]))
"""


def own_loop() -> str:
    """The README's loop for a server of one's own."""
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)
    [block] = [block for block in blocks if "import MabRfl, Updates" in block]
    return block


def test_the_loop_of_the_readme_needs_none_of_the_optional_packages(tmp_path):
    printed = run_without(tmp_path, EXTRAS, ["-c", own_loop()]).stdout
    assert "mallory" in printed


def test_the_flower_strategy_and_the_audit_need_nothing_of_the_simulator(tmp_path):
    pytest.importorskip("flwr")
    assert run_without(tmp_path, SIM, ["-c", STRATEGY]).stdout.split()[-1] == "10"
    verified = run_without(tmp_path, EXTRAS, ["-m", "mabrfl", "audit", "verify", "state"])
    assert "lines, unbroken" in verified.stdout


def commands_without(folder, commands):
    """Call these commands in one process; return the exit code, both outputs and the files there after each."""
    run = run_without(folder, EXTRAS, ["-c", COMMANDS, json.dumps([shlex.split(command) for command in commands])])
    return dict(zip(commands, map(json.loads, run.stdout.splitlines()), strict=True))


def test_commands_that_need_no_optional_package_work_without_them(tmp_path):
    shown = {
        "--help": "Run a federation, show it live, and record it.",
        "list": "mnist-cnn-small",
        f"table {FIGURE}": "97.63 ± 0.22",
        "data check digits": "the data set 'digits' needs scikit-learn: pip install 'mabrfl[sim]'",
    }
    for command, (_, out, _, _) in commands_without(tmp_path, shown).items():
        assert shown[command] in out


def test_a_command_that_needs_more_says_which_extra_and_leaves_nothing_behind(tmp_path):
    (tmp_path / "two.toml").write_text('name = "two"\n[base]\nrounds = 1\n[axes]\nseed = [0, 1]\n', encoding="utf-8")
    messages = {
        "run": NEEDS_TORCH,
        "sweep two.toml": NEEDS_TORCH,
        "demo": "the demo needs torch: pip install 'mabrfl[sim]'",
        f"plot {FIGURE}": "a picture needs matplotlib: pip install 'mabrfl[sim]'",
    }
    assert commands_without(tmp_path, messages) == {
        command: [EXIT_CODE, "", f"error: {message}\n", ["hook", "two.toml"]] for command, message in messages.items()
    }


def test_the_simulator_from_python_says_which_extra_it_needs(tmp_path):
    script = "import mabrfl\n"
    for code in ("mabrfl.Simulation", "mabrfl.simulate(mabrfl.RunConfig())"):
        script += f"try:\n    {code}\nexcept ImportError as error:\n    print(error)\n"
    assert run_without(tmp_path, EXTRAS, ["-c", script]).stdout == 2 * f"{NEEDS_TORCH}\n"


def test_every_module_imports_or_says_which_extra_it_needs(tmp_path):
    lines = run_without(tmp_path, EXTRAS, ["-c", IMPORT_ALL]).stdout.splitlines()
    failures = dict(line.split(maxsplit=1) for line in lines)
    assert set(failures.values()) == {f"pip install 'mabrfl[{extra}]'" for extra in ("sim", "flower", "nvflare")}
    rooms = {".".join(module.split(".")[:2]) for module in failures}
    assert rooms == {
        "mabrfl.arena",
        "mabrfl.attacks",
        "mabrfl.flower",
        "mabrfl.nvflare",
        "mabrfl.reports",
        "mabrfl.simulation",
    }


def test_every_optional_package_is_in_the_extra_that_its_message_names():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    in_messages = {package.lower() for package, extra in EXTRAS.values() if extra == "sim"}
    assert {Requirement(line).name for line in extras["sim"]} == in_messages
    # Flower's own simulation says by itself what it needs.
    assert {extra for _, extra in EXTRAS.values()} | {"all", "dev", "docs", "simulation"} == set(extras)


def test_a_missing_module_of_somebody_else_is_no_missing_extra():
    with pytest.raises(ModuleNotFoundError, match="own_helper"), extra_needed("X"):
        import own_helper  # noqa: F401


def test_the_check_for_a_package_does_not_import_it(tmp_path):
    code = "import sys; from mabrfl.errors import require; require('torch', 'X'); print('torch' in sys.modules)"
    assert run_without(tmp_path, [], ["-c", code]).stdout == "False\n"
