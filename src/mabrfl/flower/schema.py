"""The arrays of the server's own model, which every reply must match: keys, shapes, types, sizes.

Nothing that a client declares is believed. Sizes are compared before anything is decoded, the header of the payload
is read separately, and only a payload of exactly the expected length is decoded; ``numpy.load`` is never called.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NoReturn

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.lib import format as npy
from numpy.typing import NDArray

from mabrfl.errors import ConfigError
from mabrfl.flower.problems import MalformedReply
from mabrfl.global_model import BUFFER_SUFFIXES
from mabrfl.layout import Layout
from mabrfl.updates import Floats

Role = Literal["weight", "buffer", "fixed"]

_MAX_HEADER = 4096
_SMALLEST_PIECE = 4096  # about a thousandth of the size of Flower's own pieces
_ROOM_FOR_METRICS = 2**20
_ROOM_PER_ARRAY, _ROOM_PER_SIGN, _ROOM_PER_PIECE = 1024, 12, 128  # names and hashes, in JSON
_NUMPY = "numpy.ndarray"


@dataclass(frozen=True)
class ArraySpec:
    """One array of the model, and the position of its numbers in the vector of its role."""

    key: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    role: Role
    start: int

    @cached_property
    def size(self) -> int:
        """The number of its elements."""
        return math.prod(self.shape)

    @cached_property
    def nbytes(self) -> int:
        """The size of its elements in bytes."""
        return self.size * self.dtype.itemsize

    @cached_property
    def type_name(self) -> str:
        """The name of its type, as records declare it."""
        return str(self.dtype)

    @cached_property
    def header(self) -> bytes:
        """The header that NumPy writes for it: a payload that begins with it needs no parsing."""
        file = io.BytesIO()
        fields = {"descr": npy.dtype_to_descr(self.dtype), "fortran_order": False, "shape": self.shape}
        npy.write_array_header_1_0(file, fields)
        return file.getvalue()


@dataclass(frozen=True)
class ReplyLimits:
    """The largest size of a reply: twice the model's arrays, so that one sent in float64 is read and then refused.

    Attributes
    ----------
    pieces
        The number of its pieces. Flower cuts arrays at 5 MiB.
    data
        Bytes of its arrays after unpacking.
    rest
        Bytes of everything else.
    """

    pieces: int
    data: int
    rest: int


@dataclass(frozen=True)
class ModelSchema:
    """The arrays of a model, in order.

    Weights are the floating-point arrays; together they are the vector that a defense sees. Buffers are kept apart
    (see :mod:`mabrfl.global_model`). Arrays of other types, such as BatchNorm's count of batches, stay as they are
    at the server.
    """

    parts: tuple[ArraySpec, ...]
    dimension: int
    buffer_size: int
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, arrays: ArrayRecord, buffer_suffixes: Sequence[str] = BUFFER_SUFFIXES) -> ModelSchema:
        """Return the schema of the server's model.

        Raises
        ------
        ConfigError
            If it has no floating-point array, or numbers that are not finite.
        """
        parts: list[ArraySpec] = []
        ends: dict[Role, int] = {"weight": 0, "buffer": 0, "fixed": 0}
        for key, array in arrays.items():
            values = array.numpy()
            role: Role = "fixed" if values.dtype.kind != "f" else "weight"
            if role == "weight" and key.endswith(tuple(buffer_suffixes)):
                role = "buffer"
            if role != "fixed" and not np.all(np.isfinite(values)):
                raise ConfigError(f"the initial model's array '{key}' has numbers that are not finite")
            parts.append(ArraySpec(key, values.shape, values.dtype, role, ends[role]))
            ends[role] += values.size
        if not ends["weight"]:
            raise ConfigError("the initial model has no floating-point array to train")
        wide = any(part.dtype.itemsize > np.dtype(np.float32).itemsize for part in parts if part.role != "fixed")
        return cls(tuple(parts), ends["weight"], ends["buffer"], np.dtype(np.float64 if wide else np.float32))

    @property
    def layout(self) -> Layout:
        """Names and shapes of the weights, in the order of the vector that a defense sees."""
        return Layout((part.key, part.shape) for part in self.parts if part.role == "weight")

    def describe(self) -> list[list[Any]]:
        """Return the schema as plain values, for the hash of a configuration."""
        return [[part.key, list(part.shape), part.dtype.str, part.role] for part in self.parts]

    def reply_limits(self) -> ReplyLimits:
        """Return the largest size of a reply."""
        data = sum(2 * part.nbytes + _MAX_HEADER for part in self.parts)
        names = sum(_ROOM_PER_ARRAY + _ROOM_PER_SIGN * len(part.key) for part in self.parts)
        pieces = 64 + 4 * len(self.parts) + data // _SMALLEST_PIECE
        return ReplyLimits(pieces, data, _ROOM_FOR_METRICS + names + _ROOM_PER_PIECE * pieces)

    def vectors(self, arrays: Mapping[str, Array]) -> tuple[Floats, Floats]:
        """Return the weights and the buffers of the server's own record, as two new vectors."""
        weights: Floats = np.empty(self.dimension, self.dtype)
        buffers: Floats = np.empty(self.buffer_size, self.dtype)
        for part in self.parts:
            if part.role != "fixed":
                target = weights if part.role == "weight" else buffers
                target[part.start : part.start + part.size] = arrays[part.key].numpy().ravel()
        return weights, buffers

    def check(self, arrays: Mapping[str, Array]) -> None:
        """Compare what a record declares with the schema, without decoding anything.

        Raises
        ------
        MalformedReply
            It says which array is wrong, and how.
        """
        if len(arrays) != len(self.parts) or any(key != part.key for key, part in zip(arrays, self.parts, strict=True)):
            raise MalformedReply("keys", _difference(list(arrays), [part.key for part in self.parts]))
        for part in self.parts:
            array = arrays[part.key]
            if array.stype != _NUMPY:
                raise MalformedReply(
                    "encoding", f"array '{part.key}' is encoded as {array.stype!r:.80}, not {_NUMPY!r}"
                )
            if array.dtype != part.type_name:
                raise MalformedReply(
                    "dtype", f"array '{part.key}' declares {array.dtype!r:.80}, not {part.type_name!r}"
                )
            if tuple(array.shape) != part.shape:
                raise MalformedReply("shape", f"array '{part.key}' declares {_shape(array.shape)}, not {part.shape}")
            if not part.nbytes < len(array.data) <= part.nbytes + _MAX_HEADER:
                raise MalformedReply(
                    "size", f"array '{part.key}' has {len(array.data):,} bytes; {part.nbytes:,} are needed"
                )

    def read(self, arrays: Mapping[str, Array], weights: Floats) -> Floats:
        """Check and decode a record: write its weights into ``weights``, and return its buffers.

        Raises
        ------
        MalformedReply
            If anything differs from the schema.
        """
        self.check(arrays)
        buffers: Floats = np.empty(self.buffer_size, self.dtype)
        for part in self.parts:
            values = _payload(arrays[part.key].data, part)
            if part.role != "fixed":
                target = weights if part.role == "weight" else buffers
                target[part.start : part.start + part.size] = values.ravel()
        if not (np.isfinite(weights).all() and np.isfinite(buffers).all()):
            self._refuse(weights, buffers)
        return buffers

    def _refuse(self, weights: Floats, buffers: Floats) -> NoReturn:
        """Name the first number that is not finite."""
        for part in self.parts:
            if part.role != "fixed":
                values = (weights if part.role == "weight" else buffers)[part.start : part.start + part.size]
                if len(bad := np.flatnonzero(~np.isfinite(values))):
                    position = int(bad[0])
                    raise MalformedReply(
                        "not-finite", f"array '{part.key}' has {values[position]} at position {position}"
                    )
        raise AssertionError("all numbers are finite")

    def is_finite(self, weights: Floats, buffers: Floats) -> bool:
        """Return whether numbers are finite in the types of the model's arrays, which may be narrower."""
        for part in self.parts:
            if part.role != "fixed":
                vector = weights if part.role == "weight" else buffers
                with np.errstate(over="ignore"):
                    values = vector[part.start : part.start + part.size].astype(part.dtype, copy=False)
                if not np.all(np.isfinite(values)):
                    return False
        return True

    def record(self, weights: Floats, buffers: Floats, fixed: Mapping[str, Array]) -> ArrayRecord:
        """Return a record with these weights and buffers; arrays of other types come from ``fixed``."""
        arrays: dict[str, Array] = {}
        for part in self.parts:
            if part.role == "fixed":
                arrays[part.key] = fixed[part.key]
                continue
            vector = weights if part.role == "weight" else buffers
            values = vector[part.start : part.start + part.size].reshape(part.shape)
            arrays[part.key] = Array(np.ascontiguousarray(values, dtype=part.dtype).reshape(part.shape))
        return ArrayRecord(arrays)


def _payload(data: bytes, part: ArraySpec) -> NDArray[Any]:
    """Return the numbers of a payload in NumPy's file format, if it has exactly the part's type, shape and length."""
    begin, fortran = (len(part.header), False) if data.startswith(part.header) else _parse_header(data, part)
    if len(data) - begin != part.nbytes:
        raise MalformedReply("size", f"array '{part.key}' holds {len(data) - begin:,} bytes, not {part.nbytes:,}")
    values = np.frombuffer(data, dtype=part.dtype, offset=begin)
    return values.reshape(part.shape, order="F" if fortran else "C")


def _parse_header(data: bytes, part: ArraySpec) -> tuple[int, bool]:
    """Return where the numbers of a payload begin, and whether they are in Fortran's order."""
    file = io.BytesIO(data[:_MAX_HEADER])
    try:
        version = npy.read_magic(file)
        readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
        shape, fortran, dtype = readers[version](file, max_header_size=_MAX_HEADER)
    except Exception as error:  # a hostile header may raise anything, and only its sender must pay
        raise MalformedReply(
            "encoding", f"array '{part.key}' has no readable header: {type(error).__name__}"
        ) from error
    if dtype != part.dtype:
        raise MalformedReply("dtype", f"array '{part.key}' holds {dtype!s:.80}, not {part.dtype}")
    if tuple(shape) != part.shape:
        raise MalformedReply("shape", f"array '{part.key}' holds {_shape(shape)}, not {part.shape}")
    return file.tell(), fortran


def _difference(keys: list[str], expected: list[str]) -> str:
    sent, ours = set(keys), set(expected)
    missing = [key for key in expected if key not in sent]
    extra = [key for key in keys if key not in ours]
    if not missing and not extra:
        return "the keys come in another order than the model's"
    return f"{len(missing)} keys missing {missing[:3]}, {len(extra)} too many {[key[:80] for key in extra[:3]]}"


def _shape(shape: Sequence[Any]) -> str:
    return f"{tuple(shape)!s:.80}"
