"""What the strategy adds to a round on Flower, beside Flower's own FedAvg, with the same messages.

Fixed: 50 clients, the 139,960 parameters of the MNIST network and the 1,186,378 of the CIFAR-10 network, as arrays
of ten layers each. Measured is the server's own work in a round: ``configure_train`` and ``aggregate_train``, from
packed replies to the packed model; no network, no training.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Strategy
from flwr.supercore.task_identity import TaskIdentity

from mabrfl.flower import MabRflStrategy, RobustStrategy
from mabrfl.rng import generator

CLIENTS, ATTACKERS, ROUNDS, LAYERS = 50, 15, 6, 10
SIZES = (139_960, 1_186_378)
TARGETS = {"fedavg": 2.0, "mab-rfl": 2.0, "mab-rfl, state saved": 4.0, "the same, no momenta": 4.0}
"""The largest multiples of the CPU seconds of Flower's FedAvg."""


class Nodes(Grid):
    """Fifty nodes that are online; nothing is sent anywhere."""

    def set_run(self, run: Any) -> None:
        """Do nothing: there is no run."""

    @property
    def run(self) -> Any:
        """Return nothing: there is no run."""
        return None

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        """Not needed."""
        raise NotImplementedError

    def get_node_ids(self) -> list[int]:
        """Return the nodes' ids."""
        return list(range(1, CLIENTS + 1))

    def get_nodes(self) -> list[NodeInfo]:
        """Return the nodes."""
        return [NodeInfo(node_id=node, public_key=b"%d" % node) for node in self.get_node_ids()]

    def push_messages(self, messages: Any) -> list[str]:
        """Give every message an id."""
        for number, message in enumerate(messages):
            message.metadata.__dict__["_message_id"] = f"{message.metadata.group_id}-{number}"
        return [message.metadata.message_id for message in messages]

    def pull_messages(self, message_ids: Any) -> list[Message]:
        """Not needed."""
        raise NotImplementedError

    def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> list[Message]:
        """Not needed."""
        raise NotImplementedError


def layers(vector: np.ndarray[Any, Any]) -> ArrayRecord:
    """Return a vector as a record of several arrays."""
    return ArrayRecord({f"layer{k}": Array(part) for k, part in enumerate(np.array_split(vector, LAYERS))})


def replies(size: int) -> list[RecordDict]:
    """Return 35 honest models with something in common, and 15 that are almost copies of one."""
    rng = generator(0, "benchmark")
    common, bad = (rng.standard_normal(size, dtype=np.float32) for _ in range(2))
    made = []
    for client in range(CLIENTS):
        own = rng.standard_normal(size, dtype=np.float32)
        row = own + 0.5 * common if client < CLIENTS - ATTACKERS else bad + 0.1 * own
        metrics = MetricRecord({"num-examples": 100})
        made.append(RecordDict({"arrays": layers(row), "metrics": metrics}))
    return made


def strategies(folder: Path) -> dict[str, Callable[[], Strategy]]:
    """Return what is compared. All 50 clients take part in every round, so that all do the same work."""
    shared: dict[str, Any] = {"selector": "all", "min_available_nodes": CLIENTS, "fraction_evaluate": 0.0}
    return {
        "Flower FedAvg": lambda: FedAvg(min_available_nodes=CLIENTS, fraction_evaluate=0.0),
        "fedavg": lambda: RobustStrategy("fedavg", **shared),
        "krum": lambda: RobustStrategy("krum", num_malicious_nodes=ATTACKERS, **shared),
        "mab-rfl": lambda: MabRflStrategy(**shared),
        "mab-rfl, no momenta": lambda: MabRflStrategy(momenta="none", **shared),
        "mab-rfl, state saved": lambda: MabRflStrategy(state_dir=folder / "kept", **shared),
        "the same, no momenta": lambda: MabRflStrategy(state_dir=folder / "light", momenta="none", **shared),
    }


class Server:
    """A strategy and its rounds.

    Attributes
    ----------
    wall, cpu
        Seconds of each round.
    """

    def __init__(self, strategy: Strategy, contents: list[RecordDict], model: ArrayRecord) -> None:
        self.strategy, self.contents, self.arrays = strategy, contents, model
        self.wall: list[float] = []
        self.cpu: list[float] = []
        if isinstance(strategy, RobustStrategy) and strategy.state_dir is not None:
            strategy.state.prepare(model)
            strategy.state.open(strategy.state_dir, strategy.config())

    def round(self) -> None:
        """Do the server's work of one round, and measure it."""
        grid, number = Nodes(), len(self.wall) + 1
        began = _clocks()
        messages = list(self.strategy.configure_train(number, self.arrays, ConfigRecord(), grid))
        between = _clocks()
        grid.push_messages(messages)
        answers = [
            Message(self.contents[message.metadata.dst_node_id - 1], reply_to=message)
            for message in sorted(messages, key=lambda message: message.metadata.dst_node_id)
        ]
        again = _clocks()
        moved, _ = self.strategy.aggregate_train(number, answers)
        wall, cpu = between - began + _clocks() - again
        self.wall.append(wall)
        self.cpu.append(cpu)
        self.arrays = moved or self.arrays

    def close(self) -> None:
        """Close the folder of the state."""
        if isinstance(self.strategy, RobustStrategy):
            self.strategy.state.close()


def _clocks() -> np.ndarray[Any, Any]:
    return np.array([time.perf_counter(), time.process_time()])


def memory(size: int, name: str) -> float:
    """Return the largest memory (MB) that a process needs for the rounds of one strategy, replies among it."""
    command = [sys.executable, __file__, str(size), name]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1])


def main() -> bool:
    """Measure and print; the strategies take turns, and the best round of each but its first counts."""
    passed = True
    for size in SIZES:
        print(f"\nFlower: the server's work in a round, {CLIENTS} clients x {size:,} parameters, best of {ROUNDS - 1}")
        print(f"  {'strategy':<24} {'wall ms':>8} {'x FedAvg':>9} {'CPU ms':>8} {'x FedAvg':>9} {'peak MB':>8}  target")
        contents, model = replies(size), layers(np.full(size, 0.01, np.float32))
        with tempfile.TemporaryDirectory() as place:
            servers = {name: Server(make(), contents, model) for name, make in strategies(Path(place)).items()}
            for _ in range(ROUNDS):
                for server in servers.values():
                    server.round()
            for server in servers.values():
                server.close()
        walls = {name: min(server.wall[1:]) for name, server in servers.items()}
        cpus = {name: min(server.cpu[1:]) for name, server in servers.items()}
        for name in servers:
            wall, cpu = (each[name] / each["Flower FedAvg"] for each in (walls, cpus))
            target = TARGETS.get(name)
            met = target is None or cpu <= target  # the machine may be busy
            passed = passed and met
            verdict = "" if target is None else f"<= {target:g} {'met' if met else 'missed'}"
            print(
                f"  {name:<24} {1000 * walls[name]:8.1f} {wall:9.2f} {1000 * cpus[name]:8.1f} {cpu:9.2f}"
                f" {memory(size, name):8.0f}  {verdict}"
            )
    return passed


def _alone(size: int, name: str) -> None:
    with tempfile.TemporaryDirectory() as place:
        server = Server(strategies(Path(place))[name](), replies(size), layers(np.full(size, 0.01, np.float32)))
        for _ in range(ROUNDS):
            server.round()
        server.close()
    # Not getrusage: its high-water mark is inherited from the process that started this one.
    status = Path("/proc/self/status").read_text(encoding="ascii")
    print(next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM")))


# Flower tells the process of a ServerApp who it is, and messages carry that; here nobody does.
TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
logging.getLogger("flwr").setLevel(logging.ERROR)

if __name__ == "__main__":
    if len(sys.argv) == 3:
        _alone(int(sys.argv[1]), sys.argv[2])
    else:
        sys.exit(not main())
