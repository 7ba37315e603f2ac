"""The only room that loops over d, the number of model parameters.

Client updates are n rows of d numbers, and d is what is large. Everything a defense decides follows
from the n x n matrix of inner products, ``G = X @ X.T``, and ends in a weighted sum, ``w @ X``. So the
work here is: norms, G, the weighted sum, the momentum fold, and, as the honest exception, the
coordinate-wise rules.

All of it goes over fixed slices of columns that fit into a core's cache, on as many threads as there
are cores. Each slice is computed by one thread and the partial results are added up in float64 in the
order of the slices, so that the result is the same, bit for bit, for any number of threads.
"""

from mabrfl.vectors.columns import coordinatewise, magnitude_thresholds, sign_agreement, sparse_statistics
from mabrfl.vectors.inner_products import (
    Grams,
    block_grams,
    difference_gram,
    gram,
    label_residual_gram,
    norms_and_grams,
    products,
)
from mabrfl.vectors.norms import row_norms
from mabrfl.vectors.pairs import cosines, row_nearly_all_share, squared_distances
from mabrfl.vectors.slices import SLICE, Floats, each_slice, one_blas_thread, wide
from mabrfl.vectors.sums import combine, folding, mix

__all__ = [
    "SLICE",
    "Floats",
    "Grams",
    "block_grams",
    "combine",
    "coordinatewise",
    "cosines",
    "difference_gram",
    "each_slice",
    "folding",
    "gram",
    "label_residual_gram",
    "magnitude_thresholds",
    "mix",
    "norms_and_grams",
    "one_blas_thread",
    "products",
    "row_nearly_all_share",
    "row_norms",
    "sign_agreement",
    "sparse_statistics",
    "squared_distances",
    "wide",
]
