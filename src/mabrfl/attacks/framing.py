"""Attacks that send ordinary updates, and harm the reputation of honest clients.

They do almost nothing to plain averaging. A defense that looks for similar clients is harmed: it takes honest
clients that are similar to the attackers for attackers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from mabrfl.attacks._directions import each_sends, random_unit
from mabrfl.attacks._statistics import bounded, everyone_sends, finite_benign, mean, take
from mabrfl.attacks.base import Attack
from mabrfl.attacks.view import AttackerView, Knowledge
from mabrfl.checks import check_positive, check_whole
from mabrfl.errors import ConfigError, StateError
from mabrfl.rng import ClientId
from mabrfl.updates import Floats


def with_jitter(row: Floats, view: AttackerView, purpose: str, jitter: float) -> Floats:
    """Return one row for all attackers, each plus its own noise of ``jitter`` times the row's length."""
    if jitter == 0:
        return everyone_sends(row, view)
    common = row.astype(np.float64)
    length = jitter * float(np.linalg.norm(common))
    width = view.shape[1]
    return each_sends(view, lambda _, client: common + length * random_unit(view.rng(purpose, client), width))


@dataclass(frozen=True, kw_only=True, eq=False)
class Bridge(Attack):
    r"""Bridge: the attackers send the benign mean, which is similar to every honest update.

    .. math:: \tilde g_k = \hat g + \jmath \, \|\hat g\| \, n_k, \qquad \cos(\hat g, g_i) \approx
              \sqrt{\rho + (1 - \rho) / b}

    for b benign updates of mean pairwise cosine :math:`\rho`. A rule that groups clients by chains of similarity
    takes all clients that are similar to a bridge for sybils: 1/threshold² honest clients per attacker.

    Parameters
    ----------
    jitter
        Length of each attacker's own noise, relative to the mean; 0: all send the same.
    senders
        How many of the selected attackers are bridges (the first ones); the others send their honest updates. All
        of them by default.

    References
    ----------
    None known; see F3 in ``docs/attacks.md``.
    """

    jitter: float = 0.0
    senders: int | None = None

    knowledge = Knowledge.PARTIAL

    def __post_init__(self) -> None:
        check_positive("jitter", self.jitter, or_zero=True)
        if self.senders is not None:
            check_whole("senders", self.senders, at_least=1)
        object.__setattr__(self, "trains", self.senders is not None)

    def __call__(self, view: AttackerView, /) -> Floats | None:
        """Return the mean of the benign updates, once per bridge; None without a benign update."""
        finite, _ = finite_benign(view)
        if len(finite) == 0:
            return None
        rows = with_jitter(mean(take(view.benign, finite)), view, "bridge", self.jitter)
        if self.senders is None or view.own_updates is None:
            return rows
        return np.concatenate([rows[: self.senders], view.own_updates[self.senders :]])


@dataclass(frozen=True, kw_only=True, eq=False)
class Hub(Attack):
    r"""Hub: the attackers send the last public step of the global model: a bridge without knowledge of updates.

    .. math:: \tilde g_k = s \, (w_t - w_{t-1}) + \jmath \, s \, \|w_t - w_{t-1}\| \, n_k

    While the model keeps its direction, the last step is similar to every honest update of this round, like
    their mean (see :class:`Bridge`), and it is public. In the first round, and after a round in which the model
    did not move, the attackers send their honest updates.

    Parameters
    ----------
    scale
        s: length relative to the last step.
    jitter
        Length of each attacker's own noise, relative to its update; 0: all send the same.
    """

    scale: float = 1.0
    jitter: float = 0.0

    knowledge = Knowledge.AGNOSTIC

    def __post_init__(self) -> None:
        check_positive("scale", self.scale)
        check_positive("jitter", self.jitter, or_zero=True)

    def __call__(self, view: AttackerView, /) -> Floats | None:
        """Return the last public step, once per attacker; honest updates if there is none."""
        step = view.last_step
        if step is None or not np.any(step):
            return view.own_updates
        return with_jitter(bounded(self.scale * step.astype(np.float64), step.dtype), view, "hub", self.jitter)


@dataclass(kw_only=True, eq=False)
class Frame(Attack):
    """Frame: all attackers copy one honest client for the whole run, so that the defense rejects it as a sybil.

    In rounds in which the victim was not selected they send their honest updates, and earn trust. So there are
    sybils in a round exactly if the victim takes part.

    Parameters
    ----------
    victim
        ``"seeded"``: drawn by seed among the benign clients of the first round that has any, for the whole run;
        or the id of a client.

    Notes
    -----
    Unlike :class:`~mabrfl.attacks.Mimic`, it never changes the victim.

    References
    ----------
    Copies as in Karimireddy, He, Jaggi, Byzantine-robust learning on heterogeneous datasets via
    bucketing (ICLR 2022); the aim is bad-mouthing, known from reputation systems. See F4 in ``docs/attacks.md``.
    """

    victim: Literal["seeded"] | ClientId = "seeded"
    _chosen: ClientId | None = field(default=None, init=False, repr=False)
    _last_round: int = field(default=0, init=False, repr=False)

    knowledge = Knowledge.PARTIAL

    def __post_init__(self) -> None:
        if isinstance(self.victim, bool) or not isinstance(self.victim, int | str):
            raise ConfigError(f"victim must be seeded or a client id; got {self.victim!r}")

    def __call__(self, view: AttackerView, /) -> Floats | None:
        """Return the victim's update, once per attacker; honest updates if it was not selected."""
        finite, _ = finite_benign(view)
        rows = {view.benign_ids[row]: row for row in finite}
        chosen = self._victim(view, list(rows)) if self.victim == "seeded" else self.victim
        return view.own_updates if chosen not in rows else everyone_sends(view.benign[rows[chosen]], view)

    def _victim(self, view: AttackerView, ids: list[ClientId]) -> ClientId | None:
        if view.round <= self._last_round:  # a new run has begun
            self._chosen = None
        self._last_round = view.round
        if self._chosen is None and ids:
            order = dict(zip(view.benign_ids, view.preference("frame-victim"), strict=True))
            self._chosen = min(ids, key=lambda client: order[client])
        return self._chosen

    def state_dict(self) -> dict[str, Any]:
        """Return the victim and the last round."""
        return {"chosen": self._chosen, "last_round": self._last_round}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Restore what ``state_dict`` returned."""
        try:
            chosen, last_round = state["chosen"], int(state["last_round"])
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(f"state of Frame must have chosen and last_round; {error!r}") from error
        if chosen is not None and (isinstance(chosen, bool) or not isinstance(chosen, int | str)):
            raise StateError(f"the victim in a state of Frame must be a client id; got {chosen!r}")
        self._chosen, self._last_round = chosen, last_round
