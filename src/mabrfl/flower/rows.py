"""What a round leaves behind: the rows of its audit, and the figures in its MetricRecord."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np
from flwr.app import MetricRecord

from mabrfl.flower.dispatch import Arrival, Dispatch
from mabrfl.flower.problems import Problem
from mabrfl.recording.audit import safe_text
from mabrfl.rng import ClientId
from mabrfl.updates import Outcome, Verdict

Beliefs = Mapping[ClientId, tuple[float, float]]

MOST_EVENTS = 20


@dataclass(frozen=True)
class Told:
    """A finished round, as it is told: what was sent, what came, what was decided, and what it did to beliefs."""

    dispatch: Dispatch
    arrivals: tuple[Arrival, ...]
    outcome: Outcome | None
    events: tuple[str, ...]
    before: Beliefs
    after: Beliefs
    unjudged: str = ""
    norms: Mapping[ClientId, float] = field(default_factory=dict)

    def verdict(self, arrival: Arrival) -> Verdict | None:
        """Return what the defense said about a reply, if it was asked."""
        if self.outcome is None or arrival.client is None or arrival.problem is not None:
            return None
        return self.outcome.verdicts.get(arrival.client)

    def problem(self, arrival: Arrival) -> Problem | None:
        """Return why a reply was set aside, be it by the checks or by the defense's own intake."""
        verdict = self.verdict(arrival)
        if verdict is None or verdict.reason != "malformed":
            return arrival.problem
        return Problem("norm", str(verdict.evidence.get("cause", "malformed update")), blamed=verdict.blamed)

    def charged(self, arrival: Arrival, problem: Problem) -> bool:
        """Return whether it cost reputation that a reply was set aside; a defense of the user's own may keep none."""
        return problem.blamed and self.outcome is not None and arrival.client in self.outcome.verdicts


def now() -> str:
    """Return the time, for people."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def audit_rows(told: Told, figures: Mapping[str, Any], run: str) -> Iterator[dict[str, Any]]:
    """Yield one row per reply (and per message without one), and one that closes the round."""
    same = {"run": run, "round": told.dispatch.round}
    for arrival in told.arrivals:
        yield {"kind": "reply", "time": now(), **same, **_reply(arrival, told)}
    yield {
        "kind": "round",
        "time": now(),
        **same,
        "figures": dict(figures),
        "events": [safe_text(event) for event in told.events[:MOST_EVENTS]],
        "facts": {} if told.outcome is None else dict(told.outcome.facts),
    }


def _reply(arrival: Arrival, told: Told) -> dict[str, Any]:
    """Say who, what was decided, on what evidence, and what it cost or earned.

    The verdict is one of accepted, rejected (judged to be malicious), quarantined (set aside), unjudged (too few
    replies to judge any) and missing (there is no reply). ``blamed`` says whether it cost reputation.
    """
    client, problem, verdict = arrival.client, told.problem(arrival), told.verdict(arrival)
    row: dict[str, Any] = {"client": safe_text(client) if isinstance(client, str) else client}
    row["node"] = str(arrival.node)
    if problem is not None:
        row["verdict"] = "missing" if problem.reason == "no-reply" else "quarantined"
        blamed = told.charged(arrival, problem)
        row |= {"reason": problem.reason, "detail": safe_text(problem.detail), "blamed": blamed}
    elif verdict is None:
        row |= {"verdict": "unjudged", "reason": told.unjudged, "blamed": False}
    else:
        row["verdict"] = "accepted" if verdict.accepted else "rejected"
        row |= {"reason": verdict.reason, "blamed": verdict.blamed, "credit": verdict.credit}
        norm = told.norms.get(client) if client is not None else None
        row["evidence"] = {**({} if norm is None else {"norm": norm}), **verdict.evidence}
    if client is not None:
        row |= {"reputation_before": told.before.get(client), "reputation_after": told.after.get(client)}
    return row


def figures(told: Told, *, moved: bool) -> dict[str, Any]:
    """Return the numbers of a round; the names are those in the MetricRecord."""
    verdicts = [verdict.reason for verdict in map(told.verdict, told.arrivals) if verdict is not None]
    problems = [problem.reason for problem in map(told.problem, told.arrivals) if problem is not None]
    step = told.outcome.step if moved and told.outcome is not None else np.zeros(0)
    return {
        "nodes-available": told.dispatch.available,
        "nodes-selected": len(told.dispatch.clients),
        "replies-accepted": verdicts.count("accepted"),
        "replies-sybil": verdicts.count("sybil"),
        "replies-outlier": verdicts.count("outlier"),
        "replies-quarantined": sum(reason not in ("error", "no-reply") for reason in problems),
        "replies-error": problems.count("error"),
        "replies-missing": problems.count("no-reply"),
        "model-moved": int(moved),
        "step-norm": float(np.linalg.norm(step.astype(np.float64))),
    }


def metric_record(figures: Mapping[str, Any], reported: MetricRecord | None) -> MetricRecord:
    """Return the clients' own metrics with the round's figures beside them; no client can overwrite a figure."""
    return MetricRecord({**(reported or {}), **figures})


def quarantined(told: Told) -> Sequence[tuple[Arrival, Problem]]:
    """Return the replies that were set aside, and why; messages without a reply among them."""
    pairs = [(arrival, told.problem(arrival)) for arrival in told.arrivals]
    return [(arrival, problem) for arrival, problem in pairs if problem is not None]
