"""The layers of a model in its flat vector, and the Gram matrix of each layer's part of the updates."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mabrfl import vectors
from mabrfl.errors import ConfigError, suggest
from mabrfl.vectors import Floats

Shape = tuple[int, ...]


class Layout:
    """Names and shapes of a model's tensors, in the order in which they stand in the flat vector.

    Parameters
    ----------
    tensors
        Pairs of name and shape, or a mapping from name to shape.

    Raises
    ------
    ConfigError
        If there is no tensor, a name is empty or used twice, or a size is no whole number from 0.

    Notes
    -----
    Tensors whose names are equal up to the last dot are one layer: ``conv.weight`` and ``conv.bias`` are the layer
    ``conv``. A tensor whose name has no dot is a layer by itself. Two layouts are equal if their tensors are.

    Examples
    --------
    >>> layout = Layout([("first.weight", (2, 3)), ("first.bias", (2,)), ("last.weight", (1, 2))])
    >>> layout.size, layout.slices["last.weight"]
    (10, slice(8, 10, None))
    >>> layout.layers
    {'first': (slice(0, 8, None),), 'last': (slice(8, 10, None),)}
    """

    def __init__(self, tensors: Iterable[tuple[str, Iterable[int]]] | Mapping[str, Iterable[int]]) -> None:
        pairs = tensors.items() if isinstance(tensors, Mapping) else tensors
        shapes: dict[str, Shape] = {}
        for name, shape in pairs:
            if not isinstance(name, str) or not name:
                raise ConfigError(f"a layout names each tensor by a non-empty string; got {name!r}")
            if name in shapes:
                raise ConfigError(f"a layout has each tensor once; got '{name}' twice")
            shapes[name] = _checked_shape(name, shape)
        if not shapes:
            raise ConfigError("a layout needs at least one tensor; got none")
        self.shapes: Mapping[str, Shape] = shapes

    @classmethod
    def of(cls, arrays: Mapping[str, Any]) -> Layout:
        """Return the layout of named arrays, such as a PyTorch ``state_dict``: of anything with a ``shape``.

        Leave out what your flat vector leaves out (BatchNorm's buffers, for example).

        Examples
        --------
        >>> Layout.of({"weight": np.zeros((2, 3)), "bias": np.zeros(2)}).size
        8
        """
        return cls((name, array.shape) for name, array in arrays.items())

    @cached_property
    def slices(self) -> dict[str, slice]:
        """The columns of each tensor."""
        ends = np.cumsum([math.prod(shape) for shape in self.shapes.values()]).tolist()
        starts = [0, *ends[:-1]]
        return {name: slice(start, end) for name, start, end in zip(self.shapes, starts, ends, strict=True)}

    @cached_property
    def size(self) -> int:
        """The length of the flat vector."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    @cached_property
    def layers(self) -> dict[str, tuple[slice, ...]]:
        """The columns of each layer, in order of first appearance; one slice if its tensors are neighbours."""
        layers: dict[str, tuple[slice, ...]] = {}
        for name, columns in self.slices.items():
            layer = name.rpartition(".")[0] or name
            *others, last = layers.get(layer, (slice(columns.start, columns.start),))
            adjacent = last.stop == columns.start
            layers[layer] = (*others, slice(last.start, columns.stop)) if adjacent else (*others, last, columns)
        return layers

    def blocks(
        self, matrix: Floats, norms: NDArray[np.float64] | None = None
    ) -> tuple[NDArray[np.float64], dict[str, Block]]:
        """Return the Gram matrix of the rows and, by the layer's name, those of their layers; see ``block_grams``."""
        gram, shares = vectors.block_grams(matrix, list(self.layers.values()), norms)
        parts = zip(self.layers.items(), shares, strict=True)
        return gram, {name: Block(name, slices, share) for (name, slices), share in parts}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and list(self.shapes.items()) == list(other.shapes.items())

    def __hash__(self) -> int:
        return hash(tuple(self.shapes.items()))

    def __repr__(self) -> str:
        return f"Layout({list(self.shapes.items())!r})"


def _checked_shape(name: str, shape: Iterable[int]) -> Shape:
    try:
        sizes = tuple(operator.index(size) for size in shape)
    except TypeError:
        sizes = (-1,)
    if any(size < 0 for size in sizes):
        raise ConfigError(f"tensor '{name}' of a layout must have a shape of whole numbers from 0; got {shape!r}")
    return sizes


@dataclass(frozen=True, eq=False)
class Block:
    """One layer, or several layers, of a cohort's updates.

    Attributes
    ----------
    name
        The layer's name; for several layers their names, joined by ``+``.
    slices
        Its columns of ``cohort.matrix``.
    gram
        The ``(n, n)`` matrix of inner products over these columns, float64.
    """

    name: str
    slices: tuple[slice, ...]
    gram: NDArray[np.float64]

    @cached_property
    def norms(self) -> NDArray[np.float64]:
        """Euclidean norm of each row over these columns."""
        return np.asarray(np.sqrt(np.diag(self.gram)))

    @cached_property
    def cosines(self) -> NDArray[np.float64]:
        """The ``(n, n)`` matrix of cosine similarities over these columns; 0 beside a zero vector."""
        return vectors.cosines(self.gram)


def join(blocks: Mapping[str, Block], layers: Sequence[str]) -> Block:
    """Return several layers as one block; its Gram matrix is the sum of theirs."""
    for name in layers:
        if name not in blocks:
            raise ConfigError(f"the model has no layer {name!r}{suggest(name, blocks)}")
    if not layers or len(set(layers)) != len(layers):
        raise ConfigError(f"a block needs at least one layer, and each once; got {list(layers)}")
    chosen = [blocks[name] for name in layers]
    slices = tuple(columns for block in chosen for columns in block.slices)
    return Block("+".join(layers), slices, np.sum([block.gram for block in chosen], axis=0))
