"""A federation that is killed, lied to and watched for many rounds, with real parts.

Run as a script: ``soak.py [--rounds 100] [--every 5]``; ``make soak`` does so, and it takes the better part of an hour.

A SuperLink with TLS and eight SuperNodes with keys on loopback train on digits. Two nodes flip labels, one sends
garbage. Every five rounds something is killed with SIGKILL, in turn a node, the server app and the SuperLink, and once
five nodes at once; each is started again as its unit in examples/deployment says. ``mabrfl serve`` exports the metrics.
Prometheus reads them with the example's own configuration and rules, with seconds in place of minutes.

Prints what came out. Ends with code 1 if the run does not complete, the model is more than a point worse than that of a
federation without attackers and kills, an honest node is blamed, the audit does not verify, a scrape failed, or an
alert that had to come did not.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import signal
import sys
import time
import urllib.parse
import urllib.request
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flower_grid import MemoryGrid, pretend_a_task
from flower_processes import ROOT, free_port, wait_for
from flower_secure import Secure
from flower_units import DEPLOYMENT, Unit
from mabrfl.recording.audit import read_audit, valid_rows, verify

APP = ROOT / "tests" / "flower_apps" / "soak"
sys.path.insert(0, str(APP))
from soak_app import client_app, server_app, task  # noqa: E402 (the app is no part of the path)

NODES = 8
ATTACKS = {2: "flip", 5: "flip", 6: "garbage"}
TURNS = ("node", "server app", "SuperLink")
POWER_CUT = (0, 1, 3, 4, 7)
"""Nodes that are once killed together."""


def undisturbed(data: Path, rounds: int, attacks: dict[int, str]) -> float:
    """Return the accuracy of the same rounds in this process, which nobody kills."""
    nodes = {
        k: lambda message, k=k: client_app.answer(message, str(data), k, NODES, attacks.get(k, ""))
        for k in range(NODES)
    }
    blank = {"state-dir": "", "head": "", "alerts": "", "forgive": "", "accept-changes": False}
    pretend_a_task()
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    settings = {"data": str(data), "rounds": rounds, "nodes": NODES, "round-timeout": 600, **blank}
    return server_app.run(MemoryGrid({k + 1: node for k, node in nodes.items()}), settings)


class Prometheus:
    """Prometheus from the distribution, with the example's configuration."""

    def __init__(self, secure: Secure, target: int) -> None:
        self.port, home = free_port(), secure.home / "prometheus"
        home.mkdir()
        text = (DEPLOYMENT / "prometheus.yml").read_text("utf-8")
        text = text.replace("127.0.0.1:9464", f"127.0.0.1:{target}")
        text = text.replace("scrape_interval: 15s", "scrape_interval: 1s\n  evaluation_interval: 1s")
        (home / "prometheus.yml").write_text(text, "utf-8")
        (home / "rules.yml").write_text(
            (DEPLOYMENT / "rules.yml").read_text("utf-8").replace("for: 5m", "for: 3s"), "utf-8"
        )
        secure.start(
            shutil.which("prometheus") or "prometheus",
            f"--config.file={home / 'prometheus.yml'}",
            f"--storage.tsdb.path={home / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
        )
        self.since = time.time()

    def series(self, query: str) -> list[tuple[dict[str, str], list[tuple[float, float]]]]:
        """Return every series of an expression, a value a second, in parts that Prometheus allows."""
        found: dict[str, tuple[dict[str, str], list[tuple[float, float]]]] = {}
        begin, end = self.since, time.time()
        while begin < end:
            asked = {"query": query, "start": begin, "end": min(begin + 10_000, end), "step": 1}
            address = f"http://127.0.0.1:{self.port}/api/v1/query_range?{urllib.parse.urlencode(asked)}"
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(address, timeout=60) as answer:
                parts = json.load(answer)["data"]["result"]
            for part in parts:
                values = found.setdefault(json.dumps(part["metric"]), (part["metric"], []))[1]
                values += [(float(when), float(value)) for when, value in part["values"]]
            begin += 10_001
        return list(found.values())


@dataclass
class Soak:
    """What is killed and when, and what came of it."""

    secure: Secure
    rounds: int
    every: int
    kills: list[tuple[float, int, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        home = self.secure.home
        self.state, self.alerts, self.metrics_port = home / "state", home / "alerts", free_port()
        task.write_digits(home / "digits.npz")
        settings = {
            "data": str(home / "digits.npz"),
            "rounds": self.rounds,
            "state-dir": str(self.state),
            "alerts": str(self.alerts),
            "head": str(home / "head"),
        }
        run = " ".join(f"{name}={json.dumps(value)}" for name, value in settings.items())
        secure = self.secure
        self.link = Unit("flower-superlink", secure.secure_superlink)
        self.nodes = [Unit("flower-supernode", lambda k=k: secure.node(k)) for k in range(NODES)]
        script = str(DEPLOYMENT / "run-app.sh")
        self.app = Unit("federation-app", lambda: secure.start("/bin/sh", script, str(APP), "here", run))
        serve = ("mabrfl", "serve", str(self.state), "--port", str(self.metrics_port))
        self.serve = Unit("mabrfl-serve", lambda: secure.start(*serve))
        # What the deployment has started is under the units' care from here on.
        self.link.process = secure.link
        for unit, process in zip(self.nodes, secure.nodes, strict=True):
            unit.process = process

    @property
    def units(self) -> list[Unit]:
        return [self.link, *self.nodes, self.serve, self.app]

    def round(self) -> int:
        """Return the last finished round."""
        try:
            return int(json.loads((self.state / "status.json").read_bytes())["round"])
        except (OSError, ValueError):
            return 0

    def run(self) -> None:
        """Let it run to its end, and kill something every few rounds."""
        turn, due, done = 0, self.every, -1
        while not self.app.completed:
            for unit in self.units:
                unit.look()
            number = self.round()
            if number != done:
                say(f"round {number}")
                done = number
            ready = due <= number < self.rounds and all(unit.running for unit in self.units)
            if ready and self.strike(TURNS[turn % len(TURNS)], turn, number):
                turn, due = turn + 1, number + self.every
            time.sleep(0.2)

    def strike(self, what: str, turn: int, number: int) -> bool:
        """Kill something; return whether it was there to be killed."""
        before = time.time()
        if what == "SuperLink":
            self.link.kill()
        elif what == "server app":
            found = self.secure.commands("flwr-serverapp")
            for pid in found:
                os.kill(pid, signal.SIGKILL)
            if not found:
                return False
        else:
            cut = turn == len(TURNS)
            chosen = POWER_CUT if cut else [turn // len(TURNS) * 3 % NODES]
            what = f"{len(chosen)} nodes" if cut else f"node {chosen[0]}"
            for k in chosen:
                self.nodes[k].kill()
        self.kills.append((before, number, what))
        say(f"after round {number}: killed {what}")
        return True


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)  # noqa: T201 (it is a script)


@dataclass
class Report:
    """The facts, and those that are not as they must be."""

    lines: list[tuple[str, Any]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def fact(self, name: str, value: Any, good: bool = True) -> None:
        self.lines.append((name, value))
        if not good:
            self.wrong.append(name)
        say(f"{'' if good else 'NOT AS IT MUST BE: '}{name}: {value}")


def examine(soak: Soak, prometheus: Prometheus, seconds: float) -> Report:
    """Compare what was written, sent and scraped with what must be."""
    report, secure = Report(), soak.secure
    path = soak.state / "audit.jsonl"
    rows = [dict(row) for row in valid_rows(read_audit(path))]
    replies = [row for row in rows if row["kind"] == "reply"]
    names = {identity: k for k, identity in enumerate(secure.identities)}
    finished = [row["round"] for row in rows if row["kind"] == "round"]
    report.fact("minutes", round(seconds / 60, 1))
    report.fact("rounds finished, each once", len(finished), finished == list(range(1, soak.rounds + 1)))
    killed = Counter(what.rstrip(" 0123456789") for _, _, what in soak.kills)
    report.fact("kills", dict(killed), len(soak.kills) >= soak.rounds // soak.every - 2)
    report.fact("starts of the server app", len(soak.app.starts), len(soak.app.starts) > killed["server app"])
    blamed = Counter(names[row["client"]] for row in replies if row["blamed"])
    honest = {k: count for k, count in blamed.items() if k not in ATTACKS}
    report.fact("honest nodes blamed", honest, not honest)
    report.fact(
        "replies of attackers blamed",
        {f"{k} {ATTACKS[k]}": blamed[k] for k in ATTACKS},
        all(blamed[k] for k in ATTACKS),
    )
    used = Counter(
        f"{names[r['client']]} {ATTACKS[names[r['client']]]}"
        for r in replies
        if r["verdict"] == "accepted" and names[r["client"]] in ATTACKS
    )
    report.fact("replies of attackers accepted", dict(used))
    report.fact("verdicts", dict(Counter(f"{row['verdict']}/{row['reason']}" for row in replies)))
    head = (secure.home / "head").read_text().strip()
    problem = verify(path, head=head).problem
    report.fact("problem of the audit, with the recorded head", problem, problem is None)
    files = len(list(soak.state.glob("audit*.jsonl")))
    report.fact("files of the audit", files)
    look_at_accuracy(report, soak)
    look_at_prometheus(report, soak, prometheus, rows)
    return report


def look_at_accuracy(report: Report, soak: Soak) -> None:
    """Compare the model with those of runs that nobody killed."""
    status = json.loads((soak.state / "status.json").read_bytes())
    ours, data = status["metrics"]["accuracy"], soak.secure.home / "digits.npz"
    clean = undisturbed(data, soak.rounds, {})
    report.fact("accuracy, percent", round(100 * ours, 2))
    report.fact("with the same attackers, not killed", round(100 * undisturbed(data, soak.rounds, ATTACKS), 2))
    report.fact("without attackers, not killed", round(100 * clean, 2), ours >= clean - 0.01)


def look_at_prometheus(report: Report, soak: Soak, prometheus: Prometheus, rows: list[dict[str, Any]]) -> None:
    """Check that it was scraped all the time, and that the alerts came."""
    begin = soak.serve.starts[-1] + 10
    up = [pair for _, values in prometheus.series('up{job="mabrfl"}') for pair in values if pair[0] > begin]
    failed = sum(not value for _, value in up)
    report.fact("seconds watched", len(up), len(up) > 0.9 * (time.time() - begin))
    report.fact("of them without an answer", failed, not failed)
    seen = {int(value) for _, values in prometheus.series("mabrfl_round") for _, value in values}
    report.fact("rounds seen by Prometheus", len(seen), soak.rounds in seen)
    firing = prometheus.series('ALERTS{alertname="FederationStopped",alertstate="firing"}')
    times = [when for _, values in firing for when, _ in values]
    stops = [when for when, _, what in soak.kills if what in ("server app", "SuperLink")]
    told = sum(any(stop < when < stop + 60 for when in times) for stop in stops)
    report.fact("stops with the alert FederationStopped", f"{told} of {len(stops)}", told == len(stops))
    sent = [json.loads(line) for line in soak.alerts.read_text().splitlines()] if soak.alerts.exists() else []
    found = {(alert["round"], alert["kind"]) for alert in sent}
    due = alerts_due(rows)
    report.fact("alerts by the rows of the audit", dict(Counter(kind for _, kind in due)))
    report.fact("of them delivered to the command", len(due & found), due <= found)
    report.fact("all that it got", dict(Counter(kind for _, kind in found)))
    totals = prometheus.series("mabrfl_alerts_total")
    report.fact(
        "kinds of alert in Prometheus",
        sorted(labels["kind"] for labels, _ in totals),
        {k for _, k in due} <= {m["kind"] for m, _ in totals},
    )
    critical = {kind for _, kind in due if kind == "most-rejected"}
    raised = {
        labels["kind"] for labels, _ in prometheus.series('ALERTS{alertname="FederationAlert",alertstate="firing"}')
    }
    report.fact("critical ones raised by its rule", sorted(raised), critical <= raised)


def alerts_due(rows: list[dict[str, Any]]) -> set[tuple[int, str]]:
    """Return round and kind of the alerts that follow from the verdicts in the audit alone."""
    due: set[tuple[int, str]] = set()
    for number in {row["round"] for row in rows if row["kind"] == "round"}:
        replies = [row for row in rows if row["kind"] == "reply" and row["round"] == number]
        arrived = [row for row in replies if row["verdict"] != "missing" and row["reason"] != "error"]
        if sum(row["verdict"] in ("rejected", "quarantined") for row in arrived) > len(arrived) / 2:
            due.add((number, "most-rejected"))
        if len(replies) - len(arrived) > len(replies) / 2:
            due.add((number, "most-missing"))
    return due


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description="Run, kill and watch a federation.")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--every", type=int, default=5, help="rounds between kills")
    parser.add_argument("--keep", type=Path, help="copy the folder with all logs here")
    chosen = parser.parse_args()
    with Secure(nodes=NODES, attacks=ATTACKS) as secure:
        begin = time.monotonic()
        soak = Soak(secure, chosen.rounds, chosen.every)
        prometheus = Prometheus(secure, soak.metrics_port)
        try:
            soak.run()
            wait_for(
                "the last scrape",
                lambda: any(v[-1][1] == chosen.rounds for _, v in prometheus.series("mabrfl_round")),
                60,
            )
            report = examine(soak, prometheus, time.monotonic() - begin)
        finally:
            if chosen.keep:
                shutil.copytree(secure.home, chosen.keep, dirs_exist_ok=True)
    for name in report.wrong:
        say(f"NOT AS IT MUST BE: {name}")
    return bool(report.wrong)


if __name__ == "__main__":
    sys.exit(main())
