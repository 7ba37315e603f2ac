"""The strategy as an operator would run it: state, alerts, the head of the audit, several files of the audit."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from flwr.app import Array, ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

from mabrfl.flower import MabRflStrategy
from soak_app import task

app = ServerApp()

KEEP = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read() + '\\n')"


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the federation."""
    run(grid, context.run_config)


def run(grid: Grid, config: Mapping[str, Any]) -> float:
    """Run the rounds that are left; return the accuracy of the last model."""
    data = str(config["data"])

    def evaluate(_number: int, arrays: ArrayRecord) -> MetricRecord:
        return MetricRecord({"accuracy": task.accuracy(data, {key: array.numpy() for key, array in arrays.items()})})

    strategy = MabRflStrategy(
        seed=1,
        fraction_evaluate=0.0,
        min_available_nodes=int(config["nodes"]),
        state_dir=config["state-dir"] or None,
        accept_changes=bool(config["accept-changes"]),
        audit_max_bytes=100_000,
        record_head=config["head"] or None,
        alert_command=[sys.executable, "-c", KEEP, str(config["alerts"])] if config["alerts"] else None,
        **({"forgive": float(config["forgive"])} if config["forgive"] else {}),
    )
    model = ArrayRecord({key: Array(values) for key, values in task.initial().items()})
    rounds, timeout = int(config["rounds"]), float(config["round-timeout"])
    result = strategy.start(grid, model, num_rounds=rounds, timeout=timeout, evaluate_fn=evaluate)
    return task.accuracy(data, {key: array.numpy() for key, array in result.arrays.items()})
