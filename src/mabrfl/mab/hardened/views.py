"""What is compared: whole updates, the first and the last layer, and what labels do not explain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mabrfl import vectors
from mabrfl.layout import Layout
from mabrfl.updates import Floats

Name = Literal["whole", "first", "last", "labels"]
BLOCKS: tuple[Name, ...] = ("whole", "last", "labels", "first")
"""The order in which they are examined."""
AT_ONCE: tuple[Name, ...] = ("whole", "last")
"""The blocks that are large enough, and of which one round says enough."""
Slices = tuple[slice, ...]
Views = dict[Name, NDArray[np.float64]]

_WEIGHTS = 2
"""Dimensions from which a tensor is a layer's weights."""


@dataclass(frozen=True)
class Blocks:
    """The parts of a model in which clients are compared, beside the whole.

    Attributes
    ----------
    first, last
        Columns of the first and of the last layer with weights; empty if the layout is not known, or if
        the model has one such layer only.
    head
        Columns of the weights and of the bias of the output layer; None if it has no bias.
    """

    first: Slices = ()
    last: Slices = ()
    head: tuple[slice, slice] | None = None

    @property
    def layers(self) -> dict[Name, Slices]:
        """The blocks of which Gram matrices are taken: the first and the last layer, or none."""
        return {"first": self.first, "last": self.last} if self.first else {}

    def columns(self, total: int) -> dict[Name, int]:
        """Return how many numbers each block of a model with so many numbers has."""
        parts: dict[Name, Slices] = {"first": self.first, "last": self.last, "labels": self.head or ()}
        return {"whole": total, **{name: sum(part.stop - part.start for part in parts[name]) for name in parts}}

    @classmethod
    def of(cls, layout: Layout | None) -> Blocks:
        """Find the blocks of a model.

        Examples
        --------
        >>> blocks = Blocks.of(Layout({"a.weight": (4, 2), "a.bias": (4,), "b.weight": (3, 4), "b.bias": (3,)}))
        >>> blocks.first, blocks.last, blocks.head
        ((slice(0, 12, None),), (slice(12, 27, None),), (slice(12, 24, None), slice(24, 27, None)))
        """
        if layout is None:
            return cls()
        weights = [name for name, shape in layout.shapes.items() if len(shape) >= _WEIGHTS and np.prod(shape)]
        if not weights:
            return cls()
        layers = [name.rpartition(".")[0] or name for name in weights]
        head = _head(layout, weights[-1], layers[-1])
        if layers[0] == layers[-1]:
            return cls(head=head)
        return cls(layout.layers[layers[0]], layout.layers[layers[-1]], head)


def _head(layout: Layout, weight: str, layer: str) -> tuple[slice, slice] | None:
    """Return the columns of the output layer's weights and bias, if it is a dense layer with both."""
    classes = layout.shapes[weight][0]
    biases = [
        name
        for name, shape in layout.shapes.items()
        if name.startswith(f"{layer}.") and name.rpartition(".")[0] == layer and shape == (classes,)
    ]
    if len(layout.shapes[weight]) != _WEIGHTS or len(biases) != 1 or classes < _WEIGHTS:
        return None
    return layout.slices[weight], layout.slices[biases[0]]


def views(
    gram: NDArray[np.float64],
    shares: Views,
    head: tuple[slice, slice] | None,
    matrix: Floats,
    rows: NDArray[np.intp] | None = None,
    *,
    overwrite: bool = False,
) -> Views:
    """Return the cosines between clients in the whole and in some blocks of the model, by the block's name.

    Parameters
    ----------
    gram, shares
        Gram matrix of the rows, and its shares over layers; cosines are written over the shares.
    head
        Where the output layer's weights and its bias are, if what labels do not explain is wanted.
    matrix, rows
        The array, and which of its rows are compared; all if left out.
    overwrite
        Write cosines over ``gram`` as well.
    """
    norms = np.sqrt(np.diag(gram))
    found: Views = {"whole": vectors.cosines(gram, out=gram if overwrite else None)}
    found |= {name: vectors.cosines(share, out=share) for name, share in shares.items()}
    if head is not None:
        residuals = vectors.label_residual_gram(matrix, norms, *head, rows)
        found["labels"] = vectors.cosines(residuals, out=residuals)
    for cosines in found.values():
        np.fill_diagonal(cosines, 1.0)
    return found
