"""The status of a federation as metrics for Prometheus, in its text format."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from statistics import median

from mabrfl.recording.status import FederationStatus

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_FIGURES = {
    "nodes-available": ("mabrfl_nodes_available", "Nodes online in the last round that are not banned."),
    "nodes-selected": ("mabrfl_nodes_selected", "Nodes invited to the last round."),
    "model-moved": ("mabrfl_model_moved", "1 if the last round changed the model."),
    "step-norm": ("mabrfl_step_norm", "Length of the last step of the model."),
    "largest-share": ("mabrfl_largest_share", "Largest share of one client in the last step."),
}

Sample = tuple[Mapping[str, str], float]


def prometheus_text(status: FederationStatus | None, *, now: float, running: bool) -> str:
    """Return the metrics; without a status, only whether the server runs."""
    parts = [_metric("mabrfl_server_running", "gauge", "1 if a strategy uses the folder.", [({}, float(running))])]
    if status is not None:
        parts += _of_round(status, now)
        parts += _of_clients(status)
        parts += _of_alerts(status)
    return "".join(parts)


def _of_round(status: FederationStatus, now: float) -> Iterable[str]:
    yield _metric("mabrfl_round", "gauge", "The last finished round.", [({}, status.round)])
    yield _metric(
        "mabrfl_last_round_timestamp_seconds", "gauge", "When the last round was finished.", [({}, status.time)]
    )
    yield _metric(
        "mabrfl_last_round_age_seconds", "gauge", "Seconds since the last finished round.", [({}, now - status.time)]
    )
    for figure, (name, text) in _FIGURES.items():
        if figure in status.figures:
            yield _metric(name, "gauge", text, [({}, status.figures[figure])])
    replies = [(_verdict(key), float(count)) for key, count in sorted(status.totals.items())]
    yield _metric("mabrfl_replies_total", "counter", "Replies by verdict and reason.", replies)
    stages = [({"stage": name}, seconds) for name, seconds in status.seconds.items()]
    yield _metric("mabrfl_stage_seconds", "gauge", "Seconds of each stage of the last round.", stages)
    metrics = [({"name": name}, value) for name, value in sorted(status.metrics.items())]
    yield _metric("mabrfl_evaluation", "gauge", "The newest evaluation of the model.", metrics)


def _of_clients(status: FederationStatus) -> Iterable[str]:
    clients = status.clients
    counts = {
        "known": len(clients),
        "banned": sum(client.banned for client in clients),
        "pinned": sum(client.pinned for client in clients),
    }
    states = [({"state": name}, float(count)) for name, count in counts.items()]
    yield _metric("mabrfl_clients", "gauge", "Clients known, banned and pinned.", states)
    trust = [client.trust for client in clients if client.trust is not None]
    if trust:
        spread = {"0": min(trust), "0.5": median(trust), "1": max(trust)}
        samples = [({"quantile": level}, value) for level, value in spread.items()]
        yield _metric("mabrfl_trust", "gauge", "B / (B + M) over the clients.", samples)


def _of_alerts(status: FederationStatus) -> Iterable[str]:
    totals = [({"kind": kind}, float(count)) for kind, count in sorted(status.alert_totals.items())]
    yield _metric("mabrfl_alerts_total", "counter", "Alerts by kind.", totals)
    active = [({"kind": alert.kind, "severity": alert.severity}, 1.0) for alert in status.alerts]
    yield _metric("mabrfl_alert_active", "gauge", "1 for each alert of the last round.", active)


def _verdict(key: str) -> dict[str, str]:
    verdict, _, reason = key.partition("/")
    return {"verdict": verdict, "reason": reason}


def _metric(name: str, kind: str, text: str, samples: Iterable[Sample]) -> str:
    lines = [f"{name}{_labels(labels)} {_number(value)}\n" for labels, value in samples]
    return "".join([f"# HELP {name} {text}\n# TYPE {name} {kind}\n", *lines]) if lines else ""


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    escaped = {
        name: value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for name, value in labels.items()
    }
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped.items()) + "}"


def _number(value: float) -> str:
    return f"{value:.0f}" if math.isfinite(value) and value == int(value) and abs(value) < 1e15 else repr(float(value))
