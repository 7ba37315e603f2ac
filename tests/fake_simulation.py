"""A stand-in for the simulator, so that the command line is tested without training anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

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
