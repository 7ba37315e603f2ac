"""A node: it trains honestly, or attacks if it is configured to.

A node attacks if its own node-config says so (``--node-config 'partition-id=3 attack="nan"'``), or if it is one of
the attackers that the run's configuration draws.
"""

from __future__ import annotations

import os
import time

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from mabrfl_flower import task

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train on the model received, and reply with the result."""
    partition, clients, seed = _partition(context)
    attack = _attack(context)
    arrays = message.content.array_records["arrays"]
    number = int(str(message.content.config_records["config"]["server-round"]))
    if attack == "crash":
        raise RuntimeError("this node crashes on purpose")
    if attack == "exit":
        os._exit(1)
    if attack == "slow":
        time.sleep(float(str(context.run_config["slow-seconds"])))
    network = task.train(
        arrays, partition=partition, clients=clients, seed=seed, round_number=number, flip=attack == "label-flip"
    )
    trained = ArrayRecord(network.state_dict())
    if attack == "lie":
        trained = ArrayRecord(task.little_lie(arrays, network, partition=partition, round_number=number))
    metrics = MetricRecord({"num-examples": task.num_examples(partition, clients, seed)})
    return Message(RecordDict({"arrays": _corrupted(trained, attack), "metrics": metrics}), reply_to=message)


@app.query()
def identity(message: Message, context: Context) -> Message:
    """Reply with the partition of this node; the server asks only with ``identity = "claimed"``."""
    return Message(RecordDict({"config": ConfigRecord({"partition-id": _partition(context)[0]})}), reply_to=message)


def _partition(context: Context) -> tuple[int, int, int]:
    """Return this node's partition, the number of partitions, and the seed of the split."""
    clients = context.node_config.get("num-partitions", context.run_config["num-partitions"])
    return int(str(context.node_config["partition-id"])), int(str(clients)), int(str(context.run_config["seed"]))


def _attack(context: Context) -> str:
    """Return the name of this node's attack; "none" if it is honest."""
    own = context.node_config.get("attack")
    if own is not None:
        return str(own)
    partition, clients, seed = _partition(context)
    share = float(str(context.run_config["attackers"]))
    chosen = str(context.run_config["attack"])
    return chosen if task.is_attacker(partition, clients, share, seed) else "none"


def _corrupted(arrays: ArrayRecord, attack: str) -> ArrayRecord:
    """Return the arrays, one of them damaged as a broken client might send it."""
    key = next(iter(arrays))
    values = arrays[key].numpy().copy()
    if attack == "nan":
        values.flat[0] = float("nan")
        arrays[key] = Array(values)
    elif attack == "wrong-shape":
        arrays[key] = Array(values[:-1])
    return arrays
