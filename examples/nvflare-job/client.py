"""A site: softmax regression on its part of the digits. With ``--lie`` it is one of the bad ones."""

import argparse

import numpy as np
import nvflare.client as flare
from nvflare.app_common.np.constants import NPConstants
from sklearn.datasets import load_digits

FEATURES, CLASSES, HELD_OUT = 65, 10, 297  # 64 pixels and a constant; the last images are for the evaluation


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Return the images, with a constant at the end of each, and their classes."""
    images, labels = load_digits(return_X_y=True)
    return np.hstack([images / 16, np.ones((len(images), 1))]), labels


def probabilities(weights: np.ndarray, images: np.ndarray) -> np.ndarray:
    """Return the probability of each class."""
    scores = np.exp(images @ weights - np.max(images @ weights, axis=1, keepdims=True))
    return scores / scores.sum(axis=1, keepdims=True)


def train(
    weights: np.ndarray, images: np.ndarray, labels: np.ndarray, steps: int = 20, rate: float = 0.5
) -> np.ndarray:
    """Return the weights after some steps of gradient descent on all images."""
    target = np.eye(CLASSES)[labels]
    for _ in range(steps):
        weights = weights - rate * images.T @ (probabilities(weights, images) - target) / len(images)
    return weights


def accuracy(weights: np.ndarray) -> float:
    """Return the share of the held-out images that are classified correctly."""
    images, labels = digits()
    found = np.argmax(probabilities(weights, images[-HELD_OUT:]), axis=1)
    return float(np.mean(found == labels[-HELD_OUT:]))


def main() -> None:
    """Answer every training task with a model."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sites", type=int, required=True, help="the number of sites that share the images")
    parser.add_argument("--lie", choices=["nan", "flip", "crash"], help="what a bad site sends")
    arguments = parser.parse_args()
    flare.init()
    images, labels = digits()
    part = slice(int(flare.get_site_name().rpartition("-")[2]) - 1, -HELD_OUT, arguments.sites)
    while flare.is_running():
        model = flare.receive()
        received = np.asarray(model.params[NPConstants.NUMPY_KEY], dtype=np.float64)
        trained = train(received, images[part], labels[part])
        if arguments.lie == "crash":
            raise RuntimeError("this site fails on purpose")
        if arguments.lie == "flip":
            trained = received - 3 * (trained - received)
        elif arguments.lie == "nan":
            trained[0, 0] = np.nan
        sent = {NPConstants.NUMPY_KEY: trained.astype(np.float32)}
        flare.send(flare.FLModel(params=sent, metrics={"accuracy": accuracy(received)}))


if __name__ == "__main__":
    main()
