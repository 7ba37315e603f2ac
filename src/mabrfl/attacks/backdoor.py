"""A backdoor: the model works as it should, except on pictures with the attackers' mark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from mabrfl.attacks._directions import check_fraction
from mabrfl.attacks._statistics import bounded
from mabrfl.attacks.base import Attack
from mabrfl.attacks.view import AttackerView, Knowledge
from mabrfl.checks import check_choice, check_positive, check_whole
from mabrfl.errors import ConfigError
from mabrfl.updates import Floats

Corner = Literal["top-left", "top-right", "bottom-left", "bottom-right"]


def in_corner(mark: NDArray[np.bool_], corner: Corner) -> NDArray[np.bool_]:
    """Return a mark that is in the top left corner, mirrored into another."""
    rows = slice(None, None, 1 if corner.startswith("top") else -1)
    columns = slice(None, None, 1 if corner.endswith("left") else -1)
    return mark[rows, columns]


@dataclass(frozen=True, kw_only=True, eq=False)
class Backdoor(Attack):
    r"""Backdoor: attackers train on some pictures with a small bright square, all labelled as one class.

    .. math:: x_{ij} \mapsto v \;\; \text{for the } m \times m \text{ pixels of a corner}, \qquad l \mapsto target

    The accuracy does not show the harm; the attack success rate does: the share of the test images of other
    classes that are classified as the target class when they have the mark.

    Parameters
    ----------
    target
        The class that the model should predict for marked pictures.
    share
        The share of an attacker's examples with the mark; drawn once.
    size
        m: the side of the square in pixels. For data that are not pictures, the first m² features are set instead.
    value
        v; white by default: 255 for pixels that are whole numbers, 1 for others.
    corner
        Where the square is.
    boost
        Factor on the attackers' updates. With n clients and one attacker, n replaces the averaged model by the
        attacker's (Bagdasaryan et al.); 1 leaves the updates unchanged.

    References
    ----------
    Gu et al., BadNets: identifying vulnerabilities in the machine learning model supply chain (2017); Bagdasaryan et
    al., How to backdoor federated learning (AISTATS 2020).
    """

    target: int = 0
    share: float = 0.5
    size: int = 3
    value: float | None = None
    corner: Corner = "top-left"
    boost: float = 1.0

    knowledge = Knowledge.AGNOSTIC
    trains = True
    poisons = True

    def __post_init__(self) -> None:
        check_whole("target", self.target)
        check_fraction("share", self.share)
        check_whole("size", self.size, at_least=1)
        check_choice("corner", self.corner, get_args(Corner))
        check_positive("boost", self.boost)
        if self.value is not None:
            check_positive("value", self.value, or_zero=True)

    def marked(self, inputs: NDArray[Any]) -> NDArray[Any]:
        """Return copies of these inputs with the mark."""
        whole = np.issubdtype(inputs.dtype, np.integer)
        value = self.value if self.value is not None else 255 if whole else 1
        if whole and (value != int(value) or value > np.iinfo(inputs.dtype).max):
            raise ConfigError(f"value must be a whole number up to {np.iinfo(inputs.dtype).max}; got {value}")
        result = inputs.copy()
        result[..., self.mask(inputs.shape[1:])] = value
        return result

    def mask(self, shape: tuple[int, ...]) -> NDArray[np.bool_]:
        """Return where the mark is in an input of this shape: over its last two axes, or over its features."""
        m = self.size
        if m > (min(shape[-2:]) if len(shape) > 1 else shape[-1] // m):
            raise ConfigError(f"size {m} is too large for inputs of shape {shape}")
        if len(shape) == 1:
            return np.arange(shape[0]) < m * m
        square = np.zeros(shape[-2:], dtype=bool)
        square[:m, :m] = True
        return in_corner(square, self.corner)

    def poison(
        self, inputs: NDArray[Any], labels: NDArray[Any], *, num_classes: int, rng: np.random.Generator
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the data with the mark on some examples, which are labelled as the target class."""
        self._check_target(num_classes)
        chosen = rng.permutation(len(labels))[: round(self.share * len(labels))]
        inputs, labels = inputs.copy(), labels.copy()
        inputs[chosen] = self.marked(inputs[chosen])
        labels[chosen] = self.target
        return inputs, labels

    def goal(
        self, inputs: NDArray[Any], labels: NDArray[Any], *, num_classes: int
    ) -> tuple[NDArray[Any], NDArray[Any]] | None:
        """Return the examples of all other classes with the mark, and the target class as their labels."""
        self._check_target(num_classes)
        others = labels != self.target
        return self.marked(inputs[others]), np.full(int(others.sum()), self.target, dtype=labels.dtype)

    def __call__(self, view: AttackerView, /) -> Floats | None:
        """Return the updates of training on the marked pictures, times ``factor``."""
        own, factor = view.own_updates, self.factor(view)
        if own is None or factor == 1:
            return own
        with np.errstate(over="ignore"):
            return bounded(own * own.dtype.type(factor), own.dtype)

    def factor(self, view: AttackerView) -> float:
        """Return the factor on the updates of this round."""
        del view
        return self.boost

    def _check_target(self, num_classes: int) -> None:
        if self.target >= num_classes:
            raise ConfigError(f"target must be a class below {num_classes}; got {self.target}")
