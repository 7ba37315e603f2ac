"""The task: scikit-learn's digits, split unevenly; data and model are those of ``mabrfl run --dataset digits``."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from flwr.app import ArrayRecord
from numpy.typing import NDArray
from torch import nn

from mabrfl.config import ResolvedConfig, RunConfig, resolve
from mabrfl.rng import generator
from mabrfl.simulation.client_data import partition_of
from mabrfl.simulation.data import Dataset, load
from mabrfl.simulation.federation import choose_attackers
from mabrfl.simulation.simulator import training_of
from mabrfl.simulation.training import MODELS, initialise, train_client
from mabrfl.simulation.training.local import to_tensor


@cache
def digits() -> Dataset:
    """Return the data set; it comes with scikit-learn."""
    return load("digits")


@cache
def settings(seed: int, clients: int) -> ResolvedConfig:
    """Return the settings of the split and of training: mabrfl's defaults for the digits."""
    return resolve(RunConfig(dataset="digits", clients=clients, seed=seed))


@cache
def parts(seed: int, clients: int) -> list[NDArray[np.int64]]:
    """Return the training examples of each client."""
    return partition_of(settings(seed, clients), digits())


def make_model(seed: int) -> nn.Module:
    """Return the network with its initial weights."""
    data = digits()
    network = MODELS["mlp"](data.train_inputs.shape[1:], data.num_classes)
    return initialise(network, "he-normal", seed=seed)


def is_attacker(partition: int, clients: int, share: float, seed: int) -> bool:
    """Return whether the client with this partition is an attacker."""
    return partition in choose_attackers(clients, int(share * clients), seed=seed)


def train(arrays: ArrayRecord, *, partition: int, clients: int, seed: int, round_number: int, flip: bool) -> nn.Module:
    """Train on a client's own data, with ``flip`` on wrong labels, and return the network."""
    data, run = digits(), settings(seed, clients)
    examples = parts(seed, clients)[partition]
    labels = data.num_classes - 1 - data.train_labels if flip else data.train_labels
    network = make_model(seed)
    network.load_state_dict(arrays.to_torch_state_dict())
    torch.set_num_threads(1)
    train_client(
        network,
        data.train_inputs,
        labels,
        training_of(run),
        seed=seed,
        round=round_number,
        client=partition,
        examples=examples,
    )
    return network


def num_examples(partition: int, clients: int, seed: int) -> int:
    """Return the number of a client's examples."""
    return len(parts(seed, clients)[partition])


def accuracy(arrays: ArrayRecord, seed: int) -> float:
    """Return the model's accuracy on the test set, from 0 to 1."""
    data, network = digits(), make_model(seed)
    network.load_state_dict(arrays.to_torch_state_dict())
    network.eval()
    with torch.no_grad():
        guesses = network(to_tensor(data.test_inputs)).argmax(dim=1).numpy()
    return float(np.mean(guesses == data.test_labels))


def little_lie(arrays: ArrayRecord, honest: nn.Module, *, partition: int, round_number: int) -> dict[str, torch.Tensor]:
    """Return the honest weights shifted by a little noise, as "a little is enough" does, from its own data alone.

    Each number moves against the honest step by up to one and a half times the step's own spread.
    """
    rng = generator(partition, "little-lie", round_number)
    before = arrays.to_torch_state_dict()
    shifted = {}
    for name, value in honest.state_dict().items():
        step = value - before[name]
        noise = torch.from_numpy(rng.uniform(0, 1.5, size=tuple(value.shape)).astype(np.float32))
        shifted[name] = value - noise * step.std(unbiased=False) * torch.sign(step)
    return shifted
