"""The status of a strategy for an operator: totals, the last verdicts, and the time of each stage."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from mabrfl.flower.operator import OperatorDecisions
from mabrfl.recording.audit import safe_text
from mabrfl.recording.status import Alert, ClientStatus, FederationStatus
from mabrfl.rng import ClientId
from mabrfl.updates import canonical


class RoundWatch:
    """Counts verdicts and measures stages over the rounds of a strategy.

    Parameters
    ----------
    before
        The status that an earlier run left, whose totals and last verdicts go on.
    """

    def __init__(self, before: FederationStatus | None = None) -> None:
        self._totals = Counter({} if before is None else before.totals)
        self._alerts = Counter({} if before is None else before.alert_totals)
        self._last = {} if before is None else {c.id: (c.round, c.verdict, c.reason) for c in before.clients}
        self._seconds: dict[str, float] = {}
        self._since = time.monotonic()

    def begin(self) -> None:
        """Start the clock of a round."""
        self._seconds, self._since = {}, time.monotonic()

    def stage(self, name: str) -> None:
        """Say that a stage has ended, and the next one begins."""
        now = time.monotonic()
        self._seconds[name], self._since = now - self._since, now

    def count(self, number: int, rows: Iterable[Mapping[str, Any]]) -> None:
        """Take the rows that a round has in the audit."""
        for row in rows:
            if row["kind"] == "reply":
                verdict, reason = row["verdict"], row.get("reason") or ""
                self._totals[f"{verdict}/{reason}"] += 1
                if row["client"] is not None:
                    self._last[row["client"]] = (number, verdict, reason)

    def status(
        self,
        number: int,
        *,
        figures: Mapping[str, Any],
        metrics: Mapping[str, Any],
        reputation: Mapping[ClientId, Any],
        decisions: OperatorDecisions,
        alerts: list[Alert],
    ) -> FederationStatus:
        """Return the status after a round."""
        self._alerts.update(alert.kind for alert in alerts)
        clients = canonical({*reputation, *decisions.banned, *decisions.pinned})
        return FederationStatus(
            round=number,
            time=time.time(),
            figures=_numbers(figures),
            metrics=_numbers(metrics),
            seconds=dict(self._seconds),
            totals=dict(self._totals),
            alerts=alerts,
            alert_totals=dict(self._alerts),
            clients=[self._client(client, reputation.get(client), decisions) for client in clients],
        )

    def _client(self, client: ClientId, counts: Any, decisions: OperatorDecisions) -> ClientStatus:
        benign, malicious = (float(counts[0]), float(counts[1])) if counts is not None else (None, None)
        shown = safe_text(client) if isinstance(client, str) else client
        number, verdict, reason = self._last.get(shown, (0, "", ""))
        return ClientStatus(
            id=shown,
            benign=benign,
            malicious=malicious,
            banned=client in decisions.banned,
            pinned=client in decisions.pinned,
            round=number,
            verdict=verdict,
            reason=reason,
        )


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """Return the single finite numbers among metrics."""
    plain = {name: value for name, value in values.items() if isinstance(value, int | float)}
    return {safe_text(name): float(value) for name, value in plain.items() if abs(value) < 1e300}
