"""Krum, Multi-Krum and FABA: rules that judge clients by Euclidean distances, all read off the Gram matrix.

Public implementations of each disagree; what the papers define is the default, and the variants that
choose other clients have names here. (Not offered: per-layer norms, and sums that are not divided.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from mabrfl.aggregation.honest_majority import HonestMajority
from mabrfl.checks import check_choice, check_whole, outliers, quorum
from mabrfl.updates import Cohort, Decision

Neighbours = Literal["n-f-2", "n-f-1", "n-f-3", "all"]
Power = Literal[1, 2, 4]
Removal = Literal["iterative", "one-shot", "pairwise"]

_REFRESH = 1e6
"""Drop in the largest squared norm after which FABA's running sums are formed anew."""


def krum_scores(
    squared_distances: NDArray[np.float64],
    num_malicious: int,
    *,
    neighbours: Neighbours = "n-f-2",
    power: Power = 2,
) -> NDArray[np.float64]:
    r"""Return Krum's score of each of n vectors: how far its nearest others are, summed.

    .. math:: s(i) = \sum_{j \in N_i} \lVert x_i - x_j \rVert^p

    with :math:`N_i` the n - f - 2 vectors other than i that are nearest to i, and p = 2 (Blanchard et
    al., NeurIPS 2017). At least one neighbour is counted (if there is another vector at all).

    Parameters
    ----------
    squared_distances
        ``(n, n)`` squared Euclidean distances.
    num_malicious
        f, the number of malicious vectors among the n.
    neighbours
        How many of the others count: ``"n-f-2"`` (the paper), ``"n-f-1"`` and ``"n-f-3"`` (off by one
        either way, from counting the vector as its own neighbour), ``"all"`` (no f: a medoid).
    power
        2 (the paper), 1 (distances not squared), 4 (squared twice).

    Examples
    --------
    >>> points = np.array([0.0, 1.0, 3.0, 10.0])
    >>> krum_scores((points[:, None] - points) ** 2, 0)
    array([ 10.,   5.,  13., 130.])
    """
    n, f = len(squared_distances), num_malicious
    count = {"n-f-2": n - f - 2, "n-f-1": n - f - 1, "n-f-3": n - f - 3, "all": n - 1}[neighbours]
    count = min(max(count, 1), n - 1)
    others = np.array(squared_distances, dtype=np.float64)
    np.fill_diagonal(others, np.inf)
    nearest = np.sort(others, axis=1)[:, :count]
    return np.asarray(np.sum(nearest ** (power / 2), axis=1))


def repeated_krum(
    squared_distances: NDArray[np.float64],
    num_malicious: int,
    count: int,
    *,
    neighbours: Neighbours = "n-f-2",
    power: Power = 2,
    ties: Literal["index", "nearest"] = "index",
) -> NDArray[np.intp]:
    """Return ``count`` rows: Krum's choice is set aside, then Krum's choice among the others, and so on.

    When a single neighbour counts, two rows that are each other's nearest have the same score. Of equal scores the
    lower index wins (``ties="index"``), or the row with the least sum of squared distances to all that are left.

    Examples
    --------
    >>> points = np.array([0.0, 1.0, 3.0, 10.0])
    >>> repeated_krum((points[:, None] - points) ** 2, 0, 2)
    array([1, 0])
    """
    left = np.arange(len(squared_distances))
    chosen: list[int] = []
    while len(chosen) < count:
        part = squared_distances[np.ix_(left, left)]
        scores = krum_scores(part, num_malicious, neighbours=neighbours, power=power)
        best = int(np.argmin(scores) if ties == "index" else np.lexsort((part.sum(axis=1), scores))[0])
        chosen.append(int(left[best]))
        left = np.delete(left, best)
    return np.array(chosen, dtype=np.intp)


@dataclass(frozen=True, kw_only=True)
class Krum:
    """Krum (Blanchard et al., NeurIPS 2017): the step is the one update with the lowest score.

    The theorem asks for n >= 2f + 3 updates. With fewer the rule goes on and records it.
    The f highest scores are reported as outliers. Of equal scores the lower index in canonical order
    counts as the lower score.

    Parameters
    ----------
    num_malicious
        Bound on the malicious clients of the whole population; f is the cohort's share of it.
    neighbours, power
        Variants of the score, see :func:`krum_scores`. The defaults are the paper's, and are what the
        MAB-RFL paper compares with ("the m - 2 neighboring local gradients", m = n - f).
    strict
        Raise :class:`~mabrfl.errors.QuorumError` instead of recording an event unless n >= 2f + 3.
    """

    num_malicious: int
    neighbours: Neighbours = "n-f-2"
    power: Power = 2
    strict: bool = False

    def __post_init__(self) -> None:
        _check_krum("Krum", self.num_malicious, self.neighbours, self.power)

    def __call__(self, cohort: Cohort, /) -> Decision:
        """Choose one update."""
        events = quorum("krum", "n >= 2f+3", cohort, self.num_malicious, excess=3, strict=self.strict)
        f = cohort.expected_malicious(self.num_malicious)
        scores = krum_scores(cohort.squared_distances, f, neighbours=self.neighbours, power=self.power)
        order = np.argsort(scores, kind="stable")
        return _mean_of(order[:1], rejected=order[len(cohort) - f :], scores=scores, events=events)


@dataclass(frozen=True, kw_only=True)
class MultiKrum:
    """Multi-Krum (Blanchard et al., NeurIPS 2017): the mean of the updates with the lowest scores.

    Outliers and ties as in :class:`Krum`.

    Parameters
    ----------
    num_malicious
        Bound on the malicious clients of the whole population; f is the cohort's share of it.
    num_selected
        How many updates to average. By default n - f in a single pass, n - 2f - 2 if repeated; never
        less than one, nor more than there are.
    selection
        ``"single-pass"`` (the paper): score once, take the best. ``"repeated"`` (the code of Shejwalkar
        and Houmansadr, NDSS 2021): run Krum, set the winner aside, and again on the others, until
        2f + 2 of them are left; with ``neighbours="n-f-3"`` this is their code to the letter.
    neighbours, power
        Variants of the score, see :func:`krum_scores`.
    strict
        Raise :class:`~mabrfl.errors.QuorumError` instead of recording an event unless n >= 2f + 3.
    """

    num_malicious: int
    num_selected: int | None = None
    selection: Literal["single-pass", "repeated"] = "single-pass"
    neighbours: Neighbours = "n-f-2"
    power: Power = 2
    strict: bool = False

    def __post_init__(self) -> None:
        _check_krum("MultiKrum", self.num_malicious, self.neighbours, self.power)
        check_choice("MultiKrum selection", self.selection, ("single-pass", "repeated"))
        if self.num_selected is not None:
            check_whole("MultiKrum num_selected", self.num_selected, at_least=1)

    def __call__(self, cohort: Cohort, /) -> Decision:
        """Average the best updates."""
        events = quorum("multi-krum", "n >= 2f+3", cohort, self.num_malicious, excess=3, strict=self.strict)
        n, f = len(cohort), cohort.expected_malicious(self.num_malicious)
        scores = self._scores(cohort.squared_distances, f)
        order = np.argsort(scores, kind="stable")
        if self.selection == "single-pass":
            chosen = order[: min(self.num_selected or n - f, n)]
        else:
            chosen = self._repeated(cohort.squared_distances, f)
        # One who was averaged is not at the same time taken for malicious.
        rejected = np.setdiff1d(order[n - f :], chosen)
        return _mean_of(chosen, rejected=rejected, scores=scores, events=events)

    def _scores(self, squared_distances: NDArray[np.float64], f: int) -> NDArray[np.float64]:
        return krum_scores(squared_distances, f, neighbours=self.neighbours, power=self.power)

    def _repeated(self, squared_distances: NDArray[np.float64], f: int) -> NDArray[np.intp]:
        n = len(squared_distances)
        wanted = min(self.num_selected or n, max(n - 2 * f - 2, 1))
        return repeated_krum(squared_distances, f, wanted, neighbours=self.neighbours, power=self.power)


def faba_removals(gram: NDArray[np.float64], num_removed: int, removal: Removal = "iterative") -> list[int]:
    r"""Return the rows that FABA removes, in order of removal (Xia et al., IJCAI 2019).

    With R the rows that remain, m of them, and G the Gram matrix, the squared distance to their mean is

    .. math:: \lVert x_i - \bar x_R \rVert^2 = G_{ii} - \tfrac{2}{m} \sum_{j \in R} G_{ij} + \text{const}

    Parameters
    ----------
    gram
        ``(n, n)`` inner products.
    num_removed
        f; less than n.
    removal
        ``"iterative"`` (the paper): remove the farthest from the mean, form the mean of the others, and
        so on. ``"one-shot"``: the f farthest from the first mean. ``"pairwise"``: the f with the largest
        sum of distances to all others (not squared: squared, it is the same as ``"one-shot"``).

    Examples
    --------
    Two outliers on one side drag the mean so far that the first pass takes a good row for the second.

    >>> rows = np.array([[-1.0], [0.0], [1.0], [10.0], [4.0]])
    >>> faba_removals(rows @ rows.T, 2), faba_removals(rows @ rows.T, 2, "one-shot")
    ([3, 4], [3, 0])
    """
    squares = np.diag(gram)
    if removal == "iterative":
        return _farthest_one_by_one(gram, num_removed)
    if removal == "one-shot":
        far = squares - 2 * gram.mean(axis=1)
    else:
        far = np.sqrt(np.clip(squares[:, None] + squares - 2 * gram, 0, None)).sum(axis=1)
    return [int(row) for row in np.argsort(-far, kind="stable")[:num_removed]]


def _farthest_one_by_one(gram: NDArray[np.float64], num_removed: int) -> list[int]:
    squares = np.diag(gram)
    left = np.ones(len(gram), dtype=bool)
    sums, scale = gram.sum(axis=1), squares.max()
    removed: list[int] = []
    while len(removed) < num_removed:
        far = np.where(left, squares - 2 * sums / left.sum(), -np.inf)
        row = int(np.argmax(far))
        removed.append(row)
        left[row] = False
        sums = sums - gram[:, row]
        largest = squares[left].max()
        if largest * _REFRESH < scale:
            # What a giant row leaves behind in the running sums is rounding error of a giant's size.
            sums, scale = gram @ left, largest
    return removed


@dataclass(frozen=True, kw_only=True)
class FABA(HonestMajority):
    """FABA (Xia et al., IJCAI 2019): remove the f updates farthest from the mean, average the others.

    The removed are reported as outliers, with the distance to the mean of those that remain. Of equally
    far updates the one of lower index in canonical order goes first.

    Parameters
    ----------
    num_malicious
        Bound on the malicious clients of the whole population; f is the cohort's share of it.
    removal
        ``"iterative"`` (the paper), ``"one-shot"`` or ``"pairwise"``, see :func:`faba_removals`.
    strict
        Raise :class:`~mabrfl.errors.QuorumError` instead of recording an event unless n > 2f.
    """

    removal: Removal = "iterative"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("FABA removal", self.removal, get_args(Removal))

    def __call__(self, cohort: Cohort, /) -> Decision:
        """Remove the far ones, average the rest."""
        f, events = self.expected(cohort, "faba")
        gram, n = cohort.distance_gram, len(cohort)
        removed = faba_removals(gram, f, self.removal)
        weights = np.ones(n)
        weights[removed] = 0.0
        weights /= weights.sum()
        towards = gram @ weights
        distances = np.sqrt(np.clip(np.diag(gram) - 2 * towards + weights @ towards, 0, None))
        return Decision(
            weights=weights,
            reasons=outliers(n, removed),
            evidence=[{"distance": float(far)} for far in distances],
            events=events,
        )


def _check_krum(rule: str, num_malicious: int, neighbours: str, power: int) -> None:
    check_whole(f"{rule} num_malicious", num_malicious)
    check_choice(f"{rule} neighbours", neighbours, get_args(Neighbours))
    check_choice(f"{rule} power", power, get_args(Power))


def _mean_of(
    chosen: NDArray[np.intp],
    *,
    rejected: NDArray[np.intp],
    scores: NDArray[np.float64],
    events: tuple[str, ...],
) -> Decision:
    weights = np.zeros(len(scores))
    weights[chosen] = 1.0 / len(chosen)
    return Decision(
        weights=weights,
        reasons=outliers(len(scores), rejected),
        evidence=[{"score": float(s), "weight": float(w)} for s, w in zip(scores, weights, strict=True)],
        events=events,
    )
