"""The state of a strategy: the model, the round and the metrics, in memory and on disk."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, MetricRecord
from flwr.serverapp.strategy import Result

from mabrfl.defense import Defense
from mabrfl.errors import ConfigError, StateError
from mabrfl.flower.judging import ReplyBatch
from mabrfl.flower.operator import OperatorDecisions
from mabrfl.flower.schema import ModelSchema
from mabrfl.flower.state_config import hash_of
from mabrfl.flower.state_folder import AuditKeeping, StateFolder, now
from mabrfl.flower.upgrading import load_changed
from mabrfl.flower.watching import single_numbers
from mabrfl.global_model import GlobalModel
from mabrfl.recording.audit import safe_text
from mabrfl.recording.encoding import DTYPES, MALFORMED
from mabrfl.recording.requests import read_requests, remove_requests
from mabrfl.recording.status import FederationStatus, read_status, write_status
from mabrfl.screening.momentum import MomentumMemory
from mabrfl.updates import Outcome

log = logging.getLogger("flwr")

FORMAT = 1
BY_CLIENTS, BY_SERVER = "evaluate_metrics_clientapp", "evaluate_metrics_serverapp"
_HISTORIES = ("train_metrics_clientapp", BY_CLIENTS, BY_SERVER)


@dataclass
class MetricHistory:
    """The metrics of all finished rounds, including those before a restart; named as in Flower's ``Result``.

    ``evaluated`` has the last round that was evaluated, by clients and by the server; it may have no metrics.
    """

    train_metrics_clientapp: dict[int, MetricRecord] = field(default_factory=dict)
    evaluate_metrics_clientapp: dict[int, MetricRecord] = field(default_factory=dict)
    evaluate_metrics_serverapp: dict[int, MetricRecord] = field(default_factory=dict)
    evaluated: dict[str, int] = field(default_factory=dict)

    def result(self, arrays: ArrayRecord) -> Result:
        """Return the result of ``start``."""
        return Result(arrays, **{name: dict(sorted(getattr(self, name).items())) for name in _HISTORIES})

    def evaluate(self, which: str, number: int, metrics: MetricRecord | None) -> None:
        """Set the result of an evaluation, ``BY_CLIENTS`` or ``BY_SERVER``."""
        self.evaluated[which] = number
        if metrics is None:
            getattr(self, which).pop(number, None)
        else:
            getattr(self, which)[number] = metrics

    def newest(self) -> dict[str, Any]:
        """Return the last evaluations as plain values: the round and the metrics of each."""
        known = {which: getattr(self, which).get(number) for which, number in self.evaluated.items()}
        return {
            which: [self.evaluated[which], None if metrics is None else _saved(metrics)]
            for which, metrics in known.items()
        }

    def newest_metrics(self) -> Mapping[str, Any]:
        """Return the newest evaluation by the server, or else by clients."""
        known = self.evaluate_metrics_serverapp or self.evaluate_metrics_clientapp
        return known[max(known)] if known else {}

    def add_newest(self, state: Mapping[str, Any], number: int) -> None:
        """Add a value of :meth:`newest`, if it belongs to this round."""
        for which in (BY_CLIENTS, BY_SERVER):
            evaluated, values = state.get(which, (None, None))
            metrics = None if values is None else MetricRecord(dict(values))
            if evaluated == number:
                self.evaluate(which, number, metrics)

    def as_state(self) -> dict[str, Any]:
        """Return the metrics as plain values."""
        return {
            name: {str(number): _saved(record) for number, record in getattr(self, name).items()} for name in _HISTORIES
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> MetricHistory:
        """Return the history that :meth:`as_state` was called on."""
        history = cls()
        for name in _HISTORIES:
            getattr(history, name).update(
                {int(number): MetricRecord(dict(values)) for number, values in state[name].items()}
            )
        return history


def _saved(record: MetricRecord) -> list[list[Any]]:
    """Return pairs: a metric may have any name, a key of the state may not."""
    return [[name, value] for name, value in record.items()]


class ServerState:
    """The model and the metrics, in memory and, after :meth:`open`, in a folder after every round.

    Parameters
    ----------
    defense
        The defense whose state is saved with the model.
    buffer_suffixes
        See :class:`~mabrfl.flower.RobustStrategy`.
    """

    def __init__(self, defense: Defense, buffer_suffixes: Sequence[str]) -> None:
        self.defense = defense
        self.buffer_suffixes = tuple(buffer_suffixes)
        self.round = 0
        self.history = MetricHistory()
        self.operator = OperatorDecisions()
        self.head_recorded = True
        self._reported: set[str] = set()
        self._schema: ModelSchema | None = None
        self._model: GlobalModel | None = None
        self._fixed: dict[str, Array] = {}
        self._folder: StateFolder | None = None
        self._status: FederationStatus | None = None

    @property
    def prepared(self) -> bool:
        """Return whether there is a model."""
        return self._model is not None

    @property
    def schema(self) -> ModelSchema:
        """The model's arrays."""
        if self._schema is None:
            raise StateError("the strategy has no model yet: call start")
        return self._schema

    @property
    def model(self) -> GlobalModel:
        """The model."""
        if self._model is None:
            raise StateError("the strategy has no model yet: call start")
        return self._model

    def prepare(self, arrays: ArrayRecord) -> None:
        """Set the initial model.

        Raises
        ------
        ConfigError
            If it has arrays of a type that can be neither trained nor saved.
        """
        for key, array in arrays.items():
            name = array.numpy().dtype.name
            if name not in DTYPES:
                raise ConfigError(f"the initial model's array '{key}' is {name}; known types are {', '.join(DTYPES)}")
        self._schema = ModelSchema.of(arrays, self.buffer_suffixes)
        self._model = GlobalModel(*self._schema.vectors(arrays))
        self._fixed = {part.key: arrays[part.key] for part in self._schema.parts if part.role == "fixed"}

    def open(
        self,
        path: Path,
        config: Mapping[str, Any],
        *,
        accept_changes: bool = False,
        keeping: AuditKeeping | None = None,
    ) -> int:
        """Claim the folder, and load its newest state if there is one; return the last finished round."""
        folder = StateFolder.claim(path, config, self._restore, accept_changes=accept_changes, keeping=keeping)
        try:
            for place, before, after in folder.config.changes:
                log.warning("accepted: %s is %s now, and was %s", place, after, before)
            self.round = folder.round
            self.history.evaluated = {}
            self._add_evaluation(folder.evaluation)
            row = {"kind": "start", "time": now(), "round": folder.round, "config_hash": hash_of(config)}
            changes = [list(change) for change in folder.config.changes]
            folder.audit.append({**row, **({"accepted_changes": changes} if changes else {})})
        except BaseException:
            folder.close()
            raise
        self._folder = folder
        return folder.round

    def _restore(self, state: Mapping[str, Any], changed: bool) -> None:
        try:
            model, fixed = restored_model(self.schema, state["model"])
            history = MetricHistory.from_state(state["history"])
            operator = OperatorDecisions.from_state(state.get("operator"))
            if not changed:
                self.defense.load_state_dict(state["defense"])
            elif note := load_changed(self.defense, state["defense"]):
                log.warning("%s", safe_text(note, 1000))
        except MALFORMED as error:
            raise StateError(f"the saved state of the strategy is malformed: {error}") from error
        self._model, self._fixed, self.history, self.operator = model, fixed, history, operator

    def _add_evaluation(self, evaluation: Mapping[str, Any]) -> None:
        try:
            self.history.add_newest(evaluation, self.round)
        except MALFORMED as error:
            log.warning("the saved evaluation is malformed: %s; the last round is evaluated again", error)

    def close(self) -> None:
        """Close the folder."""
        if self._folder is not None:
            self._folder.close()
            self._folder = None

    def record(self) -> ArrayRecord:
        """Return the model as a record of arrays."""
        return self.schema.record(self.model.weights, self.model.buffers, self._fixed)

    def move(self, batch: ReplyBatch, outcome: Outcome | None) -> tuple[bool, tuple[str, ...]]:
        """Move the model by the outcome's step; return whether it moved, and the events."""
        if outcome is None or not outcome.accepted:
            return False, () if outcome is None else outcome.events
        moved = self.model.move(outcome, batch.buffers)
        if not self.schema.is_finite(moved.weights, moved.buffers):
            return False, (*outcome.events, "model-not-finite")
        self._model = moved
        return True, outcome.events

    def has_evaluated(self, which: str, number: int) -> bool:
        """Return whether a round was evaluated, ``BY_CLIENTS`` or ``BY_SERVER``."""
        return self.history.evaluated.get(which) == number

    def evaluate(self, which: str, number: int, metrics: MetricRecord | None) -> None:
        """Add the result of an evaluation; with a folder, it is on disk when this returns."""
        self.history.evaluate(which, number, metrics)
        if self._folder is not None:
            self._folder.save_evaluation(self.history.newest())
        if self._status is not None and self._status.round == number:
            newest = single_numbers(self.history.newest_metrics())
            self.save_status(self._status.model_copy(update={"metrics": newest}))

    def finish(self, number: int, metrics: MetricRecord, rows: Iterable[Mapping[str, Any]]) -> None:
        """End a round; with a folder, everything is on disk when this returns."""
        self.round = number
        self.history.train_metrics_clientapp[number] = metrics
        if self._folder is not None:
            memory = getattr(getattr(self.defense, "rule", None), "momenta", None)
            with memory.lent() if isinstance(memory, MomentumMemory) else nullcontext():
                state = {
                    "model": model_state(self.schema, self.model, self._fixed),
                    "history": self.history.as_state(),
                    "defense": self.defense.state_dict(),
                    "operator": self.operator.as_state(),
                }
            self.head_recorded = self._folder.save(state, rows, round=number)
            remove_requests(self._folder.path, self.operator.applied)
            self.operator.applied = []

    def save_status(self, status: FederationStatus) -> None:
        """Replace the status that monitors read."""
        self._status = status
        if self._folder is not None:
            write_status(self._folder.path, status)

    def last_status(self) -> FederationStatus | None:
        """Return the status that an earlier run left; no run depends on it."""
        try:
            self._status = None if self._folder is None else read_status(self._folder.path)
            return self._status
        except StateError as error:
            log.warning("%s; its totals start again", safe_text(error, 1000))
            return None

    def take_requests(self) -> None:
        """Apply the requests of the operator that came since the last call, each with a row in the audit."""
        if self._folder is None:
            return
        requests, notes = read_requests(self._folder.path)
        for note in sorted(set(notes) - self._reported):
            log.warning("%s", safe_text(note, 1000))
        self._reported.update(notes)
        for request in requests:
            if request.name not in self.operator.applied:
                self._folder.audit.append({**self.operator.apply(request, self.defense), "round": self.round + 1})


def model_state(schema: ModelSchema, model: GlobalModel, fixed: Mapping[str, Array]) -> dict[str, Any]:
    """Return the model as plain arrays."""
    others = {str(k): fixed[part.key].numpy() for k, part in enumerate(schema.parts) if part.role == "fixed"}
    return {"weights": model.weights, "buffers": model.buffers, "fixed": others}


def restored_model(schema: ModelSchema, state: Mapping[str, Any]) -> tuple[GlobalModel, dict[str, Array]]:
    """Return the model, and its arrays of other types, that :func:`model_state` returned.

    Raises
    ------
    StateError
        If they do not fit the schema.
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
