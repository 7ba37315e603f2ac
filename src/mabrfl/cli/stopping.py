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
