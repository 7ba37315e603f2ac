"""The model at the server. A round adds its step to the weights, and sets buffers to the clients' median.

Buffers are floating-point arrays beside the weights, such as BatchNorm's running statistics.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mabrfl import vectors
from mabrfl.rng import ClientId
from mabrfl.updates import Outcome
from mabrfl.vectors import Floats

BUFFER_SUFFIXES = ("running_mean", "running_var")
"""The ends of PyTorch's names for the floating-point statistics of BatchNorm."""


@dataclass(frozen=True)
class GlobalModel:
    """The model that the server publishes.

    Attributes
    ----------
    weights, buffers
        The flat vectors.
    last_step
        The last change of the weights; None before the first.
    """

    weights: Floats
    buffers: Floats
    last_step: Floats | None = None

    def move(self, outcome: Outcome, buffers: Mapping[ClientId, Floats]) -> GlobalModel:
        """Return the model after a round: the step is added, and buffers are merged over the accepted clients.

        Parameters
        ----------
        outcome
            The result of the round.
        buffers
            The buffers that clients sent, by their ids; clients may be missing.
        """
        with np.errstate(over="ignore"):
            weights = self.weights + outcome.step
        rows = [buffers[client] for client in outcome.accepted if client in buffers]
        merged = merge_buffers(np.stack(rows), self.buffers) if rows and self.buffers.size else self.buffers
        return GlobalModel(weights, merged, outcome.step)


def merge_buffers(rows: Floats, otherwise: Floats | None = None) -> Floats:
    """Return the coordinate-wise median of the clients' buffers, leaving out rows that are not finite.

    Parameters
    ----------
    rows
        ``(n, b)`` array, a row per accepted client.
    otherwise
        The result if no row is left: normally the old buffers.

    Examples
    --------
    >>> merge_buffers(np.array([[1.0, 5.0], [2.0, 6.0], [9.0, 7.0], [np.nan, 0.0]]))
    array([2., 6.])
    """
    finite = rows[np.all(np.isfinite(rows), axis=1)]
    if len(finite) == 0:
        if otherwise is None:
            raise ValueError(f"no finite row among {len(rows)} to merge buffers from")
        return otherwise.copy()
    return vectors.coordinatewise(finite, lambda part: np.asarray(np.median(part, axis=0)))
