"""What a strategy keeps from round to round: the model, the round's number, the metrics; and where it is saved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from flwr.app import Array, ArrayRecord, MetricRecord

from mabrfl.defense import Defense
from mabrfl.errors import ConfigError, StateError
from mabrfl.flower.judging import Desk
from mabrfl.flower.rows import now
from mabrfl.flower.saved_model import History, model_state, restored_model
from mabrfl.flower.schema import ModelSchema
from mabrfl.flower.state import StateFolder, hash_of
from mabrfl.global_model import GlobalModel
from mabrfl.recording.encoding import DTYPES
from mabrfl.updates import Outcome

FORMAT = 1


class Keeper:
    """The model and the metrics, in memory and, if asked to :meth:`open` a folder, on disk after every round.

    Parameters
    ----------
    defense
        Whose state is saved with the model.
    buffer_suffixes
        See :class:`~mabrfl.flower.RobustStrategy`.
    """

    def __init__(self, defense: Defense, buffer_suffixes: Sequence[str]) -> None:
        self.defense = defense
        self.buffer_suffixes = tuple(buffer_suffixes)
        self.round = 0
        self.history = History()
        self._schema: ModelSchema | None = None
        self._model: GlobalModel | None = None
        self._fixed: dict[str, Array] = {}
        self._folder: StateFolder | None = None

    @property
    def prepared(self) -> bool:
        """Whether there is a model."""
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
        """Take over the model to start from.

        Raises
        ------
        ConfigError
            If it has arrays that can be neither trained nor saved.
        """
        for key, array in arrays.items():
            name = array.numpy().dtype.name
            if name not in DTYPES:
                raise ConfigError(f"the initial model's array '{key}' is {name}; known types are {', '.join(DTYPES)}")
        self._schema = ModelSchema.of(arrays, self.buffer_suffixes)
        self._model = GlobalModel(*self._schema.vectors(arrays))
        self._fixed = {part.key: arrays[part.key] for part in self._schema.parts if part.role == "fixed"}

    def open(self, path: Path, config: Mapping[str, Any]) -> int:
        """Claim the folder, and go on from what it has; return the last round that was finished there."""
        folder = StateFolder.claim(path, config)
        try:
            if folder.state is not None:
                self._restore(folder.state)
                self.round = folder.round
            self.history.evaluated = {}
            self.history.add_newest(folder.evaluation, self.round)
            folder.audit.append({"kind": "start", "time": now(), "round": folder.round, "config_hash": hash_of(config)})
        except BaseException:
            folder.close()
            raise
        self._folder = folder
        return folder.round

    def _restore(self, state: Mapping[str, Any]) -> None:
        try:
            model, fixed = restored_model(self.schema, state["model"])
            history = History.from_state(state["history"])
            self.defense.load_state_dict(state["defense"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StateError(f"the saved state of the strategy is malformed: {error}") from error
        self._model, self._fixed, self.history = model, fixed, history

    def close(self) -> None:
        """Let go of the folder."""
        if self._folder is not None:
            self._folder.close()
            self._folder = None

    def record(self) -> ArrayRecord:
        """Return the model as Flower has it."""
        return self.schema.record(self.model.weights, self.model.buffers, self._fixed)

    def move(self, desk: Desk, outcome: Outcome | None) -> tuple[bool, tuple[str, ...]]:
        """Move the model if there is somewhere to go; return whether, and what happened on the way."""
        if outcome is None or not outcome.accepted:
            return False, () if outcome is None else outcome.events
        moved = self.model.move(outcome, desk.buffers)
        if not self.schema.is_finite(moved.weights, moved.buffers):
            return False, (*outcome.events, "model-not-finite")
        self._model = moved
        return True, outcome.events

    def has_evaluated(self, which: str, number: int) -> bool:
        """Say whether a round's evaluation is over, ``BY_CLIENTS`` or ``BY_SERVER``."""
        return self.history.evaluated.get(which) == number

    def evaluate(self, which: str, number: int, metrics: MetricRecord | None) -> None:
        """Keep what an evaluation came to: with a folder, it is on the disk when this returns."""
        self.history.evaluate(which, number, metrics)
        if self._folder is not None:
            self._folder.save_evaluation(self.history.newest())

    def finish(self, number: int, metrics: MetricRecord, rows: Iterable[Mapping[str, Any]]) -> None:
        """End a round: with a folder, everything is on the disk when this returns."""
        self.round = number
        self.history.train_metrics_clientapp[number] = metrics
        if self._folder is not None:
            state = {
                "model": model_state(self.schema, self.model, self._fixed),
                "history": self.history.as_state(),
                "defense": self.defense.state_dict(),
            }
            self._folder.save(state, rows, round=number)
