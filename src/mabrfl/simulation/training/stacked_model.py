"""A network as a function of many weight vectors, and the gradient by each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import vmap

_LANES = 32
"""Numbers that PyTorch computes at once: rows of a multiple of it are computed in the same way, each of them."""


@dataclass(frozen=True)
class Batch:
    """A batch of each client: ``(clients, width, ...)``.

    Attributes
    ----------
    inputs, labels
        The examples. Rows after the last one only fill the batch up.
    shares
        The share of each example in the mean of its batch; 0 for the rows after the last one.
    """

    inputs: Tensor
    labels: Tensor
    shares: Tensor


class _Linear(torch.autograd.Function):
    """A dense layer of each client: one batched product, which ``vmap`` would cut into slower pieces."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(rows, weight)
        return torch.baddbmm(bias[:, None], rows, weight.mT)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        (slope,), (rows, weight) = slopes, ctx.saved_tensors
        inner = torch.bmm(slope, weight) if ctx.needs_input_grad[0] else None
        return inner, torch.bmm(slope.mT, rows), slope.sum(dim=1)


class _Layer:
    """A module as a function of many sets of its parameters, and of a batch for each."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.parameters = {name: value for name, value in module.named_parameters() if value.requires_grad}
        self._dense = type(module) is nn.Linear and list(self.parameters) == ["weight", "bias"]
        self._places = [
            [
                (owner._parameters, name)
                for owner in module.modules()
                for name, own in owner._parameters.items()
                if own is value
            ]
            for value in self.parameters.values()
        ]
        self._call = vmap(self._with_parameters)

    def _with_parameters(self, parameters: Sequence[Tensor], rows: Tensor) -> Tensor:
        self._set(parameters)
        try:
            outputs: Tensor = self.module(rows)
        finally:
            self._set(list(self.parameters.values()))
        return outputs

    def _set(self, parameters: Sequence[Tensor]) -> None:
        """Put tensors in the places of the parameters.

        ``torch.func.functional_call`` does the same, but loses the parameters of a module that is used in two places.
        """
        for places, value in zip(self._places, parameters, strict=True):
            for owner, name in places:
                owner[name] = value  # type: ignore[assignment]

    def __call__(self, parameters: Sequence[Tensor], rows: Tensor) -> Tensor:
        """Return the outputs, ``(clients, width, ...)``."""
        if not parameters:  # every row is computed by itself, as the rows of one batch
            outputs: Tensor = self.module(rows.flatten(0, 1))
            return outputs.view(*rows.shape[:2], *outputs.shape[1:])
        if self._dense and rows.ndim == 3:
            outputs = _Linear.apply(rows, *parameters)  # type: ignore[no-untyped-call]
            return outputs
        return self._call(parameters, rows)


def _layers(model: nn.Module) -> list[_Layer]:
    """Return the layers of a chain in which no two share a parameter; any other model is one layer."""
    if type(model) is nn.Sequential:
        layers = [_Layer(module) for module in model]
        if sum(len(layer.parameters) for layer in layers) == len(_Layer(model).parameters):
            return layers
    return [_Layer(model)]


class StackedModel:
    """A network as a function of many weight vectors at once.

    Parameters
    ----------
    model
        Called with other parameters than its own; its buffers and its frozen parameters are used as they are.
    """

    def __init__(self, model: nn.Module) -> None:
        self._layers = _layers(model)
        values = [value for layer in self._layers for value in layer.parameters.values()]
        self._shapes, self._sizes = [value.shape for value in values], [value.numel() for value in values]
        self.dimension = sum(self._sizes)
        self.columns = -(-self.dimension // _LANES) * _LANES
        self.device = values[0].device

    def _outputs(self, parameters: Sequence[Tensor], rows: Tensor) -> Tensor:
        left = iter(parameters)
        for layer in self._layers:
            rows = layer([next(left) for _ in layer.parameters], rows)
        return rows

    def zeros(self, rows: int) -> Tensor:
        """Return a matrix with room for a weight vector in each row."""
        return torch.zeros(rows, self.columns, device=self.device)

    def gradients(self, weights: Tensor, batch: Batch, out: Tensor) -> None:
        r"""Set ``out[k]`` to the gradient of :math:`\sum_i s_{ki} \ell(f(w_k, x_{ki}), y_{ki})`, with cross-entropy.

        Parameters
        ----------
        weights
            ``(clients, columns)``; the columns after ``dimension`` are not read.
        batch
            Inputs x, labels y and shares s.
        out
            Like ``weights``.
        """
        pieces = torch.split(weights[:, : self.dimension], self._sizes, dim=1)
        shapes = [(len(weights), *shape) for shape in self._shapes]
        leaves = [piece.view(shape).detach().requires_grad_() for piece, shape in zip(pieces, shapes, strict=True)]
        outputs = self._outputs(leaves, batch.inputs)
        slopes = _slopes(outputs.detach().flatten(0, 1), batch.labels.flatten(), batch.shares.flatten())
        found = torch.autograd.grad(outputs, leaves, grad_outputs=slopes.view_as(outputs))
        places = torch.split(out[:, : self.dimension], self._sizes, dim=1)
        for place, shape, gradient in zip(places, shapes, found, strict=True):
            place.view(shape).copy_(gradient)


def _slopes(scores: Tensor, labels: Tensor, shares: Tensor) -> Tensor:
    """Return the gradient of cross-entropy by the scores: softmax minus one at the label, times the share.

    Written out, because PyTorch's softmax of a short row takes four times as long.
    """
    slopes = (scores - scores.amax(dim=1, keepdim=True)).exp_()
    slopes.div_(slopes.sum(dim=1, keepdim=True))
    slopes.scatter_add_(1, labels[:, None], slopes.new_full((1, 1), -1).expand(len(labels), 1))
    return slopes.mul_(shares[:, None])
