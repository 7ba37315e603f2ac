"""Models as NVFlare sends them, tables of named arrays, and the vectors that a defense judges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mabrfl.errors import ConfigError
from mabrfl.global_model import BUFFER_SUFFIXES
from mabrfl.layout import Layout
from mabrfl.recording.audit import safe_text
from mabrfl.updates import Floats


class MalformedModel(ValueError):  # noqa: N818 (it is a verdict on a reply rather than an error of the program)
    """A reply that does not fit the server's model, and why, in one word and in a sentence."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason, self.detail = reason, detail


@dataclass(frozen=True)
class ModelArrays:
    """The arrays of the global model of a round.

    Weights are the floating-point arrays; together they are the vector that a defense sees. Buffers, such as the
    running statistics of BatchNorm, are kept apart. Arrays of other types stay as they are at the server.

    Attributes
    ----------
    types
        The type of each weight and buffer.
    names
        Of all arrays, also of those that stay as they are.
    layout, buffers
        Names and shapes of the weights and of the buffers; there may be no buffers.
    weights, statistics
        The numbers of both, as vectors.
    """

    types: Mapping[str, np.dtype[Any]]
    names: frozenset[str]
    layout: Layout
    buffers: Layout | None
    weights: Floats
    statistics: Floats

    @classmethod
    def of(cls, params: Mapping[str, Any], buffer_suffixes: Sequence[str] = BUFFER_SUFFIXES) -> ModelArrays:
        """Return the arrays of the server's model.

        Raises
        ------
        ConfigError
            If it has no floating-point array, or numbers that are not finite.
        """
        arrays = {str(name): np.asarray(value) for name, value in params.items()}
        floats = {name: array for name, array in arrays.items() if array.dtype.kind == "f"}
        for name, array in floats.items():
            if not np.all(np.isfinite(array)):
                raise ConfigError(f"the global model's array '{safe_text(name)}' has numbers that are not finite")
        weights = {name: array for name, array in floats.items() if not name.endswith(tuple(buffer_suffixes))}
        buffers = {name: array for name, array in floats.items() if name not in weights}
        if not weights:
            raise ConfigError("the global model has no floating-point array to train")
        wide = any(array.dtype.itemsize > np.dtype(np.float32).itemsize for array in floats.values())
        dtype = np.dtype(np.float64 if wide else np.float32)
        return cls(
            {name: array.dtype for name, array in floats.items()},
            frozenset(arrays),
            Layout.of(weights),
            Layout.of(buffers) if buffers else None,
            _vector(weights, dtype),
            _vector(buffers, dtype),
        )

    def update(self, params: Any, *, full: bool) -> tuple[Floats, Floats]:
        """Check what a site sent, and return the changes of the weights and of the buffers as two vectors.

        Parameters
        ----------
        params
            Its named arrays.
        full
            Whether they are a model; otherwise they are the change of the model.

        Raises
        ------
        MalformedModel
            If an array is missing, unknown, of another shape, no floating-point array, or not finite.
        """
        if not isinstance(params, Mapping):
            raise MalformedModel("records", f"the site sent no table of arrays but {type(params).__name__}")
        if unknown := [name for name in params if name not in self.names]:
            raise MalformedModel("keys", f"the model has no array named {safe_text(unknown[0], 80)!r}")
        weights = self._read(params, self.layout)
        buffers = self.statistics[:0] if self.buffers is None else self._read(params, self.buffers)
        with np.errstate(over="ignore"):
            return (weights - self.weights, buffers - self.statistics) if full else (weights, buffers)

    def step(self, weights: Floats, buffers: Floats) -> dict[str, NDArray[Any]] | None:
        """Return a change of weights and buffers as named arrays of the model's types; None if not finite in them."""
        parts = [(self.layout, weights), *([] if self.buffers is None else [(self.buffers, buffers)])]
        with np.errstate(over="ignore"):
            arrays = {
                name: vector[layout.slices[name]].reshape(shape).astype(self.types[name])
                for layout, vector in parts
                for name, shape in layout.shapes.items()
            }
        return arrays if all(bool(np.all(np.isfinite(array))) for array in arrays.values()) else None

    def _read(self, params: Mapping[str, Any], layout: Layout) -> Floats:
        """Return arrays of these names as one vector, each checked."""
        vector: Floats = np.empty(layout.size, self.weights.dtype)
        for name, shape in layout.shapes.items():
            if name not in params:
                raise MalformedModel("keys", f"the site sent no array '{name}'")
            array = np.asarray(params[name])
            if array.dtype.kind != "f":
                raise MalformedModel("dtype", f"array '{name}' is of type {array.dtype}, not floating point")
            if array.shape != shape:
                raise MalformedModel("shape", f"array '{name}' has shape {array.shape!s:.80}, not {shape}")
            with np.errstate(over="ignore"):
                vector[layout.slices[name]] = array.ravel()
            if not np.all(np.isfinite(vector[layout.slices[name]])):
                raise MalformedModel("not-finite", f"array '{name}' has NaN or infinite numbers")
        return vector


def _vector(arrays: Mapping[str, NDArray[Any]], dtype: np.dtype[Any]) -> Floats:
    """Return these arrays as one new vector."""
    return np.concatenate([np.zeros(0, dtype), *(array.ravel().astype(dtype) for array in arrays.values())])
