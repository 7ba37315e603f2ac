"""Randomness has a name: every stream is derived from (seed, purpose, round, client).

No generator is ever shared or advanced between stages, so changing the attack does not change who is
selected, adding a 51st client does not change the first 50, and nothing needs saving to resume a run.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

ClientId = int | str

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def digest(*parts: ClientId) -> int:
    """Return a 64-bit number that names this sequence of parts, the same on every machine.

    Examples
    --------
    >>> digest(0, "select", 1) == digest(0, "select", 1)
    True
    >>> digest("1") == digest(1)
    False
    """
    text = "\x1f".join(_named(part) for part in parts)
    data = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(data, "little")


def _named(part: ClientId) -> str:
    """Write one part so that no two sequences of parts read the same; NumPy's integers are integers."""
    if isinstance(part, str):
        return "str:" + part.replace("\x1f", "\x1f\x1f")
    return f"int:{operator.index(part)}"


def generator(seed: int, purpose: str, *key: ClientId) -> np.random.Generator:
    """Return a fresh NumPy generator for one purpose, e.g. ``generator(0, "train", round, client)``."""
    return np.random.Generator(np.random.PCG64(digest(seed, purpose, *key)))


def uniforms(seed: int, purpose: str, round_number: int, ids: Iterable[ClientId]) -> NDArray[np.float64]:
    """Return one uniform number in (0, 1) per client, each depending on that client alone.

    A counter-based draw: the SplitMix64 finaliser of (stream, client), so that a hundred thousand
    clients cost milliseconds and no client's number depends on who else is there.

    Examples
    --------
    >>> a = uniforms(0, "select", 1, [1, 2, 3])
    >>> b = uniforms(0, "select", 1, [3])
    >>> bool(a[2] == b[0])
    True
    """
    keys = np.array([digest(client) for client in ids], dtype=np.uint64)
    stream = np.uint64(digest(seed, purpose, round_number))
    with np.errstate(over="ignore"):
        state = (keys ^ stream) + _GOLDEN
        state = (state ^ (state >> np.uint64(30))) * _MIX_1
        state = (state ^ (state >> np.uint64(27))) * _MIX_2
        state = state ^ (state >> np.uint64(31))
    return ((state >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
