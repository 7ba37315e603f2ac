"""The files of examples/deployment fit the program: options, metrics, and the delay that Flower needs."""

from __future__ import annotations

import configparser
import re
import shlex
from pathlib import Path

import pytest

from mabrfl.cli.app import load_command
from mabrfl.recording.metrics import prometheus_text
from mabrfl.recording.status import Alert, FederationStatus

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


def test_the_rules_name_metrics_that_exist() -> None:
    alert = Alert(kind="x", severity="critical", message="y", round=1)
    text = prometheus_text(FederationStatus(round=1, time=0.0, alerts=[alert]), now=1.0, running=True)
    rules = (FOLDER / "rules.yml").read_text()
    named = set(re.findall(r"mabrfl_[a-z_]+", rules))
    assert named
    assert named <= set(re.findall(r"^mabrfl_[a-z_]+", text, flags=re.M))
