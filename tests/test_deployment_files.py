"""The files of examples/deployment fit the program: options, metrics, and the delay that Flower needs."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import ssl
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from flower_units import unit_command, unit_file
from mabrfl.cli.app import load_command
from mabrfl.recording.metrics import prometheus_text
from mabrfl.recording.status import Alert, ClientStatus, FederationStatus

FOLDER = Path(__file__).parents[1] / "examples" / "deployment"


UNITS = sorted(file.stem for file in FOLDER.glob("*.service"))


def compose() -> dict[str, Any]:
    return yaml.safe_load((FOLDER / "compose.yaml").read_text("utf-8"))


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_restarts_for_ever_and_writes_private_files(name: str) -> None:
    service = unit_file(name)["Service"]
    assert service["Restart"] == ("on-failure" if name == "federation-app" else "always")
    assert service["UMask"] == "0077"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    for name in UNITS:
        text = (FOLDER / f"{name}.service").read_text("utf-8")
        (tmp_path / f"{name}.service").write_text(re.sub(r"/usr/(local/bin|sbin)/\S+", "/bin/true", text), "utf-8")
    files = [str(tmp_path / f"{name}.service") for name in UNITS]
    checked = subprocess.run(["systemd-analyze", "verify", *files], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


@pytest.mark.parametrize(
    ("service", "name"),
    [
        ("superlink", "flower-superlink"),
        ("app", "federation-app"),
        ("serve", "mabrfl-serve"),
        ("supernode", "flower-supernode"),
        ("proxy", "federation-proxy"),
    ],
)
def test_a_container_runs_the_command_of_its_unit(service: str, name: str) -> None:
    command = compose()["services"][service]["command"]
    words = shlex.split(command if isinstance(command, str) else command[-1])
    expected = [Path(word).name if word.startswith("/usr/") else word for word in unit_command(name)]
    ours = [Path(word).name if word.startswith("/usr/") else word.rstrip(";") for word in words]
    own = {  # what differs: the node's own settings, and where the proxy's files are
        "federation.example:443": "$$SUPERLINK",
        "/etc/federation/node_key": "/etc/federation/$$NODE",
        "partition-id=0 num-partitions=4": "$$NODE_CONFIG",
        **(
            {"/etc/federation": "/run/proxy", "/etc/federation/nginx.conf": "/run/proxy/nginx.conf"}
            if service == "proxy"
            else {}
        ),
    }
    expected = [own.get(word, word) for word in expected]
    begin = ours.index(expected[0])
    assert ours[begin : begin + len(expected)] == expected


def test_only_the_proxy_can_be_reached_from_other_machines() -> None:
    services = compose()["services"]
    published = {port for service in services.values() for port in service.get("ports", [])}
    assert published == {"443:443", "127.0.0.1:3000:3000"}
    inside = {name for name, service in services.items() if service.get("network_mode") == "service:net"}
    assert inside == services.keys() - {"net", "supernode"}


def test_what_the_containers_are_made_of_exists() -> None:
    copied = re.findall(r"^COPY (.+) \S+$", (FOLDER / "Dockerfile").read_text("utf-8"), flags=re.M)
    assert all((FOLDER.parents[1] / name).exists() for line in copied for name in line.split())
    for service in compose()["services"].values():
        for volume in service.get("volumes", []):
            place = volume.split(":")[0]
            assert not place.startswith(".") or place.startswith("./keys") or (FOLDER / place).exists(), volume


def test_the_connection_of_flwr_is_the_one_that_the_app_names_and_the_superlink_opens() -> None:
    known = tomllib.loads((FOLDER / "config.toml").read_text("utf-8"))["superlink"]
    command = unit_command("flower-superlink")
    name = unit_command("federation-app")[3]
    address = f"{command[command.index('--host') + 1]}:{command[command.index('--port') + 1]}"
    assert known[name] == {"address": address, "root-certificates": command[command.index("--ssl-ca-certfile") + 1]}


def run_app(folder: Path, *statuses: str) -> tuple[int, str]:
    """Run the script with a flwr that says how the run is, one status after the other."""
    (folder / "statuses").write_text("".join(f"{status}\n" for status in statuses))
    (folder / "flwr").write_text(
        "#!/bin/sh\ncase $1 in\n"
        '  run) echo "Successfully started run 123456789"; echo "$@" >> started ;;\n'
        '  list) sed -n \'1s/.*/      "status": "&",/p\' statuses; sed -i 1d statuses ;;\n'
        "esac\n"
    )
    (folder / "sleep").write_text("#!/bin/sh\n")
    for name in ("flwr", "sleep"):
        (folder / name).chmod(0o755)
    command = ["sh", str(FOLDER / "run-app.sh"), "app", "secure", 'state-dir="/state" rounds=3']
    environment = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert (folder / "started").read_text() == 'run app secure -c state-dir="/state" rounds=3\n'
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("statuses", "code", "told"),
    [
        (["finished:completed"], 0, "finished:completed"),
        (["running", "starting", "finished:completed"], 0, "finished:completed"),
        (["running", "finished:failed"], 1, "finished:failed"),
        (["finished:stopped"], 1, "finished:stopped"),
        ([], 1, "does not answer"),
    ],
)
def test_the_script_of_the_app_fails_unless_the_run_was_completed(
    tmp_path: Path, statuses: list[str], code: int, told: str
) -> None:
    ended, output = run_app(tmp_path, *statuses)
    assert ended == code
    assert f"run 123456789: {told}" in output or told in output


def test_a_killed_node_waits_until_its_heartbeat_has_expired() -> None:
    assert int(unit_file("flower-supernode")["Service"]["RestartSec"]) > 60
    pause = re.search(r"sleep (\d+)$", compose()["services"]["supernode"]["command"][-1])
    assert pause is not None
    assert int(pause[1]) > 60


def test_the_command_of_the_metrics_is_understood_and_scraped_where_it_listens() -> None:
    _, command, *arguments = unit_command("mabrfl-serve")
    parsed = load_command(command).make_context("serve", list(arguments)).params
    assert f'"{parsed["host"]}:{parsed["port"]}"' in (FOLDER / "prometheus.yml").read_text()


def served() -> set[str]:
    """The metrics that mabrfl serve has for a round with everything in it."""
    alert = Alert(kind="x", severity="critical", message="y", round=1)
    client = ClientStatus(id="key:1", benign=1.0, malicious=1.0)
    figures = dict.fromkeys(("nodes-available", "nodes-selected", "model-moved", "step-norm", "largest-share"), 1.0)
    status = FederationStatus(
        round=1,
        time=0.0,
        figures=figures,
        metrics={"accuracy": 0.5},
        seconds={"train": 1.0},
        totals={"accepted/accepted": 1},
        alerts=[alert],
        alert_totals={"x": 1},
        clients=[client],
    )
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
            assert named <= served(), panel["title"]


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


@needs_openssl
@pytest.mark.skipif(shutil.which("nginx") is None, reason="there is no nginx here: apt install nginx-light")
def test_nginx_accepts_its_configuration(tmp_path: Path) -> None:
    make_keys(tmp_path)
    text = (FOLDER.parent / "flower-app" / "nginx.conf").read_text("utf-8")
    filled = text.replace("PUBLIC_PORT", "443").replace("SUPERLINK_PORT", "8443")
    (tmp_path / "nginx.conf").write_text(filled, "utf-8")
    command = ["nginx", "-t", "-q", "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf"), "-e", "stderr"]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
