"""The attacks of Fang et al. (USENIX Security 2020): against Krum, and against trimmed mean and median."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from mabrfl import vectors
from mabrfl.aggregation.distance import krum_scores
from mabrfl.attacks._directions import Vector, each_sends
from mabrfl.attacks._search import Geometry
from mabrfl.attacks._statistics import bounded, everyone_sends, finite_benign, mean, take
from mabrfl.attacks.base import Attack
from mabrfl.attacks.view import AttackerView, Knowledge
from mabrfl.checks import check_choice
from mabrfl.errors import ConfigError
from mabrfl.rng import ClientId
from mabrfl.updates import Floats, expected_malicious

SMALLEST = 1e-5
"""The search of :class:`FangKrum` ends at this part of its first step."""


def upper_bound(geometry: Geometry, attackers: int, width: int) -> float:
    r"""Return the largest :math:`\lambda` with which Krum could choose the attack (theorem 1 of the paper).

    .. math:: \lambda \le \sqrt{\frac{1}{(m - 2c - 1) \, d} \min_i \sum_{l \in \Gamma_i} \|g_l - g_i\|^2}
              + \frac{1}{\sqrt d} \max_i \|g_i\|

    for c attackers among m clients and the m - c - 2 benign updates :math:`\Gamma_i` nearest to a benign update i.
    ``geometry`` measures the benign updates from the present model. If m - 2c - 1 is below 1, it counts as 1.
    """
    benign = len(geometry.between)
    nearest = np.sort(geometry.between, axis=1)[:, 1 : max(benign - 1, 1)].sum(axis=1).min()
    spread = np.sqrt(nearest / (max(benign - attackers - 1, 1) * width))
    return float(spread + np.sqrt(geometry.to_mean.max() / width))


@dataclass(frozen=True, kw_only=True, eq=False)
class FangKrum(Attack):
    r"""Fang against Krum: the signs of the benign mean, reversed, as long as Krum would choose them.

    .. math:: \tilde g = -\lambda \, s, \qquad s = \mathrm{sign}(\hat g)

    :math:`\lambda` begins at :func:`upper_bound` and is halved until Krum chooses the attack. If it has fallen to
    1e-5 of the bound, the attackers send that.

    Notes
    -----
    It assumes Krum, whatever rule the server has; n and f are the server's, as in
    :class:`~mabrfl.attacks.AgrKrum`. All attackers send the same: the paper adds noise to the supporters, small
    enough not to matter. The paper's threshold is absolute; here it is relative, so that it means the same for
    every model.

    References
    ----------
    Fang et al., Local model poisoning attacks to Byzantine-robust federated learning (USENIX Security 2020),
    section 4.2, with full knowledge.
    """

    knowledge = Knowledge.PARTIAL
    trains = False

    def __call__(self, view: AttackerView, /) -> Floats | None:
        """Return the reversed signs, once per attacker; None without a benign update."""
        finite, norms = finite_benign(view)
        if len(finite) == 0:
            return None
        rows = take(view.benign, finite)
        signs = np.sign(mean(rows))
        between = vectors.squared_distances(vectors.gram(rows, norms))
        geometry = Geometry(between, norms**2, -vectors.products(rows, signs), float(np.count_nonzero(signs)))
        return everyone_sends(bounded(-self.length(geometry, view) * signs.astype(np.float64), rows.dtype), view)

    def length(self, geometry: Geometry, view: AttackerView) -> float:
        """Return lambda."""
        attackers = len(view.attackers)
        clients = attackers + len(geometry.between)
        malicious = expected_malicious(clients, view.num_clients, view.num_malicious)
        bound = length = upper_bound(geometry, attackers, view.shape[1])
        while length > SMALLEST * bound:
            scores = krum_scores(geometry.with_copies(length, attackers), malicious)
            if scores[0] < scores[attackers:].min():
                break
            length /= 2
        return length


@dataclass(frozen=True, kw_only=True, eq=False)
class FangTrim(Attack):
    r"""Fang against trimmed mean and median: just beyond the benign extremes, against the benign direction.

    In a coordinate in which the benign mean falls (s = -1) the attackers draw from above the largest benign value,
    in the others from below the smallest:

    .. math:: \tilde w_j \in [\max_j, b \max_j] \text{ if } s_j = -1, \qquad
              \tilde w_j \in [b \min_j, \min_j] \text{ if } s_j = 1,

    with 1/b in place of b where that would lead back. Each attacker draws its own.

    Parameters
    ----------
    spread
        b, above 1.
    values
        Extremes of the local ``"models"`` (the paper), or of the ``"updates"``, as in much public code.

    References
    ----------
    Fang et al., Local model poisoning attacks to Byzantine-robust federated learning (USENIX Security 2020),
    section 4.3, with full knowledge; b = 2.
    """

    spread: float = 2.0
    values: Literal["models", "updates"] = "models"

    knowledge = Knowledge.PARTIAL
    trains = False

    def __post_init__(self) -> None:
        check_choice("values", self.values, ("models", "updates"))
        number = isinstance(self.spread, int | float) and not isinstance(self.spread, bool)
        if not (number and 1 < self.spread < np.inf):
            raise ConfigError(f"spread must be a finite number > 1; got {self.spread!r}")

    def __call__(self, view: AttackerView, /) -> Floats | None:
        """Return each attacker's draw; None without a benign update."""
        finite, _ = finite_benign(view)
        if len(finite) == 0:
            return None
        rows = take(view.benign, finite)
        start = view.global_weights.astype(np.float64) * (self.values == "models")
        falls = mean(rows) < 0
        extreme = np.where(falls, rows.max(axis=0), rows.min(axis=0)) + start
        away = np.where((extreme > 0) == falls, self.spread, 1 / self.spread)

        def row(_: int, client: ClientId) -> Vector:
            drawn = view.rng("fang-trim", client).random(len(extreme))
            return np.asarray(extreme * (1 + drawn * (away - 1)) - start)

        return each_sends(view, row)
