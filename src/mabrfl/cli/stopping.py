"""Termination as an exception, so that what was recorded is finished properly."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

TERMINATED = 143


class Stopped(BaseException):
    """The process was asked to terminate; like ``KeyboardInterrupt``, no ``except Exception`` catches it."""

    exit_code = TERMINATED


@contextmanager
def signals_wait() -> Iterator[None]:
    """Have Ctrl-C and SIGTERM wait for the end of this block, which imports something; a second one ends the process.

    An exception out of nowhere in the middle of an import is swallowed by some libraries, and leaves others half
    imported, which then say something else.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 (the signature is the operating system's)
        if came:
            os._exit(128 + number)
        came.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            # As if it came now; whatever went wrong meanwhile is no longer of interest.
            signal.raise_signal(came[0])


@contextmanager
def stop_on_sigterm() -> Iterator[None]:
    """Raise :class:`Stopped` in here when SIGTERM arrives."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    process = os.getpid()

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 (the signature is the operating system's)
        if os.getpid() != process:
            # A forked child inherits this handler, but has nothing to finish.
            os._exit(TERMINATED)
        raise Stopped

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
