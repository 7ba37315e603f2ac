"""Mimic: every update is an ordinary one, but one benign client counts many times."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mabrfl import vectors
from mabrfl.attacks._statistics import everyone_sends, finite_benign, take
from mabrfl.attacks.base import Attack
from mabrfl.attacks.view import AttackerView, Knowledge
from mabrfl.checks import check_whole
from mabrfl.errors import ConfigError, StateError
from mabrfl.rng import ClientId
from mabrfl.updates import Floats


def spread_along_main_axis(inner: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return each row's squared distance from the mean along the direction in which the rows differ most.

    Everything follows from the Gram matrix: the coordinates of the centred rows along their first
    principal axis are its first eigenvector times the root of its eigenvalue.

    Examples
    --------
    >>> rows = np.array([[0.0, 1.0], [0.0, -1.0], [3.0, 0.0], [-3.0, 0.0], [0.0, 0.0]])
    >>> spread_along_main_axis(rows @ rows.T).round(6) + 0.0
    array([0., 0., 9., 9., 0.])
    """
    centred = inner - inner.mean(axis=0) - inner.mean(axis=1, keepdims=True) + inner.mean()
    values, axes = np.linalg.eigh((centred + centred.T) / 2)
    return np.asarray(max(values[-1], 0.0) * axes[:, -1] ** 2)


@dataclass(kw_only=True, eq=False)
class Mimic(Attack):
    r"""Mimic: all attackers copy the update of one benign client, the same in every round.

    Averaging then counts that client's data :math:`a + 1` times. The copies are equal to the original, so rules
    that look for duplicates also reject the victim.

    Parameters
    ----------
    victim
        ``"seeded"``: the first selected client in a fixed random order; ``"largest-variance"``: see the notes; or the
        id of a client (the attack is inactive in rounds in which it was not selected).
    warmup_rounds
        Rounds in which ``"largest-variance"`` observes the clients.

    Notes
    -----
    ``"largest-variance"`` simplifies the rule of the paper. The paper estimates the direction of largest variance
    of all updates over a warm-up with Oja's method, and chooses the client furthest along it. Here each warm-up
    round has its own exact direction, and a client's squared distances from the mean along it are added up. The
    selected client with the largest sum is copied. After the warm-up the sums no longer change. They are the
    attack's only state.

    References
    ----------
    Karimireddy, He, Jaggi, Byzantine-robust learning on heterogeneous datasets via bucketing (ICLR 2022).
    """

    victim: Literal["seeded", "largest-variance"] | ClientId = "seeded"
    warmup_rounds: int = 5
    _spread: dict[ClientId, float] = field(default_factory=dict, init=False, repr=False)
    _last_round: int = field(default=0, init=False, repr=False)

    knowledge = Knowledge.PARTIAL
    trains = False

    def __post_init__(self) -> None:
        if isinstance(self.victim, bool) or not isinstance(self.victim, int | str):
            raise ConfigError(f"victim must be seeded, largest-variance or a client id; got {self.victim!r}")
        check_whole("warmup_rounds", self.warmup_rounds, at_least=1)

    def __call__(self, view: AttackerView, /) -> Floats | None:
        """Return the victim's update, once per attacker; None if there is no client to copy."""
        finite, norms = finite_benign(view)
        if len(finite) == 0:
            return None
        ids = [view.benign_ids[row] for row in finite]
        if self.victim == "seeded":
            chosen = int(np.argmin(view.preference("mimic-victim")[finite]))
        elif self.victim == "largest-variance":
            self._observe(view.round, ids, take(view.benign, finite), norms)
            chosen = int(np.argmax([self._spread.get(client, 0.0) for client in ids]))
        elif self.victim in ids:
            chosen = ids.index(self.victim)
        else:
            return None
        return everyone_sends(view.benign[finite[chosen]], view)

    def _observe(self, round_number: int, ids: list[ClientId], rows: Floats, norms: NDArray[np.float64]) -> None:
        if round_number > self.warmup_rounds:
            return
        if round_number <= self._last_round:  # a new run has begun
            self._spread.clear()
        self._last_round = round_number
        for client, spread in zip(ids, spread_along_main_axis(vectors.gram(rows, norms)), strict=True):
            self._spread[client] = self._spread.get(client, 0.0) + float(spread)

    def state_dict(self) -> dict[str, Any]:
        """Return the sums of the warm-up."""
        return {
            "ids": list(self._spread),
            "spread": list(self._spread.values()),
            "last_round": self._last_round,
        }

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Restore what ``state_dict`` returned."""
        try:
            spread = dict(zip(state["ids"], map(float, state["spread"]), strict=True))
            last_round = int(state["last_round"])
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(f"state of Mimic must have ids, spread (one each) and last_round; {error!r}") from error
        self._spread, self._last_round = spread, last_round
