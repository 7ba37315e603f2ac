"""A stand-in for the simulator, so that the command line is tested without training anything."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mabrfl.cli import execution, run
from mabrfl.cli.main import main
from mabrfl.config import ResolvedConfig
from mabrfl.recording import RoundRecord
from mabrfl.rng import ClientId
from mabrfl.updates import Verdict


class FakeSimulation:
    """Every client is selected; attackers are caught from round 2 on."""

    def __init__(self, config: ResolvedConfig, before_round: Callable[[int], None] = lambda number: None) -> None:
        self.config, self.before_round = config, before_round
        self.attackers: frozenset[ClientId] = frozenset(range(config.num_attackers))
        self.dataset = SimpleNamespace(fingerprint=lambda: "f" * 64)
        self.num_clients = config.clients
        self.model = SimpleNamespace(weights=np.zeros(3, np.float32), buffers=np.zeros(0, np.float32))
        self.round = 0
        self.closed = False

    def __enter__(self) -> FakeSimulation:
        return self

    def __exit__(self, *details: object) -> None:
        self.closed = True

    def run(self) -> Iterator[RoundRecord]:
        while self.round < self.config.rounds:
            number = self.round + 1
            self.before_round(number)
            self.round = number
            self.model.weights += number
            caught = number > 1
            verdicts: dict[ClientId, Verdict] = {
                client: Verdict(False, "sybil", {"cosine": 1.0})
                if client in self.attackers and caught
                else Verdict(True, "accepted")
                for client in range(self.num_clients)
            }
            yield RoundRecord(number, 10.0 * number, 1.0, tuple(verdicts), verdicts, attackers=self.attackers)

    def state_dict(self) -> dict[str, Any]:
        return {"round": self.round, "weights": self.model.weights.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.round, self.model.weights = state["round"], state["weights"]


@dataclass
class Result:
    code: int
    out: str
    err: str


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Replace the simulator; what is given is called before each round."""

    def replace(before_round: Callable[[int], None] = lambda number: None) -> None:
        monkeypatch.setattr(run, "build_simulation", lambda config: FakeSimulation(config, before_round))

    replace()
    return replace


@pytest.fixture
def without_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most tests are not about pictures, which take most of their time."""
    monkeypatch.setattr(execution, "draw", lambda *run: None)


@pytest.fixture
def mabrfl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Result]:
    """Call the command line in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("COLUMNS", "100")

    def call(*arguments: str) -> Result:
        code = main(arguments)
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return call
