"""What can go wrong, one class per kind of cause, each with the command line's exit code."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class MabRflError(Exception):
    """Base of every error this package raises on purpose; the message is meant for a person."""

    exit_code = 1


class ConfigError(MabRflError):
    """A setting is unknown, of the wrong type, out of range, or contradicts another."""

    exit_code = 3


class DatasetError(MabRflError):
    """A data set is missing, corrupt, truncated, or cannot be partitioned as asked."""

    exit_code = 4


class StateError(MabRflError):
    """A saved state does not fit, or calls come in an order that makes no sense."""

    exit_code = 5


class OutputError(MabRflError):
    """Results cannot be written where they were asked for."""

    exit_code = 6


class DiskError(OutputError):
    """The disk that results go to is full, or cannot be written any more: no fault of whoever wanted to write."""


class KilledError(MabRflError):
    """A process at work was killed from outside, by a user or for want of memory: no fault of what it worked on."""


class QuorumError(MabRflError):
    """A rule's theorem asks for more clients than there are (only raised in strict mode)."""

    exit_code = 7


class KnowledgeError(MabRflError):
    """An attack looked at something its declared knowledge does not include."""

    exit_code = 8


class SweepError(MabRflError):
    """Some cells of a sweep failed, or their processes were killed; all the others were run."""

    exit_code = 9


def suggest(name: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the nearest known name, or the list of names.

    Examples
    --------
    >>> suggest("krumm", ["krum", "median"])
    "; did you mean 'krum'?"
    >>> suggest("zzz", ["krum", "median"])
    '; known: krum, median'
    """
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean '{near[0]}'?" if near else f"; known: {', '.join(known)}"
