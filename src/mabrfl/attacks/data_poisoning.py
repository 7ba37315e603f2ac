"""Attacks on the data: the attackers train honestly on labels that are wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mabrfl.attacks.base import Attack
from mabrfl.attacks.view import AttackerView, Knowledge
from mabrfl.checks import check_choice, check_whole
from mabrfl.errors import ConfigError
from mabrfl.updates import Floats


def flip(
    labels: NDArray[Any],
    num_classes: int,
    mapping: Literal["reverse", "pair", "targeted"] = "reverse",
    source: int | None = None,
    target: int | None = None,
) -> NDArray[Any]:
    """Return flipped labels; see :class:`LabelFlip`.

    Examples
    --------
    >>> flip(np.array([0, 1, 9]), 10)
    array([9, 8, 0])
    >>> flip(np.array([0, 1, 9]), 10, "pair")
    array([1, 2, 0])
    >>> flip(np.array([0, 1, 9]), 10, "targeted", 1, 7)
    array([0, 7, 9])
    """
    if mapping == "reverse":
        return np.asarray(num_classes - 1 - labels, dtype=labels.dtype)
    if mapping == "pair":
        return np.asarray((labels + 1) % num_classes, dtype=labels.dtype)
    return np.where(labels == source, labels.dtype.type(target), labels)


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelFlip(Attack):
    r"""Label flip: each attacker trains on its own data with every label l turned into L-1-l.

    .. math:: l \mapsto L - 1 - l, \qquad l = 0, 1, \dots, L - 1

    True data poisoning: each attacker sends the update of its own training, with its own number of examples,
    so no two of them send the same. With an odd number of classes the middle one stays as it is.

    Parameters
    ----------
    mapping
        ``"reverse"`` as above (the paper); ``"pair"`` turns l into l+1 modulo L; ``"targeted"`` turns
        ``source`` into ``target`` and keeps the other labels.
    source, target
        The two classes of ``"targeted"``.

    References
    ----------
    Wan et al., MAB-RFL (IJCAI 2022), "Evaluated Attacks"; Tolpegin et al., Data poisoning attacks
    against federated learning systems (ESORICS 2020).
    """

    mapping: Literal["reverse", "pair", "targeted"] = "reverse"
    source: int | None = None
    target: int | None = None

    knowledge = Knowledge.AGNOSTIC
    trains = True
    poisons = True

    def __post_init__(self) -> None:
        check_choice("mapping", self.mapping, ("reverse", "pair", "targeted"))
        for name, label in (("source", self.source), ("target", self.target)):
            if self.mapping == "targeted":
                check_whole(name, label, at_least=0)
            elif label is not None:
                raise ConfigError(f"{name} is only for mapping 'targeted'; got {label!r} with {self.mapping!r}")
        if self.mapping == "targeted" and self.source == self.target:
            raise ConfigError(f"source and target must differ; got {self.source!r} for both")

    def poison(
        self, inputs: NDArray[Any], labels: NDArray[Any], *, num_classes: int, rng: np.random.Generator
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the same inputs with flipped labels."""
        del rng
        self._check_classes(num_classes)
        return inputs, flip(labels, num_classes, self.mapping, self.source, self.target)

    def goal(
        self, inputs: NDArray[Any], labels: NDArray[Any], *, num_classes: int
    ) -> tuple[NDArray[Any], NDArray[Any]] | None:
        """Return the examples of ``source``, with ``target`` as wanted labels; None for the other mappings."""
        if self.mapping != "targeted":
            return None
        self._check_classes(num_classes)
        chosen = labels == self.source
        return inputs[chosen], np.full(int(chosen.sum()), self.target, dtype=labels.dtype)

    def _check_classes(self, num_classes: int) -> None:
        for name, label in (("source", self.source), ("target", self.target)):
            if label is not None and label >= num_classes:
                raise ConfigError(f"{name} must be a class below {num_classes}; got {label}")

    def __call__(self, view: AttackerView, /) -> Floats | None:
        """Return the updates of training on the flipped labels."""
        return view.own_updates
