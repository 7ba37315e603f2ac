"""The score by which LASA and AlignIns call a client unusual."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

Spread = Literal["std", "mad"]


def median_scores(values: NDArray[np.float64], spread: Spread = "std") -> NDArray[np.float64]:
    r"""Return the distance of each value to the median, in units of the values' spread.

    .. math:: z_i = |v_i - \operatorname{med} v| / \sigma

    with :math:`\sigma` the standard deviation (the authors' papers and code), or 1.4826 times the median absolute
    deviation, which a few extreme values do not move. Zeros where there is no spread.

    Examples
    --------
    >>> median_scores(np.array([1.0, 2.0, 3.0, 2.0]))
    array([1.41421356, 0.        , 1.41421356, 0.        ])
    """
    far = np.abs(values - np.median(values))
    unit = float(np.std(values) if spread == "std" else 1.4826 * np.median(far))
    return np.asarray(far / unit) if unit > 0 else np.zeros(len(values))
