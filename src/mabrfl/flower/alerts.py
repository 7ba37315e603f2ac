"""Alerts: what an operator should look at, found after a round, and how it reaches the operator."""

from __future__ import annotations

import ipaddress
import logging
import shutil
import subprocess
import threading
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from mabrfl.errors import ConfigError
from mabrfl.recording.audit import safe_text
from mabrfl.recording.status import Alert, Severity

log = logging.getLogger("flwr")

STALLED_SECONDS = 600.0
"""An alert is sent if the server has waited this long for nodes."""
STILL_ROUNDS = 3
"""An alert is sent if the model has not changed for this many rounds."""
MOST_OF_EQUAL_SHARES = 3.0
"""An alert is sent if a client's share of the step is larger than this multiple of an equal share."""
FREE_SHARE = 0.05
"""An alert is sent if less of the disk is free."""

_SECONDS = 10.0
_ARRIVED = ("accepted", "rejected", "quarantined", "unjudged")
_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "critical": logging.ERROR}


class Alerts:
    """The alerts of a strategy: at most one a round of each kind, to the log, the status, a command and a webhook.

    Parameters
    ----------
    command
        The words of a command. It gets the alert as JSON on its standard input.
    url
        A webhook on this machine, ``http://127.0.0.1:PORT/...``, which gets the same by POST.
    """

    def __init__(self, command: Sequence[str] | None = None, url: str | None = None) -> None:
        if command is not None and (isinstance(command, str) or not command):
            raise ConfigError(f"alert_command must be a list of words; got {command!r:.80}")
        self._command = None if command is None else list(command)
        self._url = None if url is None else _local(url)
        self._round = 0
        self._sent: dict[str, Alert] = {}
        self._threads: list[threading.Thread] = []

    def begin(self, number: int) -> None:
        """Begin a round."""
        self._round, self._sent = number, {}
        self._threads = [thread for thread in self._threads if thread.is_alive()]

    @property
    def of_round(self) -> list[Alert]:
        """The alerts of the present round."""
        return list(self._sent.values())

    def send(self, kind: str, severity: Severity, message: str) -> None:
        """Send an alert, unless this round has one of this kind. It does not wait for the command or the webhook."""
        if kind in self._sent:
            return
        alert = Alert(kind=kind, severity=severity, message=safe_text(message), round=self._round)
        self._sent[kind] = alert
        log.log(_LEVELS[severity], "alert (%s): %s: %s", severity, kind, alert.message)
        for deliver, place in ((_run, self._command), (_post, self._url)):
            if place is not None:
                thread = threading.Thread(target=_quietly, args=(deliver, place, alert), daemon=True)
                thread.start()
                self._threads.append(thread)

    def close(self) -> None:
        """Wait a little for the command and the webhook, so that the last alerts arrive."""
        for thread in self._threads:
            thread.join(_SECONDS)


def _local(url: str) -> str:
    """Return a webhook's address, if it is on this machine."""
    parts = urlsplit(url)
    try:
        local = parts.hostname == "localhost" or ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        local = False
    if parts.scheme != "http" or not local:
        raise ConfigError(
            f"alert_url must be http:// and an address of this machine, such as 127.0.0.1; got {url!r:.80}"
        )
    return url


def _quietly(deliver: Callable[[Any, bytes], None], place: Any, alert: Alert) -> None:
    try:
        deliver(place, alert.model_dump_json().encode())
    except Exception as error:  # noqa: BLE001 (whatever is wrong with the receiver, the federation goes on)
        log.warning("the alert %s could not be delivered: %s", alert.kind, safe_text(error))


def _run(command: Sequence[str], data: bytes) -> None:
    subprocess.run(
        command, input=data, timeout=_SECONDS, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def _post(url: str, data: bytes) -> None:
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # straight to this machine
    with opener.open(request, timeout=_SECONDS):
        pass


def largest_share(rows: Iterable[Mapping[str, Any]]) -> tuple[float, Any] | None:
    """Return the largest share of the step that the evidence names, and its client; None if it names none."""
    shares = [
        (float(row["evidence"]["share"]), row["client"])
        for row in rows
        if row.get("verdict") == "accepted" and isinstance((row.get("evidence") or {}).get("share"), int | float)
    ]
    return max(shares, key=lambda pair: pair[0], default=None)


def look_at_round(alerts: Alerts, figures: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], still: int) -> None:
    """Send the alerts that the numbers of a round give cause for.

    Parameters
    ----------
    alerts
        Where to.
    figures, rows
        The numbers of the round, and its rows in the audit.
    still
        How many rounds in a row the model has not changed, this one included.
    """
    accepted = figures["replies-accepted"]
    # A node that is gone has sent nothing that could be refused: its error counts as missing below.
    verdicts = [row["verdict"] for row in rows if row.get("verdict") in _ARRIVED and row.get("reason") != "error"]
    refused = verdicts.count("rejected") + verdicts.count("quarantined")
    skipped = {row["reason"] for row in rows if row.get("verdict") == "unjudged"}
    if refused > len(verdicts) / 2:
        alerts.send("most-rejected", "critical", f"{refused} of {len(verdicts)} replies were refused")
    elif "most-rejected" in skipped:
        alerts.send("most-rejected", "critical", "more replies than max_rejected allows would have been rejected")
    if skipped:
        alerts.send("round-skipped", "warning", f"the round was not judged: {', '.join(sorted(map(str, skipped)))}")
    if still >= STILL_ROUNDS:
        alerts.send("model-still", "critical", f"the model has not changed for {still} rounds")
    share = largest_share(rows)
    if share is not None and accepted > MOST_OF_EQUAL_SHARES and share[0] > MOST_OF_EQUAL_SHARES / accepted:
        alerts.send("share-high", "warning", f"{share[1]} has a share of {share[0]:.2f} of the step")
    if (
        figures["nodes-selected"]
        and figures["replies-missing"] + figures["replies-error"] > figures["nodes-selected"] / 2
    ):
        alerts.send("most-missing", "warning", "more than half of the invited nodes sent nothing usable")


def look_at_disk(alerts: Alerts, folder: Path) -> None:
    """Send an alert if the disk of a folder is nearly full."""
    usage = shutil.disk_usage(folder)
    if usage.free < FREE_SHARE * usage.total:
        alerts.send("disk-full", "critical", f"{usage.free / 2**30:.1f} GiB are free on the disk of the state")
