"""The small network of the self-test: one hidden layer, many copies trained together, NumPy alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mabrfl.layout import Layout
from mabrfl.rng import generator
from mabrfl.updates import Floats

Labels = NDArray[np.int64]

CLASSES, FEATURES, HIDDEN = 10, 64, 32
LAYOUT = Layout(
    [
        ("first.weight", (FEATURES, HIDDEN)),
        ("first.bias", (HIDDEN,)),
        ("second.weight", (HIDDEN, CLASSES)),
        ("second.bias", (CLASSES,)),
    ]
)
WIDTH = LAYOUT.size
EPOCHS, BATCH, STEP_SIZE = 3, 16, 0.2


def initial_weights(seed: int) -> Floats:
    """He-normal weights and zero biases."""
    rng = generator(seed, "weights")
    weights = np.zeros(WIDTH, dtype=np.float32)
    first, _, second, _ = _layers(weights[None, :])
    first[:] = rng.standard_normal(first.shape) * np.sqrt(2 / FEATURES)
    second[:] = rng.standard_normal(second.shape) * np.sqrt(2 / HIDDEN)
    return weights


def _layers(weights: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the four arrays of each of n networks, as views of their ``(n, d)`` weights."""
    ends = np.cumsum([FEATURES * HIDDEN, HIDDEN, HIDDEN * CLASSES])
    first, first_bias, second, second_bias = np.split(weights, ends, axis=1)
    return (
        first.reshape(-1, FEATURES, HIDDEN),
        first_bias[:, None, :],
        second.reshape(-1, HIDDEN, CLASSES),
        second_bias[:, None, :],
    )


def _forward(weights: Floats, inputs: Floats) -> tuple[Floats, Floats]:
    """Return hidden activations and logits, ``(n, m, .)``."""
    first, first_bias, second, second_bias = _layers(weights)
    hidden = np.maximum(inputs @ first + first_bias, 0)
    return hidden, hidden @ second + second_bias


def train(weights: Floats, inputs: Floats, labels: Labels, rng: np.random.Generator) -> Floats:
    """Train all clients together from the same weights; return their updates ``(n, d)``."""
    local = np.tile(weights, (len(inputs), 1))
    targets = np.eye(CLASSES, dtype=local.dtype)[labels]
    for _ in range(EPOCHS):
        order = rng.permutation(inputs.shape[1])
        for start in range(0, inputs.shape[1], BATCH):
            batch = order[start : start + BATCH]
            local -= STEP_SIZE * _gradient(local, inputs[:, batch], targets[:, batch])
    return local - weights


def _gradient(weights: Floats, inputs: Floats, targets: Floats) -> Floats:
    """Gradient of each network's mean cross entropy on its own batch."""
    hidden, logits = _forward(weights, inputs)
    odds = np.exp(logits - logits.max(axis=2, keepdims=True))
    error = (odds / odds.sum(axis=2, keepdims=True) - targets) / inputs.shape[1]
    back = (error @ _layers(weights)[2].transpose(0, 2, 1)) * (hidden > 0)
    parts = (inputs.transpose(0, 2, 1) @ back, back.sum(axis=1), hidden.transpose(0, 2, 1) @ error, error.sum(axis=1))
    return np.concatenate([part.reshape(len(weights), -1) for part in parts], axis=1)


def predicted(weights: Floats, inputs: Floats) -> Labels:
    """Return the classes that one network predicts for these inputs."""
    return np.asarray(_forward(weights[None, :], inputs[None])[1].argmax(axis=2)[0])
