"""Centered clipping and the geometric median: iterations towards a robust centre, done on weights.

Every point these iterations visit is a weighted sum of the updates (and of the last round's centre), so
it is kept as its n (+ 1) weights, distances to it follow from the Gram matrix, and the d numbers are
touched once, at the end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from mabrfl import vectors
from mabrfl.checks import check_choice, check_positive, check_whole
from mabrfl.errors import StateError
from mabrfl.updates import Cohort, Decision, Floats

Start = Literal["previous", "mean", "zero"]
RadiusUnit = Literal["median-norm", "absolute"]


def _distances(gram: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the distance of every row to the weighted sum of the rows."""
    towards = gram @ weights
    return np.asarray(np.sqrt(np.clip(np.diag(gram) - 2 * towards + weights @ towards, 0, None)))


def clip_towards(
    gram: NDArray[np.float64], start: NDArray[np.float64], *, num_clients: int, radius: float, num_iterations: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    r"""Iterate centered clipping on weights.

    .. math:: v \leftarrow v + \frac1n \sum_i (x_i - v) \min(1, \tau / \lVert x_i - v \rVert)

    Parameters
    ----------
    gram
        Inner products of the n updates, and of any further vectors behind them that the start is made of.
    start
        Weights of the first centre, one per row of ``gram``.
    num_clients
        n: the rows that pull.
    radius
        The clipping radius, tau.
    num_iterations
        How many steps to take.

    Returns
    -------
    weights, factors
        The weights of the last centre, and the last factor ``min(1, ...)`` of each client.

    Examples
    --------
    Updates 1 and 9 on a line, seen from 0 with radius 3: the centre moves by (1 + 3) / 2.

    >>> rows = np.array([[1.0], [9.0]])
    >>> weights, factors = clip_towards(rows @ rows.T, np.zeros(2), num_clients=2, radius=3.0, num_iterations=1)
    >>> (weights @ rows).round(6), factors.round(6)
    (array([2.]), array([1.      , 0.333333]))
    """
    weights, factors = start, np.ones(num_clients)
    for _ in range(num_iterations):
        far = _distances(gram, weights)[:num_clients]
        factors = np.divide(radius, far, out=np.ones(num_clients), where=far > radius)
        weights = weights * (1 - factors.mean())
        weights[:num_clients] += factors / num_clients
    return weights, factors


@dataclass(kw_only=True)
class CenteredClip:
    """Centered clipping (Karimireddy et al., ICML 2021), see :func:`clip_towards` for the formula.

    In one step nobody moves the centre by more than radius / n. Judges no client: all are accepted, with
    the factor by which each was clipped as evidence. Its authors clip *worker momenta*; here, as in the
    MAB-RFL paper's comparison, the updates are clipped as they come.
    Its theorem asks for at most a tenth of malicious clients. ByzFL and FLPoison have an absolute
    radius, 100 by default; byzpy begins at the mean of the updates, which is not robust.

    Parameters
    ----------
    radius
        tau, in units of ``radius_unit``. The default is the median norm of the round's updates. The
        paper fixes a number per task for gradients; local epochs change the size of updates by orders
        of magnitude, and over the rounds, so that a fixed number is soon either without effect or cuts
        everyone. The median norm lies between the smallest and the largest honest norm as long as less
        than half of the clients are malicious, whatever they send: an honest update of ordinary size
        passes nearly whole, and no other counts for more.
    num_iterations
        Steps per round. Default 1, as in the authors' code and most others: starting from the last
        round's centre replaces iterating.
    start
        Where a round starts: ``"previous"`` (the paper), the last round's result, zero in the first;
        ``"mean"`` of the round's updates (found in public code; not robust); ``"zero"``.
    radius_unit
        ``"median-norm"``, or ``"absolute"`` to give tau itself (others use 10 or 100).
    """

    radius: float = 1.0
    num_iterations: int = 1
    start: Start = "previous"
    radius_unit: RadiusUnit = "median-norm"
    _centre: Floats | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_positive("CenteredClip radius", self.radius)
        check_whole("CenteredClip num_iterations", self.num_iterations, at_least=1)
        check_choice("CenteredClip start", self.start, get_args(Start))
        check_choice("CenteredClip radius_unit", self.radius_unit, get_args(RadiusUnit))

    def __call__(self, cohort: Cohort, /) -> Decision:
        """Move the centre, and return it as the step."""
        n, matrix = len(cohort), cohort.matrix
        gram, start = cohort.gram, np.full(n, 1 / n if self.start == "mean" else 0.0)
        if self._centre is not None:
            gram, start = self._with_centre(cohort, self._centre), np.append(start, 1.0)
        tau = self.radius * (1.0 if self.radius_unit == "absolute" else float(np.median(cohort.norms)))
        weights, factors = clip_towards(gram, start, num_clients=n, radius=tau, num_iterations=self.num_iterations)
        step = vectors.combine(weights[:n], matrix)
        if self._centre is not None:
            step += matrix.dtype.type(weights[n]) * self._centre.astype(matrix.dtype, copy=False)
        if self.start == "previous" and np.all(np.isfinite(step)):
            self._centre = step.copy()
        return Decision(
            step=step,
            evidence=[
                {"clip": float(factor), "weight": float(weight)}
                for factor, weight in zip(factors, weights[:n], strict=True)
            ],
            facts={"radius": tau, "num_clipped": int(np.sum(factors < 1))},
        )

    def _with_centre(self, cohort: Cohort, centre: Floats) -> NDArray[np.float64]:
        """Return the Gram matrix of the updates followed by the centre."""
        if centre.shape != cohort.matrix.shape[1:]:
            raise StateError(
                f"CenteredClip: the centre kept from the last round has {centre.size} coordinates, "
                f"the updates have {cohort.matrix.shape[1]}"
            )
        norm = vectors.row_norms(centre[None])
        across = vectors.products(cohort.matrix, centre, cohort.norms)
        return np.block([[cohort.gram, across[:, None]], [across[None], norm[None] ** 2]])

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of the centre, or nothing before the first round."""
        return {} if self._centre is None else {"centre": self._centre.copy()}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Restore what :meth:`state_dict` returned."""
        if set(state) - {"centre"}:
            raise StateError(f"CenteredClip: the state may hold 'centre' only; got {sorted(state)}")
        if not state:
            self._centre = None
            return
        if self.start != "previous":
            raise StateError(f"CenteredClip: start={self.start!r} keeps no centre, but the state has one")
        centre = np.asarray(state["centre"])
        if centre.ndim != 1 or not np.issubdtype(centre.dtype, np.floating) or not np.isfinite(centre).all():
            raise StateError(
                f"CenteredClip: the centre must be one row of finite floats; got {centre.dtype} of shape {centre.shape}"
            )
        self._centre = centre.copy()


def weiszfeld(
    gram: NDArray[np.float64],
    start: NDArray[np.float64],
    *,
    num_iterations: int,
    tolerance: float,
    smoothing: float,
) -> tuple[NDArray[np.float64], int]:
    r"""Iterate the smoothed Weiszfeld algorithm on weights.

    .. math:: z \leftarrow \frac{\sum_i w_i x_i}{\sum_i w_i}, \qquad
       w_i = \frac{1}{\max(\nu, \lVert x_i - z \rVert)}

    It ends when z moves by no more than ``tolerance`` times the median distance.

    Returns
    -------
    weights, iterations
        The weights of z, which sum to one, and how many iterations it took.

    Examples
    --------
    >>> rows = np.array([[0.0], [1.0], [100.0]])
    >>> weights, _ = weiszfeld(
    ...     rows @ rows.T, np.full(3, 1 / 3), num_iterations=100, tolerance=1e-9, smoothing=1e-9
    ... )
    >>> (weights @ rows).round(6)
    array([1.])
    """
    weights = start
    for iteration in range(1, num_iterations + 1):
        far = _distances(gram, weights)
        pull = 1 / np.maximum(far, smoothing)
        pull /= pull.sum()
        moved, weights = pull - weights, pull
        if moved @ gram @ moved <= (tolerance * np.median(far)) ** 2:
            return weights, iteration
    return weights, num_iterations


def central_half(squared_distances: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the weights of the mean of the n // 2 + 1 rows nearest to the medoid, itself among them.

    The medoid is the row with the least sum of distances to the others. So this mean is not far from the
    honest rows if they are the majority, wherever the others are.
    """
    n = len(squared_distances)
    medoid = int(np.argmin(np.sqrt(squared_distances).sum(axis=1)))
    nearest = np.argsort(squared_distances[medoid], kind="stable")[: n // 2 + 1]
    weights = np.zeros(n)
    weights[nearest] = 1 / len(nearest)
    return weights


@dataclass(frozen=True, kw_only=True)
class GeometricMedian:
    r"""Geometric median, :math:`\arg\min_z \sum_i \lVert z - x_i \rVert` (RFA: Pillutla et al., IEEE TSP 2022).

    Found by the smoothed Weiszfeld algorithm, see :func:`weiszfeld`. Needs an honest majority. Judges no client: all
    are accepted, with the weight of each in the median as evidence.

    Public code often ends before the median is reached: ByzFL, FLPoison and FL-Byzantine-Library after three steps from
    zero. In Blades 0.0.13 each step multiplies the last weights, and ends at one of the updates.

    Parameters
    ----------
    num_iterations, tolerance
        When to stop: after so many iterations, or when the point moves by no more than ``tolerance``
        times the median distance. An iteration costs n x n operations, not n x d, so there is no need
        to stop after a few, as one must when every iteration asks the clients.
    smoothing
        Distances below this count as this much; in units of the median norm of the updates.
    start
        ``"central"``: the mean of the half nearest to the medoid; or ``"mean"`` of all. The median does
        not depend on it, but from the mean a far outlier takes hundreds of iterations to be shaken off.
    """

    num_iterations: int = 1000
    tolerance: float = 1e-6
    smoothing: float = 1e-6
    start: Literal["central", "mean"] = "central"

    def __post_init__(self) -> None:
        check_whole("GeometricMedian num_iterations", self.num_iterations, at_least=1)
        check_positive("GeometricMedian tolerance", self.tolerance, or_zero=True)
        check_positive("GeometricMedian smoothing", self.smoothing)
        check_choice("GeometricMedian start", self.start, ("central", "mean"))

    def __call__(self, cohort: Cohort, /) -> Decision:
        """Find the point with the least sum of distances to all updates."""
        n, unit = len(cohort), float(np.median(cohort.norms)) or 1.0
        start = central_half(cohort.squared_distances) if self.start == "central" else np.full(n, 1 / n)
        weights, iterations = weiszfeld(
            cohort.distance_gram,
            start,
            num_iterations=self.num_iterations,
            tolerance=self.tolerance,
            smoothing=self.smoothing * unit,
        )
        evidence = [{"weight": float(weight)} for weight in weights]
        return Decision(weights=weights, evidence=evidence, facts={"iterations": iterations})
