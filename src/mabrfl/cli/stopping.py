"""SIGTERM as an exception, so that a run can close its files properly."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

TERMINATED = 143


class Stopped(BaseException):
    """The process was asked to terminate; like ``KeyboardInterrupt``, no ``except Exception`` catches it."""

    exit_code = TERMINATED


@contextmanager
def importing() -> Iterator[None]:
    """Import modules in this block: no signal interrupts it, and no time is spent on a search for garbage.

    PyTorch alone makes 300,000 objects that stay until the end. To search through them again and again takes a quarter
    of the time of the import.
    """
    before, enabled = len(sys.modules), gc.isenabled()
    gc.disable()
    try:
        with _delayed_signals():
            yield
    finally:
        if len(sys.modules) > before:
            gc.freeze()
        if enabled:
            gc.enable()


@contextmanager
def _delayed_signals() -> Iterator[None]:
    """Delay Ctrl-C and SIGTERM to the end of this block, which imports modules; a second signal ends the process.

    Some libraries swallow an exception that arrives in the middle of an import; others stay half imported and fail
    later with another error.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 (the signature is the operating system's)
        if received:
            os._exit(128 + number)
        received.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if received:
            # Raise it now; errors of the block no longer matter.
            signal.raise_signal(received[0])


@contextmanager
def stop_on_sigterm() -> Iterator[None]:
    """Raise :class:`Stopped` in this block when SIGTERM arrives."""
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
