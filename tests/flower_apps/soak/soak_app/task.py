"""The task: scikit-learn's digits, half of them for the nodes, and a network with one hidden layer in NumPy."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Weights = dict[str, Floats]

HIDDEN, EPOCHS, BATCH, RATE = 32, 1, 16, 0.015


def write_digits(path: Path) -> None:
    """Write the digits to a file that NumPy alone can read."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    np.savez(path, images=(images[order] / 16).astype(np.float32), labels=labels[order].astype(np.int64))


@cache
def _digits(path: str) -> tuple[Floats, NDArray[np.int64]]:
    with np.load(path) as file:
        return file["images"], file["labels"]


def part(path: str, partition: int, of: int) -> tuple[Floats, NDArray[np.int64]]:
    """Return the examples of a node: each has its share of the first half."""
    images, labels = _digits(path)
    mine = slice(partition, len(labels) // 2, of)
    return images[mine], labels[mine]


def initial(seed: int = 0) -> Weights:
    """Return the network before the first round."""
    rng = np.random.default_rng(seed)
    return {
        "hidden.weight": rng.normal(scale=64**-0.5, size=(64, HIDDEN)).astype(np.float32),
        "hidden.bias": np.zeros(HIDDEN, np.float32),
        "out.weight": rng.normal(scale=HIDDEN**-0.5, size=(HIDDEN, 10)).astype(np.float32),
        "out.bias": np.zeros(10, np.float32),
    }


def _forward(weights: Weights, images: Floats) -> tuple[Floats, Floats]:
    hidden = np.maximum(images @ weights["hidden.weight"] + weights["hidden.bias"], 0)
    logits = hidden @ weights["out.weight"] + weights["out.bias"]
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return hidden, odds / odds.sum(axis=1, keepdims=True)


def trained(weights: Weights, images: Floats, labels: NDArray[np.int64], rng: np.random.Generator) -> Weights:
    """Return the network after some epochs of SGD."""
    weights = {name: values.copy() for name, values in weights.items()}
    for _ in range(EPOCHS):
        order = rng.permutation(len(labels))
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            hidden, error = _forward(weights, images[batch])
            error[np.arange(len(batch)), labels[batch]] -= 1
            error /= len(batch)
            back = (error @ weights["out.weight"].T) * (hidden > 0)
            weights["out.weight"] -= RATE * hidden.T @ error
            weights["out.bias"] -= RATE * error.sum(axis=0)
            weights["hidden.weight"] -= RATE * images[batch].T @ back
            weights["hidden.bias"] -= RATE * back.sum(axis=0)
    return weights


def accuracy(path: str, weights: Weights) -> float:
    """Return the share of the second half that the network knows."""
    images, labels = _digits(path)
    rest = slice(len(labels) // 2, None)
    return float((_forward(weights, images[rest])[1].argmax(axis=1) == labels[rest]).mean())
