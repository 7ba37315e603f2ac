"""Edge-case backdoor: rare but real examples of one class, labelled as another."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.vq import kmeans2

from mabrfl.attacks._directions import check_fraction
from mabrfl.attacks.base import Attack
from mabrfl.attacks.view import Knowledge
from mabrfl.checks import check_whole
from mabrfl.errors import ConfigError

KINDS = 5
"""How many kinds of examples of the source class are told apart; the rarest one is the edge case."""


def rarest_kind(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the centre of the smallest of five clusters (k-means), which start at rows that are far apart."""
    starts = [rows[np.argmin(((rows - rows.mean(axis=0)) ** 2).sum(axis=1))]]
    nearest = ((rows - starts[0]) ** 2).sum(axis=1)
    while len(starts) < KINDS and nearest.max() > 0:
        starts.append(rows[np.argmax(nearest)])
        nearest = np.minimum(nearest, ((rows - starts[-1]) ** 2).sum(axis=1))
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # a cluster may become empty
        centres, members = kmeans2(rows, np.array(starts), minit="matrix")
    counts = np.bincount(members, minlength=len(starts))
    return np.asarray(centres[np.argmin(np.where(counts > 0, counts, len(rows) + 1))])


@dataclass(kw_only=True, eq=False)
class EdgeCase(Attack):
    r"""Edge case: attackers train on a rare kind of examples of one class, labelled as another class.

    No mark is needed: the inputs are real, and so rare that honest clients hardly contradict. The attackers pool their
    examples of the class ``source`` and divide them into five kinds (k-means). With the centre c of the class and the
    centre e of the smallest kind, the edge cases are the share ``rarity`` of the class with the largest

    .. math:: \|x - c\|^2 - \|x - e\|^2

    A share of each attacker's examples is replaced by edge cases from the pool, labelled ``target``. The attack success
    rate is measured on the edge cases of the test set.

    Parameters
    ----------
    source, target
        The class that is misread, and as which class.
    rarity
        The share of the class ``source`` that are edge cases.
    share
        The share of an attacker's examples that are replaced.

    Notes
    -----
    The paper takes its edge cases from another data set (planes of one airline, digits of another country). Here they
    come from the data set itself, so honest clients have some too, with the true label.

    References
    ----------
    Wang et al., Attack of the tails: yes, you really can backdoor federated learning (NeurIPS 2020), the black-box
    attack.
    """

    source: int = 7
    target: int = 1
    rarity: float = 0.1
    share: float = 0.5
    _pool: NDArray[Any] | None = field(default=None, init=False, repr=False)
    _centres: tuple[NDArray[np.float64], NDArray[np.float64]] | None = field(default=None, init=False, repr=False)

    knowledge = Knowledge.AGNOSTIC
    poisons = True

    def __post_init__(self) -> None:
        check_whole("source", self.source)
        check_whole("target", self.target)
        if self.source == self.target:
            raise ConfigError(f"source and target must differ; got {self.source!r} for both")
        check_fraction("rarity", self.rarity)
        check_fraction("share", self.share)

    def survey(self, inputs: NDArray[Any], labels: NDArray[Any], *, num_classes: int) -> None:
        """Find the edge cases among all examples of the attackers."""
        for name, label in (("source", self.source), ("target", self.target)):
            if label >= num_classes:
                raise ConfigError(f"{name} must be a class below {num_classes}; got {label}")
        own = inputs[labels == self.source]
        if not len(own):
            self._pool, self._centres = None, None
            return
        flat = own.reshape(len(own), -1).astype(np.float64)
        self._centres = (flat.mean(axis=0), rarest_kind(flat))
        self._pool = own[self.edge_cases(own)]

    def edge_cases(self, inputs: NDArray[Any]) -> NDArray[np.intp]:
        """Return which of these examples of the class ``source`` are edge cases; at least one."""
        if self._centres is None:
            return np.zeros(0, dtype=np.intp)
        flat = inputs.reshape(len(inputs), -1).astype(np.float64)
        middle, edge = self._centres
        score = ((flat - middle) ** 2).sum(axis=1) - ((flat - edge) ** 2).sum(axis=1)
        return np.sort(np.argsort(-score, kind="stable")[: max(1, round(self.rarity * len(flat)))])

    def poison(
        self, inputs: NDArray[Any], labels: NDArray[Any], *, num_classes: int, rng: np.random.Generator
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the data with edge cases in place of some examples, labelled as the target class."""
        del num_classes
        inputs, labels = inputs.copy(), labels.copy()
        if self._pool is not None:
            chosen = rng.permutation(len(labels))[: round(self.share * len(labels))]
            inputs[chosen] = self._pool[rng.integers(len(self._pool), size=len(chosen))]
            labels[chosen] = self.target
        return inputs, labels

    def goal(
        self, inputs: NDArray[Any], labels: NDArray[Any], *, num_classes: int
    ) -> tuple[NDArray[Any], NDArray[Any]] | None:
        """Return the edge cases of the test set, and the target class as their labels."""
        del num_classes
        own = inputs[labels == self.source]
        found = own[self.edge_cases(own)]
        return (found, np.full(len(found), self.target, dtype=labels.dtype)) if len(found) else None
