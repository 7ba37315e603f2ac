"""Local data that differ in more than their labels: a feature shift by client, and wrong labels of honest clients.

The paper calls clients *rational* if they have good data. Poor data without bad intent are of two kinds here: pictures
taken in another way, and labels that are wrong by mistake.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from mabrfl.errors import ConfigError, suggest
from mabrfl.rng import generator, uniforms
from mabrfl.simulation.data.dataset import Dataset
from mabrfl.simulation.data.partition import Indices

Shift = Literal["none", "rotation", "brightness"]


@dataclass(frozen=True)
class PoorData:
    r"""In which way the data of clients are poor.

    Parameters
    ----------
    feature_shift
        ``"rotation"``: the pictures of a client are all rotated by one angle; ``"brightness"``: all inputs of a client
        are multiplied by one factor.
    shift_strength
        s: angles are uniform in :math:`\pm s \cdot 180°`, factors in :math:`[1 - s, 1 + s]`.
    label_noise
        The share of a client's labels that are replaced by another class, uniformly at random.
    noisy_clients
        The share of the honest clients with such labels. Attackers have none.
    """

    feature_shift: Shift = "none"
    shift_strength: float = 0.25
    label_noise: float = 0.0
    noisy_clients: float = 1.0

    def __post_init__(self) -> None:
        if self.feature_shift not in get_args(Shift):
            raise ConfigError(
                f"feature_shift: unknown '{self.feature_shift}'{suggest(str(self.feature_shift), get_args(Shift))}"
            )
        for name in ("shift_strength", "label_noise", "noisy_clients"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ConfigError(f"{name} must be in [0, 1]; got {getattr(self, name)}")

    @property
    def changes_nothing(self) -> bool:
        """Whether the data stay as they are."""
        return self.feature_shift == "none" and not (self.label_noise and self.noisy_clients)


def localised(
    dataset: Dataset,
    parts: Sequence[Indices],
    root: Indices | None,
    poor: PoorData,
    *,
    attackers: Collection[int] = (),
    seed: int,
) -> tuple[Dataset, list[Indices], Indices | None]:
    """Return a data set with a place of its own for every sample of every client, and the new places.

    Training samples are copied in the order of the clients, so that one client's copy can be changed. Test data and the
    server's root data stay as they are.

    Parameters
    ----------
    dataset
        The data of all.
    parts
        Each client's sample indices.
    root
        Those of the server's own data, if it has any.
    poor
        The changes.
    attackers
        Clients whose labels are not changed here.
    seed
        Root of the random streams: each client's angle, factor and wrong labels depend on its number alone.
    """
    if poor.changes_nothing:
        return dataset, list(parts), root
    everyone = [*parts, *([] if root is None else [root])]
    inputs, labels = [dataset.train_inputs[one] for one in everyone], [dataset.train_labels[one] for one in everyone]
    for client in range(len(parts)):
        inputs[client] = _shifted(inputs[client], poor, generator(seed, "feature-shift", client))
    for client in _noisy(len(parts), poor, attackers, seed):
        labels[client] = _with_noise(
            labels[client], poor.label_noise, dataset.num_classes, generator(seed, "label-noise", client)
        )
    changed = replace(dataset, train_inputs=np.concatenate(inputs), train_labels=np.concatenate(labels))
    places = np.split(np.arange(len(changed.train_labels)), np.cumsum([len(one) for one in everyone])[:-1])
    return changed, places[: len(parts)], None if root is None else places[-1]


def _noisy(num_clients: int, poor: PoorData, attackers: Collection[int], seed: int) -> list[int]:
    """Return the honest clients with wrong labels."""
    if not poor.label_noise:
        return []
    order = np.argsort(uniforms(seed, "noisy-clients", 0, range(num_clients)), kind="stable")
    honest = [int(client) for client in order if client not in attackers]
    return honest[: round(poor.noisy_clients * len(honest))]


def _with_noise(
    labels: NDArray[np.int64], share: float, num_classes: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return labels of which a share is another class."""
    wrong = rng.permutation(labels.size)[: round(share * labels.size)]
    labels = labels.copy()
    labels[wrong] = (labels[wrong] + rng.integers(1, num_classes, size=wrong.size)) % num_classes
    return labels


def _shifted(inputs: NDArray[Any], poor: PoorData, rng: np.random.Generator) -> NDArray[Any]:
    if poor.feature_shift == "none":
        return inputs
    place = rng.uniform(-poor.shift_strength, poor.shift_strength)
    if poor.feature_shift == "brightness":
        return _like(inputs.astype(np.float64) * (1 + place), inputs)
    return rotated(inputs, place * 180)


def rotated(inputs: NDArray[Any], degrees: float) -> NDArray[Any]:
    """Return pictures rotated about their centre, with straight-line interpolation; what comes from outside is 0.

    Raises
    ------
    ConfigError
        If the inputs are no pictures.
    """
    if inputs.ndim != 4:
        raise ConfigError(f"feature_shift 'rotation' needs pictures (C, H, W); got inputs of shape {inputs.shape[1:]}")
    turned = ndimage.rotate(inputs.astype(np.float64), degrees, axes=(2, 3), reshape=False, order=1)
    return _like(turned, inputs)


def _like(values: NDArray[np.float64], inputs: NDArray[Any]) -> NDArray[Any]:
    """Return values in the type of the inputs; bytes are rounded and kept in their range."""
    if inputs.dtype == np.uint8:
        values = np.clip(np.rint(values), 0, 255)
    return values.astype(inputs.dtype)
