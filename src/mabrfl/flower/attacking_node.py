"""A mod for ClientApps that makes nodes attack, to test a server. It runs at the nodes, never at the server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message
from flwr.clientapp.typing import ClientAppCallable, Mod

from mabrfl import catalog
from mabrfl.attacks import Attack, AttackerView, Knowledge, Secrets, craft
from mabrfl.checks import check_whole
from mabrfl.errors import ConfigError
from mabrfl.flower.schema import ModelSchema
from mabrfl.protocols import Stateful
from mabrfl.updates import Floats

SEEN = "mabrfl.attack"
"""The record of a node's state with the last model that it received, and its round."""


def attack_mod(
    name: str,
    *,
    where: Callable[[Context], bool] | None = None,
    num_clients: int = 50,
    num_malicious: int = 15,
    samples: int = 5,
    seed: int = 0,
    **options: Any,
) -> Mod:
    """Return a mod for a ClientApp: the app trains as it does, and the mod replaces what the node sends.

    Parameters
    ----------
    name, options
        An attack of the catalogue (``mabrfl list attacks``) or ``module:Name``, and its options. It must work on
        updates, without a copy of the defense and without a memory: sign-flip, gaussian, lie, ipm, min-max, growing,
        free-rider, nan-sender, a sleeper around one of these, and others.
    where
        Which nodes attack, by their context; all by default.
    num_clients, num_malicious
        K and f, as far as the attackers know them: ``lie`` computes its factor from them.
    samples
        A node does not know the updates of other nodes. An attack that needs them gets the updates of this many
        trainings of its own node instead.
    seed
        Nodes with the same seed share what an attack draws once for all of them, such as a direction.

    Raises
    ------
    ConfigError
        If the attack cannot run at a single node.

    Examples
    --------
    >>> from flwr.clientapp import ClientApp
    >>> liars = lambda context: context.node_config["partition-id"] < 3
    >>> app = ClientApp(mods=[attack_mod("lie", z=1.5, where=liars)])
    """
    check_whole("samples", samples, at_least=1)
    check_whole("num_clients", num_clients, at_least=1)
    check_whole("num_malicious", num_malicious, at_least=1)
    counts = {"num_clients": num_clients, "num_malicious": num_malicious, "seed": seed}
    attack = _checked(name, catalog.build_attack(name, options, **counts))
    trainings = samples if attack.knowledge is Knowledge.PARTIAL else 1

    def mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        if message.metadata.message_type.partition(".")[0] != "train" or not (where is None or where(context)):
            return call_next(message, context)
        replies = [call_next(message, context) for _ in range(trainings)]
        if any(reply.has_error() for reply in replies):
            return next(reply for reply in replies if reply.has_error())
        schema = ModelSchema.of(_arrays(message))
        weights, _ = schema.vectors(_arrays(message))
        rows = np.stack([_trained(schema, reply) for reply in replies]) - weights
        number = _round(message)
        view = AttackerView(
            round=number,
            attackers=(context.node_id,),
            num_clients=num_clients,
            num_malicious=num_malicious,
            knowledge=attack.knowledge,
            global_weights=weights,
            last_step=_last_step(context, weights, number),
            layout=schema.layout,
            own_updates=rows[:1],
            seed=seed,
            secrets=Secrets(rows, tuple(f"training {each}" for each in range(trainings))),
        )
        sent = craft(attack, view)
        return replies[0] if sent is None else _with(replies[0], schema, weights + sent[0], attack)

    return mod


def _checked(name: str, attack: Attack | None) -> Attack:
    """Refuse an attack that cannot run at a node."""
    reason = ""
    if attack is None:
        reason = "it attacks nobody"
    elif attack.poisons:
        reason = "it poisons data; train on poisoned data in your app instead"
    elif attack.measures:
        reason = "it measures models on data, which this mod does not have"
    elif attack.knowledge is Knowledge.FULL:
        reason = "it tries its updates on a copy of the defense, which no node has"
    elif isinstance(attack, Stateful) and _remembers(attack.state_dict()):
        reason = "it remembers earlier rounds"
    if attack is None or reason:
        raise ConfigError(f"attack '{name}' cannot run at a single node: {reason}")
    return attack


def _remembers(state: dict[str, Any]) -> bool:
    return any(_remembers(value) if isinstance(value, dict) else True for value in state.values())


def _arrays(message: Message) -> ArrayRecord:
    records = list(message.content.array_records.values())
    if len(records) != 1:
        raise ConfigError(f"attack_mod needs one ArrayRecord in each message; got {len(records)}")
    return records[0]


def _trained(schema: ModelSchema, reply: Message) -> Floats:
    arrays = _arrays(reply)
    if list(arrays) != [part.key for part in schema.parts]:
        raise ConfigError("attack_mod needs replies with the arrays of the model, in their order")
    return schema.vectors(arrays)[0]


def _round(message: Message) -> int:
    for record in message.content.config_records.values():
        if "server-round" in record:
            return int(str(record["server-round"]))
    raise ConfigError("attack_mod needs 'server-round' in the configuration of each message")


def _last_step(context: Context, weights: Floats, number: int) -> Floats | None:
    """Return the last step of the global model if the node saw the last round's model; remember this one."""
    seen = context.state.array_records.get(SEEN)
    context.state[SEEN] = ArrayRecord({"weights": Array(weights), "round": Array(np.array([number]))})
    if seen is None or int(seen["round"].numpy()[0]) != number - 1:
        return None
    last: Floats = seen["weights"].numpy()
    return weights - last


def _with(reply: Message, schema: ModelSchema, weights: Floats, attack: Attack) -> Message:
    """Return the reply with these weights and the attack's claim; buffers and metrics stay as they are."""
    [(key, arrays)] = reply.content.array_records.items()
    reply.content[key] = schema.record(weights, schema.vectors(arrays)[1], arrays)
    for record in reply.content.metric_records.values():
        claimed = record.get("num-examples")
        if isinstance(claimed, int):
            [claim] = attack.claims([claimed])
            record["num-examples"] = type(claimed)(claim)
    return reply
