"""The rounds of a defense over sites whose replies come one by one. It knows nothing of NVFlare."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mabrfl.defense import Defense
from mabrfl.errors import QuorumError, StateError
from mabrfl.global_model import BUFFER_SUFFIXES, merge_buffers
from mabrfl.nvflare.model_arrays import MalformedModel, ModelArrays
from mabrfl.recording.audit import safe_text
from mabrfl.rng import ClientId
from mabrfl.updates import Floats, Outcome, Updates

_MOST_EVENTS = 20


@dataclass(frozen=True)
class SiteReply:
    """The reply of one site: its changes and metrics, or why they are of no use, in one word and in a sentence."""

    weights: Floats | None
    buffers: Floats | None
    metrics: Mapping[str, float]
    reason: str = ""
    problem: str = ""


@dataclass(frozen=True)
class SiteRound:
    """A finished round.

    Attributes
    ----------
    number
        From 1.
    step
        The change of the model, as named arrays of its types; zeros if the model stays.
    metrics
        Means over the accepted sites of the metrics that all of them report.
    replies, missing
        The reply of each site, and the selected sites that sent none.
    outcome
        The defense's decision; None if there was nothing to judge.
    events
        Remarks on the round.
    before, after
        The reputations.
    """

    number: int
    step: Mapping[str, NDArray[Any]]
    metrics: Mapping[str, float]
    replies: Mapping[str, SiteReply]
    missing: tuple[str, ...]
    outcome: Outcome | None
    events: tuple[str, ...]
    before: Mapping[ClientId, tuple[float, float]] = field(default_factory=dict)
    after: Mapping[ClientId, tuple[float, float]] = field(default_factory=dict)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield one row of the audit per site, and one that closes the round; as the Flower strategy writes them."""
        common = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "round": self.number}
        for site in (*self.replies, *self.missing):
            row = {"kind": "reply", **common, "client": safe_text(site), **self._verdict(site)}
            yield row | {"reputation_before": self.before.get(site), "reputation_after": self.after.get(site)}
        facts = {} if self.outcome is None else dict(self.outcome.facts)
        events = [safe_text(event) for event in self.events[:_MOST_EVENTS]]
        yield {"kind": "round", **common, "figures": self.figures(), "events": events, "facts": facts}

    def figures(self) -> dict[str, Any]:
        """Return the numbers of the round."""
        verdicts = [self._verdict(site)["verdict"] for site in self.replies]
        step = math.sqrt(sum(float(np.sum(np.square(part, dtype=np.float64))) for part in self.step.values()))
        counts = {f"replies-{word}": verdicts.count(word) for word in ("accepted", "rejected", "quarantined")}
        return {**counts, "replies-missing": len(self.missing), "step-norm": step}

    def _verdict(self, site: str) -> dict[str, Any]:
        if site in self.missing:
            return {"verdict": "missing", "reason": "no-reply", "blamed": False}
        reply = self.replies[site]
        verdict = None if self.outcome is None else self.outcome.verdicts.get(site)
        blamed = verdict is not None and verdict.blamed
        if reply.reason:
            return {"verdict": "quarantined", "reason": reply.reason, "detail": reply.problem, "blamed": blamed}
        if verdict is None:
            return {"verdict": "unjudged", "reason": "", "blamed": False}
        if verdict.reason == "malformed":  # by the defense's own intake
            cause = safe_text(verdict.evidence.get("cause", ""))
            return {"verdict": "quarantined", "reason": "norm", "detail": cause, "blamed": blamed}
        word = "accepted" if verdict.accepted else "rejected"
        about = {"reason": verdict.reason, "blamed": verdict.blamed, "credit": verdict.credit}
        return {"verdict": word, **about, "evidence": dict(verdict.evidence)}


class SiteRounds:
    """Collects the replies of a round and lets a defense judge them.

    Parameters
    ----------
    defense
        Selects sites, judges replies, and decides on the step.
    buffer_suffixes
        Floating-point arrays whose name ends like this are not part of the update: the server takes the median of
        their changes over the accepted sites.
    """

    def __init__(self, defense: Defense, buffer_suffixes: Sequence[str] = BUFFER_SUFFIXES) -> None:
        self.defense = defense
        self._buffer_suffixes = tuple(buffer_suffixes)
        self._number = 0
        self._arrays: ModelArrays | None = None
        self._replies: dict[str, SiteReply] = {}
        self._selected: tuple[str, ...] = ()

    def select(self, sites: Sequence[str], number: int, at_least: int = 0) -> list[str]:
        """Return the sites of a round that the defense selects; at least this many, if there are."""
        if isinstance(self.defense, Defense):
            chosen = self.defense.select(sites, round=number, at_least=at_least)
        else:  # the user's own
            chosen = self.defense.select(sites, round=number)
        self._selected = tuple(str(site) for site in chosen)
        return list(self._selected)

    def begin(self, number: int, params: Mapping[str, Any]) -> None:
        """Begin a round with this global model; the same round again is no new one."""
        if number != self._number or self._arrays is None:
            self._arrays = ModelArrays.of(params, self._buffer_suffixes)
            self._number, self._replies = number, {}

    def take(self, site: str, params: Any, *, full: bool, metrics: Any = None) -> str:
        """Take the reply of a site; return why it is of no use, or nothing. Only the first one of a round counts."""
        if self._arrays is None:
            raise StateError(
                "the round has no global model: the aggregator saw no training task. "
                "It must be a component of the server's job, or an argument of its controller"
            )
        if site in self._replies:
            return "the site has replied in this round already"
        try:
            weights, buffers = self._arrays.update(params, full=full)
            reply = SiteReply(weights, buffers, numeric(metrics))
        except MemoryError:
            raise
        except MalformedModel as malformed:
            reply = SiteReply(None, None, {}, malformed.reason, safe_text(malformed.detail))
        except Exception as error:  # noqa: BLE001 (a hostile reply may raise anything, and only its sender must pay)
            reply = SiteReply(None, None, {}, "encoding", safe_text(f"{type(error).__name__}: {error}"))
        self._replies[site] = reply
        return reply.problem

    def finish(self) -> SiteRound:
        """Judge the replies of the round, and return its result."""
        if self._arrays is None:
            raise StateError("the round has no global model, and no reply")
        arrays, replies, number = self._arrays, self._replies, self._number
        before = self.defense.reputation
        outcome, events = self._judge(arrays, replies, number)
        accepted = [] if outcome is None else [replies[str(site)] for site in outcome.accepted]
        zeros = (np.zeros_like(arrays.weights), np.zeros_like(arrays.statistics))
        step = None if outcome is None else arrays.step(outcome.step, _middle(accepted, zeros[1]))
        if outcome is not None and step is None:
            events = (*events, "the step is not finite in the model's types: the model stays")
        missing = tuple(site for site in self._selected if site not in replies)
        still = arrays.step(*zeros) or {}
        means = mean_metrics([reply.metrics for reply in accepted])
        self._arrays, self._replies, self._selected = None, {}, ()
        after = self.defense.reputation
        return SiteRound(number, step or still, means, replies, missing, outcome, events, before, after)

    def _judge(
        self, arrays: ModelArrays, replies: Mapping[str, SiteReply], number: int
    ) -> tuple[Outcome | None, tuple[str, ...]]:
        """Return the defense's decision on the replies, and remarks."""
        bad: Floats = np.full_like(arrays.weights, np.nan)
        own = not isinstance(self.defense, Defense)  # a defense of the user's own need not handle rows of NaN
        sites = [site for site, reply in replies.items() if reply.weights is not None or not own]
        if not sites:
            return None, ("no-usable-updates",)
        found = (replies[site].weights for site in sites)
        matrix = np.stack([bad if weights is None else weights for weights in found])
        updates = Updates(sites, matrix, None, matrix.shape[1], arrays.layout, arrays.weights)
        try:
            outcome = self.defense.aggregate(updates, round=number)
        except QuorumError as error:
            return None, (f"quorum: {error}",)
        return outcome, outcome.events


def _middle(accepted: Sequence[SiteReply], zeros: Floats) -> Floats:
    """Return the median change of the buffers over the accepted sites."""
    rows = [reply.buffers for reply in accepted if reply.buffers is not None]
    return merge_buffers(np.stack(rows), zeros) if rows and zeros.size else zeros


def numeric(metrics: Any) -> dict[str, float]:
    """Return those metrics that are finite numbers."""
    found = metrics if isinstance(metrics, Mapping) else {}
    numbers = {str(name): value for name, value in found.items() if isinstance(value, int | float | np.number)}
    return {name: float(value) for name, value in numbers.items() if math.isfinite(value)}


def mean_metrics(reports: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of every metric that is in all reports.

    Examples
    --------
    >>> mean_metrics([{"accuracy": 0.5, "loss": 1.0}, {"accuracy": 1.0}])
    {'accuracy': 0.75}
    """
    names = [name for name in (reports[0] if reports else {}) if all(name in report for report in reports)]
    return {name: math.fsum(report[name] for report in reports) / len(reports) for name in names}
