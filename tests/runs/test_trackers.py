"""Trackers against the real libraries, without a network."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from mabrfl.cli.main import main
from mabrfl.config import RunConfig
from mabrfl.errors import ConfigError, MissingExtraError
from mabrfl.recording.record import RoundRecord
from mabrfl.recording.tracker_logs import LIBRARIES, check_tracker
from mabrfl.runs import run
from mabrfl.runs.trackers import metrics_of
from mabrfl.updates import Verdict

TINY = RunConfig(clients=6, rounds=2, workers=1, attack="sign-flip", attackers=2, partition={"sizes": (8, 16)})


@pytest.fixture(autouse=True)
def _quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["mabrfl.recording.manifest"], "source_commit", lambda package: None)
    monkeypatch.chdir(tmp_path)


def library(name: str) -> Any:
    return pytest.importorskip(name, reason=f"{name} is not installed: its tracker is NOT tested")


def test_the_numbers_of_a_round_are_worked_out_by_hand() -> None:
    verdicts = {1: Verdict(True, "accepted"), 2: Verdict(False, "outlier"), 3: Verdict(False, "sybil")}
    beliefs = {1: (3.0, 1.0), 2: (1.0, 3.0), 3: (1.0, 1.0)}
    record = RoundRecord(4, 50.0, float("nan"), (1, 2, 3, 4), verdicts, beliefs, frozenset({2}), attack_success=25.0)
    assert metrics_of(record) == {
        "accuracy": 50.0,
        "attack_success": 25.0,
        "selected": 4.0,
        "rejected": 2.0,
        "caught": 1.0,
        "missed": 0.0,
        "honest_rejected": 1.0,
        "reputation/honest": 0.625,
        "reputation/attackers": 0.25,
    }


def test_unknown_trackers_and_missing_libraries_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="unknown tracker 'tensorbord'; did you mean 'tensorboard'"):
        check_tracker("tensorbord")
    monkeypatch.setattr("mabrfl.errors.find_spec", lambda module: None)
    for name in LIBRARIES:
        with pytest.raises(MissingExtraError, match=rf"pip install 'mabrfl\[{name}\]'"):
            check_tracker(name)


@pytest.mark.filterwarnings("ignore")  # those of the library are not ours
def test_tensorboard_has_a_curve_of_each_number(tmp_path: Path) -> None:
    library("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    result = run(TINY, tmp_path / "r", observers=["tensorboard"])
    assert result.notes == []
    events = EventAccumulator(str(tmp_path / "r" / "tensorboard")).Reload()
    points = [(point.step, round(point.value, 4)) for point in events.Scalars("accuracy")]
    assert points == [(record.round, round(record.accuracy, 4)) for record in result.records]
    assert {"loss", "caught", "missed", "reputation/honest"} <= set(events.Tags()["scalars"])


@pytest.mark.filterwarnings("ignore")  # those of the library are not ours
def test_mlflow_has_settings_numbers_and_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = library("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    try:
        client = mlflow.MlflowClient()
    except ImportError:  # MLflow without a database
        monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
        client = mlflow.MlflowClient()
    result = run(TINY, tmp_path / "r", observers=["mlflow"])
    assert result.notes == []
    experiment = client.get_experiment_by_name("mabrfl")
    (tracked,) = client.search_runs([experiment.experiment_id])
    assert (tracked.info.status, tracked.data.params["attack"]) == ("FINISHED", "sign-flip")
    history = client.get_metric_history(tracked.info.run_id, "accuracy")
    assert [(point.step, point.value) for point in history] == [(one.round, one.accuracy) for one in result.records]
    assert tracked.data.metrics["summary/final_accuracy"] == result.summary["final_accuracy"]


@pytest.mark.filterwarnings("ignore")  # those of the library are not ours
def test_wandb_keeps_a_run_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = library("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    result = run(TINY, tmp_path / "r", observers=["wandb"])
    assert result.notes == []
    wandb.teardown()  # its process writes the file by itself, and ends here
    (kept,) = (tmp_path / "r" / "wandb").glob("offline-run-*/*.wandb")
    assert b"accuracy" in kept.read_bytes()


@pytest.mark.filterwarnings("ignore")  # those of the library are not ours
def test_every_run_of_a_sweep_is_tracked_in_its_own_folder(tmp_path: Path) -> None:
    library("tensorboard")
    base = "dataset = 'digits'\nrounds = 1\nclients = 6\npartition.sizes = [8, 16]\n"
    (tmp_path / "two.toml").write_text(f"name = 'two'\n[base]\n{base}[axes]\nseed = [0, 1]\n")
    assert main(["sweep", "two.toml", "--out", "s", "--track", "tensorboard"]) == 0
    written = list((tmp_path / "s" / "cells").glob("*/tensorboard/events*"))
    assert len(written) == 2
    assert all(b"accuracy" in file.read_bytes() for file in written)


def test_a_tracker_that_fails_does_not_stop_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    result = run(TINY, tmp_path / "r", observers=["mlflow"])
    assert len(result.records) == 2
    assert "MLflow failed in started" in result.notes[0]
