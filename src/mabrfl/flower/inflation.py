"""How much a packed array would take, told before it is unpacked.

In Flower's wire format an array is a list of chunks, each of which it may name any number of times (an array of zeros
does). So a reply of megabytes can unpack to gigabytes.
"""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from flwr.app import Array
from flwr.supercore.inflatable.inflatable_object import get_object_head_values_from_object_content

from mabrfl.flower.problems import Malformed

_DIVIDER = b"\x00"  # between head and body
_here = threading.local()
_installing = threading.Lock()


def unpacked_size(packed: bytes, size_of: Callable[[str], int]) -> int:
    """Return how many bytes a packed array unpacks to, given the sizes of its chunks."""
    _, children, _ = get_object_head_values_from_object_content(packed)
    sizes = [size_of(child) for child in children]
    body = packed[packed.index(_DIVIDER) + 1 :]
    return sum(sizes[place] for place in json.loads(body)["arraychunk_ids"])


def too_large(limit: int) -> Malformed:
    """Return what is to be said of a reply whose arrays take more than is allowed."""
    return Malformed("size", f"its arrays would take more than {limit:,} bytes")


@contextmanager
def bounded(limit: int | None) -> Iterator[None]:
    """Within this and in this thread, let Flower unpack arrays of no more than so many bytes together.

    For grids that unpack by themselves. Flower has no hook for it, so its ``Array.inflate`` is exchanged, once, for
    one that counts first; elsewhere it does what it always did.

    Raises
    ------
    Malformed
        In place of unpacking more.
    """
    with _installing:  # twice would count twice
        _install()
    _here.limit = _here.left = limit
    try:
        yield
    finally:
        _here.limit = _here.left = None


@functools.cache
def _install() -> None:
    original = Array.inflate.__func__  # type: ignore[attr-defined] # of a class method, as mypy does not know

    @functools.wraps(original)
    def inflate(cls: type[Array], object_content: bytes, children: dict[str, Any] | None = None) -> Array:
        left = getattr(_here, "left", None)
        if left is not None:
            _here.left = left - unpacked_size(object_content, lambda child: len((children or {})[child].data))
            if _here.left < 0:
                raise too_large(_here.limit)
        array: Array = original(cls, object_content, children)
        return array

    Array.inflate = classmethod(inflate)  # type: ignore[method-assign,assignment] # that is the point
