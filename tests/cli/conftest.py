"""What the tests of the command line share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from fake_simulation import FakeSimulation
from mabrfl.cli import execution, run
from mabrfl.cli.main import main


@dataclass
class Result:
    code: int
    out: str
    err: str


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Replace the simulator; what is given is called before each round."""

    def replace(before_round: Callable[[int], None] = lambda number: None) -> None:
        monkeypatch.setattr(run, "build_simulation", lambda config: FakeSimulation(config, before_round))

    replace()
    return replace


@pytest.fixture
def without_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most tests are not about pictures, which take most of their time."""
    monkeypatch.setattr(execution, "draw", lambda *run: None)


@pytest.fixture
def mabrfl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Result]:
    """Call the command line in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("COLUMNS", "100")

    def call(*arguments: str) -> Result:
        code = main(arguments)
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return call
