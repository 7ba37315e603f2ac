"""Where trackers put numbers: TensorBoard, MLflow, Weights & Biases. Each needs its library, an extra of its name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from mabrfl.config.differences import value_label
from mabrfl.errors import ConfigError, extra_needed, require, suggest

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


class TrackerLog(Protocol):
    """One run in a tracker."""

    def open(self, name: str, settings: Mapping[str, Any], folder: Path | None, after_round: int) -> None:
        """Begin, with all settings; ``folder`` is that of the run, if it has one."""

    def send(self, metrics: Mapping[str, float], step: int) -> None:
        """Send the numbers of a round."""

    def close(self, summary: Mapping[str, float], *, done: bool) -> None:
        """End; ``done`` if the run reached its end."""


class TensorBoardLog:
    """Events for TensorBoard, in the folder ``tensorboard`` of the run."""

    _writer: Any = None

    def open(self, name: str, settings: Mapping[str, Any], folder: Path | None, after_round: int) -> None:
        """Begin."""
        with extra_needed("the tracker 'tensorboard'"):
            library = import_module("torch.utils.tensorboard")
        place = (folder or Path("runs") / name) / "tensorboard"
        self._writer = library.SummaryWriter(str(place), purge_step=after_round + 1)
        text = "\n".join(f"    {key} = {value_label(value)}" for key, value in settings.items())
        self._writer.add_text("settings", text, after_round)

    def send(self, metrics: Mapping[str, float], step: int) -> None:
        """Send the numbers of a round."""
        for key, value in metrics.items():
            self._writer.add_scalar(key, value, step)
        self._writer.flush()

    def close(self, summary: Mapping[str, float], *, done: bool) -> None:  # noqa: ARG002 (TensorBoard has curves)
        """End."""
        if self._writer is not None:
            self._writer.close()


class MLflowLog:
    """A run of MLflow, at ``$MLFLOW_TRACKING_URI`` or where MLflow puts it."""

    _client: Any = None
    _run_id = ""

    def open(self, name: str, settings: Mapping[str, Any], folder: Path | None, after_round: int) -> None:
        """Begin."""
        with extra_needed("the tracker 'mlflow'"):
            library = import_module("mlflow")
        self._client = library.MlflowClient()
        title = os.environ.get("MLFLOW_EXPERIMENT_NAME", "mabrfl")
        known = self._client.get_experiment_by_name(title)
        experiment = known.experiment_id if known is not None else self._client.create_experiment(title)
        tags = {"after_round": str(after_round), "folder": str(folder or "")}
        self._run_id = self._client.create_run(experiment, run_name=name, tags=tags).info.run_id
        for key, value in settings.items():
            self._client.log_param(self._run_id, key, value_label(value)[:_LONGEST])

    def send(self, metrics: Mapping[str, float], step: int) -> None:
        """Send the numbers of a round."""
        for key, value in metrics.items():
            self._client.log_metric(self._run_id, key, value, step=step)

    def close(self, summary: Mapping[str, float], *, done: bool) -> None:
        """End."""
        if not self._run_id:
            return
        for key, value in summary.items():
            self._client.log_metric(self._run_id, f"summary/{key}", value)
        self._client.set_terminated(self._run_id, status="FINISHED" if done else "FAILED")


class WandBLog:
    """A run of Weights & Biases; ``WANDB_MODE=offline`` keeps it here."""

    _run: Any = None

    def open(self, name: str, settings: Mapping[str, Any], folder: Path | None, after_round: int) -> None:  # noqa: ARG002
        """Begin."""
        with extra_needed("the tracker 'wandb'"):
            library = import_module("wandb")
        project = os.environ.get("WANDB_PROJECT", "mabrfl")
        place = None if folder is None else str(folder)
        self._run = library.init(project=project, name=name, config=dict(settings), dir=place, reinit="create_new")

    def send(self, metrics: Mapping[str, float], step: int) -> None:
        """Send the numbers of a round."""
        self._run.log(dict(metrics), step=step)

    def close(self, summary: Mapping[str, float], *, done: bool) -> None:
        """End."""
        if self._run is None:
            return
        self._run.summary.update(dict(summary))
        self._run.finish(exit_code=0 if done else 1)


LOGS: Mapping[str, type[TrackerLog]] = {"tensorboard": TensorBoardLog, "mlflow": MLflowLog, "wandb": WandBLog}
