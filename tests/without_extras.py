"""Run Python as if the optional packages were not installed, in child processes too."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent

SIM = ("torch", "sklearn", "matplotlib", "jinja2")
"""What only the extra ``sim`` installs."""

_HOOK = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"No module named '{{name}}'", name=name)

sys.meta_path.insert(0, Missing())
"""


def run_without(
    folder: Path, missing: Iterable[str], arguments: Sequence[str], *, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments in a folder, where the missing modules cannot be imported."""
    hook = folder / "hook"
    hook.mkdir(exist_ok=True)
    # Every Python process imports sitecustomize before anything else.
    (hook / "sitecustomize.py").write_text(_HOOK.format(names=set(missing)), encoding="utf-8")
    path = os.pathsep.join([str(hook), str(ROOT / "src"), str(ROOT / "tests")])
    environment = {**os.environ, "PYTHONPATH": path, "COLUMNS": "200"}
    command = [sys.executable, *arguments]
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert not check or run.returncode == 0, f"{arguments}\n{run.stdout}\n{run.stderr}"
    return run
