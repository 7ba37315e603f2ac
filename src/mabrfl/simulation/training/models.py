"""The networks of the paper's experiments, smaller versions of them, and their initial weights.

A network is made for a shape of input and a number of classes: ``MODELS["mnist-cnn"]((1, 28, 28), 10)``.
All of them pool *before* the rectifier. Both are monotone, so ``relu(pool(x))`` equals
``pool(relu(x))`` exactly, and the rectifier and its gradient run over a quarter of the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, TypeVar, get_args

import torch
from torch import nn

from mabrfl.errors import ConfigError, suggest
from mabrfl.simulation.training.seeding import seeded

Scheme = Literal["he-normal", "default"]
ModelFactory = Callable[[tuple[int, ...], int], nn.Module]
Module = TypeVar("Module", bound=nn.Module)


def _image_shape(name: str, shape: tuple[int, ...], least: int, example: tuple[int, int, int]) -> tuple[int, int, int]:
    """Return (channels, height, width), or refuse a shape that does not fit the network."""
    if len(shape) != 3 or shape[0] < 1 or min(shape[1:]) < least:
        raise ConfigError(
            f"model '{name}' takes images of shape (channels, height, width) with height and width at least {least}, "
            f"such as {example}; the data set has inputs of shape {tuple(shape)}"
        )
    return shape[0], shape[1], shape[2]


def _two_convolutions(name: str, widths: tuple[int, int, int]) -> ModelFactory:
    """Return the factory of: conv 3x3, pool, conv 3x3, pool, dense, dense; no padding."""
    first, second, hidden = widths

    def build(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        channels, height, width = _image_shape(name, input_shape, 10, (1, 28, 28))
        rows, columns = (((side - 2) // 2 - 2) // 2 for side in (height, width))
        return nn.Sequential(
            nn.Conv2d(channels, first, 3),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(first, second, 3),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(second * rows * columns, hidden),
            nn.ReLU(),
            nn.Linear(hidden, num_classes),
        )

    return build


def _vgg(name: str, widths: tuple[int, int, int], *, convolutions: int = 2) -> ModelFactory:
    """Return the factory of: three times (so many of conv 3x3, then pool), dropout, dense; padded."""

    def build(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        channels, height, width = _image_shape(name, input_shape, 8, (3, 32, 32))
        layers: list[nn.Module] = []
        for filters in widths:
            for _ in range(convolutions):
                layers += [nn.Conv2d(channels, filters, 3, padding=1), nn.ReLU()]
                channels = filters
            layers.insert(-1, nn.MaxPool2d(2))
        features = channels * (height // 8) * (width // 8)
        return nn.Sequential(*layers, nn.Flatten(), nn.Dropout(0.5), nn.Linear(features, num_classes))

    return build


def _normalised(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Return a network of: twice (conv 3x3 of stride 2, batch normalisation, rectifier), dense; no layer has a bias."""
    channels, height, width = _image_shape("mnist-cnn-bn", input_shape, 7, (1, 28, 28))
    rows, columns = (((side - 1) // 2 - 1) // 2 for side in (height, width))
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, stride=2, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * rows * columns, num_classes, bias=False),
    )


class _RowByRow(nn.Module):
    """An LSTM of 48 units that reads an image row by row, and a dense layer on what it has read."""

    def __init__(self, input_shape: tuple[int, ...], num_classes: int) -> None:
        super().__init__()
        channels, _, width = _image_shape("mnist-lstm", input_shape, 1, (1, 28, 28))
        self.reader = nn.LSTM(channels * width, 48, batch_first=True)
        self.head = nn.Linear(48, num_classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        rows = images.transpose(1, 2).flatten(2)
        answer: torch.Tensor = self.head(self.reader(rows)[0][:, -1])
        return answer


class _WordByWord(nn.Module):
    """An embedding of 256 words in 16 numbers, gated recurrent units that read them, and a dense layer."""

    def __init__(self, input_shape: tuple[int, ...], num_classes: int) -> None:
        super().__init__()
        del input_shape  # any length
        self.words = nn.Embedding(256, 16)
        self.reader = nn.GRU(16, 32, batch_first=True)
        self.head = nn.Linear(32, num_classes)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        numbers = inputs.flatten(1).long().clamp(0, 255)
        answer: torch.Tensor = self.head(self.reader(self.words(numbers))[0][:, -1])
        return answer


def mlp(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Return a network with one hidden layer of 64 rectified units, for inputs of any shape."""
    if not input_shape or min(input_shape) < 1:
        raise ConfigError(
            f"model 'mlp' takes inputs of shape (features,) or (channels, height, width); "
            f"the data set has inputs of shape {tuple(input_shape)}"
        )
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(input_shape), 64), nn.ReLU(), nn.Linear(64, num_classes))


MODELS: dict[str, ModelFactory] = {
    "mlp": mlp,
    "mnist-cnn": _two_convolutions("mnist-cnn", (30, 50, 100)),
    "mnist-cnn-small": _two_convolutions("mnist-cnn-small", (16, 32, 64)),
    "mnist-cnn-bn": _normalised,
    "mnist-lstm": _RowByRow,
    "text-gru": _WordByWord,
    "vgg-lite": _vgg("vgg-lite", (64, 128, 256)),
    "vgg-tiny": _vgg("vgg-tiny", (16, 32, 64)),
    "cifar-cnn": _vgg("cifar-cnn", (32, 64, 128), convolutions=1),
}
"""Factories by name, each ``(input_shape, num_classes) -> nn.Module``.

``mnist-cnn`` has 139,960 parameters for 1 x 28 x 28 and 10 classes. ``vgg-lite`` is the paper's
simplified VGG16, with the 1,186,378 parameters of the released code for 3 x 32 x 32 and 10 classes.
"""


def initialise(model: Module, scheme: Scheme = "he-normal", *, seed: int = 0) -> Module:
    """Draw new weights for a model, the same for the same seed, and return the model.

    Parameters
    ----------
    model
        Changed in place.
    scheme
        ``"he-normal"``, as the paper's released code: weights of convolutions and dense layers from
        N(0, 2 / fan_in) [1]_, their biases zero. ``"default"``: PyTorch's own. The choice matters: with
        PyTorch's own, the updates of benign clients are so similar in the first rounds that the paper's
        thresholds take them for sybils.
    seed
        Root of the stream; the caller's global random state stays as it was.

    Notes
    -----
    Layers of other kinds get PyTorch's own weights under either scheme. A parameter outside any layer with
    ``reset_parameters`` is not changed.

    References
    ----------
    .. [1] He, Zhang, Ren, Sun: Delving Deep into Rectifiers. ICCV 2015, Eq. 10.
    """
    if scheme not in get_args(Scheme):
        raise ConfigError(f"unknown initialisation '{scheme}'{suggest(str(scheme), get_args(Scheme))}")
    with seeded(seed, "initialise"), torch.no_grad():
        for module in model.modules():
            if callable(reset := getattr(module, "reset_parameters", None)):
                reset()
            if scheme == "he-normal" and isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
                if module.bias is not None:
                    module.bias.zero_()
    return model
