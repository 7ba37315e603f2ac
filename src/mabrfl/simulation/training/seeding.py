"""PyTorch's global random state, seeded for one block."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from mabrfl.rng import ClientId, digest

_CPU = torch.device("cpu")


@contextlib.contextmanager
def seeded(seed: int, purpose: str, *key: ClientId, device: torch.device = _CPU) -> Iterator[None]:
    """Seed PyTorch's global generator with the stream of this name, and restore it afterwards.

    Layers such as dropout use no other generator.
    """
    number = digest(seed, purpose, *key)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        if device.type == "cpu":
            # torch.manual_seed also records a stack trace for every kind of accelerator.
            torch.default_generator.manual_seed(number)
        else:
            torch.manual_seed(number)
        yield
