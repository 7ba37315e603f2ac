"""Trackers: observers that send the numbers of each round to TensorBoard, MLflow or Weights & Biases.

Each needs its library, an extra of the same name. An error of a tracker is reported, and the run goes on without it.
"""

from __future__ import annotations

import math
from statistics import fmean
from typing import ClassVar

from mabrfl.config.differences import flat
from mabrfl.recording import RoundRecord
from mabrfl.recording.tracker_logs import MLflowLog, TensorBoardLog, TrackerLog, WandBLog
from mabrfl.runs.observers import Observer, RunResult, RunStart


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

    log_type: ClassVar[type[TrackerLog]]

    def __init__(self) -> None:
        self._log = self.log_type()

    def started(self, run: RunStart) -> None:
        """Open the tracker's run, with all settings."""
        config = run.config
        name = run.path.name if run.path is not None else f"{config.dataset}-{config.defense}-{config.attack}"
        self._log.open(name, flat(config.model_dump(mode="json")), run.path, run.after_round)

    def round_done(self, record: RoundRecord) -> None:
        """Send the numbers of the round."""
        self._log.send(metrics_of(record), record.round)

    def finished(self, result: RunResult) -> None:
        """Send the numbers of the summary, and close the tracker's run."""
        summary = {key: value for key, value in result.summary.items() if isinstance(value, int | float)}
        self._log.close({key: float(value) for key, value in summary.items() if math.isfinite(value)}, done=True)

    def failed(self, error: BaseException) -> None:  # noqa: ARG002 (the run's folder has it)
        """Close the tracker's run as one that did not finish."""
        self._log.close({}, done=False)


class TensorBoard(_Tracker):
    """Write the numbers of each round for TensorBoard, into the folder ``tensorboard`` of the run."""

    log_type = TensorBoardLog


class MLflow(_Tracker):
    """Send settings and the numbers of each round to MLflow: to ``$MLFLOW_TRACKING_URI``, or where MLflow puts them."""

    log_type = MLflowLog


class WandB(_Tracker):
    """Send settings and the numbers of each round to Weights & Biases; ``WANDB_MODE=offline`` keeps them here."""

    log_type = WandBLog
