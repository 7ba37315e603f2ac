"""Waiting in tests: for an event, never for a time. A limit here only ends a test that hangs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

HANGS = 600.0
"""Seconds after which something hangs, on any machine."""

T = TypeVar("T")


def wait_until(condition: Callable[[], T], what: str) -> T:
    """Wait until a condition is true, and return it."""
    end = time.monotonic() + HANGS
    while not (result := condition()):
        assert time.monotonic() < end, f"it hangs: {what}"
        time.sleep(0.01)
    return result


class Clock:
    """Takes the place of the module ``time`` in a module under test: a clock that a test can put forward.

    Attributes
    ----------
    ahead
        How many seconds this clock is ahead of the true one.
    """

    def __init__(self) -> None:
        self.ahead = 0.0

    def monotonic(self) -> float:
        """Return the time of this clock."""
        return time.monotonic() + self.ahead
