"""RFLBAT: outliers and clusters in the plane of the two principal components."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
import scipy.spatial.distance
from numpy.typing import NDArray

from mabrfl.aggregation.clusters import gap_clusters, k_means
from mabrfl.aggregation.covariance import centred
from mabrfl.aggregation.kept_clients import mean_of_kept
from mabrfl.checks import check_positive, check_whole
from mabrfl.updates import Cohort, Decision


def principal_plane(gram: NDArray[np.float64], columns: int = 2) -> NDArray[np.float64]:
    """Return the coordinates of rows along their principal components, from their Gram matrix.

    Examples
    --------
    >>> rows = np.array([[0.0, 1.0], [0.0, -1.0], [3.0, 0.0], [-3.0, 0.0]])
    >>> np.abs(principal_plane(rows @ rows.T)).round(6)
    array([[0., 1.],
           [0., 1.],
           [3., 0.],
           [3., 0.]])
    """
    values, directions = scipy.linalg.eigh(centred(gram, np.ones(len(gram))))
    along = (directions * np.sqrt(np.clip(values, 0, None)))[:, ::-1][:, :columns]
    return np.pad(along, ((0, 0), (0, columns - along.shape[1])))


@dataclass(frozen=True, kw_only=True)
class RFLBAT:
    r"""RFLBAT (Wang et al., 2022): outliers in the plane of two principal components, then the least alike cluster.

    1. Project the updates on their first two principal components. Keep the clients whose sum of distances to the
       others is less than :math:`\epsilon_1` times the median of these sums.
    2. Cluster them by k-means, k from the gap statistic. In each cluster take the median, over its clients, of the mean
       cosine to the cluster; the cluster with the *least* counts as honest, since copies of a backdoor are alike. A
       cluster of one has the value 1.
    3. Within it, step 1 again with :math:`\epsilon_2`. Average what remains.

    Made against backdoors, whose updates are fewer than the honest ones and alike. In BackFed the components are those
    of whole models, with the buffers of batch normalisation. Honest clients outside the chosen cluster are rejected
    too, also when nobody attacks.

    Parameters
    ----------
    first_bound, second_bound
        :math:`\epsilon_1` and :math:`\epsilon_2`; 10 and 4 in the paper.
    most_clusters
        The largest k tried.
    num_references
        Sets of uniform points for the gap statistic.
    """

    first_bound: float = 10.0
    second_bound: float = 4.0
    most_clusters: int = 10
    num_references: int = 5

    def __post_init__(self) -> None:
        check_positive("RFLBAT first_bound", self.first_bound)
        check_positive("RFLBAT second_bound", self.second_bound)
        check_whole("RFLBAT most_clusters", self.most_clusters, at_least=1)
        check_whole("RFLBAT num_references", self.num_references, at_least=1)

    def __call__(self, cohort: Cohort, /) -> Decision:
        """Filter in the plane, cluster, filter again."""
        scale = float(np.diag(cohort.gram).max()) or 1.0
        plane = principal_plane(cohort.gram / scale)
        kept = _near(plane, np.arange(len(cohort)), self.first_bound)
        number = gap_clusters(
            plane[kept],
            most=self.most_clusters,
            rng=cohort.rng("rflbat"),
            num_references=self.num_references,
            power=1,
        )
        labels, _ = k_means(plane[kept], number)
        groups = [kept[labels == label] for label in range(labels.max() + 1)]
        chosen = min(groups, key=lambda rows: _likeness(cohort, rows))
        final = _near(plane, chosen, self.second_bound)
        marks = np.isin(np.arange(len(cohort)), final)
        return mean_of_kept(
            marks, scores={"first": plane[:, 0], "second": plane[:, 1]}, facts={"clusters": len(groups)}
        )


def _near(plane: NDArray[np.float64], rows: NDArray[np.intp], bound: float) -> NDArray[np.intp]:
    """Return those of the rows whose sum of distances to the others is below ``bound`` times the median sum."""
    sums = scipy.spatial.distance.cdist(plane[rows], plane[rows]).sum(axis=1)
    near = rows[sums < bound * np.median(sums)]
    return near if len(near) else rows


def _likeness(cohort: Cohort, rows: NDArray[np.intp]) -> float:
    return float(np.median(cohort.cosines[np.ix_(rows, rows)].mean(axis=1))) if len(rows) > 1 else 1.0
