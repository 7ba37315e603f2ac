"""What a node does: train honestly, or attack if it was told to.

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
    partition, clients, seed = _place(context)
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
    return Message(RecordDict({"arrays": _spoilt(trained, attack), "metrics": metrics}), reply_to=message)


@app.query()
def who(message: Message, context: Context) -> Message:
    """Say which part of the data this node has; only asked for with ``identity = "claimed"``."""
    return Message(RecordDict({"config": ConfigRecord({"partition-id": _place(context)[0]})}), reply_to=message)


def _place(context: Context) -> tuple[int, int, int]:
    """Return which part of how many this node has, and the seed by which they are dealt out."""
    clients = context.node_config.get("num-partitions", context.run_config["num-partitions"])
    return int(str(context.node_config["partition-id"])), int(str(clients)), int(str(context.run_config["seed"]))


def _attack(context: Context) -> str:
    """Return what this node does to the others; "none" if it is honest."""
    own = context.node_config.get("attack")
    if own is not None:
        return str(own)
    partition, clients, seed = _place(context)
    share = float(str(context.run_config["attackers"]))
    chosen = str(context.run_config["attack"])
    return chosen if task.is_attacker(partition, clients, share, seed) else "none"


def _spoilt(arrays: ArrayRecord, attack: str) -> ArrayRecord:
    """Return the arrays with what a broken client may send in one of them."""
    key = next(iter(arrays))
    values = arrays[key].numpy().copy()
    if attack == "nan":
        values.flat[0] = float("nan")
        arrays[key] = Array(values)
    elif attack == "wrong-shape":
        arrays[key] = Array(values[:-1])
    return arrays
