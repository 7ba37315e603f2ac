"""A data set in memory: training and test inputs with their labels, validated once."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mabrfl.errors import DatasetError


@dataclass(frozen=True, eq=False)
class Dataset:
    """Inputs and labels for training and testing; build one from your own arrays to use your own data.

    Parameters
    ----------
    name
        What to call it in records and messages.
    train_inputs, test_inputs
        Images ``(N, C, H, W)`` or flat features ``(N, F)``; ``uint8`` (scaled by 1/255 when used) or
        ``float32`` (used as they are; ``float64`` is converted).
    train_labels, test_labels
        One integer in ``0 .. num_classes - 1`` per input; stored as ``int64``.
    num_classes
        How many classes there are (L in the paper).

    Raises
    ------
    DatasetError
        If shapes, types, lengths or label values do not fit together.

    Examples
    --------
    >>> data = Dataset("toy", np.zeros((4, 2), np.float32), [0, 1, 0, 1], np.ones((1, 2), np.float32), [1], 2)
    >>> data.input_shape, data.train_labels.dtype
    ((2,), dtype('int64'))
    """

    name: str
    train_inputs: NDArray[Any]
    train_labels: NDArray[np.int64]
    test_inputs: NDArray[Any]
    test_labels: NDArray[np.int64]
    num_classes: int

    def __post_init__(self) -> None:
        if not self.name:
            raise DatasetError("a data set needs a name; got an empty one")
        if isinstance(self.num_classes, bool) or not isinstance(self.num_classes, int | np.integer):
            raise DatasetError(f"{self.name}: num_classes must be an integer; got {self.num_classes!r}")
        if self.num_classes < 2:
            raise DatasetError(f"{self.name}: num_classes must be at least 2; got {self.num_classes}")
        for split in ("train", "test"):
            inputs = _checked_inputs(getattr(self, f"{split}_inputs"), f"{self.name}: {split} inputs")
            labels = checked_labels(getattr(self, f"{split}_labels"), self.num_classes, f"{self.name}: {split} labels")
            if len(inputs) != len(labels):
                raise DatasetError(f"{self.name}: {len(inputs)} {split} inputs but {len(labels)} {split} labels")
            object.__setattr__(self, f"{split}_inputs", inputs)
            object.__setattr__(self, f"{split}_labels", labels)
        train, test = self.train_inputs, self.test_inputs
        if train.shape[1:] != test.shape[1:] or train.dtype != test.dtype:
            raise DatasetError(
                f"{self.name}: train and test inputs must be alike; got {train.shape[1:]} {train.dtype} "
                f"and {test.shape[1:]} {test.dtype}"
            )

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one input, e.g. ``(1, 28, 28)``."""
        return tuple(self.train_inputs.shape[1:])

    def fingerprint(self) -> str:
        """Return the SHA-256 (hex) of everything a run can depend on: types, shapes, values, class count.

        The name is left out: the same numbers under another name are the same data.
        """
        digest = hashlib.sha256(f"mabrfl-dataset-1:{int(self.num_classes)}".encode())
        for array in (self.train_inputs, self.train_labels, self.test_inputs, self.test_labels):
            portable = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
            digest.update(f"|{portable.dtype.str}{portable.shape}|".encode())
            digest.update(portable.reshape(-1).view(np.uint8).data)
        return digest.hexdigest()


def checked_labels(labels: Any, num_classes: int, what: str = "labels") -> NDArray[np.int64]:
    """Return ``labels`` as a flat int64 array, or say which label breaks which rule."""
    array = np.asarray(labels)
    if array.ndim != 1 or array.size == 0:
        raise DatasetError(f"{what} must be a non-empty flat array; got shape {array.shape}")
    if array.dtype.kind not in "iu":
        raise DatasetError(f"{what} must be integers; got {array.dtype}")
    wrong = np.flatnonzero((array < 0) | (array >= num_classes))
    if wrong.size:
        first = int(wrong[0])
        raise DatasetError(f"{what} must be 0..{num_classes - 1}; got {array[first]} at index {first}")
    return np.ascontiguousarray(array, dtype=np.int64)


def _checked_inputs(inputs: Any, what: str) -> NDArray[Any]:
    array = np.asarray(inputs)
    if array.ndim not in (2, 4):
        raise DatasetError(f"{what} must be (N, C, H, W) images or (N, F) features; got shape {array.shape}")
    if array.size == 0:
        raise DatasetError(f"{what} are empty: shape {array.shape}")
    if array.dtype == np.uint8:
        return np.ascontiguousarray(array)
    if array.dtype not in (np.float32, np.float64):
        raise DatasetError(f"{what} must be uint8, float32 or float64; got {array.dtype}")
    with np.errstate(over="ignore"):
        array = np.ascontiguousarray(array, dtype=np.float32)
    if not np.isfinite(array).all():
        raise DatasetError(f"{what} must be finite; got NaN, infinity or a value beyond float32")
    return array
