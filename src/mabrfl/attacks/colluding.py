"""Attacks of clients that collude: all of them send the same update, computed from the benign updates."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from mabrfl.attacks._statistics import column_std, everyone_sends, of_finite_rows, of_rows
from mabrfl.attacks.base import Attack
from mabrfl.attacks.view import AttackerView, Knowledge, Observes
from mabrfl.checks import check_choice, check_positive
from mabrfl.errors import ConfigError
from mabrfl.updates import Floats

ZRule = Literal["paper", "baruch", "wrong-cdf", "release-2022"]


def lie_factor(num_clients: int, num_malicious: int, rule: ZRule = "paper") -> float | None:
    r"""Return the attack factor z of LIE, or None where it is undefined or not positive.

    With n clients, f of them malicious, and :math:`s = \lfloor n/2 + 1 \rfloor - f` benign
    supporters needed for a majority, the rules in the literature and in public code are

    ================== ============================================================================
    ``"paper"``        :math:`\Phi^{-1}\bigl((n - \lfloor n/2+1 \rfloor) / (n - f)\bigr)`, the MAB-RFL
                       paper with m = n - f benign clients; equal to
                       :math:`\Phi^{-1}((n-f-s)/(n-f))`, which most public code has
    ``"baruch"``       :math:`\Phi^{-1}((n - s)/n)`, as in the worked example of Baruch et al.
                       (z = 1.75 for n = 50, f = 24)
    ``"wrong-cdf"``    :math:`\Phi` where :math:`\Phi^{-1}` belongs, as in some public code: 0.70 at 10 %
    ``"release-2022"`` the MAB-RFL release before February 2023: a missing bracket,
                       :math:`\Phi^{-1}((n-f-s)/n - f)`, never defined for f > 0
    ================== ============================================================================

    Examples
    --------
    >>> round(lie_factor(50, 5), 3), round(lie_factor(50, 24), 3), round(lie_factor(50, 24, "baruch"), 3)
    (0.084, 1.426, 1.751)
    >>> lie_factor(50, 0) is None, lie_factor(50, 15, "release-2022") is None
    (True, True)
    """
    n, f = num_clients, num_malicious
    if f < 1 or n <= f:
        return None
    majority = math.floor(n / 2 + 1)
    share = {
        "paper": (n - majority) / (n - f),
        "baruch": (n - (majority - f)) / n,
        "wrong-cdf": (n - majority) / (n - f),
        "release-2022": (n - majority) / n - f,
    }[rule]
    if not 0 < share < 1:
        return None
    z = float(ndtr(share) if rule == "wrong-cdf" else ndtri(share))
    return z if z > 0 else None


@dataclass(frozen=True, kw_only=True, eq=False)
class LIE(Attack):
    r"""A little is enough: all attackers send the benign mean, shifted by z benign deviations.

    .. math:: \tilde g_j = \mu_j - z^{max} \sigma_j, \qquad j = 1, \dots, d

    The shift is within the spread of the benign updates. The attack is inactive (None) in rounds without a
    benign update, and if z is undefined or not positive: with 50 clients, below three attackers. With 10 %
    attackers z is 0.084, and plain averaging loses almost nothing.

    Parameters
    ----------
    z
        A fixed factor (Baruch's own code uses 1.5), instead of a rule.
    z_rule
        The formula for z from n and f, see :func:`lie_factor`.
    counts
        Take n and f of the ``"population"`` (the paper), or of the clients selected in the ``"round"``.
    sign
        -1 as in the paper; +1 as in several libraries.
    ddof
        0: deviation with 1/b (NumPy's); 1: with 1/(b-1) (PyTorch's).
    statistics
        Mean and deviation of the ``"benign"`` updates of the round (the paper), or of the attackers'
        ``"own"`` honest updates, which needs no knowledge of other clients (Baruch's own code).
    observes
        Which benign updates the attack sees: of those ``"selected"`` this round, or of ``"all"`` benign clients.

    References
    ----------
    Baruch et al., A little is enough: circumventing defenses for distributed learning (NeurIPS 2019);
    Wan et al., MAB-RFL (IJCAI 2022), "Evaluated Attacks".
    """

    z: float | None = None
    z_rule: ZRule = "paper"
    counts: Literal["population", "round"] = "population"
    sign: int = -1
    ddof: int = 0
    statistics: Literal["benign", "own"] = "benign"
    observes: Observes = "selected"

    def __post_init__(self) -> None:
        if self.z is not None:
            check_positive("z", self.z)
        check_choice("z_rule", self.z_rule, get_args(ZRule))
        check_choice("counts", self.counts, ("population", "round"))
        check_choice("statistics", self.statistics, ("benign", "own"))
        check_choice("observes", self.observes, get_args(Observes))
        check_choice("sign", self.sign, (-1, 1))
        check_choice("ddof", self.ddof, (0, 1))
        if self.counts == "round" and self.statistics == "own" and self.z is None:
            raise ConfigError(
                "counts 'round' needs statistics 'benign': without it, attackers cannot count the benign clients"
            )
        if self.counts == "round" and self.observes == "all" and self.z is None:
            raise ConfigError("counts 'round' needs observes 'selected': not all benign clients are in the round")
        own = self.statistics == "own"
        object.__setattr__(self, "knowledge", Knowledge.AGNOSTIC if own else Knowledge.PARTIAL)
        object.__setattr__(self, "trains", own)

    def __call__(self, view: AttackerView, /) -> Floats | None:
        """Return the shifted mean, once per attacker."""
        factor = self.factor(view)
        own = self.statistics == "own"
        rows = view.own_updates if own else view.benign
        if factor is None or rows is None:
            return None
        shift = self.sign * factor

        def rule(part: NDArray[np.float64], mean: NDArray[np.float64]) -> NDArray[np.float64]:
            return mean + shift * column_std(part, self.ddof, mean)

        shifted = of_rows(rows, rule) if own else of_finite_rows(rows, rule)
        return None if shifted is None else everyone_sends(shifted, view)

    def factor(self, view: AttackerView) -> float | None:
        """Return z for this round; None if it is undefined."""
        if self.z is not None:
            return self.z
        if self.counts == "round":
            return lie_factor(len(view.attackers) + len(view.benign), len(view.attackers), self.z_rule)
        return lie_factor(view.num_clients, view.num_malicious, self.z_rule)


@dataclass(frozen=True, kw_only=True, eq=False)
class IPM(Attack):
    r"""Inner product manipulation: all attackers send -epsilon times the mean benign update.

    .. math:: \tilde g = - \varepsilon \, \frac{1}{b} \sum_{i} g_i

    With epsilon = 1 it is what ByzFL and krum call sign flip. Defaults elsewhere: 2 (ByzFL), 1 (byzpy), 0.5 (Blades),
    0.1 (FLPoison).

    Parameters
    ----------
    epsilon
        With a share :math:`\delta` of attackers, every :math:`\varepsilon` slows plain averaging down, and one
        above :math:`(1 - \delta) / \delta` reverses it: 2.33 at 30 %. Hence the default. Use a small one, such as
        0.1, against rules that choose updates near the benign ones.

    References
    ----------
    Xie et al., Fall of empires: breaking Byzantine-tolerant SGD by inner product manipulation (UAI 2019).
    """

    epsilon: float = 3.0

    knowledge = Knowledge.PARTIAL
    trains = False

    def __post_init__(self) -> None:
        check_positive("epsilon", self.epsilon)

    def __call__(self, view: AttackerView, /) -> Floats | None:
        """Return the reversed mean, once per attacker; None without a benign update."""
        reverse = of_finite_rows(view.benign, lambda _, mean: -self.epsilon * mean)
        return None if reverse is None else everyone_sends(reverse, view)
