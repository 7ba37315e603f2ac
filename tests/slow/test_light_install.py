"""``pip install mabrfl`` into an environment of its own: what a server gets, and that it is enough."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from test_extras import STRATEGY, own_loop
from without_extras import ROOT

pytestmark = pytest.mark.slow

NOT_INSTALLED = {"torch", "scikit-learn", "matplotlib", "jinja2", "flwr", "pandas"}


def run(command: list[str], folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program that sees none of the packages of this environment."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | variables
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """The programs of a new environment, into which this package was installed without any extra."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    install = [str(folder / "bin" / "pip"), "install", "-c", str(ROOT / "constraints.txt")]
    made = run([*install, str(ROOT)], folder)
    if made.returncode != 0:
        pytest.skip(f"pip cannot install the dependencies here, is there a network? {made.stderr.strip()[-500:]}")
    return folder / "bin", install


def test_the_core_installs_no_simulator_and_is_enough_for_a_server(environment, tmp_path):
    programs, _ = environment
    listed = run([str(programs / "pip"), "list", "--format", "freeze"], tmp_path).stdout
    installed = {line.partition("==")[0].lower() for line in listed.splitlines()}
    assert {"mabrfl", "numpy", "scipy"} <= installed
    assert installed & NOT_INSTALLED == set()
    loop = run([str(programs / "python"), "-c", own_loop()], tmp_path)
    assert loop.returncode == 0, loop.stderr
    for arguments in (["--help"], ["list"], ["table", str(ROOT / "results" / "figure1b.json.gz")]):
        shown = run([str(programs / "mabrfl"), *arguments], tmp_path)
        assert shown.returncode == 0, shown.stderr
    refused = run([str(programs / "mabrfl"), "run"], tmp_path)
    assert refused.stderr == "error: the simulator needs torch: pip install 'mabrfl[sim]'\n"


def test_the_flower_strategy_runs_without_the_simulator_and_its_audit_can_be_verified(environment, tmp_path):
    programs, install = environment
    made = run([*install, f"{ROOT}[flower]"], tmp_path)
    if made.returncode != 0:
        pytest.skip(f"pip cannot install Flower here: {made.stderr.strip()[-500:]}")
    trained = run([str(programs / "python"), "-c", STRATEGY], tmp_path, PYTHONPATH=str(ROOT / "tests"))
    assert trained.returncode == 0, trained.stderr
    verified = run([str(programs / "mabrfl"), "audit", "verify", "state"], tmp_path)
    assert "lines, unbroken" in verified.stdout, verified.stderr
