"""What an operator sees: alerts, the log as JSON, metrics and health over HTTP."""

from __future__ import annotations

import http.client
import json
import logging
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace
from urllib.parse import quote

import pytest
from flwr.app import Error, Message

from flower_grid import MemoryGrid, arrays_in, honest, key_name, model, reply_to
from mabrfl import Defense
from mabrfl.aggregation import FedAvg
from mabrfl.cli.main import main
from mabrfl.cli.serve import make_server
from mabrfl.errors import ConfigError, OutputError, StateError
from mabrfl.flower import MabRflStrategy, RobustStrategy, alerts, json_logs, node_identity, watching
from mabrfl.flower.alerts import Alerts, look_at_round
from mabrfl.recording.metrics import prometheus_text
from mabrfl.recording.status import ClientStatus, FederationStatus, read_status

NODES = range(1, 7)
SAMPLE = re.compile(r'[a-z_]+(\{([a-z]+="([^"\\\n]|\\.)*",?)+\})? -?[0-9.e+-]+')


def run(folder, rounds, nodes=None, grid=None, **arguments):
    settings = {"fraction_evaluate": 0.0, "min_available_nodes": 6, "state_dir": folder, **arguments}
    made = RobustStrategy(Defense(FedAvg()), **settings)
    made.start(grid or MemoryGrid(nodes or {k: honest(k) for k in NODES}), model(), num_rounds=rounds, timeout=600)
    return made


def not_finite(message):
    return reply_to(message, {k: v * float("nan") if v.dtype.kind == "f" else v for k, v in arrays_in(message).items()})


def kinds(folder):
    return {alert.kind: alert.severity for alert in read_status(folder).alerts}


def test_a_quiet_round_has_no_alert(tmp_path):
    run(tmp_path, 2)
    assert kinds(tmp_path) == {}
    assert read_status(tmp_path).alert_totals == {}


def test_most_rejected_and_a_model_that_stands_still_are_reported(tmp_path, caplog):
    bad = {k: not_finite if k < 5 else honest(k) for k in NODES}
    run(tmp_path, 2, bad, min_train_nodes=3)
    assert kinds(tmp_path) == {"most-rejected": "critical", "round-skipped": "warning"}
    run(tmp_path, 3, bad, min_train_nodes=3)
    run(tmp_path, 6, bad, min_train_nodes=3)
    assert kinds(tmp_path)["model-still"] == "critical"
    assert read_status(tmp_path).alert_totals == {"most-rejected": 6, "round-skipped": 6, "model-still": 1}
    assert caplog.text.count("alert (critical): most-rejected: 4 of 6") == 6


def test_nodes_that_are_gone_are_missing_and_not_rejected(tmp_path):
    def gone(message):
        return Message(Error(5, "Node Unavailable"), reply_to=message)

    run(tmp_path, 1, {k: gone if k < 5 else honest(k) for k in NODES})
    assert kinds(tmp_path) == {"most-missing": "warning"}


def test_a_share_above_three_equal_ones_is_reported():
    def found(*shares):
        sent = Alerts()
        rows = [{"verdict": "accepted", "client": k, "evidence": {"share": s}} for k, s in enumerate(shares)]
        figures = {"replies-accepted": len(shares), "nodes-selected": 9, "replies-missing": 0, "replies-error": 0}
        look_at_round(sent, figures, rows, still=0)
        return [alert.message for alert in sent.of_round]

    assert found(0.74, 0.1, 0.1, 0.06) == []
    assert found(0.1, 0.76, 0.1, 0.04) == ["1 has a share of 0.76 of the step"]
    assert found(0.9, 0.1) == [], "two clients cannot have shares above three equal ones"


def test_a_long_wait_is_reported_once_while_it_lasts(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(watching, "STALLED_SECONDS", -1.0)
    grid = MemoryGrid({k: honest(k) for k in range(1, 3)})
    looks = []

    def sleep(seconds):
        looks.append("alert (critical): stalled" in caplog.text)
        if len(looks) == 3:
            grid.nodes = {k: honest(k) for k in NODES}
            grid.keys = {k: b"key of %d" % k for k in NODES}

    monkeypatch.setattr(node_identity.time, "sleep", sleep)
    run(tmp_path, 1, grid=grid)
    assert looks == [True, True, True]
    assert caplog.text.count("alert (critical): stalled") == 1


class NamedGrid(MemoryGrid):
    def get_nodes(self):
        nodes = list(super().get_nodes())
        for node in nodes:
            node.name = f"hospital-{node.node_id}"
        return nodes


def test_a_known_node_under_a_new_key_is_reported_also_after_a_restart(tmp_path):
    run(tmp_path, 1, grid=NamedGrid({k: honest(k) for k in NODES}))
    keys = {k: b"key of %d" % k for k in NODES} | {3: b"another"}
    run(tmp_path, 2, grid=NamedGrid({k: honest(k) for k in NODES}, keys=keys))
    (alert,) = read_status(tmp_path).alerts
    assert alert.kind == "new-key"
    assert alert.message.startswith(f"node 'hospital-3' was {key_name(3)}")
    run(tmp_path, 3, grid=NamedGrid({k: honest(k) for k in NODES}, keys=keys))
    assert kinds(tmp_path) == {}


def test_a_disk_that_is_nearly_full_and_a_head_that_is_not_recorded_are_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(alerts.shutil, "disk_usage", lambda folder: SimpleNamespace(total=100, free=4))
    run(tmp_path / "state", 1, record_head=tmp_path / "state" / "lock" / "no")
    assert kinds(tmp_path / "state") == {"disk-full": "critical", "head-not-recorded": "warning"}


class Hook(BaseHTTPRequestHandler):
    seen: list = []  # noqa: RUF012 (one server, one test)

    def do_POST(self):
        self.seen.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *args):
        pass


def test_a_command_and_a_webhook_get_each_alert_once_a_round_and_their_failure_ends_nothing(tmp_path, caplog):
    server = HTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/hook"
    write = f"import sys; open({str(tmp_path / 'got')!r}, 'a').write(sys.stdin.read() + '\\n')"
    try:
        sender = Alerts([sys.executable, "-c", write], url)
        for number in (1, 2):
            sender.begin(number)
            sender.send("a", "warning", "x\n\x1b[31m")
            sender.send("a", "warning", "again")
        sender.close()
    finally:
        server.shutdown()
        server.server_close()
    expected = [{"kind": "a", "severity": "warning", "message": "x\\n\\x1b[31m", "round": number} for number in (1, 2)]
    assert sorted(Hook.seen, key=lambda each: each["round"]) == expected
    got = [json.loads(line) for line in (tmp_path / "got").read_text().splitlines()]
    assert sorted(got, key=lambda each: each["round"]) == expected
    failing = Alerts(["no-such-command"], url)
    failing.send("b", "info", "x")
    failing.close()
    assert caplog.text.count("the alert b could not be delivered") == 2


@pytest.mark.parametrize(
    "given",
    [
        {"alert_url": "http://example.org/x"},
        {"alert_url": "https://127.0.0.1"},
        {"alert_url": "file:///etc/passwd"},
        {"alert_url": "http://10.0.0.1/"},
        {"alert_command": "notify"},
        {"alert_command": []},
    ],
)
def test_receivers_elsewhere_and_commands_in_one_word_are_refused(given):
    with pytest.raises(ConfigError, match=next(iter(given))):
        MabRflStrategy(**given)


def test_the_end_of_a_run_is_an_alert(tmp_path, caplog):
    def dies(message):
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError):
        run(tmp_path, 1, dict.fromkeys(NODES, dies))
    assert "alert (critical): run-ended: the run ends after round 0: ConnectionError: gone" in caplog.text


def test_the_log_is_json_with_the_level_that_was_asked_for(tmp_path):
    logger = logging.getLogger("flwr")
    before, level = list(logger.handlers), logger.level
    try:
        handler = json_logs("WARNING", tmp_path / "log")
        logger.info("nothing")
        logger.warning("\t> two\nlines %d", 3)
        try:
            raise ValueError("x")
        except ValueError:
            logger.exception("failed")
        handler.close()
    finally:
        logger.handlers[:] = before
        logger.setLevel(level)
    first, second = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert (first["level"], first["message"]) == ("warning", "> two\nlines 3")
    assert "ValueError: x" in second["traceback"]
    with pytest.raises(ConfigError, match="level must be"):
        json_logs("LOUD")
    with pytest.raises(OutputError, match="cannot write the log"):
        json_logs(path=tmp_path / "no" / "log")


def test_metrics_are_in_the_text_format_of_prometheus(tmp_path):
    run(tmp_path, 2)
    text = prometheus_text(read_status(tmp_path), now=read_status(tmp_path).time + 5, running=True)
    lines = text.splitlines()
    assert all(line.startswith("# ") or SAMPLE.fullmatch(line) for line in lines), text
    assert "mabrfl_round 2" in lines
    assert "mabrfl_server_running 1" in lines
    assert 'mabrfl_replies_total{verdict="accepted",reason="accepted"} 12' in lines
    assert 'mabrfl_clients{state="known"} 6' in lines
    assert 'mabrfl_trust{quantile="0.5"} 0.75' in lines
    assert any(re.fullmatch(r"mabrfl_last_round_age_seconds 5(\.0\d*)?|.* 4\.9+.*", line) for line in lines)
    odd = FederationStatus(
        round=1,
        time=0.0,
        metrics={'a"\\\nb': 1e-9},
        totals={"x": 1},
        clients=[ClientStatus(id=1, benign=0, malicious=0)],
    )
    assert all(
        line.startswith("# ") or SAMPLE.fullmatch(line)
        for line in prometheus_text(odd, now=1.0, running=False).splitlines()
    )
    assert prometheus_text(None, now=0.0, running=False).splitlines()[-1] == "mabrfl_server_running 0"


@pytest.fixture
def server(tmp_path, request):
    run(tmp_path / "state", 1)
    given = {"max_age": 3600.0, **getattr(request, "param", {})}
    made = make_server(tmp_path / "state", "127.0.0.1", 0, given.get("token"), given["max_age"])
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


def ask(server, path, method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, body, dict(answer.getheaders())


def test_metrics_health_and_status_are_served(server, tmp_path, monkeypatch):
    code, body, headers = ask(server, "/metrics")
    assert (code, "mabrfl_round 1\n" in body, headers["Content-Type"]) == (
        200,
        True,
        "text/plain; version=0.0.4; charset=utf-8",
    )
    assert ask(server, "/healthz")[:2] == (503, "no strategy is running\n")
    from mabrfl.recording import status

    monkeypatch.setattr(status, "strategy_is_running", lambda folder: True)
    assert ask(server, "/healthz")[:2] == (200, "ok\n")
    assert json.loads(ask(server, "/status")[1])["status"]["round"] == 1
    assert ask(server, "/metrics", "HEAD")[1] == ""
    assert [ask(server, "/metrics", method)[0] for method in ("POST", "PUT", "FOO")] == [501] * 3
    assert ask(server, "/metrics", Host="evil.example")[0] == 403
    (tmp_path / "state" / "status.json").write_text("{")
    code, body, _ = ask(server, "/metrics")
    assert (code, "status.json" in body) == (503, True)


@pytest.mark.parametrize("server", [{"max_age": -1.0}], indirect=True)
def test_a_federation_whose_last_round_is_too_old_is_not_healthy(server, monkeypatch):
    from mabrfl.recording import status

    monkeypatch.setattr(status, "strategy_is_running", lambda folder: True)
    code, body, _ = ask(server, "/healthz")
    assert (code, body.startswith("the last round was finished")) == (503, True)


def test_the_page_of_a_federation_needs_a_token_where_metrics_need_none(server):
    paths = ("/", "/live", "/story", "/../lock", "/status/x")
    assert [ask(server, path)[0] for path in paths] == [401] * len(paths)
    token = {"Authorization": f"Bearer {server.token.decode()}"}
    assert [ask(server, path, **token)[0] for path in paths] == [200, 200, 404, 404, 404]
    shown = json.loads(ask(server, "/live", **token)[1])
    assert (shown["kind"], shown["done"], len(shown["clients"])) == ("federation", 1, len(NODES))
    handle = quote(shown["clients"][0]["handle"])
    assert "Accepted" in json.loads(ask(server, f"/story?client={handle}&round=1", **token)[1])["moment"][1]


@pytest.mark.parametrize("server", [{"token": "0123456789abcdef"}], indirect=True)
@pytest.mark.parametrize("path", ["/", "/live", "/story", "/metrics", "/healthz", "/status"])
def test_every_route_needs_the_token_where_a_file_has_one(server, path):
    assert ask(server, path)[0] == 401
    assert ask(server, path, Authorization="Bearer 0123456789abcdeX")[0] == 401
    assert ask(server, path, Authorization="Bearer 0123456789abcdef")[0] in (200, 404, 503)
    assert ask(server, path, Host="proxy.example", Authorization="Bearer 0123456789abcdef")[0] in (200, 404, 503)


def test_the_command_refuses_a_public_address_without_a_token_and_folders_of_others(tmp_path, capsys):
    run(tmp_path, 1)
    assert main(["serve", str(tmp_path), "--host", "0.0.0.0"]) == ConfigError.exit_code
    assert "needs --token-file" in capsys.readouterr().err
    assert main(["serve", str(tmp_path / "no")]) == StateError.exit_code
    (tmp_path / "token").write_text("short\n")
    assert main(["serve", str(tmp_path), "--token-file", str(tmp_path / "token")]) == ConfigError.exit_code
