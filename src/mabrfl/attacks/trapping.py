"""Trapsetter: a model that classifies badly, near the global one, and updates that lead the mean to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from mabrfl import vectors
from mabrfl.attacks._directions import Vector
from mabrfl.attacks._statistics import bounded, everyone_sends, finite_benign, mean, take
from mabrfl.attacks.base import Attack
from mabrfl.attacks.view import AttackerView, Knowledge
from mabrfl.checks import check_choice, check_positive, check_whole
from mabrfl.updates import Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class Trapsetter(Attack):
    r"""Trapsetter: undo what honest clients do, and lead the mean to the worst model of a plane around the global one.

    .. math:: \tilde g = s \, \frac{K}{f} \, (w^* - w_t) - \frac{K - f}{f} \, \bar g, \qquad
              w^* = \arg\min_{(i, j)} \mathrm{acc}\Bigl(w_t + \tfrac{i}{m} d_1 + \tfrac{j}{m} d_2\Bigr)

    with :math:`i, j = -m, \dots, m`. The directions :math:`d_1, d_2` are random, and each tensor of them is as long as
    r times that tensor of the global model. The attackers measure the accuracy on their own examples. With s = 1 and
    the true mean :math:`\bar g` of the honest updates, the mean over all clients moves the model to the trap
    :math:`w^*` exactly; with a smaller s, by that part of the way.

    Parameters
    ----------
    scale
        s.
    radius
        r.
    steps
        m: the plane has :math:`(2m + 1)^2` points.
    estimate
        Where :math:`\bar g` comes from: ``"own"``, the mean of the attackers' own honest updates, or ``"benign"``, the
        honest clients' (needs partial knowledge).

    Notes
    -----
    The attackers know K and f, and not how many of the clients are selected. Where nothing can measure an accuracy (at
    a node of Flower), the attack cannot run.

    References
    ----------
    Yue, Jin, Wong, Dai, Advancing hybrid defense for Byzantine attacks in federated learning (arXiv 2409.06474, 2024);
    formula and defaults as in the authors' experiments (KAI-YUE/exp-byzan, ``nonomniscient_trapsetter``, where
    ``"benign"`` is ``omniscient_trapsetter``, with the trap around the mean honest model).
    """

    scale: float = 0.01
    radius: float = 0.03
    steps: int = 3
    estimate: Literal["own", "benign"] = "own"

    trains = True
    measures = True

    def __post_init__(self) -> None:
        check_positive("scale", self.scale)
        check_positive("radius", self.radius)
        check_whole("steps", self.steps, at_least=1)
        check_choice("estimate", self.estimate, ("own", "benign"))
        partial = self.estimate == "benign"
        object.__setattr__(self, "knowledge", Knowledge.PARTIAL if partial else Knowledge.AGNOSTIC)
        object.__setattr__(self, "trains", not partial)

    def __call__(self, view: AttackerView, /) -> Floats | None:
        """Return one row for all attackers; None without an honest update to go by, or without a measurement."""
        honest = self.honest_mean(view)
        if honest is None or view.own_accuracy is None:
            return None
        start = view.global_weights.astype(np.float64)
        if self.estimate == "benign":
            start += honest
        way = self.trap(view, start) - view.global_weights
        total, others = view.num_clients, view.num_clients - view.num_malicious
        with np.errstate(over="ignore", invalid="ignore"):
            row = (self.scale * total * way - others * honest) / view.num_malicious
        return everyone_sends(bounded(row, view.global_weights.dtype), view)

    def honest_mean(self, view: AttackerView) -> Vector | None:
        """Return the mean of the finite honest updates that the attackers go by."""
        if self.estimate == "benign":
            rows, finite = view.benign, finite_benign(view)[0]
        elif view.own_updates is not None:
            rows = view.own_updates
            finite = np.flatnonzero(np.isfinite(vectors.row_norms(rows)))
        else:
            return None
        return mean(take(rows, finite)).astype(np.float64) if len(finite) else None

    def trap(self, view: AttackerView, start: Vector) -> Vector:
        """Return the model of the plane around ``start`` with the least accuracy; of equal ones the first."""
        assert view.own_accuracy is not None
        first, second = (self.direction(view, start, name) for name in ("first", "second"))
        places = np.arange(-self.steps, self.steps + 1) / self.steps
        worst, least = start, np.inf
        for along in places:
            for across in places:
                model = start + along * first + across * second
                accuracy = view.own_accuracy(bounded(model, view.global_weights.dtype))
                if accuracy < least:
                    worst, least = model, accuracy
        return worst

    def direction(self, view: AttackerView, start: Vector, name: str) -> Vector:
        """Return a random direction of this round, each tensor of it r times as long as that tensor of ``start``."""
        drawn = view.rng(f"trapsetter-{name}").standard_normal(len(start))
        parts = [slice(None)] if view.layout is None else view.layout.slices.values()
        for part in parts:
            length = float(np.linalg.norm(drawn[part]))
            if length > 0:
                drawn[part] *= self.radius * float(np.linalg.norm(start[part])) / length
        return drawn
