"""Checks of an engine's parts before any work starts, with messages for parts that do not fit."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from torch import Tensor, nn

from mabrfl.errors import ConfigError, StateError
from mabrfl.simulation.training.flat import trainable
from mabrfl.simulation.training.local import Shard, to_tensor
from mabrfl.simulation.training.seeding import seeded
from mabrfl.simulation.training.trainer import EVALUATION_SLICE

if TYPE_CHECKING:
    from mabrfl.simulation.data.dataset import Dataset


def workers(count: object) -> None:
    """Refuse anything but a whole number of at least one."""
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ConfigError(f"workers must be an integer of at least 1; got {count!r}")


def useful_workers(count: int, clients: int, examples: int) -> int:
    """Return the number of workers that can have a task at once: a client each, or a slice of the test set."""
    return min(count, max(clients, -(-examples // EVALUATION_SLICE)))


def memory(clients: int, parameters: int, copies: int) -> None:
    """Refuse a federation that does not fit into this machine's memory, before any of it is allocated.

    Parameters
    ----------
    clients, parameters
        Of the federation and of its model.
    copies
        Float32 numbers per client and parameter: its update, and its kept optimizer state.
    """
    needed, present = 4 * clients * parameters * copies, machine_memory()
    if needed > present:
        raise ConfigError(
            f"{clients:,} clients with {parameters:,} parameters each need {needed / 2**30:,.1f} GiB of memory, "
            f"and this machine has {present / 2**30:,.1f}; take fewer clients or a smaller model"
        )


def machine_memory() -> int:
    """Return the bytes of memory that this machine has, swap included."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(("MemTotal:", "SwapTotal:")))
    except (OSError, ValueError, IndexError):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # pragma: no cover (neither Linux nor another Unix)
        return sys.maxsize


def device(name: str) -> torch.device:
    """Return the device of this name; refuse one that cannot compute."""
    try:
        result = torch.device(name)
        torch.ones(1, device=result).sum().item()
    except (RuntimeError, AssertionError, NotImplementedError, TypeError) as error:
        reason = str(error).strip().split("\n")[0]
        raise ConfigError(f"device {name!r} cannot be used here: {reason}") from error
    return result


def build(model: Callable[[], nn.Module], seed: int) -> nn.Module:
    """Call a user's model factory under a named random state and return the module it makes."""
    with seeded(seed, "model"):
        module = model()
    if not isinstance(module, nn.Module):
        raise ConfigError(f"the model factory must return a torch.nn.Module; got {type(module).__name__}")
    return module


def fit(model: nn.Module, dataset: Dataset, where: torch.device) -> bool:
    """Try the model on two examples; return whether it works with images channels last.

    Channels last makes convolutions on CPUs much faster, but a model that reshapes its features with
    ``view`` does not work with that layout, and gets the usual one.
    """
    if not trainable(model):
        raise ConfigError("the model has no trainable parameters")
    examples = dataset.train_inputs[:2].copy()
    try:
        outputs = _outputs(model, to_tensor(examples, where))
    except Exception as error:
        raise ConfigError(
            f"the model cannot take inputs of shape {examples.shape[1:]}: {type(error).__name__}: {error}"
        ) from error
    _check_outputs(outputs, len(examples), dataset.num_classes)
    if examples.ndim != 4 or not any(isinstance(module, nn.Conv2d) for module in model.modules()):
        return False
    try:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        _outputs(model, to_tensor(examples, where, channels_last=True))
    except RuntimeError:
        model.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        return False
    return True


def _outputs(model: nn.Module, batch: Tensor) -> object:
    with seeded(0, "try"), torch.no_grad():
        return model.eval()(batch)


def _check_outputs(outputs: object, count: int, num_classes: int) -> None:
    if not isinstance(outputs, Tensor):
        raise ConfigError(f"the model must return a tensor of class scores; got {type(outputs).__name__}")
    if outputs.ndim != 2 or outputs.shape[0] != count or outputs.shape[1] < num_classes:
        raise ConfigError(
            f"the model must return a score for each of {num_classes} classes, shape ({count}, {num_classes}) "
            f"for {count} examples; got shape {tuple(outputs.shape)}"
        )


def shards(parts: Sequence[Shard], dataset: Dataset) -> None:
    """Refuse clients without data, or with indices or poisoned data that do not match the data set."""
    if not parts:
        raise ConfigError("there must be at least one client; got no shards")
    for client, shard in enumerate(parts):
        _check_shard(f"client {client}", shard, dataset)


def _check_shard(name: str, shard: Shard, dataset: Dataset) -> None:
    indices, total = shard.indices, len(dataset.train_labels)
    if len(shard) == 0:
        raise ConfigError(f"{name} has no training examples; every client needs at least one")
    if indices.ndim != 1 or not np.issubdtype(indices.dtype, np.integer):
        raise ConfigError(f"{name}: indices must be a flat array of integers; got {indices.dtype} {indices.shape}")
    if indices.min() < 0 or indices.max() >= total:
        raise ConfigError(
            f"{name}: indices must be from 0 to {total - 1}; got {int(indices.min())} to {int(indices.max())}"
        )
    inputs, labels = shard.poisoned_inputs, shard.poisoned_labels
    expected = (len(shard), *dataset.train_inputs.shape[1:])
    if inputs is not None and inputs.shape != expected:
        raise ConfigError(f"{name}: poisoned inputs must have shape {expected}; got {inputs.shape}")
    if labels is None:
        return
    if labels.shape != (len(shard),) or labels.dtype != np.int64:
        raise ConfigError(f"{name}: poisoned labels must be {len(shard)} int64; got {labels.dtype} {labels.shape}")
    if labels.min() < 0 or labels.max() >= dataset.num_classes:
        raise ConfigError(
            f"{name}: poisoned labels must be from 0 to {dataset.num_classes - 1}; "
            f"got {int(labels.min())} to {int(labels.max())}"
        )


def saved_array(state: Mapping[str, Any], name: str, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Return an array of a saved state; refuse one of another type or shape."""
    value = state[name]
    if not isinstance(value, np.ndarray) or value.dtype != dtype or value.shape != shape:
        got = f"{value.dtype} {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__
        raise StateError(f"saved {name!r} must be a {np.dtype(dtype)} array of shape {shape}; got {got}")
    return value


def goal(inputs: NDArray[Any], labels: NDArray[Any], dataset: Dataset) -> None:
    """Refuse a goal of an attack that does not have the form of test examples."""
    expected = (len(labels), *dataset.test_inputs.shape[1:])
    if inputs.shape != expected or inputs.dtype != dataset.test_inputs.dtype:
        kind = f"{dataset.test_inputs.dtype} of shape {expected}"
        raise ConfigError(f"an attack's goal must have inputs {kind}; got {inputs.dtype} of shape {inputs.shape}")
    if len(labels) and not (labels.min() >= 0 and labels.max() < dataset.num_classes):
        raise ConfigError(f"an attack's goal must have labels from 0 to {dataset.num_classes - 1}")
