"""Fixed slices of columns, each visited by one thread: the results do not depend on how many threads there are."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

Floats = NDArray[np.floating[Any]]
T = TypeVar("T")

SLICE = 8192
"""Columns per slice; part of the definition of the result (float32 sums within, float64 across)."""
_WORTH_THREADS = 0.02
"""Seconds of work from which threads are used. A weighted sum of 50 clients with a million numbers each is below it,
their Gram matrix above."""


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


def one_blas_thread() -> AbstractContextManager[Any]:
    """Return a context in which BLAS uses one thread."""
    context: AbstractContextManager[Any] = _blas().limit(limits=1, user_api="blas")
    return context


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def wide(part: Floats) -> Floats:
    """Return numbers in the precision in which they are computed with: single, if they are kept in half precision."""
    return part.astype(np.float32) if part.dtype == np.float16 else part


def span(rows: NDArray[np.intp]) -> slice | None:
    """Return the slice that takes these rows, if there is one: a view of a matrix instead of a copy.

    Examples
    --------
    >>> span(np.array([2, 3, 4])), span(np.array([2, 4]))
    (slice(2, 5, None), None)
    """
    consecutive = len(rows) > 0 and bool(np.all(np.diff(rows) == 1))
    return slice(int(rows[0]), int(rows[0]) + len(rows)) if consecutive else None


def each_slice(width: int, visit: Callable[[slice], T], *, threads: int | None = None) -> list[T]:
    """Call ``visit`` with each slice of ``range(width)``; return the results in order of the slices."""
    return list(visit_slices(width, visit, threads=threads))


def visit_slices(width: int, visit: Callable[[slice], T], *, threads: int | None = None) -> Iterator[T]:
    """Call ``visit`` with each slice of ``range(width)``; yield the results in order of the slices, as they come.

    At most a few results wait at a time: with thousands of clients each of them is large. If the first slice was so
    quick that threads are not worth their start, the others follow it.
    """
    slices = [slice(start, min(start + SLICE, width)) for start in range(0, width, SLICE)]
    threads = min(threads or _cores(), len(slices))
    with one_blas_thread():
        if threads > 1:
            began = time.perf_counter()
            first = visit(slices.pop(0))
            if (time.perf_counter() - began) * len(slices) < _WORTH_THREADS:
                threads = 1
            yield first
        if threads <= 1:
            yield from map(visit, slices)
            return
        with ThreadPoolExecutor(threads) as pool:
            waiting: deque[Future[T]] = deque()
            for columns in slices:
                waiting.append(pool.submit(visit, columns))
                if len(waiting) > threads + 1:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
