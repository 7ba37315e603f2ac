"""FoolsGold: clients whose updates over all rounds point the same way weigh less."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from mabrfl import vectors
from mabrfl.checks import check_choice
from mabrfl.errors import StateError
from mabrfl.rng import ClientId
from mabrfl.updates import Cohort, Decision, Floats

History = Literal["all-rounds", "this-round"]


def foolsgold_weights(cosines: NDArray[np.float64]) -> NDArray[np.float64]:
    r"""Return FoolsGold's learning rate of each client, from 0 to 1 (Algorithm 1 of the paper).

    With :math:`v_i = \max_{j \ne i} cs_{ij}`: pardoning multiplies :math:`cs_{ij}` by :math:`v_i / v_j` where
    :math:`v_j > v_i`; then :math:`\alpha_i = 1 - \max_j cs_{ij}`, divided by the largest of them, and
    :math:`\ln(\alpha_i / (1 - \alpha_i)) + 0.5`, cut to [0, 1].

    Parameters
    ----------
    cosines
        ``(n, n)`` cosines of the clients' summed updates.

    Examples
    --------
    Two copies and two clients of their own direction:

    >>> foolsgold_weights(np.array([[1, 1, 0, 0.1], [1, 1, 0, 0.1], [0, 0, 1, 0.1], [0.1, 0.1, 0.1, 1.0]]))
    array([0., 0., 1., 1.])
    """
    similar = np.array(cosines, dtype=np.float64)
    np.fill_diagonal(similar, 0.0)
    most = similar.max(axis=1)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        pardon = np.where(most > most[:, None], most[:, None] / most, 1.0)
        similar = np.where(np.isfinite(pardon), similar * pardon, similar)
        alpha = np.clip(1 - similar.max(axis=1), 0.0, 1.0)
        alpha = np.clip(alpha / alpha.max(), 0.0, 0.99)
        rates = np.log(alpha / (1 - alpha)) + 0.5
    return np.asarray(np.clip(np.nan_to_num(rates, nan=0.0, neginf=0.0), 0.0, 1.0))


@dataclass(kw_only=True)
class FoolsGold:
    r"""FoolsGold (Fung, Yoon and Beschastnikh, RAID 2020): sybils are known by the likeness of their update histories.

    Cosines are taken between the *sums of all updates* that clients have sent, see :func:`foolsgold_weights`. The step
    is :math:`\sum_i \alpha_i x_i / \sum_i \alpha_i`: the mean with these weights. (The paper adds the weighted
    gradients up; for updates of whole epochs that would be n steps in one. FLPoison adds up, too, and scales longer
    updates to length 1.) If everybody is alike and all weights are zero, all count the same, and the event
    ``foolsgold-all-alike`` is recorded. Clients with weight 0 are reported as sybils.

    Conditions: several attackers with one aim, and honest clients with *different* data. With IID data honest clients
    are alike and lose their weight; a single attacker is never found. The paper also weighs coordinates by how much the
    output layer depends on them, which is optional there and left out here.

    Memory: one vector of the model's size for each client ever seen.

    Parameters
    ----------
    history
        ``"all-rounds"`` (the paper), or ``"this-round"``: cosines of the present updates, without a memory.
    """

    history: History = "all-rounds"
    _sums: dict[ClientId, Floats] = field(default_factory=dict, init=False, repr=False, compare=False)

    judges_clients_over_rounds = True

    def __post_init__(self) -> None:
        check_choice("FoolsGold history", self.history, get_args(History))

    def __call__(self, cohort: Cohort, /) -> Decision:
        """Weigh clients by how unlike the others their histories are."""
        cosines = cohort.cosines
        if self.history == "all-rounds":
            cosines = vectors.cosines(self._remember(cohort))
        rates = foolsgold_weights(cosines)
        events: tuple[str, ...] = ()
        weights = rates
        if not rates.any():
            weights, events = np.ones(len(cohort)), ("foolsgold-all-alike: every client weighs the same",)
        return Decision(
            weights=weights / weights.sum(),
            reasons=["accepted" if weight > 0 else "sybil" for weight in weights],
            evidence=[{"learning_rate": float(rate)} for rate in rates],
            events=events,
        )

    def _remember(self, cohort: Cohort) -> NDArray[np.float64]:
        """Add this round's updates to the histories, and return their Gram matrix."""
        width = cohort.matrix.shape[1]
        histories = np.empty(cohort.matrix.shape, cohort.matrix.dtype)
        for row, client in enumerate(cohort.ids):
            before = self._sums.get(client)
            if before is not None and before.shape != (width,):
                raise StateError(f"FoolsGold: the history of {client!r} has {before.size} numbers, the updates {width}")
            with np.errstate(over="ignore"):
                total = cohort.matrix[row] if before is None else before + cohort.matrix[row]
            # A sum beyond the largest float says nothing about directions: the client starts again.
            histories[row] = total if np.all(np.isfinite(total)) else cohort.matrix[row]
            self._sums[client] = histories[row].copy()
        return vectors.gram(histories)

    def state_dict(self) -> dict[str, Any]:
        """Return the sums of updates, and whose they are."""
        if not self._sums:
            return {}
        return {"clients": list(self._sums), "sums": np.stack(list(self._sums.values()))}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Restore what :meth:`state_dict` returned."""
        if set(state) not in (set(), {"clients", "sums"}):
            raise StateError(f"FoolsGold: the state may hold 'clients' and 'sums' only; got {sorted(state)}")
        clients, sums = state.get("clients", []), np.asarray(state.get("sums", np.zeros((0, 0))))
        if sums.ndim != 2 or len(sums) != len(clients) or not np.all(np.isfinite(sums)):
            raise StateError(f"FoolsGold: the sums must be finite rows, one per client; got {sums.shape}")
        self._sums = {client: row.copy() for client, row in zip(clients, sums, strict=True)}
