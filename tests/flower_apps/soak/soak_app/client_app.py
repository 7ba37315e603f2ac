"""A node that trains; with ``attack`` in its node-config it lies, or sends garbage of another kind in every round."""

from __future__ import annotations

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from soak_app import task

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train on the model received, and reply with the result."""
    node = context.node_config
    partition, of = int(str(node["partition-id"])), int(str(node["num-partitions"]))
    return answer(message, str(context.run_config["data"]), partition, of, str(node.get("attack", "")))


def answer(message: Message, data: str, partition: int, of: int, attack: str = "") -> Message:
    """Return a node's reply, which depends on its number, the model and the round alone."""
    number = int(str(message.content.config_records["config"]["server-round"]))
    model = {key: array.numpy() for key, array in message.content.array_records["arrays"].items()}
    images, labels = task.part(data, partition, of)
    if attack == "flip":
        labels = 9 - labels
    weights: dict[str, np.ndarray] = dict(
        task.trained(model, images, labels, np.random.default_rng([number, partition]))
    )
    examples = len(labels)
    if attack == "garbage":
        weights, examples = garbage(weights, number), [examples, 10**12, -1][number % 3]
    arrays = ArrayRecord({key: Array(values) for key, values in weights.items()})
    return Message(
        RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": examples})}), reply_to=message
    )


def garbage(weights: dict[str, np.ndarray], number: int) -> dict[str, np.ndarray]:
    """Return something that is no model, in one of five ways."""
    first, *others = weights
    return [
        {**weights, first: np.full_like(weights[first], np.nan)},
        {**weights, first: weights[first][:-1]},
        {key: weights[key] for key in others},
        {key: np.full_like(values, 1e38) for key, values in weights.items()},
        {key: values.astype(np.int64) for key, values in weights.items()},
    ][number % 5]
