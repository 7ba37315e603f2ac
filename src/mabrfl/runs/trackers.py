"""Trackers: observers that send the numbers of each round to TensorBoard, MLflow or Weights & Biases.

Each needs its library, an extra of the same name. An error of a tracker is reported, and the run goes on without it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from statistics import fmean
from typing import Any

from mabrfl.config.differences import flat, value_label
from mabrfl.errors import ConfigError, extra_needed, require, suggest
from mabrfl.recording import RoundRecord
from mabrfl.runs.observers import Observer, RunResult, RunStart

LIBRARIES: Mapping[str, str] = {"tensorboard": "tensorboard", "mlflow": "mlflow", "wandb": "wandb"}
"""The trackers by name, and the module that each needs."""
_LONGEST = 250
"""Characters of a parameter in MLflow."""


def check_tracker(name: str) -> str:
    """Return the name of a tracker whose library is installed.

    Raises
    ------
    ConfigError
        If there is no such tracker.
    MissingExtraError
        If its library is not installed.
    """
    if name not in LIBRARIES:
        raise ConfigError(
            f"unknown tracker '{name}'{suggest(name, LIBRARIES)}; --observe takes an observer of your own"
        )
    require(LIBRARIES[name], f"the tracker '{name}'")
    return name


def metrics_of(record: RoundRecord) -> dict[str, float]:
    """Return the numbers of a round that trackers show; those that are not finite are left out.

    Examples
    --------
    >>> metrics_of(RoundRecord(1, 50.0, 0.7, (1, 2), {}, {1: (3.0, 1.0), 2: (1.0, 3.0)}, frozenset({2})))["accuracy"]
    50.0
    """
    beliefs: dict[str, list[float]] = {"reputation/honest": [], "reputation/attackers": []}
    for client, (good, bad) in record.reputation.items():
        side = "reputation/attackers" if client in record.attackers else "reputation/honest"
        beliefs[side].append(good / (good + bad) if good + bad > 0 else math.nan)
    numbers: dict[str, float | None] = {
        "accuracy": record.accuracy,
        "loss": record.loss,
        "attack_success": record.attack_success,
        "selected": len(record.selected),
        "rejected": sum(not verdict.accepted for verdict in record.verdicts.values()),
        "caught": record.caught,
        "missed": record.missed,
        "honest_rejected": record.honest_rejected,
        **{name: fmean(values) for name, values in beliefs.items() if values},
    }
    return {name: float(value) for name, value in numbers.items() if value is not None and math.isfinite(value)}


class _Tracker(Observer):
    """The part that all trackers share."""

    def started(self, run: RunStart) -> None:
        """Open the tracker's run, with all settings."""
        config = run.config
        name = run.path.name if run.path is not None else f"{config.dataset}-{config.defense}-{config.attack}"
        self._open(name, flat(config.model_dump(mode="json")), run)

    def round_done(self, record: RoundRecord) -> None:
        """Send the numbers of the round."""
        self._log(metrics_of(record), record.round)

    def finished(self, result: RunResult) -> None:
        """Send the numbers of the summary, and close the tracker's run."""
        summary = {key: value for key, value in result.summary.items() if isinstance(value, int | float)}
        self._close({key: float(value) for key, value in summary.items() if math.isfinite(value)}, done=True)

    def failed(self, error: BaseException) -> None:  # noqa: ARG002 (the run's folder has it)
        """Close the tracker's run as one that did not finish."""
        self._close({}, done=False)

    def _open(self, name: str, settings: Mapping[str, Any], run: RunStart) -> None:
        raise NotImplementedError

    def _log(self, metrics: Mapping[str, float], step: int) -> None:
        raise NotImplementedError

    def _close(self, summary: Mapping[str, float], *, done: bool) -> None:
        raise NotImplementedError


class TensorBoard(_Tracker):
    """Write the numbers of each round for TensorBoard, into the folder ``tensorboard`` of the run."""

    _writer: Any = None

    def _open(self, name: str, settings: Mapping[str, Any], run: RunStart) -> None:
        with extra_needed("the tracker 'tensorboard'"):
            library = import_module("torch.utils.tensorboard")
        folder = (run.path or Path("runs") / name) / "tensorboard"
        self._writer = library.SummaryWriter(str(folder), purge_step=run.after_round + 1)
        text = "\n".join(f"    {key} = {value_label(value)}" for key, value in settings.items())
        self._writer.add_text("settings", text, run.after_round)

    def _log(self, metrics: Mapping[str, float], step: int) -> None:
        for key, value in metrics.items():
            self._writer.add_scalar(key, value, step)
        self._writer.flush()

    def _close(self, summary: Mapping[str, float], *, done: bool) -> None:  # noqa: ARG002 (TensorBoard has curves)
        if self._writer is not None:
            self._writer.close()


class MLflow(_Tracker):
    """Send settings and the numbers of each round to MLflow: to ``$MLFLOW_TRACKING_URI``, or where MLflow puts them."""

    _client: Any = None
    _run_id = ""

    def _open(self, name: str, settings: Mapping[str, Any], run: RunStart) -> None:
        with extra_needed("the tracker 'mlflow'"):
            library = import_module("mlflow")
        self._client = library.MlflowClient()
        title = os.environ.get("MLFLOW_EXPERIMENT_NAME", "mabrfl")
        known = self._client.get_experiment_by_name(title)
        experiment = known.experiment_id if known is not None else self._client.create_experiment(title)
        tags = {"after_round": str(run.after_round), "folder": str(run.path or "")}
        self._run_id = self._client.create_run(experiment, run_name=name, tags=tags).info.run_id
        for key, value in settings.items():
            self._client.log_param(self._run_id, key, value_label(value)[:_LONGEST])

    def _log(self, metrics: Mapping[str, float], step: int) -> None:
        for key, value in metrics.items():
            self._client.log_metric(self._run_id, key, value, step=step)

    def _close(self, summary: Mapping[str, float], *, done: bool) -> None:
        if not self._run_id:
            return
        for key, value in summary.items():
            self._client.log_metric(self._run_id, f"summary/{key}", value)
        self._client.set_terminated(self._run_id, status="FINISHED" if done else "FAILED")


class WandB(_Tracker):
    """Send settings and the numbers of each round to Weights & Biases; ``WANDB_MODE=offline`` keeps them here."""

    _run: Any = None

    def _open(self, name: str, settings: Mapping[str, Any], run: RunStart) -> None:
        with extra_needed("the tracker 'wandb'"):
            library = import_module("wandb")
        project = os.environ.get("WANDB_PROJECT", "mabrfl")
        folder = None if run.path is None else str(run.path)
        self._run = library.init(project=project, name=name, config=dict(settings), dir=folder, reinit="create_new")

    def _log(self, metrics: Mapping[str, float], step: int) -> None:
        self._run.log(dict(metrics), step=step)

    def _close(self, summary: Mapping[str, float], *, done: bool) -> None:
        if self._run is None:
            return
        self._run.summary.update(dict(summary))
        self._run.finish(exit_code=0 if done else 1)
