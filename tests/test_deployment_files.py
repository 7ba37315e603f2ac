"""The files of examples/deployment fit the program: options, metrics, and the delay that Flower needs."""

from __future__ import annotations

import configparser
import contextlib
import json
import re
import shlex
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from mabrfl.cli.app import load_command
from mabrfl.recording.metrics import prometheus_text
from mabrfl.recording.status import Alert, ClientStatus, FederationStatus

FOLDER = Path(__file__).parents[1] / "examples" / "deployment"


def unit(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string((FOLDER / f"{name}.service").read_text().replace("\\\n", ""))
    return parser


@pytest.mark.parametrize("name", ["flower-superlink", "flower-supernode", "mabrfl-serve"])
def test_a_unit_restarts_for_ever_and_writes_private_files(name: str) -> None:
    service = unit(name)["Service"]
    assert (service["Restart"], service["UMask"]) == ("always", "0077")


def test_a_killed_node_waits_until_its_heartbeat_has_expired() -> None:
    assert int(unit("flower-supernode")["Service"]["RestartSec"]) > 60


def test_the_command_of_the_metrics_is_understood_and_scraped_where_it_listens() -> None:
    _, command, *arguments = shlex.split(unit("mabrfl-serve")["Service"]["ExecStart"])
    parsed = load_command(command).make_context("serve", list(arguments)).params
    assert f'"{parsed["host"]}:{parsed["port"]}"' in (FOLDER / "prometheus.yml").read_text()


def served() -> set[str]:
    """The metrics that mabrfl serve has for a round with everything in it."""
    alert = Alert(kind="x", severity="critical", message="y", round=1)
    client = ClientStatus(id="key:1", benign=1.0, malicious=1.0)
    figures = dict.fromkeys(("nodes-available", "nodes-selected", "model-moved", "step-norm", "largest-share"), 1.0)
    status = FederationStatus(round=1, time=0.0, alerts=[alert], clients=[client], figures=figures)
    return set(re.findall(r"^mabrfl_[a-z_]+", prometheus_text(status, now=1.0, running=True), flags=re.M))


def test_the_rules_name_metrics_that_exist() -> None:
    named = set(re.findall(r"mabrfl_[a-z_]+", (FOLDER / "rules.yml").read_text()))
    assert named
    assert named <= served()


def test_every_panel_of_the_dashboard_shows_metrics_that_exist() -> None:
    board = json.loads((FOLDER / "dashboard.json").read_text())
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]]
    assert len(set(places)) == len(places)
    for panel in board["panels"]:
        for target in panel["targets"]:
            named = set(re.findall(r"mabrfl_[a-z_]+", target["expr"]))
            assert named, panel["title"]
            assert named <= served() | {"mabrfl_replies_total", "mabrfl_evaluation", "mabrfl_stage_seconds"}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="there is no promtool here: apt install prometheus")
def test_prometheus_accepts_its_configuration_and_the_rules() -> None:
    command = ["promtool", "check", "config", "prometheus.yml"]
    checked = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def make_keys(folder: Path, *nodes: str) -> str:
    command = ["sh", str(FOLDER / "keys.sh"), str(folder), "federation.example", *nodes]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


needs_openssl = pytest.mark.skipif(
    None in map(shutil.which, ("openssl", "ssh-keygen")), reason="there is no openssl or no ssh-keygen here"
)


@needs_openssl
def test_the_script_of_the_keys_makes_what_is_missing_and_changes_nothing_else(tmp_path: Path) -> None:
    assert "node-1.pub" in make_keys(tmp_path, "node-1")
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert {"ca.crt", "ca.key", "node-1", "node-1.pub", "server.key", "server.pem"} <= set(before)
    assert {file.name: oct(file.stat().st_mode)[-3:] for file in tmp_path.iterdir()}["node-1"] == "600"
    assert make_keys(tmp_path, "node-1") == ""
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    (tmp_path / "server.pem").unlink()
    assert "made node-2 and" in make_keys(tmp_path, "node-1", "node-2")
    after = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    changed = {name for name, data in before.items() if after[name] != data}
    assert "server.pem" in changed
    assert changed <= {"server.pem", "ca.srl"}


@needs_openssl
@pytest.mark.parametrize("name", ["federation.example", "localhost", "127.0.0.1"])
def test_a_client_that_trusts_the_authority_accepts_the_certificate(tmp_path: Path, name: str) -> None:
    make_keys(tmp_path)
    ours = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ours.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    theirs = ssl.create_default_context(cafile=tmp_path / "ca.crt")
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = theirs.wrap_bio(down, up, server_hostname=name)
    server = ours.wrap_bio(up, down, server_side=True)
    for side in (client, server, client, server):
        with contextlib.suppress(ssl.SSLWantReadError):
            side.do_handshake()
    assert client.getpeercert()
