"""What travels beside the update: floating-point buffers, such as BatchNorm's running statistics."""

from __future__ import annotations

import numpy as np

from mabrfl import vectors
from mabrfl.vectors import Floats


def merge_buffers(rows: Floats, otherwise: Floats | None = None) -> Floats:
    """Return the coordinate-wise median of the clients' buffers, leaving out rows that are not finite.

    Parameters
    ----------
    rows
        ``(n, b)`` array, a row per accepted client.
    otherwise
        What to return if no row is left: normally the buffers as they were.

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
