"""Processes that are killed, and what is left of their runs; shared by the tests of resuming and of sweeps."""

from __future__ import annotations

import json
import os
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from mabrfl.config import ResolvedConfig
from mabrfl.recording import RoundRecord
from mabrfl.rng import generator
from mabrfl.updates import Verdict

TINY: dict[str, Any] = {
    "dataset": "digits",
    "clients": 6,
    "workers": 1,
    "training": {"epochs": 1},
    "partition": {"sizes": (8, 16)},
}
"""A run of hundredths of a second a round."""


class StubSimulation:
    """Looks like a simulation and takes no time: the weights are a chain of numbers that depend on all before."""

    def __init__(self, config: ResolvedConfig) -> None:
        self.config, self.round = config, 0
        self.dataset = SimpleNamespace(fingerprint=lambda: "f" * 64)
        self.model = SimpleNamespace(weights=np.zeros(5, np.float32), buffers=np.zeros(0, np.float32))

    def __enter__(self) -> StubSimulation:
        return self

    def __exit__(self, *details: object) -> None: ...

    def run(self) -> Iterator[RoundRecord]:
        while self.round < self.config.rounds:
            number = self.round + 1
            noise = generator(self.config.seed, "stub", number).normal(size=5).astype(np.float32)
            self.model.weights = self.model.weights * np.float32(0.9) + noise
            self.round = number
            score = float(self.model.weights.sum())
            yield RoundRecord(number, score, 1.0, (0,), {0: Verdict(True, "accepted")}, {0: (1.0 + number, 1.0)})

    def state_dict(self) -> dict[str, Any]:
        return {"round": self.round, "weights": self.model.weights.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.round, self.model.weights = state["round"], np.array(state["weights"])


def forked(work: Callable[[], Any]) -> int:
    """Start a copy of this process that does some work and exits; return its id."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 on threads, which the copy does not use
        child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    finally:
        os._exit(code)


def killed_after(child: int, seconds: float) -> bool:
    """Kill a process after some time; return whether it was still there."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            assert os.waitstatus_to_exitcode(status) == 0, "the process failed by itself"
            return False
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL)
    return code != 0


def ended(child: int) -> int:
    """Wait for a process and return its exit code."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def outcome(path: Path) -> dict[str, Any]:
    """Everything a finished run has written that must not depend on how often it was interrupted."""
    summary = json.loads((path / "summary.json").read_text())
    del summary["seconds"]
    records = [json.loads(line) for line in (path / "rounds.jsonl").read_text().splitlines()]
    for record in records:
        del record["seconds"]
    files = sorted(file.name for file in path.iterdir())
    config = [line for line in (path / "config.toml").read_text().splitlines() if not line.startswith("workers")]
    return {"summary": summary, "records": records, "config": config, "files": files}
