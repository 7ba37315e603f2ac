"""CPU seconds of starting: ``import mabrfl``, ``mabrfl --help`` and a short ``mabrfl run``, beside ``import numpy``.

Each is a fresh process with one thread of arithmetic; user and system time of the process and its children count.
The targets are ratios to ``import numpy`` in the same interleaved run, so that they hold on a faster or slower machine.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from functools import partial

from benchmarks.timing import best_of, report

REPEATS = 5
NUMPY, IMPORT, PUBLIC, HELP, RUN = "import numpy", "import mabrfl", "import MabRfl", "mabrfl --help", "mabrfl run"
COMMANDS = {
    NUMPY: ["-c", "import numpy"],
    IMPORT: ["-c", "import mabrfl"],
    PUBLIC: ["-c", "from mabrfl import MabRfl"],
    HELP: ["-m", "mabrfl", "--help"],
    RUN: ["-m", "mabrfl", "run", "--dataset", "digits", "--rounds", "3", "--quiet"],
}
# `import numpy` took 0.10 to 0.15 s where this was tried. Before commands and names were imported when they are used,
# the ratios were 5.5, 9.8 and 71.
TARGETS = {IMPORT: 1.0, HELP: 3.0, RUN: 35.0}


def cpu_of_children() -> float:
    """Return the user and system seconds of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def start(arguments: list[str], folder: str) -> None:
    """Run Python with these arguments."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    command = [sys.executable, *arguments]
    subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, check=True)


def main() -> bool:
    """Measure, print, and return whether all targets are met."""
    with tempfile.TemporaryDirectory() as folder:
        candidates = {name: partial(start, arguments, folder) for name, arguments in COMMANDS.items()}
        seconds = best_of(candidates, REPEATS, clock=cpu_of_children)
    title = f"CPU time of starting, best of {REPEATS}; the run is 3 rounds on digits"
    return report(title, seconds, base=NUMPY, targets=TARGETS)


if __name__ == "__main__":
    sys.exit(not main())
