"""The strategy and the simulator give the same model and the same reputations, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord

from flower_grid import MemoryGrid, arrays_in, reply_to, round_in
from mabrfl import MabRfl
from mabrfl.catalog import build_model
from mabrfl.config import RunConfig
from mabrfl.flower import RobustStrategy
from mabrfl.simulation.client_data import partition_of
from mabrfl.simulation.federation import make_shards
from mabrfl.simulation.simulator import build_simulation, training_of
from mabrfl.simulation.training.flat import flatten, trainable, unflatten
from mabrfl.simulation.training.local import train_client


@pytest.mark.parametrize("preset", ["hardened", "paper"])
def test_a_run_through_flower_equals_the_simulators_run_bit_for_bit(preset):
    config = RunConfig(
        dataset="digits",
        clients=10,
        rounds=3,
        seed=2,
        workers=1,
        attack="label-flip",
        attackers=3,
        preset=preset,
        training={"engine": "loop"},
    )
    with build_simulation(config) as simulation:
        engine = simulation._engine
        start = simulation.model.weights.copy()
        grid = MemoryGrid({100 + k: _digits_client(simulation, k) for k in range(10)})
        strategy = RobustStrategy(
            MabRfl(preset, seed=2, dataset="digits"),
            min_train_nodes=1,
            trust_num_examples=True,
            identify=lambda grid, nodes: {node.node_id: node.node_id - 100 for node in nodes},
            fraction_evaluate=0.0,
        )
        assert engine.dimension == start.size
        layout = simulation._engine.layout
        sent = ArrayRecord({name: Array(part) for name, part in parts_of(start, layout).items()})
        result = strategy.start(grid, sent, num_rounds=3, timeout=600)
        records = list(simulation.run())
    assert np.array_equal(
        joined({name: result.arrays[name].numpy() for name in layout.shapes}), simulation.model.weights
    )
    assert strategy.defense.reputation == records[-1].reputation
    assert any(verdict.reason != "accepted" for record in records for verdict in record.verdicts.values())


def parts_of(weights, layout):
    return {name: weights[columns].reshape(layout.shapes[name]) for name, columns in layout.slices.items()}


def joined(parts):
    return np.concatenate([part.ravel() for part in parts.values()])


def _digits_client(simulation, k):
    """A node that trains as the simulator's client k does."""
    dataset, attackers = simulation.dataset, simulation.attackers
    partition = partition_of(simulation.config, dataset)
    shard = make_shards(dataset, partition, attack=simulation.attack, attackers=attackers, seed=2)[k]
    labels = dataset.train_labels.copy()
    if k in attackers:
        labels[shard.indices] = shard.poisoned_labels

    def answer(message):
        torch.set_num_threads(1)
        network = build_model("mlp", dataset.train_inputs.shape[1:], dataset.num_classes)
        layout = simulation._engine.layout
        received = arrays_in(message)
        unflatten(joined({name: received[name] for name in layout.shapes}), trainable(network))
        options = training_of(simulation.config)
        number = round_in(message)
        train_client(
            network, dataset.train_inputs, labels, options, seed=2, round=number, client=k, examples=shard.indices
        )
        return reply_to(message, parts_of(flatten(trainable(network)), layout), examples=len(shard))

    return answer
