"""Trackers of a Flower strategy: against a stand-in, and against the real libraries without a network."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from flwr.app import MetricRecord

from flower_grid import MemoryGrid, honest, model, pretend_a_task
from mabrfl.errors import ConfigError
from mabrfl.flower import MabRflStrategy, tracking
from mabrfl.recording import tracker_logs as libraries

NODES = range(1, 7)


class Kept:
    """A tracker that keeps what it gets."""

    calls: ClassVar[list[tuple[Any, ...]]] = []

    def open(self, name, settings, folder, after_round):
        self.calls.append(("open", name, settings["min_train_nodes"], after_round))

    def send(self, metrics, step):
        self.calls.append(("send", step, dict(metrics)))

    def close(self, summary, *, done):
        self.calls.append(("close", done))


class Broken(Kept):
    def send(self, metrics, step):
        raise RuntimeError("the tracker is not there")


@pytest.fixture(autouse=True)
def _task() -> None:
    pretend_a_task()
    Kept.calls = []


def run(num_rounds=2, **settings):
    strategy = MabRflStrategy(seed=3, min_available_nodes=len(NODES), fraction_evaluate=0.0, **settings)
    grid = MemoryGrid({node: honest(node) for node in NODES})
    evaluate = lambda number, arrays: MetricRecord({"accuracy": 10.0 * number})  # noqa: E731
    return strategy.start(grid, model(), num_rounds=num_rounds, timeout=600.0, evaluate_fn=evaluate)


def use(monkeypatch, kind):
    monkeypatch.setattr(tracking, "LOGS", {"mlflow": kind})
    monkeypatch.setattr(tracking, "check_tracker", lambda name: name)


def test_each_round_and_each_evaluation_is_sent_once(monkeypatch, tmp_path):
    use(monkeypatch, Kept)
    run(track="mlflow", state_dir=tmp_path / "state")
    assert Kept.calls[0][0::3] == ("open", 0)
    assert Kept.calls[-1] == ("close", True)
    sent = [(step, metrics) for kind, step, metrics in Kept.calls[1:-1] if kind == "send"]
    assert [step for step, metrics in sent if "replies-accepted" in metrics] == [1, 2]
    assert [(step, m["evaluation/accuracy"]) for step, m in sent if "evaluation/accuracy" in m] == [
        (0, 0.0),
        (1, 10.0),
        (2, 20.0),
    ]
    trusts = [(m["reputation/lowest"], m["reputation/mean"]) for _, m in sent if "reputation/mean" in m]
    assert len(trusts) == 2
    assert all(0 < lowest <= mean + 1e-9 < 1 for lowest, mean in trusts)
    Kept.calls = []
    run(3, track=["mlflow"], state_dir=tmp_path / "state")
    assert Kept.calls[0][3] == 2
    assert [call[1] for call in Kept.calls if call[0] == "send" and "replies-accepted" in call[2]] == [3]


def test_a_tracker_that_fails_is_left_out_and_the_run_goes_on(monkeypatch, caplog):
    use(monkeypatch, Broken)
    assert len(run(track="mlflow").train_metrics_clientapp) == 2
    assert caplog.text.count("the tracker 'mlflow' failed, and is left out: RuntimeError") == 1


def test_an_unknown_tracker_is_refused():
    with pytest.raises(ConfigError, match="unknown tracker 'tensorbord'; did you mean 'tensorboard'"):
        MabRflStrategy(track="tensorbord")


@pytest.mark.filterwarnings("ignore")  # those of the libraries are not ours
@pytest.mark.parametrize("name", libraries.LIBRARIES)
def test_the_real_libraries_get_the_rounds(name, tmp_path, monkeypatch, caplog):
    pytest.importorskip(name, reason=f"{name} is not installed: its tracker is NOT tested")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run(track=name, state_dir=tmp_path / "state")
    assert "is left out" not in caplog.text
    written = [path for path in tmp_path.rglob("*") if path.is_file() and path.parent != tmp_path / "state"]
    if name == "wandb":
        import wandb

        wandb.teardown()  # its process writes the file by itself, and ends here
    assert any(b"replies-accepted" in path.read_bytes() or "replies-accepted" in path.name for path in written)
    run(3, track=name, state_dir=tmp_path / "state")  # the folder is still that of the strategy
