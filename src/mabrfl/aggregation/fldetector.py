"""FLDetector: clients whose updates do not follow from their last ones are malicious."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from mabrfl import vectors
from mabrfl.aggregation.clusters import gap_clusters, k_means
from mabrfl.aggregation.coordinatewise import median
from mabrfl.checks import check_choice, check_whole, outliers
from mabrfl.errors import StateError
from mabrfl.rng import ClientId
from mabrfl.updates import Cohort, Decision, Floats

Base = Literal["mean", "median"]
_MOST_CLUSTERS, _REFERENCES = 7, 10


def hessian_product(steps: Floats, changes: Floats, vector: Floats) -> NDArray[np.float64]:
    r"""Return the product of the L-BFGS approximation of the Hessian with a vector.

    With S the last steps of the model and Y the changes of the gradient along them, as columns, and
    :math:`\sigma = \langle y_m, s_m \rangle / \langle s_m, s_m \rangle` (Byrd, Nocedal and Schnabel, 1994):

    .. math:: H v = \sigma v - [\sigma S \; Y]
       \begin{bmatrix} \sigma S^\top S & L \\ L^\top & -D \end{bmatrix}^{-1}
       \begin{bmatrix} \sigma S^\top v \\ Y^\top v \end{bmatrix}

    where L is the strictly lower triangle and D the diagonal of :math:`S^\top Y`.

    Parameters
    ----------
    steps, changes
        ``(m, d)``: a row per round, the newest last.
    vector
        v, ``(d,)``.

    Examples
    --------
    The newest pair is met exactly, whatever the others are:

    >>> steps, changes = np.array([[1.0, 0.0], [1.0, 1.0]]), np.array([[2.0, 0.0], [2.0, 3.0]])
    >>> hessian_product(steps, changes, np.array([1.0, 1.0])).round(9)
    array([2., 3.])
    """
    s, y, v = (np.asarray(part, dtype=np.float64) for part in (steps, changes, vector))
    square = float(s[-1] @ s[-1])
    if square == 0:
        return np.zeros(len(v))
    sigma = float(y[-1] @ s[-1]) / square
    mixed = s @ y.T
    lower = np.tril(mixed, -1)
    system = np.block([[sigma * (s @ s.T), lower], [lower.T, -np.diag(np.diag(mixed))]])
    right = np.concatenate([sigma * (s @ v), y @ v])
    solved, *_ = scipy.linalg.lstsq(system, right)
    m = len(s)
    return np.asarray(sigma * v - (sigma * (solved[:m] @ s) + solved[m:] @ y))


@dataclass(kw_only=True)
class FLDetector:
    r"""FLDetector (Zhang et al., KDD 2022): honest updates can be predicted from the round before.

    With gradients :math:`g_i = -x_i`, a client's gradient should be
    :math:`\hat g_i^t = g_i^{t-1} + H_t (w_t - w_{t-1})`, H by L-BFGS over the last N rounds, see
    :func:`hessian_product`. The distances :math:`\lVert \hat g_i^t - g_i^t \rVert`, divided by their sum over the
    clients, are averaged over N rounds: the client's suspicion. If the gap statistic finds more than one cluster of
    suspicions, 2-means splits the clients, and those of the cluster with the higher mean are rejected. The others are
    averaged. The paper then removes the rejected for good and starts again; a selector that learns from verdicts does
    that here.

    Judging starts when N steps are known, so the first N + 1 rounds are plain averages (a median with
    ``base="median"``). Clients that were absent in the round before have no new score. (FLPoison is off by one: it
    never finds fewer than two clusters, and always rejects somebody.)

    Memory: one vector of the model's size for each client of the last round, and 2N + 1 for the history.

    Parameters
    ----------
    window
        N.
    base
        How accepted updates are combined: their ``"mean"``, or the coordinate-wise ``"median"``.
    """

    window: int = 10
    base: Base = "mean"
    _last: dict[ClientId, Floats] = field(default_factory=dict, init=False, repr=False, compare=False)
    _scores: dict[ClientId, list[float]] = field(default_factory=dict, init=False, repr=False, compare=False)
    _step: Floats | None = field(default=None, init=False, repr=False, compare=False)
    _steps: deque[Floats] = field(default_factory=deque, init=False, repr=False, compare=False)
    _changes: deque[Floats] = field(default_factory=deque, init=False, repr=False, compare=False)

    judges_clients_over_rounds = True

    def __post_init__(self) -> None:
        check_whole("FLDetector window", self.window, at_least=1)
        check_choice("FLDetector base", self.base, get_args(Base))

    def __call__(self, cohort: Cohort, /) -> Decision:
        """Score the clients, reject the unpredictable ones, average the others."""
        if self._step is not None and self._step.shape != cohort.matrix.shape[1:]:
            raise StateError(f"FLDetector: the last step has {self._step.size} numbers, not {cohort.matrix.shape[1]}")
        if len(self._steps) >= self.window and self._step is not None:
            self._add_scores(cohort, hessian_product(np.stack(self._steps), np.stack(self._changes), self._step))
        suspicion = np.array([np.mean(self._scores.get(client) or [0.0]) for client in cohort.ids])
        rejected, clusters = self._rejected(cohort, suspicion)
        kept = ~rejected
        if self.base == "mean":
            step = vectors.combine(kept / kept.sum(), cohort.matrix)
        else:
            step = vectors.coordinatewise(cohort.matrix[kept], median)
        self._remember(cohort, step)
        return Decision(
            step=step,
            reasons=outliers(len(cohort), np.flatnonzero(rejected)),
            evidence=[{"suspicion": float(one)} for one in suspicion],
            facts={"clusters": clusters},
        )

    def _add_scores(self, cohort: Cohort, change: NDArray[np.float64]) -> None:
        known = [row for row, client in enumerate(cohort.ids) if client in self._last]
        if not known:
            return
        expected = np.stack([self._last[cohort.ids[row]] for row in known]) - change.astype(cohort.matrix.dtype)
        far = vectors.row_norms(expected - cohort.matrix[known])
        total = float(far.sum())
        if not np.isfinite(total) or total == 0:
            return
        for row, distance in zip(known, far / total, strict=True):
            scores = self._scores.setdefault(cohort.ids[row], [])
            scores.append(float(distance))
            del scores[: -self.window]

    def _rejected(self, cohort: Cohort, suspicion: NDArray[np.float64]) -> tuple[NDArray[np.bool_], int]:
        nobody = np.zeros(len(cohort), dtype=bool)
        scored = np.array([client in self._scores for client in cohort.ids])
        if scored.sum() < 3:
            return nobody, 1
        points = suspicion[scored][:, None]
        rng = cohort.rng("fldetector")
        clusters = gap_clusters(points, most=_MOST_CLUSTERS, rng=rng, num_references=_REFERENCES, power=2)
        if clusters == 1:
            return nobody, 1
        labels, _ = k_means(points, 2)
        means = [points[labels == label].mean() for label in range(labels.max() + 1)]
        nobody[np.flatnonzero(scored)[labels == int(np.argmax(means))]] = len(means) > 1
        return nobody, clusters

    def _remember(self, cohort: Cohort, step: Floats) -> None:
        if not np.all(np.isfinite(step)):
            return
        if self._step is not None:
            self._steps.append(self._step)
            self._changes.append(self._step - step)  # of the gradient, which is minus the step
            while len(self._steps) > self.window:
                self._steps.popleft()
                self._changes.popleft()
        self._step = step.copy()
        self._last = {client: row.copy() for client, row in zip(cohort.ids, cohort.matrix, strict=True)}

    def state_dict(self) -> dict[str, Any]:
        """Return what later rounds depend on."""
        if self._step is None:
            return {}
        empty = np.zeros((0, self._step.size), self._step.dtype)
        return {
            "step": self._step.copy(),
            "steps": np.stack(self._steps) if self._steps else empty,
            "changes": np.stack(self._changes) if self._changes else empty,
            "clients": list(self._last),
            "updates": np.stack(list(self._last.values())),
            "scored": list(self._scores),
            "scores": [list(scores) for scores in self._scores.values()],
        }

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Restore what :meth:`state_dict` returned."""
        names = {"step", "steps", "changes", "clients", "updates", "scored", "scores"}
        if set(state) not in (set(), names):
            raise StateError(f"FLDetector: the state must have {sorted(names)}, or nothing; got {sorted(state)}")
        arrays = {name: np.array(state.get(name, np.zeros((0, 0)))) for name in ("steps", "changes", "updates")}
        width = np.size(state.get("step", []))
        if len(state.get("clients", [])) != len(arrays["updates"]) or len(arrays["steps"]) != len(arrays["changes"]):
            raise StateError("FLDetector: the state has other numbers of clients and updates, or of steps and changes")
        if state and any(array.shape[1:] != (width,) or not np.isfinite(array).all() for array in arrays.values()):
            raise StateError(f"FLDetector: the state's rows must be {width} finite numbers, as its step is")
        self._step = np.array(state["step"]) if state else None
        self._steps, self._changes = deque(arrays["steps"]), deque(arrays["changes"])
        self._last = dict(zip(state.get("clients", []), arrays["updates"], strict=True))
        pairs = zip(state.get("scored", []), state.get("scores", []), strict=True)
        self._scores = {client: [float(score) for score in scores] for client, scores in pairs}
