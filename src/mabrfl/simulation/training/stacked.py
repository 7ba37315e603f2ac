"""Stage 2 for many clients with a small model: their networks are trained together, one batched product for all.

A client gets what its own loop gives it, up to rounding: the batches, their order and the optimizer are the same.
:mod:`~mabrfl.simulation.training.stacking` finds out for which models that is so, and sees to it that the bytes of a
client do not depend on the others in its stack.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from mabrfl.rng import generator
from mabrfl.simulation.training.local import TrainingOptions, to_tensor
from mabrfl.simulation.training.stacked_model import Batch, StackedModel

_LEAST_WIDTH = 16
_ADAM: dict[str, Any] = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8}
"""As PyTorch has them by default."""


@dataclass(frozen=True)
class LocalData:
    """The data of one client: inputs, labels, the positions in them of its examples, and the weight of a constraint.

    ``constraint`` is that of :func:`~mabrfl.simulation.training.local.train_client`.
    """

    inputs: NDArray[Any]
    labels: NDArray[Any]
    examples: NDArray[np.int64]
    constraint: float = 0.0


def width_of(num_examples: int, batch_size: int) -> int:
    """Return the number of rows that a client's batches are filled up to, with rows that count nothing.

    It depends on the client alone. Clients with the same width can be in one stack.

    Examples
    --------
    >>> width_of(100, 64), width_of(20, 64), width_of(3, 64), width_of(100, 10)
    (64, 32, 16, 16)
    """
    most = max(_LEAST_WIDTH, 1 << (num_examples - 1).bit_length())
    return min(most, -(-batch_size // _LEAST_WIDTH) * _LEAST_WIDTH)


class StackedOptimizer:
    """PyTorch's Adam or SGD for a row of weights per client, each with its own moments and number of steps."""

    def __init__(self, options: TrainingOptions, moments: Sequence[Tensor], steps: NDArray[np.int64]) -> None:
        self._options, self.moments, self.steps = options, moments, steps

    def step(self, weights: Tensor, gradients: Tensor) -> None:
        """Move the weights of the first clients, in place; the gradients may be overwritten."""
        count = len(weights)
        steps = self.steps[:count]
        matrices = [weights, gradients, *(moment[:count] for moment in self.moments)]
        if np.all(steps == steps[0]):  # one call for all, with the same result
            self._move([[matrix] for matrix in matrices], steps[:1])
        else:
            self._move([list(matrix.unbind(0)) for matrix in matrices], steps)
        steps += 1

    def _move(self, tensors: list[list[Tensor]], steps: NDArray[np.int64]) -> None:
        options, (weights, gradients, *moments) = self._options, tensors
        settings: dict[str, Any] = {"lr": options.learning_rate, "weight_decay": options.weight_decay}
        settings |= {"fused": weights[0].device.type in ("cpu", "cuda"), "maximize": False}
        if options.optimizer == "adam":
            counts = [torch.tensor(float(step), device=weights[0].device) for step in steps]
            first, second = moments
            adam(weights, gradients, first, second, [], counts, amsgrad=False, **settings, **_ADAM)
        else:
            momenta: list[Tensor | None] = [*moments[0]] if moments else [None] * len(weights)
            sgd(weights, gradients, momenta, momentum=options.momentum, dampening=0.0, nesterov=False, **settings)


class _Batches:
    """The batches of a stack: a table of all examples, and for each step the rows of each client in it."""

    def __init__(
        self, data: Sequence[LocalData], options: TrainingOptions, rngs: Sequence[np.random.Generator], width: int
    ) -> None:
        sizes = [len(one.examples) for one in data]
        self.num_steps = np.array([options.epochs * math.ceil(size / options.batch_size) for size in sizes])
        nothing = sum(sizes)  # the row after all examples
        self._rows = np.full((int(self.num_steps.max()), len(data) + 1, width), nothing)
        self._shares = np.zeros(self._rows.shape, dtype=np.float32)
        for client, (start, rng) in enumerate(zip(np.cumsum([0, *sizes[:-1]]), rngs, strict=True)):
            self._fill(client, int(start), sizes[client], options, rng)
        inputs = [to_tensor(one.inputs.take(one.examples, axis=0)) for one in data]
        self._inputs = torch.cat([*inputs, torch.zeros_like(inputs[0][:1])])
        self._labels = torch.from_numpy(np.append(np.concatenate([one.labels.take(one.examples) for one in data]), 0))

    def _fill(self, client: int, start: int, size: int, options: TrainingOptions, rng: np.random.Generator) -> None:
        """Write the batches of one client: the same as :func:`~mabrfl.simulation.training.local.batches` yields."""
        batch = min(options.batch_size, self._rows.shape[2])
        count = math.ceil(size / batch)
        last = size - (count - 1) * batch
        for epoch in range(options.epochs):
            steps = slice(epoch * count, (epoch + 1) * count)
            order = np.full(count * batch, self._rows[-1, -1, -1])
            order[:size] = start + rng.permutation(size)
            self._rows[steps, client, :batch] = order.reshape(count, batch)
            self._shares[steps, client, :batch] = 1 / batch
            self._shares[steps.stop - 1, client, :batch] = np.where(np.arange(batch) < last, 1 / last, 0)

    def of(self, step: int, count: int, device: torch.device) -> Batch:
        """Return the batches of the first clients in one step."""
        rows, shares = torch.from_numpy(self._rows[step, :count]), torch.from_numpy(self._shares[step, :count])
        inputs, labels = (table.index_select(0, rows.flatten()) for table in (self._inputs, self._labels))
        inputs = inputs.view(*rows.shape, *inputs.shape[1:])
        return Batch(inputs.to(device), labels.view_as(rows).to(device), shares.to(device))


def train_stack(
    model: StackedModel,
    data: Sequence[LocalData],
    options: TrainingOptions,
    weights: Tensor,
    optimizer: StackedOptimizer,
    *,
    seed: int,
    round: int,
    clients: Sequence[int],
) -> None:
    """Train clients together, as :func:`~mabrfl.simulation.training.local.train_client` trains one.

    Parameters
    ----------
    model
        The network; in training mode.
    data
        Of each client, those with the most examples first; all with the same :func:`width_of`.
    weights
        ``(clients + 1, columns)``: where each client starts, changed in place. The last row, where all start, stays.
    optimizer
        With the clients' moments.

    Notes
    -----
    In every step there is one client more than those that train, and its result is not used: a finished one, or the
    last row. So no client is alone or at the end of a tensor, where PyTorch computes in another way.
    """
    width = width_of(len(data[0].examples), options.batch_size)
    steps = _Batches(data, options, [generator(seed, "train", round, client) for client in clients], width)
    gradients = torch.zeros_like(weights)
    constrained = [client for client, one in enumerate(data) if one.constraint]
    for step in range(int(steps.num_steps.max())):
        active = int(np.count_nonzero(steps.num_steps > step))
        batch = steps.of(step, active + 1, model.device)
        model.gradients(weights[: active + 1], batch, out=gradients[: active + 1])
        for client in constrained:
            if client < active:
                _constrain(gradients[client], weights[client] - weights[-1], data[client].constraint)
        optimizer.step(weights[:active], gradients[:active])


def _constrain(gradient: Tensor, apart: Tensor, constraint: float) -> None:
    """Add the gradient of the distance to the start, in place: 0 where the distance is 0."""
    distance = float(torch.linalg.vector_norm(apart))
    gradient.mul_(1 - constraint)
    if distance:
        gradient.add_(apart, alpha=constraint / distance)
