"""Which models can be trained in a stack is found out by trying, and so is how many clients a stack may have."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (the name the whole field uses)
from numpy.typing import NDArray
from torch import Tensor, nn

from mabrfl.errors import ConfigError
from mabrfl.rng import generator
from mabrfl.simulation.training.flat import flatten, trainable, unflatten
from mabrfl.simulation.training.seeding import seeded
from mabrfl.simulation.training.stacked import width_of
from mabrfl.simulation.training.stacked_model import Batch, StackedModel

MOST = 64
"""Clients of a stack at most: with more, the numbers of a step leave the cache."""

_LEAST = 8
"""Clients of a stack that are worth another worker."""

_TRIED = (13, 1, 2, 6)
_TOLERANCE = 1e-4


def largest_stack(model: nn.Module, example: Tensor, num_classes: int, widths: Iterable[int]) -> int:
    """Return how many clients a stack of this model may have; refuse a model that cannot be stacked.

    Gradients of random weights in a stack must agree with those of the model itself, in full batches and in partly
    filled ones. If the bytes of a client's gradient are the same in stacks of several sizes and in any place, stacks
    have up to :data:`MOST` clients; else each client has a stack of its own, so that nobody else can matter.

    Parameters
    ----------
    model
        The network, with any weights.
    example
        One input, without the dimension of the batch.
    num_classes
        Of the labels.
    widths
        Every :func:`~mabrfl.simulation.training.stacked.width_of` that occurs.

    Raises
    ------
    ConfigError
        If the model cannot be stacked; the message says why.
    """
    if any(parameter.dtype != torch.float32 for parameter in trainable(model)):
        raise ConfigError("engine 'stacked' takes models of float32 parameters; use engine 'loop'")
    copied = copy.deepcopy(model).train()
    try:
        with seeded(0, "stacking"):
            same = [_bytes_are_its_own(copied, example, num_classes, width) for width in sorted(set(widths))]
    except (RuntimeError, ValueError, TypeError) as error:
        reason = str(error).strip().split("\n")[0]
        raise ConfigError(f"engine 'stacked' cannot train this model: {reason}; use engine 'loop'") from error
    return MOST if all(same) else 1


def _bytes_are_its_own(model: nn.Module, example: Tensor, num_classes: int, width: int) -> bool:
    """Return whether a client's gradient has the same bytes in every stack; raise an error if it is not right."""
    stacked, rng = StackedModel(model), generator(0, "stacking", width)
    most = max(_TRIED)
    weights = stacked.zeros(most)
    weights[:, : stacked.dimension] = torch.from_numpy(flatten(trainable(model))).to(stacked.device)
    weights += 0.1 * torch.randn(weights.shape).to(stacked.device) * weights.std()
    inputs = torch.rand((most, width, *example.shape)).to(stacked.device) * example.abs().max().clamp(min=1e-3)
    labels = torch.from_numpy(rng.integers(0, num_classes, (most, width))).to(stacked.device)
    counts = np.resize([width, 1 + width // 2, 1], most)[:, None]
    shares = torch.from_numpy(((np.arange(width) < counts) / counts).astype(np.float32)).to(stacked.device)

    def gradients(clients: NDArray[np.int64]) -> Tensor:
        chosen = torch.from_numpy(np.append(clients, clients[0]))  # one more, as in training
        out = stacked.zeros(len(chosen))
        stacked.gradients(weights[chosen], Batch(inputs[chosen], labels[chosen], shares[chosen]), out=out)
        return out[:-1, : stacked.dimension]

    stacks = [rng.permutation(most)[:size] for size in _TRIED]
    expected = gradients(np.arange(most))
    _check_against_loop(model, weights, Batch(inputs, labels, shares), expected)
    if stacked.device.type != "cpu":  # nothing is promised there about bytes
        return True
    return all(torch.equal(gradients(stack), expected[torch.from_numpy(stack)]) for stack in stacks)


def _check_against_loop(model: nn.Module, weights: Tensor, batch: Batch, found: Tensor) -> None:
    """Raise an error if the first clients' gradients are not those of the model itself."""
    parameters = trainable(model)
    for client in range(3):
        unflatten(weights[client, : found.shape[1]].cpu().numpy(), parameters)
        used = batch.shares[client] > 0
        loss = F.cross_entropy(model(batch.inputs[client, used]), batch.labels[client, used])
        expected = torch.cat([each.flatten() for each in torch.autograd.grad(loss, parameters)])
        if not (found[client] - expected).abs().max() <= _TOLERANCE * expected.abs().max():
            raise ValueError("its gradients in a stack are not those that it has alone")


def stacks_of(
    order: Sequence[int], sizes: Sequence[int], batch_size: int, *, most: int, workers: int
) -> list[list[int]]:
    """Deal clients out to stacks of one width each, evenly and in order.

    Parameters
    ----------
    order
        The clients, those with the most examples first.
    sizes
        The number of examples of each client.
    batch_size
        Of training.
    most
        Clients of a stack at most.
    workers
        Processes that share the stacks.

    Examples
    --------
    >>> stacks_of([2, 0, 3, 1], [40, 20, 50, 30], 16, most=2, workers=1)
    [[2, 3], [0, 1]]
    """
    by_width: dict[int, list[int]] = {}
    for client in order:
        by_width.setdefault(width_of(sizes[client], batch_size), []).append(client)
    stacks = []
    for clients in by_width.values():
        count = max(-(-len(clients) // most), min(workers, len(clients) // _LEAST), 1)
        stacks += [clients[number::count] for number in range(count)]
    return stacks
