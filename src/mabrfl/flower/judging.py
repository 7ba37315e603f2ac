"""Stages 4 to 6 of a round: check each reply by itself, then call the defense as the simulator does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from flwr.app import RecordDict

from mabrfl.defense import Defense
from mabrfl.errors import QuorumError
from mabrfl.flower.messages import MatchedReply
from mabrfl.flower.problems import Problem
from mabrfl.flower.reply_checks import CheckResult, ReplyChecker
from mabrfl.flower.update_rows import UpdateRows
from mabrfl.global_model import GlobalModel
from mabrfl.layout import Layout
from mabrfl.rng import ClientId
from mabrfl.updates import Floats, Outcome, Updates, Verdict, canonical


@dataclass
class ReplyBatch:
    """The replies of one round, unpacked.

    Attributes
    ----------
    replies
        The matched replies; those that fail the check here have a problem now.
    clients
        The clients of the rows, in canonical order: those with a good reply, and those that are blamed.
    matrix
        Their updates; a row of NaN for a client that is blamed, which intake quarantines as any malformed row.
    good
        Whether each row is good.
    """

    replies: list[MatchedReply]
    clients: list[ClientId] = field(default_factory=list)
    matrix: Floats = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    good: list[bool] = field(default_factory=list)
    buffers: dict[ClientId, Floats] = field(default_factory=dict)
    examples: dict[ClientId, float] = field(default_factory=dict)
    contents: dict[ClientId, RecordDict] = field(default_factory=dict)
    layout: Layout | None = None
    global_weights: Floats | None = None
    root_update: Floats | None = None


def unpack(replies: list[MatchedReply], model: GlobalModel, checker: ReplyChecker, rows: UpdateRows) -> ReplyBatch:
    """Turn every reply into an update: its weights minus the model's. Replies not checked yet are checked here.

    ``rows`` has the rows of those that were checked. The list becomes part of the batch, and the contents of replies
    are dropped while the matrix is filled.
    """
    batch = ReplyBatch(replies, layout=checker.schema.layout, global_weights=model.weights)
    position = {reply.client: k for k, reply in enumerate(replies) if _has_row(reply)}
    batch.clients = canonical(client for client in position if client is not None)
    batch.matrix = rows.take(len(batch.clients))
    for row, client in zip(batch.matrix, batch.clients, strict=True):
        k = position[client]
        result = _checked(replies[k], checker, row)
        problem = result if isinstance(result, Problem) else None
        replies[k] = replace(replies[k], content=None, checked=None, problem=problem)
        batch.good.append(problem is None)
        if isinstance(result, Problem):
            row.fill(np.nan)
            continue
        with np.errstate(over="ignore"):
            np.subtract(result.weights, model.weights, out=row)
        batch.buffers[client], batch.examples[client] = result.buffers, result.examples
        batch.contents[client] = result.content
    return batch


def _has_row(reply: MatchedReply) -> bool:
    """Return whether there is a reply to judge, or a client to blame."""
    return reply.client is not None and (reply.problem is None or reply.problem.blamed)


def _checked(reply: MatchedReply, checker: ReplyChecker, row: Floats) -> CheckResult:
    if reply.problem is not None:
        return reply.problem
    if reply.checked is not None:
        return reply.checked
    if reply.content is None:
        return Problem("records", "the reply is empty", blamed=True)
    return checker.check(reply.content, row)


@dataclass(frozen=True)
class Judgement:
    """The defense's decision on a round; ``outcome`` is None if there was no reply to judge.

    ``unjudged`` says why good replies have no verdict, and ``norms`` are the norms of the updates that have one.
    """

    outcome: Outcome | None
    events: tuple[str, ...] = ()
    unjudged: str = ""
    norms: Mapping[ClientId, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Limits:
    """When to believe a round; see :class:`~mabrfl.flower.RobustStrategy`."""

    min_replies: int = 1
    max_rejected: float | None = None
    min_accepted: int = 0

    def describe(self) -> dict[str, Any]:
        """Return the limits that are set, for the configuration; a folder from before there were any has none."""
        limits = {"max_rejected": self.max_rejected, "min_accepted": self.min_accepted}
        return {name: value for name, value in limits.items() if value != getattr(Limits, name)}

    def exceeded(self, verdicts: Mapping[ClientId, Verdict]) -> tuple[str, str] | None:
        """Return why the verdicts of a round are not believed, as one word and in numbers; None if they are."""
        accepted, judged = sum(verdict.accepted for verdict in verdicts.values()), len(verdicts)
        if accepted < self.min_accepted:
            return "too-few-accepted", f"{accepted} of {self.min_accepted}"
        if self.max_rejected is not None and judged - accepted > self.max_rejected * judged:
            return "most-rejected", f"{judged - accepted} of {judged}, at most {self.max_rejected:g} of them may be"
        return None


def judge(defense: Defense, batch: ReplyBatch, round_number: int, *, limits: Limits, by_examples: bool) -> Judgement:
    """Screen, reward and combine. With too few good replies only bad content is judged, and the model stays.

    A round that exceeds the limits is skipped: the model stays, and nobody gains or loses reputation.
    """
    rows = list(range(len(batch.clients)))
    if not isinstance(defense, Defense):
        rows = [k for k in rows if batch.good[k]]  # a defense of the user's own need not handle rows of NaN
    if (usable := sum(batch.good)) < limits.min_replies:
        reason, why = "too-few-replies", f"{usable} of {limits.min_replies}"
    else:
        try:
            return _ask(defense, batch, rows, round_number, by_examples=by_examples, limits=limits)
        except QuorumError as error:
            reason, why = "quorum", str(error)
    # Only the bad replies are judged: they cost reputation even if the others cannot be judged.
    bad = [k for k in rows if not batch.good[k]]
    return replace(_ask(defense, batch, bad, round_number), events=(f"{reason}: {why}",), unjudged=reason)


def _ask(
    defense: Defense,
    batch: ReplyBatch,
    rows: list[int],
    round_number: int,
    *,
    by_examples: bool = False,
    limits: Limits | None = None,
) -> Judgement:
    """Screen, reward and combine these rows."""
    if not rows:
        return Judgement(None)
    clients = [batch.clients[k] for k in rows]
    matrix = batch.matrix if len(rows) == len(batch.clients) else batch.matrix[rows]
    counts = [batch.examples.get(client, 1.0) for client in clients] if by_examples else None
    updates = Updates(
        clients, matrix, counts, batch.matrix.shape[1], batch.layout, batch.global_weights, batch.root_update
    )
    screening = defense.screen(updates, round=round_number)
    if limits is not None and (exceeded := limits.exceeded(screening.verdicts)):
        return Judgement(None, (f"{exceeded[0]}: {exceeded[1]}: the round is skipped",), exceeded[0])
    defense.reward(screening)
    cohort = getattr(screening, "cohort", None)  # a defense of the user's own may have none
    norms = {} if cohort is None else dict(zip(cohort.ids, cohort.norms.tolist(), strict=True))
    return Judgement(defense.combine(screening), norms=norms)
