"""FLTrust: the server's own update, made with clean data of its own, says whom to trust."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mabrfl import vectors
from mabrfl.checks import outliers
from mabrfl.errors import ConfigError
from mabrfl.updates import Cohort, Decision


@dataclass(frozen=True, kw_only=True)
class FLTrust:
    r"""FLTrust (Cao, Fang, Liu and Gong, NDSS 2021): trust by the cosine with the server's own update.

    The server trains the global model on a small clean *root* data set, as a client does; its update is :math:`g_0`.

    .. math:: TS_i = \max(0, \cos(x_i, g_0)), \qquad
       g = \frac{1}{\sum_j TS_j} \sum_i TS_i \frac{\lVert g_0 \rVert}{\lVert x_i \rVert} x_i

    Every update has the norm of :math:`g_0`. Clients without trust are reported as outliers. If nobody is trusted the
    step is zero, as the formula's sum is, and the event ``fltrust-nobody-trusted`` is recorded. (FLPoison gives
    everybody the same weight then, and draws its root data from the clients' own.) It needs no honest majority, but
    the root data must resemble the clients' data.

    In the simulator the root data are training examples that no client has (``root_examples`` of them). In Flower you
    give the function that trains: ``RobustStrategy("fltrust", root_update=...)``.

    Parameters
    ----------
    root_examples
        How many examples the simulator's root data has. The paper has 100.
    """

    root_examples: int = 100

    def __call__(self, cohort: Cohort, /) -> Decision:
        """Weigh clients by their cosine with the root update."""
        root = cohort.root_update
        if root is None:
            raise ConfigError("FLTrust needs the server's own update: Updates(ids, matrix, root_update=...)")
        length = float(vectors.row_norms(root[None])[0])
        sizes = cohort.norms * length
        across = vectors.products(cohort.matrix, root, cohort.norms)
        cosines = np.divide(across, sizes, out=np.zeros(len(cohort)), where=sizes > 0)
        trust = np.clip(cosines, 0.0, 1.0)
        total = float(trust.sum())
        shares = trust / total if total > 0 else trust
        scale = np.divide(length, cohort.norms, out=np.zeros(len(cohort)), where=cohort.norms > 0)
        return Decision(
            weights=shares * scale,
            reasons=outliers(len(cohort), np.flatnonzero(trust == 0)),
            evidence=[
                {"trust_score": float(one), "cosine": float(cosine)} for one, cosine in zip(trust, cosines, strict=True)
            ],
            events=() if total > 0 else ("fltrust-nobody-trusted: the model does not move",),
            facts={"root_norm": length},
        )
