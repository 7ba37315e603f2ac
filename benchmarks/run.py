"""Run all benchmarks; the exit code says whether every target is met."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))  # as a script, this file knows its own folder only

from benchmarks import engines, flower, growth, plain, server, starting
from benchmarks import round as round_benchmark

if __name__ == "__main__":
    server_work = [server.main(), growth.main(), plain.main()]
    results = [starting.main(), *server_work, engines.main(), round_benchmark.main(), flower.main()]
    sys.exit(not all(results))
