"""Whether a process was killed from outside, or ended by its own fault."""

from __future__ import annotations

import signal

KILLS = {getattr(signal, name, None) for name in ("SIGINT", "SIGTERM", "SIGKILL", "SIGHUP")}
"""Signals by which somebody else (a user, the system for want of memory) ends a process; the others are crashes."""


def was_killed(code: int | None) -> bool:
    """Whether an exit code, as :mod:`multiprocessing` has it, is that of a process that somebody killed.

    Examples
    --------
    >>> was_killed(-9), was_killed(-11), was_killed(1), was_killed(None)
    (True, False, False, False)
    """
    return code is not None and code < 0 and -code in KILLS
