"""What can be wrong with a reply."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ProblemReason = Literal[
    "records",
    "keys",
    "size",
    "encoding",
    "dtype",
    "shape",
    "not-finite",
    "zero",
    "norm",
    "metrics",
    "duplicate",
    "undecodable",
    "sender",
    "stale",
    "unattributed",
    "error",
    "no-reply",
]


@dataclass(frozen=True)
class Problem:
    """Why a reply is set aside, or that there is none.

    Attributes
    ----------
    reason
        One word for programs.
    detail
        One sentence for people. It may hold a client's own words: escape it before it is shown.
    blamed
        Whether it costs reputation. Content that is bad does; an error, a late or a missing reply never does.
    """

    reason: ProblemReason
    detail: str
    blamed: bool


class SetAside(Exception):  # noqa: N818 (it names the reply's state, and never leaves this package)
    """A reply cannot be used."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


class Malformed(SetAside):
    """A reply's content is bad; it is quarantined and its sender blamed."""

    def __init__(self, reason: ProblemReason, detail: str) -> None:
        super().__init__(Problem(reason, detail, blamed=True))


def undecodable(error: Exception) -> Malformed:
    """Return what is to be said of a reply that could not be unpacked."""
    return Malformed("undecodable", f"cannot be unpacked: {type(error).__name__}: {error!s:.1000}")
