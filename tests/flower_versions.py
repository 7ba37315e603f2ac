"""The releases of Flower that the strategy is tested with, and a script that tests each in an environment of its own.

``make test-flower-versions`` runs it. An environment has what a server needs, without torch and matplotlib. If a folder
already has the release, it is used as it is. A release that cannot be installed is reported as not tested, and one in
an environment that pip finds incomplete is reported as such; the script then ends with code 2.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

TESTED = ("1.38.0", "1.41.0", "1.42.0")
"""The oldest release in the range of pyproject.toml, the one in constraints.txt, and the newest."""

ROOT = Path(__file__).parent.parent
PACKAGES = ("click", "numpy", "pydantic", "rich", "safetensors", "scipy", "threadpoolctl", "tomli-w", "typer")
TOOLS = ("hypothesis", "pytest")
TESTS = (
    "edges",
    "faults",
    "fetching",
    "internals",
    "malformed",
    "round_trip",
    "settings",
    "state",
    "deployment",
    "engine",
)


def environment(folder: Path, version: str) -> Path | None:
    """Return the Python of an environment with this release of Flower; None if it cannot be installed."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    if installed(python) != version:
        command = [python, "-m", "pip", "install", "-q", *PACKAGES, *TOOLS, f"flwr[simulation]=={version}"]
        if subprocess.run(command, check=False).returncode != 0:
            return None
    return python


def complete(python: Path) -> bool:
    """Return whether pip finds all requirements met; in a folder made by hand they may not be."""
    return subprocess.run([python, "-m", "pip", "check"], check=False).returncode == 0


def installed(python: Path) -> str:
    """Return the release of Flower in an environment; empty if there is none."""
    code = "import importlib.metadata; print(importlib.metadata.version('flwr'))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=False).stdout.strip()


def test(python: Path) -> bool:
    """Run the tests of the strategy, and a run of Flower's simulation engine, in an environment."""
    files = [str(ROOT / "tests" / "flower" / f"test_{name}.py") for name in TESTS]
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files]
    paths = {"PYTHONPATH": str(ROOT / "src"), "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **paths}, check=False).returncode == 0


def main(folder: Path) -> int:
    """Test every release; return 1 if one fails, 2 if one could not be tested as pip would install it."""
    outcomes = {}
    for version in TESTED:
        sys.stdout.write(f"== Flower {version}\n")
        sys.stdout.flush()
        python = environment(folder / version, version)
        if python is None:
            outcomes[version] = "NOT TESTED: it cannot be installed"
        elif not test(python):
            outcomes[version] = "FAILED"
        else:
            outcomes[version] = "passed" if complete(python) else "passed, but ITS REQUIREMENTS ARE NOT MET"
    for version, outcome in outcomes.items():
        sys.stdout.write(f"Flower {version}: {outcome}\n")
    if "FAILED" in outcomes.values():
        return 1
    return 0 if set(outcomes.values()) == {"passed"} else 2


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).absolute()))
