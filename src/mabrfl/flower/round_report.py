"""The report of a finished round: rows of the audit, figures in the MetricRecord, lines in the log."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import MetricRecord

from mabrfl.defense import MOST_REJECTED
from mabrfl.flower.messages import MatchedReply, SentMessages
from mabrfl.flower.problems import Problem
from mabrfl.flower.state_config import hash_of
from mabrfl.flower.state_folder import now
from mabrfl.recording.audit import safe_text
from mabrfl.rng import ClientId
from mabrfl.updates import Outcome, Verdict

if TYPE_CHECKING:
    from mabrfl.flower.strategy import RobustStrategy

log = logging.getLogger("flwr")

Reputations = Mapping[ClientId, tuple[float, float]]

MOST_EVENTS = 20
_MOST_LINES = 10
_SHORT = 20


@dataclass(frozen=True)
class RoundReport:
    """A finished round: the messages, the replies, the decision, and the reputations before and after."""

    sent: SentMessages
    replies: tuple[MatchedReply, ...]
    outcome: Outcome | None
    events: tuple[str, ...]
    before: Reputations
    after: Reputations
    unjudged: str = ""
    norms: Mapping[ClientId, float] = field(default_factory=dict)

    def verdict(self, reply: MatchedReply) -> Verdict | None:
        """Return the defense's verdict on a reply, if there is one."""
        if self.outcome is None or reply.client is None or reply.problem is not None:
            return None
        return self.outcome.verdicts.get(reply.client)

    def problem(self, reply: MatchedReply) -> Problem | None:
        """Return why a reply was not used: by the checks, or by the defense's own intake."""
        verdict = self.verdict(reply)
        if verdict is None or verdict.reason != "malformed":
            return reply.problem
        return Problem("norm", str(verdict.evidence.get("cause", "malformed update")), blamed=verdict.blamed)

    def costs_reputation(self, reply: MatchedReply, problem: Problem) -> bool:
        """Return whether a problem cost reputation; a defense of the user's own may have none."""
        return problem.blamed and self.outcome is not None and reply.client in self.outcome.verdicts


def audit_rows(report: RoundReport, figures: Mapping[str, Any], run: str) -> Iterator[dict[str, Any]]:
    """Yield one row per reply (and per message without one), and one that closes the round."""
    common = {"run": run, "round": report.sent.round}
    for reply in report.replies:
        yield {"kind": "reply", "time": now(), **common, **_reply_row(reply, report)}
    yield {
        "kind": "round",
        "time": now(),
        **common,
        "figures": dict(figures),
        "events": [safe_text(event) for event in report.events[:MOST_EVENTS]],
        "facts": {} if report.outcome is None else dict(report.outcome.facts),
    }


def _reply_row(reply: MatchedReply, report: RoundReport) -> dict[str, Any]:
    """Return the row of one reply: client, verdict, evidence, and reputation before and after.

    The verdict is one of accepted, rejected (judged to be malicious), quarantined (not used), unjudged (too few
    replies to judge any) and missing (there is no reply). ``blamed`` says whether it cost reputation.
    """
    client, problem, verdict = reply.client, report.problem(reply), report.verdict(reply)
    row: dict[str, Any] = {"client": safe_text(client) if isinstance(client, str) else client}
    row["node"] = str(reply.node)
    if problem is not None:
        row["verdict"] = "missing" if problem.reason == "no-reply" else "quarantined"
        blamed = report.costs_reputation(reply, problem)
        row |= {"reason": problem.reason, "detail": safe_text(problem.detail), "blamed": blamed}
    elif verdict is None:
        row |= {"verdict": "unjudged", "reason": report.unjudged, "blamed": False}
    else:
        row["verdict"] = "accepted" if verdict.accepted else "rejected"
        row |= {"reason": verdict.reason, "blamed": verdict.blamed, "credit": verdict.credit}
        norm = report.norms.get(client) if client is not None else None
        row["evidence"] = {**({} if norm is None else {"norm": norm}), **verdict.evidence}
    if client is not None:
        row |= {"reputation_before": report.before.get(client), "reputation_after": report.after.get(client)}
    return row


def figures(report: RoundReport, *, moved: bool) -> dict[str, Any]:
    """Return the numbers of a round; the names are those in the MetricRecord."""
    verdicts = [verdict.reason for verdict in map(report.verdict, report.replies) if verdict is not None]
    problems = [problem.reason for problem in map(report.problem, report.replies) if problem is not None]
    step = report.outcome.step if moved and report.outcome is not None else np.zeros(0)
    return {
        "nodes-available": report.sent.available,
        "nodes-selected": len(report.sent.clients),
        "replies-accepted": verdicts.count("accepted"),
        "replies-rejected": sum(reason not in ("accepted", "malformed") for reason in verdicts),
        "replies-sybil": verdicts.count("sybil"),
        "replies-outlier": verdicts.count("outlier"),
        "replies-quarantined": sum(reason not in ("error", "no-reply") for reason in problems),
        "replies-error": problems.count("error"),
        "replies-missing": problems.count("no-reply"),
        "model-moved": int(moved),
        "step-norm": float(np.linalg.norm(step.astype(np.float64))),
    }


def metric_record(figures: Mapping[str, Any], reported: MetricRecord | None) -> MetricRecord:
    """Return the clients' metrics and the round's figures; no client can overwrite a figure."""
    return MetricRecord({**(reported or {}), **figures})


def unused_replies(report: RoundReport) -> list[tuple[MatchedReply, Problem]]:
    """Return the replies that were not used, and why; this includes messages without a reply."""
    pairs = [(reply, report.problem(reply)) for reply in report.replies]
    return [(reply, problem) for reply, problem in pairs if problem is not None]


def log_settings(strategy: RobustStrategy) -> None:
    """Log a strategy's settings in the style of Flower's own."""
    defense = strategy.description["defense"]
    preset = f" (preset {defense['preset']})" if defense["preset"] else ""
    lines = [
        "├──> Defense:",
        f"│\t├──Rule: {defense['name']}{preset}",
        f"│\t├──Selector: {_short_name(defense['selector'])}",
        f"│\t├──Claimed example counts: {'believed' if strategy.trust_num_examples else 'ignored'}",
        f"│\t└──Seed: {defense['seed']}",
        "├──> State:",
        f"│\t├──Folder: {strategy.state_dir or 'none: nothing is saved'}",
        f"│\t├──Configuration: {hash_of(strategy.config())[:_SHORT]}",
        f"│\t└──Nodes are identified by: {_short_name(strategy.description['identify'])}",
        "├──> Sampling:",
        f"│\t├──Fraction: train (by the selector) | evaluate ({strategy.fraction_evaluate:.2f})",
        f"│\t├──Minimum nodes: train ({strategy.min_train_nodes}) | evaluate ({strategy.min_evaluate_nodes})",
        f"│\t└──Minimum available nodes: {strategy.min_available_nodes}",
        "└──> Keys in records:",
        f"\t├── Number of examples: '{strategy.weighted_by_key}'",
        f"\t├── ArrayRecord key: '{strategy.arrayrecord_key}'",
        f"\t└── ConfigRecord key: '{strategy.configrecord_key}'",
    ]
    for line in lines:
        log.info("\t%s", line)


def _short_name(description: Any) -> str:
    """Return the name in a description, without its module."""
    while isinstance(description, Mapping):
        description = next(iter(description.values()), None)
    return "its own" if description is None else str(description).rpartition(":")[2]


def log_round(report: RoundReport, figures: Mapping[str, Any]) -> None:
    """Log a round: the number of replies of each kind, the replies that were not used, and the events."""
    log.info(
        "aggregate_train: accepted %d, rejected %d (sybil %d, outlier %d), quarantined %d, errors %d, missing %d",
        figures["replies-accepted"],
        figures["replies-rejected"],
        figures["replies-sybil"],
        figures["replies-outlier"],
        figures["replies-quarantined"],
        figures["replies-error"],
        figures["replies-missing"],
    )
    unused = unused_replies(report)
    for reply, problem in unused[:_MOST_LINES]:
        client = "unknown" if reply.client is None else safe_text(reply.client, _SHORT)
        blame = "blamed" if report.costs_reputation(reply, problem) else "not blamed"
        log.warning(
            "\t> %s (node %d): %s: %s [%s]", client, reply.node, problem.reason, safe_text(problem.detail), blame
        )
    if len(unused) > _MOST_LINES:
        log.warning("\t> and %d more", len(unused) - _MOST_LINES)
    for event in report.events[:MOST_EVENTS]:
        log.log(logging.WARNING if event.startswith(MOST_REJECTED) else logging.INFO, "\t> %s", safe_text(event))
    if len(report.events) > MOST_EVENTS:
        log.info("\t> and %d more events", len(report.events) - MOST_EVENTS)
