"""INSA, identifying non-sybil attacks: PCA and two-way clustering of the momenta (Alg. 5).

Everything is computed from Gram matrices: the principal components' scores are the scaled
eigenvectors of the centred Gram matrix, and means of clusters enter through block means.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.cluster import hierarchy

Linkage = Literal["ward", "average", "complete", "single"]


@dataclass(frozen=True)
class Split:
    """Two clusters: a mask of the members of each, and how many principal components told them apart."""

    first: NDArray[np.bool_]
    num_components: int

    @property
    def smaller(self) -> NDArray[np.bool_]:
        """The smaller cluster; the first one if they are equal."""
        return self.first if 2 * self.first.sum() <= len(self.first) else ~self.first

    @property
    def equal(self) -> bool:
        """Whether both clusters are of the same size."""
        return bool(2 * self.first.sum() == len(self.first))


def principal_scores(unit_gram: NDArray[np.float64], variance: float = 0.95) -> NDArray[np.float64]:
    r"""Return the ``(n, k)`` scores of the fewest principal components that explain ``variance`` (Alg. 5 line 4).

    With :math:`H = I - \frac{1}{n} 1 1^T` the centred Gram matrix is :math:`H G H = V \Lambda V^T`, and
    the scores are :math:`V \Lambda^{1/2}`, the same (up to sign) as those of a PCA of the rows.
    """
    centred = unit_gram - unit_gram.mean(axis=0)
    centred = centred - centred.mean(axis=1, keepdims=True)
    values, vectors = np.linalg.eigh((centred + centred.T) / 2)
    values, vectors = np.clip(values[::-1], 0, None), vectors[:, ::-1]
    total = values.sum()
    if total == 0:
        return np.zeros((len(unit_gram), 1))
    kept = int(np.searchsorted(np.cumsum(values) / total, variance, side="right")) + 1
    kept = min(kept, len(values))
    return np.asarray(vectors[:, :kept] * np.sqrt(values[:kept]))


def two_clusters(unit_gram: NDArray[np.float64], *, variance: float = 0.95, linkage: Linkage = "ward") -> Split:
    """Divide at least two clients into two clusters (Alg. 5 line 5).

    ``first`` is the cluster that scikit-learn's ``AgglomerativeClustering(2)`` labels 0: of the two
    branches of the last merge, the one that was formed later.
    """
    scores = principal_scores(unit_gram, variance)
    n = len(scores)
    merges = hierarchy.linkage(scores, method=linkage)
    members: list[list[int]] = [[k] for k in range(n)]
    for left, right in merges[:-1, :2].astype(int):
        members.append(members[left] + members[right])
    first = np.zeros(n, dtype=bool)
    first[members[int(merges[-1, :2].max())]] = True
    return Split(first, scores.shape[1])


def cluster_cosine(gram: NDArray[np.float64], mask: NDArray[np.bool_]) -> float:
    """Return the cosine between the mean vectors of two clusters (Alg. 5 lines 6-7); 0 if one is zero."""
    one, other = mask / max(mask.sum(), 1), ~mask / max((~mask).sum(), 1)
    lengths = np.sqrt(max(one @ gram @ one, 0)) * np.sqrt(max(other @ gram @ other, 0))
    return float(np.clip(one @ gram @ other / lengths, -1, 1)) if lengths > 0 else 0.0
