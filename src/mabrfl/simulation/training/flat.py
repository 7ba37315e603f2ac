"""A model as flat vectors: its parameters in one, its floating-point buffers in another.

**Buffers (BatchNorm's running statistics)** are not part of the update that a defense sees: running variances can be
thousands of times larger than weights, and a cosine over both would compare variances only. Clients send them beside
the update, and the server takes the coordinate-wise median over the accepted clients
(:func:`mabrfl.global_model.merge_buffers`). Integer buffers, such as BatchNorm's count of batches, are not sent: every
client starts from their initial values.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mabrfl.layout import Layout
from mabrfl.vectors import Floats

Float32 = NDArray[np.float32]


def trainable(model: nn.Module) -> list[Tensor]:
    """Return the parameters that training changes, in the order of ``named_parameters``."""
    return [parameter for _, parameter in model.named_parameters() if parameter.requires_grad]


def layout_of(model: nn.Module) -> Layout:
    """Return names and shapes of :func:`trainable`: the layout of the vector that :func:`flatten` makes of them."""
    return Layout.of({name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad})


def float_buffers(model: nn.Module) -> list[Tensor]:
    """Return the floating-point buffers, in the order of ``named_buffers``."""
    return [buffer for _, buffer in model.named_buffers() if buffer.is_floating_point()]


def size(tensors: Sequence[Tensor]) -> int:
    """Return how many numbers the tensors hold together."""
    return sum(tensor.numel() for tensor in tensors)


def flatten(tensors: Sequence[Tensor], out: Float32 | None = None) -> Float32:
    """Write the tensors, each in row-major order, into one float32 vector.

    The memory layout of a tensor (such as channels last) does not change the order.
    """
    vector = np.empty(size(tensors), dtype=np.float32) if out is None else out
    with torch.no_grad():
        for tensor, part in zip(tensors, _parts(vector, tensors), strict=True):
            part.copy_(tensor)
    return vector


def unflatten(vector: Floats, tensors: Sequence[Tensor]) -> None:
    """Set the tensors, in place, to the values that :func:`flatten` wrote."""
    writable = np.require(vector, np.float32, ["C", "W"])  # PyTorch warns about views of read-only memory
    with torch.no_grad():
        for tensor, part in zip(tensors, _parts(writable, tensors), strict=True):
            tensor.copy_(part)


def _parts(vector: Float32, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return one view of the vector per tensor, in that tensor's shape."""
    if vector.shape != (size(tensors),):
        raise ValueError(f"expected a vector of length {size(tensors)}; got shape {vector.shape}")
    pieces = torch.split(torch.from_numpy(vector), [tensor.numel() for tensor in tensors])
    return [piece.view(tensor.shape) for piece, tensor in zip(pieces, tensors, strict=True)]
