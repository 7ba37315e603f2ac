"""Attacks that search for the largest harm that passes a test: AGR-tailored, Min-Max, Min-Sum (NDSS 2021)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from mabrfl.aggregation.distance import krum_scores
from mabrfl.attacks._search import Geometry, Search
from mabrfl.attacks._statistics import finite_benign
from mabrfl.attacks.view import AttackerView, Knowledge
from mabrfl.checks import check_choice, check_whole
from mabrfl.errors import ConfigError
from mabrfl.updates import Floats, expected_malicious

Target = Literal["krum", "multi-krum"]


@dataclass(frozen=True, kw_only=True, eq=False)
class AgrKrum(Search):
    r"""AGR-tailored (AGRT) against Krum: the benign mean moved as far as Krum still chooses it.

    .. math:: \max \gamma \quad\text{s.t. Krum}(g_1, \dots, g_b, \tilde g, \dots, \tilde g) = \tilde g,
              \qquad \tilde g = \hat g + \gamma \Delta, \quad \Delta = -\mathrm{std}(g_1, \dots, g_b)

    Parameters
    ----------
    direction
        :math:`\Delta`: ``"std"`` (both papers' experiments), ``"unit"`` or ``"sign"``, see :func:`perturbation`.
    target
        ``"krum"``: a malicious update is chosen; ``"multi-krum"``: all malicious updates are among the
        chosen ones.
    num_selected
        How many updates the attacked Multi-Krum averages; n - f if left out.
    half_copy
        The MAB-RFL paper's rule against sybil detection: of the a selected attackers the first
        :math:`\lfloor a/2 \rfloor` send :math:`\tilde g`, the others all copy one benign update, drawn
        each round. ``"auto"``: only if the defense is MAB-RFL.
    gamma_init, tolerance, ddof
        Start and end of the search (see :func:`halving_search`); ``ddof`` of the deviation.

    Notes
    -----
    n is the number of selected clients, and Krum's f is the total f scaled to it, as at the server: exactly f
    with full participation. The search assumes that all selected attackers send
    :math:`\tilde g`, also with ``half_copy``, as the paper describes it. If no factor passes,
    the attackers send the benign mean itself (factor 0, as the authors' code does). The factor
    never exceeds twice ``gamma_init``; in a round in which the attackers outnumber Krum's
    neighbours, every factor passes, and the search ends there.

    References
    ----------
    Shejwalkar, Houmansadr, Manipulating the Byzantine: optimizing model poisoning attacks and defenses
    for federated learning (NDSS 2021); Wan et al., MAB-RFL (IJCAI 2022), "Evaluated Attacks".
    """

    gamma_init: float = 3.0
    target: Target = "krum"
    num_selected: int | None = None
    half_copy: bool | Literal["auto"] = "auto"

    knowledge = Knowledge.FULL

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("target", self.target, get_args(Target))
        if not (isinstance(self.half_copy, bool) or self.half_copy == "auto"):
            raise ConfigError(f"half_copy must be true, false or 'auto'; got {self.half_copy!r}")
        if self.num_selected is not None:
            check_whole("num_selected", self.num_selected, at_least=1)
            if self.target == "krum":
                raise ConfigError(f"num_selected is only for target 'multi-krum'; got {self.num_selected}")

    def passes(self, geometry: Geometry, view: AttackerView) -> Callable[[float], bool]:
        """Return whether the attacked rule would choose copies of the point."""
        a = len(view.attackers)
        n = a + len(geometry.between)
        f = expected_malicious(n, view.num_clients, view.num_malicious)
        chosen = 1 if self.target == "krum" else min(self.num_selected or n - f, n)

        def selected(factor: float) -> bool:
            scores = krum_scores(geometry.with_copies(factor, a), f)
            if chosen < a and self.target == "multi-krum":
                return False
            # A malicious update must be strictly better: ids break a tie, not the attacker.
            rivals_ahead = int(np.sum(scores[a:] <= scores[0]))
            return rivals_ahead == 0 if self.target == "krum" else rivals_ahead + a <= chosen

        return selected

    def __call__(self, view: AttackerView, /) -> Floats | None:
        """Return the moved mean for all attackers, or for half of them."""
        rows = super().__call__(view)
        if rows is None or not self.copies(view):
            return rows
        finite, _ = finite_benign(view)
        victim = finite[view.rng("half-copy").integers(len(finite))]
        mixed = rows.copy()
        mixed[len(view.attackers) // 2 :] = view.benign[victim]
        return mixed

    def copies(self, view: AttackerView) -> bool:
        """Whether half of the attackers copy a benign update in this round."""
        if self.half_copy == "auto":
            return view.defense_name.startswith("mab-rfl")
        return self.half_copy


@dataclass(frozen=True, kw_only=True, eq=False)
class MinMax(Search):
    r"""Min-Max: the benign mean, moved until its largest distance to a benign update is that of two benign updates.

    .. math:: \max \gamma \quad\text{s.t.}\quad \max_i \|\tilde g - g_i\|^2 \le \max_{i,j} \|g_i - g_j\|^2

    Parameters
    ----------
    direction
        ``"std"`` (the released experiments), ``"unit"`` or ``"sign"``.
    gamma_init, tolerance, ddof
        Start and end of the search; ``ddof`` of the deviation. The factor never exceeds twice ``gamma_init``.

    Notes
    -----
    The attack knows the benign updates, not the defense. All attackers send the same. With a single benign
    update there is no deviation, and they send a copy of it.

    References
    ----------
    Shejwalkar, Houmansadr, Manipulating the Byzantine (NDSS 2021), section on AGR-agnostic attacks.
    """

    def passes(self, geometry: Geometry, view: AttackerView) -> Callable[[float], bool]:
        """Return whether the largest distance stays within the bound."""
        del view
        bound = np.max(geometry.between)
        return lambda factor: bool(np.max(geometry.to_point(factor)) <= bound)


@dataclass(frozen=True, kw_only=True, eq=False)
class MinSum(Search):
    r"""Min-Sum: the benign mean, moved until its sum of squared distances is that of a benign update.

    .. math:: \max \gamma \quad\text{s.t.}\quad \sum_i \|\tilde g - g_i\|^2 \le \min_i \sum_j \|g_i - g_j\|^2

    Parameters
    ----------
    bound
        ``"minimum"`` over i, as above (the authors' code, and most libraries), or ``"maximum"`` (the
        inequality as the paper's text is often read, and FLPoison).
    direction, gamma_init, tolerance, ddof
        As in :class:`MinMax`.

    References
    ----------
    Shejwalkar, Houmansadr, Manipulating the Byzantine (NDSS 2021), section on AGR-agnostic attacks.
    """

    bound: Literal["minimum", "maximum"] = "minimum"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("bound", self.bound, ("minimum", "maximum"))

    def passes(self, geometry: Geometry, view: AttackerView) -> Callable[[float], bool]:
        """Return whether the sum of distances stays within the bound."""
        del view
        sums = geometry.between.sum(axis=1)
        bound = sums.min() if self.bound == "minimum" else sums.max()
        return lambda factor: bool(geometry.to_point(factor).sum() <= bound)
