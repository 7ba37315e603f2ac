"""The notebook of the tutorial is its page, and its cells run in order."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NOTEBOOK = ROOT / "docs" / "tutorial.ipynb"


def test_the_notebook_is_made_of_the_page(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs" / "site")
    page = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    made = importlib.import_module("notebook").notebook_of(page)
    assert NOTEBOOK.read_text(encoding="utf-8") == made, "run: python docs/site/notebook.py"


def as_python(cell: str) -> str:
    """A cell in plain Python: what a notebook does with ``%%writefile`` and ``!`` lines."""
    first, _, rest = cell.partition("\n")
    if first.startswith("%%writefile "):
        return f"open({first.split()[1]!r}, 'w').write({rest!r})\n"
    lines = [f"call({line[1:]!r})" if line.startswith("!") else line for line in cell.splitlines()]
    return "\n".join(lines) + "\n"


CALL = """
import shlex, subprocess, sys
def call(line):
    program, *words = shlex.split(line)
    assert program == "mabrfl", line
    subprocess.run([sys.executable, "-m", "mabrfl", *words], check=True)
"""


def test_a_cell_of_a_notebook_is_read_as_a_notebook_reads_it():
    assert as_python("%%writefile a.py\nx = 1\n") == "open('a.py', 'w').write('x = 1\\n')\n"
    assert as_python("!mabrfl list\nx = 1") == "call('mabrfl list')\nx = 1\n"


@pytest.mark.slow  # the same commands as in the page, which test_readme.py runs, but each in a process of its own
def test_the_cells_of_the_notebook_run_in_order(tmp_path):
    cells = [cell for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    assert len(cells) > 10
    script = tmp_path / "notebook.py"
    script.write_text(CALL + "".join(as_python("".join(cell["source"])) for cell in cells), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "whisper:backwards" in done.stdout
    assert (tmp_path / "runs" / "shielded" / "clients.png").is_file()
