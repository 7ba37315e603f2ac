"""The metrics of all rounds, and the model, as plain arrays and numbers and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, MetricRecord
from flwr.serverapp.strategy import Result

from mabrfl.errors import StateError
from mabrfl.flower.schema import ModelSchema
from mabrfl.global_model import GlobalModel

BY_CLIENTS, BY_SERVER = "evaluate_metrics_clientapp", "evaluate_metrics_serverapp"
_HISTORIES = ("train_metrics_clientapp", BY_CLIENTS, BY_SERVER)


@dataclass
class History:
    """The metrics of all finished rounds, also of those before a restart; named as in Flower's ``Result``.

    ``evaluated`` has the last round that was evaluated, by clients and by the server; it may have no metrics.
    """

    train_metrics_clientapp: dict[int, MetricRecord] = field(default_factory=dict)
    evaluate_metrics_clientapp: dict[int, MetricRecord] = field(default_factory=dict)
    evaluate_metrics_serverapp: dict[int, MetricRecord] = field(default_factory=dict)
    evaluated: dict[str, int] = field(default_factory=dict)

    def result(self, arrays: ArrayRecord) -> Result:
        """Return what ``start`` returns."""
        return Result(arrays, **{name: dict(sorted(getattr(self, name).items())) for name in _HISTORIES})

    def evaluate(self, which: str, number: int, metrics: MetricRecord | None) -> None:
        """Take what an evaluation came to, ``BY_CLIENTS`` or ``BY_SERVER``."""
        self.evaluated[which] = number
        if metrics is None:
            getattr(self, which).pop(number, None)
        else:
            getattr(self, which)[number] = metrics

    def newest(self) -> dict[str, Any]:
        """Return the last evaluations as plain values: of each the round and its metrics."""
        known = {which: getattr(self, which).get(number) for which, number in self.evaluated.items()}
        return {
            which: [self.evaluated[which], None if metrics is None else _saved(metrics)]
            for which, metrics in known.items()
        }

    def add_newest(self, state: Mapping[str, Any], number: int) -> None:
        """Take what :meth:`newest` wrote, if it is of this round."""
        for which in (BY_CLIENTS, BY_SERVER):
            told, values = state.get(which, (None, None))
            if told == number:
                self.evaluate(which, number, None if values is None else MetricRecord(dict(values)))

    def as_state(self) -> dict[str, Any]:
        """Return the metrics as plain values."""
        return {
            name: {str(number): _saved(record) for number, record in getattr(self, name).items()} for name in _HISTORIES
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> History:
        """Return what :meth:`as_state` wrote."""
        history = cls()
        for name in _HISTORIES:
            getattr(history, name).update(
                {int(number): MetricRecord(dict(values)) for number, values in state[name].items()}
            )
        return history


def _saved(record: MetricRecord) -> list[list[Any]]:
    """Return pairs: a metric may have any name, a table of a state may not."""
    return [[name, value] for name, value in record.items()]


def model_state(schema: ModelSchema, model: GlobalModel, fixed: Mapping[str, Array]) -> dict[str, Any]:
    """Return the model as plain arrays."""
    others = {str(k): fixed[part.key].numpy() for k, part in enumerate(schema.parts) if part.role == "fixed"}
    return {"weights": model.weights, "buffers": model.buffers, "fixed": others}


def restored_model(schema: ModelSchema, state: Mapping[str, Any]) -> tuple[GlobalModel, dict[str, Array]]:
    """Return the model, and its arrays of other types, that :func:`model_state` wrote.

    Raises
    ------
    StateError
        If they are not of this schema.
    """
    expected = {"weights": schema.dimension, "buffers": schema.buffer_size}
    vectors = {name: np.array(state[name]) for name in expected}
    for name, size in expected.items():
        if vectors[name].shape != (size,) or vectors[name].dtype != schema.dtype:
            raise StateError(f"the state's {name} are {vectors[name].dtype}{vectors[name].shape}, not {size}")
        if not np.all(np.isfinite(vectors[name])):
            raise StateError(f"the state's {name} are not all finite")
    fixed = {part.key: Array(state["fixed"][str(k)]) for k, part in enumerate(schema.parts) if part.role == "fixed"}
    return GlobalModel(**vectors), fixed
