"""The majority of signs: each coordinate moves by the same amount, in the direction that most clients want."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mabrfl import vectors
from mabrfl.updates import Cohort, Decision, Floats


def majority_signs(part: Floats) -> Floats:
    """Return -1, 0 or 1 for each column: the sign of the sum of signs.

    Examples
    --------
    >>> majority_signs(np.array([[1.0, -1.0, 2.0], [9.0, -2.0, -2.0], [-99.0, 0.0, 0.0]]))
    array([ 1., -1.,  0.])
    """
    return np.asarray(np.sign(np.sign(part).sum(axis=0)), dtype=part.dtype)


@dataclass(frozen=True, kw_only=True)
class SignMajority:
    r"""Sign majority (signSGD with majority vote; Bernstein et al., ICLR 2019): one vote per client and coordinate.

    .. math:: g[j] = \frac{s}{\sqrt d} \operatorname{sign} \sum_i \operatorname{sign} x_i[j]

    with s the median norm of the updates, so that the step is about as long as one of them; the paper's clients send
    signs, and the server's learning rate is the length. The length of an update does not count, and fewer than half of
    the clients cannot turn a coordinate on which all others agree. Judges no client.
    """

    def __call__(self, cohort: Cohort, /) -> Decision:
        """Count the signs of every coordinate."""
        length = float(np.median(cohort.norms)) / np.sqrt(cohort.matrix.shape[1])
        signs = vectors.coordinatewise(cohort.matrix, majority_signs)
        return Decision(step=signs * signs.dtype.type(length), facts={"length": length})
