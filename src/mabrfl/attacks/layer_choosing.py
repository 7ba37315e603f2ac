"""An attacker that hides in some layers: it tries each layer on a copy of the real defense."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from mabrfl import vectors
from mabrfl.attacks._statistics import bounded, finite_benign, mean, take
from mabrfl.attacks.base import Attack
from mabrfl.attacks.view import AttackerView, Knowledge
from mabrfl.checks import check_positive, check_whole
from mabrfl.updates import Floats

Slices = tuple[slice, ...]
Strengths = Mapping[str, float]


@dataclass(frozen=True)
class LayerTrial:
    """One rehearsal: how strongly each layer is attacked, how many rows were accepted, and the damage.

    Attributes
    ----------
    strengths
        The strength of each attacked layer.
    rows
        The updates that the attackers would send.
    accepted
        How many of them the defense accepted.
    damage
        Minus the share of the benign mean that the step has in a layer, averaged over the layers: -1 for the benign
        mean itself, 0 if the model stays, 1 if it goes back.
    """

    strengths: Strengths
    rows: Floats
    accepted: int
    damage: float

    @property
    def rank(self) -> tuple[int, float]:
        """Trials are compared by the accepted rows, then by the damage."""
        return self.accepted, self.damage


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerChoosing(Attack):
    r"""Layer-choosing: poison only the layers, and as strongly, as a copy of the real defense accepts.

    .. math:: \tilde g_{k,l} = h_{k,l} - s_l \, \hat g_l \;\text{ in the chosen layers } l,
              \qquad \tilde g_{k,l} = h_{k,l} \;\text{ in the others}

    :math:`h_k` is the attacker's honest update, in each layer at most as long as the median benign update;
    :math:`\hat g_l` is the benign mean in a layer. First each layer is tried alone: bisection finds the largest
    strength :math:`s_l` that the server would accept from all attackers. Then the layers are joined, the most
    harmful first, with the whole or half their strength, as long as all attackers are accepted and the damage
    grows. The damage counts every layer alike, however few numbers it has.

    Parameters
    ----------
    strongest
        The largest strength. 1 cancels what an attacker adds along the benign mean, 2 reverses it.
    steps
        Rehearsals of each layer alone. Joining them takes up to two more for each.

    Notes
    -----
    Without a known layout the model is one layer. It looks one round ahead, like
    :class:`~mabrfl.attacks.AgrMabRfl`, and works against every defense, because it only needs the verdicts.

    References
    ----------
    The idea of LaySelFL (CVPR 2026) and of Zhuang et al., Backdoor federated learning by poisoning backdoor-critical
    layers (ICLR 2024): poison few layers and clip the others. The search by rehearsal is ours.
    """

    strongest: float = 10.0
    steps: int = 5

    knowledge = Knowledge.FULL
    trains = True

    def __post_init__(self) -> None:
        check_positive("strongest", self.strongest)
        check_whole("steps", self.steps, at_least=1)

    def __call__(self, view: AttackerView, /) -> Floats | None:
        """Return the rows of the best trial; None without a benign update."""
        finite, _ = finite_benign(view)
        if len(finite) == 0 or view.own_updates is None:
            return None
        rehearsal = _Rehearsal(view, take(view.benign, finite), view.own_updates)
        singles = [self._alone(rehearsal, layer) for layer in rehearsal.layers]
        best, *others = sorted(singles, key=lambda trial: trial.rank, reverse=True)
        for other in others:
            for part in (1.0, 0.5):
                more = {layer: part * strength for layer, strength in other.strengths.items()}
                joined = rehearsal.of({**best.strengths, **more})
                if joined.rank > best.rank:
                    best = joined
                    break
        return best.rows

    def _alone(self, rehearsal: _Rehearsal, layer: str) -> LayerTrial:
        """Return the best trial of one layer: the largest accepted strength found by bisection."""
        best, low, high = None, 0.0, self.strongest
        for step in range(self.steps):
            strength = high if step == 0 else (low + high) / 2
            trial = rehearsal.of({layer: strength})
            best = trial if best is None else max(best, trial, key=lambda one: one.rank)
            passed = trial.accepted == len(trial.rows)
            if passed and step == 0:
                break
            low, high = (strength, high) if passed else (low, strength)
        assert best is not None
        return best


class _Rehearsal:
    """The attackers' honest rows, the benign mean and the layers, ready for trials."""

    def __init__(self, view: AttackerView, benign: Floats, own: Floats) -> None:
        known = view.layout
        self.layers: Mapping[str, Slices] = {"model": (slice(0, view.shape[1]),)} if known is None else known.layers
        self.view, self.mean = view, mean(benign)
        self.honest = np.nan_to_num(own, copy=True)
        for slices in self.layers.values():
            limit = float(np.median(layer_norms(benign, slices)))
            lengths = layer_norms(self.honest, slices)
            factors = np.minimum(1.0, np.divide(limit, lengths, out=np.ones_like(lengths), where=lengths > 0))
            for columns in slices:
                self.honest[:, columns] *= factors[:, None].astype(own.dtype)

    def of(self, strengths: Strengths) -> LayerTrial:
        """Return what the server would do if these layers were attacked."""
        rows = self.honest.copy()
        for layer, strength in strengths.items():
            for columns in self.layers[layer]:
                push = strength * self.mean[columns].astype(np.float64)
                rows[:, columns] = bounded(rows[:, columns] - push, rows.dtype)
        outcome = self.view.rehearse(rows)
        verdicts = [outcome.verdicts.get(client) for client in self.view.attackers]
        accepted = sum(verdict is not None and verdict.accepted for verdict in verdicts)
        return LayerTrial(strengths, rows, accepted, self._damage(outcome.step))

    def _damage(self, step: Floats) -> float:
        shares = [self._share(step, slices) for slices in self.layers.values()]
        return -float(np.mean(shares))

    def _share(self, step: Floats, slices: Slices) -> float:
        """Return the length of the step along the benign mean in a layer, relative to the mean's."""
        pairs = [(step[columns].astype(np.float64), self.mean[columns].astype(np.float64)) for columns in slices]
        square = sum(float(course @ course) for _, course in pairs)
        return sum(float(moved @ course) for moved, course in pairs) / square if square > 0 else 0.0


def layer_norms(matrix: Floats, slices: Slices) -> NDArray[np.float64]:
    """Return the length of each row over these columns.

    Examples
    --------
    >>> layer_norms(np.array([[3.0, 9.0, 4.0], [0.0, 9.0, 1.0]]), (slice(0, 1), slice(2, 3)))
    array([5., 1.])
    """
    return np.asarray(reduce(np.hypot, [vectors.row_norms(matrix[:, columns]) for columns in slices]))
