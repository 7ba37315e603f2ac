"""The arrays that all worker processes share: data, weights in, updates out. None of them is sent."""

from __future__ import annotations

import math
import mmap
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from mabrfl.errors import ConfigError

StartMethod = Literal["fork", "spawn"]
Array = NDArray[Any]


class SharedArray:
    """An array of zeros in memory shared with the processes that are started later.

    Parameters
    ----------
    shape, dtype
        Of the array.
    method
        How those processes are started. ``"fork"`` (also for no process at all) uses anonymous memory, whose pages
        cost nothing until they are written. ``"spawn"`` needs memory that can be passed to a new process.
    """

    def __init__(self, shape: tuple[int, ...], dtype: DTypeLike, method: StartMethod = "fork") -> None:
        self._shape, self._dtype = shape, np.dtype(dtype)
        num_bytes = max(1, math.prod(shape) * self._dtype.itemsize)
        try:
            self._memory: Any = (
                mmap.mmap(-1, num_bytes) if method == "fork" else get_context("spawn").RawArray("b", num_bytes)
            )
        except (OSError, OverflowError, MemoryError) as error:
            raise ConfigError(
                f"this machine does not give {num_bytes / 2**30:,.1f} GiB of memory to one array; "
                "take fewer clients or a smaller model"
            ) from error
        self.array = self._view()

    def _view(self) -> Array:
        return np.frombuffer(self._memory, self._dtype, math.prod(self._shape)).reshape(self._shape)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "array"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.array = self._view()


class Inherited:
    """An existing array that is only read: a forked process inherits it."""

    def __init__(self, array: Array) -> None:
        self.array = array


def share(array: Array, method: StartMethod) -> SharedArray | Inherited:
    """Return an array for worker processes to read; it is copied only if they are spawned."""
    if method == "fork":
        return Inherited(array)
    shared = SharedArray(array.shape, array.dtype, method)
    shared.array[...] = array
    return shared


@dataclass(frozen=True)
class Board:
    """The arrays that the parent and its workers read and write.

    Attributes
    ----------
    train_inputs, train_labels, test_inputs, test_labels
        The data set.
    weights, buffers
        The global model of the round, written by the parent.
    clients, poisoned, transient
        The clients that train, one per position; whether on poisoned data; whether their optimizer state is dropped.
    order, starts
        The positions, one task after the other; and where in this order each task begins, and the last one ends.
    updates, new_buffers
        The results of training: a row per position.
    moments, steps
        Kept optimizer states: ``(num_clients, moments per parameter, d)``, and the number of steps of each
        parameter, ``(num_clients, number of parameters)``.
    goal_inputs, goal_labels
        Examples that an adversary wants misclassified, and the labels it wants; empty without a goal.
    predicted, losses
        Evaluation: predictions per slice, class and predicted class, sum of losses per slice; first the slices of the
        test set, then those of the adversary's goal.
    """

    train_inputs: SharedArray | Inherited
    train_labels: SharedArray | Inherited
    test_inputs: SharedArray | Inherited
    test_labels: SharedArray | Inherited
    goal_inputs: SharedArray | Inherited
    goal_labels: SharedArray | Inherited
    weights: SharedArray
    buffers: SharedArray
    clients: SharedArray
    poisoned: SharedArray
    transient: SharedArray
    order: SharedArray
    starts: SharedArray
    updates: SharedArray
    new_buffers: SharedArray
    moments: SharedArray
    steps: SharedArray
    predicted: SharedArray
    losses: SharedArray
