"""Reasons why a reply is not used."""

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
    """Why a reply is not used, or that there is none.

    Attributes
    ----------
    reason
        One word for programs.
    detail
        One sentence for people. It may contain text from a client: escape it before it is shown.
    blamed
        Whether it costs reputation. Bad content does; an error, a late or a missing reply never does.
    """

    reason: ProblemReason
    detail: str
    blamed: bool


class UnusableReply(Exception):  # noqa: N818 (it never leaves this package)
    """A reply cannot be used."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


class MalformedReply(UnusableReply):
    """The content of a reply is bad: the reply is quarantined and its sender blamed."""

    def __init__(self, reason: ProblemReason, detail: str) -> None:
        super().__init__(Problem(reason, detail, blamed=True))


def undecodable(error: Exception) -> MalformedReply:
    """Return the problem of a reply that could not be unpacked."""
    return MalformedReply("undecodable", f"cannot be unpacked: {type(error).__name__}: {error!s:.1000}")
