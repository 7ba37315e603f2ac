from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mabrfl.config import load_config
from mabrfl.recording import read_summary

pytestmark = pytest.mark.usefixtures("fake", "without_pictures")


def test_the_demo_compares_two_defenses_under_the_same_conditions(mabrfl: Callable[..., Any], tmp_path: Path) -> None:
    done = mabrfl("demo", "--rounds", "3", "--out", "d")
    assert (done.code, done.err) == (0, "")
    for name in ("accuracy.png", "clients.png", "fedavg/summary.json"):
        assert (tmp_path / "d" / name).exists()
    ours, theirs = (load_config(tmp_path / "d" / name / "config.toml") for name in ("mab-rfl", "fedavg"))
    for setting in ("dataset", "model", "attack", "attackers", "seed", "rounds", "training", "partition"):
        assert getattr(ours, setting) == getattr(theirs, setting)
    assert (ours.attackers, ours.dataset) == (0.3, "digits")
    assert "fedavg" in done.out
    assert "mab-rfl" in done.out


def test_the_demo_numbers_its_folders_and_replaces_only_by_force(mabrfl: Callable[..., Any], tmp_path: Path) -> None:
    for _ in range(2):
        assert mabrfl("demo", "--rounds", "1").code == 0
    assert (tmp_path / "runs" / "demo-2" / "fedavg").is_dir()
    assert mabrfl("demo", "--rounds", "2", "--out", "runs/demo").code == 6
    assert mabrfl("demo", "--rounds", "2", "--out", "runs/demo", "--force").code == 0
    assert read_summary(tmp_path / "runs" / "demo" / "mab-rfl")["rounds"] == 2
