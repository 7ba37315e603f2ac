"""The server: it uses the strategy in place of FedAvg."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg, Result, Strategy

from mabrfl.flower import ClaimedIdentity, MabRflStrategy, RobustStrategy, by_public_key
from mabrfl_flower import task

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the federation, and write the accuracy after every round."""
    config = context.run_config
    seed = int(str(config["seed"]))

    def evaluate(_number: int, arrays: ArrayRecord) -> MetricRecord:
        return MetricRecord({"accuracy": task.accuracy(arrays, seed)})

    strategy = make_strategy(config)
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(task.make_model(seed).state_dict()),
        num_rounds=int(str(config["num-server-rounds"])),
        timeout=float(str(config["round-timeout"])),
        evaluate_fn=evaluate,
    )
    if config["results"]:
        write_results(Path(str(config["results"])), result, strategy)


def make_strategy(config: Mapping[str, Any]) -> Strategy:
    """Return the strategy that the run's configuration names."""
    nodes, seed, name = int(config["min-available-nodes"]), int(config["seed"]), str(config["strategy"])
    if name == "fedavg":
        return FedAvg(min_available_nodes=nodes, fraction_evaluate=0.0)
    claimed = ClaimedIdentity("partition-id", timeout=float(config["round-timeout"]))
    shared: dict[str, Any] = {
        "seed": seed,
        "min_available_nodes": nodes,
        "min_train_nodes": int(config["min-train-nodes"]),
        "fraction_evaluate": 0.0,
        "state_dir": config["state-dir"] or None,
        "identify": claimed if config["identity"] == "claimed" else by_public_key,
    }
    if name == "mab-rfl":
        return MabRflStrategy(dataset="digits", **shared)
    return RobustStrategy(name, num_malicious_nodes=int(float(config["attackers"]) * nodes), **shared)


def write_results(path: Path, result: Result, strategy: Strategy) -> None:
    """Write the accuracy of every round, and the reputations."""
    reputation = strategy.defense.reputation if isinstance(strategy, RobustStrategy) else {}
    summary = {
        "accuracy": {number: record["accuracy"] for number, record in result.evaluate_metrics_serverapp.items()},
        "rounds": {number: dict(record) for number, record in result.train_metrics_clientapp.items()},
        "reputation": [[client, *belief] for client, belief in reputation.items()],
    }
    path.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
