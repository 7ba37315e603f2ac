"""The numbers of a strategy's rounds in TensorBoard, MLflow or Weights & Biases."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from mabrfl.config.differences import flat
from mabrfl.recording.audit import safe_text
from mabrfl.recording.tracker_logs import LOGS, TrackerLog, check_tracker
from mabrfl.rng import ClientId

log = logging.getLogger("flwr")


class RoundTracking:
    """Sends numbers to trackers. One that fails is left out from then on, with a warning, and the run goes on.

    Parameters
    ----------
    names
        ``tensorboard``, ``mlflow``, ``wandb``: one, several or none.
    """

    def __init__(self, names: str | Sequence[str] = ()) -> None:
        chosen = [names] if isinstance(names, str) else list(names)
        self._logs: dict[str, TrackerLog] = {name: LOGS[check_tracker(name)]() for name in chosen}

    def open(self, settings: Mapping[str, Any], folder: Path | None, after_round: int) -> None:
        """Begin, after this many rounds of earlier runs."""
        name = "federation" if folder is None else folder.name
        described = flat({key: value for key, value in settings.items() if key != "model"})
        self._each(lambda one: one.open(name, described, folder, after_round))

    def round_done(self, number: int, figures: Mapping[str, Any], reputation: Mapping[ClientId, Any]) -> None:
        """Send the numbers of a round, and the mean and the lowest reputation."""
        pairs = [pair for pair in reputation.values() if isinstance(pair, tuple) and len(pair) == 2 and sum(pair) > 0]
        trust = [float(good / (good + bad)) for good, bad in pairs]
        spread = {"reputation/mean": fmean(trust), "reputation/lowest": min(trust)} if trust else {}
        self._send({**figures, **spread}, number)

    def evaluated(self, number: int, metrics: Mapping[str, Any] | None) -> None:
        """Send the numbers of an evaluation."""
        self._send({f"evaluation/{safe_text(name)}": value for name, value in (metrics or {}).items()}, number)

    def close(self, *, done: bool) -> None:
        """End."""
        self._each(lambda one: one.close({}, done=done))

    def _send(self, metrics: Mapping[str, Any], number: int) -> None:
        finite = {name: float(value) for name, value in metrics.items() if _is_finite(value)}
        self._each(lambda one: one.send(finite, number))

    def _each(self, call: Callable[[TrackerLog], None]) -> None:
        for name, one in list(self._logs.items()):
            try:
                call(one)
            except Exception as error:  # noqa: BLE001 (a library of others, and a tracker must not end the run)
                log.warning("the tracker '%s' failed, and is left out: %s", name, safe_text(f"{error!r}"))
                del self._logs[name]


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) < 1e300 and not math.isnan(value)
