"""The status of a strategy for an operator: totals, the last verdicts, and the time of each stage."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mabrfl.flower.alerts import STALLED_SECONDS, Alerts, largest_share, look_at_disk, look_at_round
from mabrfl.flower.operator import OperatorDecisions
from mabrfl.recording.audit import safe_text
from mabrfl.recording.status import ClientStatus, FederationStatus
from mabrfl.rng import ClientId
from mabrfl.updates import canonical


class RoundWatch:
    """Counts verdicts, measures stages, and sends alerts over the rounds of a strategy.

    Parameters
    ----------
    alerts
        Where alerts go.
    before
        The status that an earlier run left, whose totals, names and last verdicts go on.
    """

    def __init__(self, alerts: Alerts, before: FederationStatus | None = None) -> None:
        clients = [] if before is None else before.clients
        self._alerts = alerts
        self._totals = Counter({} if before is None else before.totals)
        self._alert_totals = Counter({} if before is None else before.alert_totals)
        self._last = {client.id: (client.round, client.verdict, client.reason) for client in clients}
        self._names = {client.id: client.name for client in clients if client.name}
        self._number = self._still = 0
        self._figures: dict[str, Any] = {}
        self._seconds: dict[str, float] = {}
        self._since = time.monotonic()

    def begin(self, number: int) -> None:
        """Begin a round."""
        self._alerts.begin(number)
        self._number, self._seconds, self._since = number, {}, time.monotonic()

    def stage(self, name: str) -> None:
        """Say that a stage has ended, and the next one begins."""
        now = time.monotonic()
        self._seconds[name], self._since = now - self._since, now

    def look_at_wait(self) -> None:
        """Send an alert if the server has waited for nodes too long."""
        waited = time.monotonic() - self._since
        if waited > STALLED_SECONDS:
            self._alerts.send("stalled", "critical", f"waiting for nodes for {waited:.0f} s")

    def see_names(self, names: Mapping[ClientId, str]) -> None:
        """Take the names with which nodes are registered; send an alert if a known name has another key."""
        known = {name: client for client, name in self._names.items()}
        for client, given in names.items():
            name = safe_text(given)
            if known.get(name, client) != client:
                self._alerts.send("new-key", "warning", f"node '{name}' was {known[name]}, and is {client} now")
                self._names.pop(known[name], None)
            self._names[client] = name

    def end(
        self,
        figures: Mapping[str, Any],
        rows: Sequence[Mapping[str, Any]],
        folder: Path | None,
        *,
        head_recorded: bool,
    ) -> None:
        """End a round: take its numbers and its rows in the audit, and send alerts."""
        share = largest_share(rows)
        self._figures = {**figures, **({} if share is None else {"largest-share": share[0]})}
        self._still = 0 if figures["model-moved"] else self._still + 1
        for row in rows:
            if row["kind"] == "reply":
                verdict, reason = row["verdict"], row.get("reason") or ""
                self._totals[f"{verdict}/{reason}"] += 1
                if row["client"] is not None:
                    self._last[row["client"]] = (self._number, verdict, reason)
        look_at_round(self._alerts, figures, rows, self._still)
        if folder is not None:
            look_at_disk(self._alerts, folder)
        if not head_recorded:
            self._alerts.send("head-not-recorded", "warning", "the last hash of the audit could not be recorded")
        self._alert_totals.update(alert.kind for alert in self._alerts.of_round)

    def status(
        self, *, metrics: Mapping[str, Any], reputation: Mapping[ClientId, Any], decisions: OperatorDecisions
    ) -> FederationStatus:
        """Return the status after a round."""
        clients = canonical({*reputation, *decisions.banned, *decisions.pinned})
        return FederationStatus(
            round=self._number,
            time=time.time(),
            figures=single_numbers(self._figures),
            metrics=single_numbers(metrics),
            seconds=dict(self._seconds),
            totals=dict(self._totals),
            alerts=self._alerts.of_round,
            alert_totals=dict(self._alert_totals),
            clients=[self._client(client, reputation.get(client), decisions) for client in clients],
        )

    def _client(self, client: ClientId, counts: Any, decisions: OperatorDecisions) -> ClientStatus:
        # A defense of the user's own may have reputations of another kind.
        pair = counts if isinstance(counts, tuple) and len(counts) == 2 else (None, None)
        benign, malicious = (float(count) if isinstance(count, int | float) else None for count in pair)
        shown = safe_text(client) if isinstance(client, str) else client
        number, verdict, reason = self._last.get(shown, (0, "", ""))
        return ClientStatus(
            id=shown,
            name=self._names.get(client, ""),
            benign=benign,
            malicious=malicious,
            banned=client in decisions.banned,
            pinned=client in decisions.pinned,
            round=number,
            verdict=verdict,
            reason=reason,
        )


def single_numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """Return the single finite numbers among metrics."""
    plain = {name: value for name, value in values.items() if isinstance(value, int | float)}
    return {safe_text(name): float(value) for name, value in plain.items() if abs(value) < 1e300}
