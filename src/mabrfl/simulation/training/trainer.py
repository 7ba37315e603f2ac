"""The tasks of one process: train a client into its row, evaluate one slice of the test set."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (the name the whole field uses)
from numpy.typing import NDArray
from torch import Tensor, nn

from mabrfl.errors import MabRflError
from mabrfl.simulation.training.flat import flatten, float_buffers, trainable, unflatten
from mabrfl.simulation.training.local import Shard, TrainingOptions, make_optimizer, to_tensor, train_client
from mabrfl.simulation.training.seeding import seeded
from mabrfl.simulation.training.shared_memory import Board
from mabrfl.simulation.training.stacked import LocalData, StackedOptimizer, train_stack
from mabrfl.simulation.training.stacked_model import StackedModel

Task = Literal["train", "evaluate"]

EVALUATION_SLICE = 250
"""Test examples per slice: they fit into a core's cache. The rounding of the loss depends on this number."""


def num_slices(labels: NDArray[Any]) -> int:
    """Return the number of slices that these examples have in the evaluation."""
    return -(-len(labels) // EVALUATION_SLICE)


def moment_names(options: TrainingOptions) -> tuple[str, ...]:
    """Return the names of the optimizer's state per parameter in PyTorch, without the number of steps."""
    if options.optimizer == "adam":
        return ("exp_avg", "exp_avg_sq")
    return ("momentum_buffer",) if options.momentum else ()


class Trainer:
    """One model and one optimizer, used for one client after the other.

    The result of a task does not depend on the process: everything that the task depends on is on the board or is
    set again.
    """

    def __init__(
        self,
        model: nn.Module,
        board: Board,
        shards: Sequence[Shard],
        options: TrainingOptions,
        *,
        seed: int,
        channels_last: bool,
    ) -> None:
        self._model, self._board, self._shards, self._options = model, board, shards, options
        self._seed, self._channels_last = seed, channels_last
        self._optimizer: torch.optim.Optimizer | None = None

    def run(self, task: Task, number: int, round: int) -> None:
        """Do one task; an error names the client or the slice."""
        if self._optimizer is None:
            self._prepare()
        try:
            if task == "train":
                self._train(number, round)
            else:
                self._evaluate(number)
        except Exception as error:
            raise MabRflError(f"{self.describe(task, number, round)}: {type(error).__name__}: {error}") from error

    def describe(self, task: Task, number: int, round: int) -> str:
        """Return the message that this task failed."""
        if task == "train":
            positions = self._positions(number)
            name = f"client {self._board.clients.array[positions[0]]}"
            name += f" and {len(positions) - 1} more" if len(positions) > 1 else ""
            return f"training of {name} in round {round} failed"
        start, others = number * EVALUATION_SLICE, num_slices(self._board.test_labels.array)
        if number >= others:
            return f"evaluation on the attack's goal, slice {number - others}, failed"
        return f"evaluation on test examples {start} to {start + EVALUATION_SLICE - 1} failed"

    def _prepare(self) -> None:
        """Make the optimizer and its state, in the process that uses them."""
        tensors = (*self._model.parameters(), *self._model.buffers())
        if any(tensor.is_shared() for tensor in tensors):  # type: ignore[no-untyped-call]
            # PyTorch passes tensors to spawned processes in memory that they share.
            self._model = copy.deepcopy(self._model)
        self._parameters = trainable(self._model)
        self._buffers = float_buffers(self._model)
        others = [buffer for buffer in self._model.buffers() if not buffer.is_floating_point()]
        self._fixed = [(buffer, buffer.clone()) for buffer in others]
        self._device = self._parameters[0].device
        self._optimizer = make_optimizer(self._model, self._options)
        # PyTorch makes an optimizer's state at its first step; take one, so that there is a state to set.
        for parameter in self._parameters:
            parameter.grad = torch.zeros_like(parameter)
        self._optimizer.step()
        self._optimizer.zero_grad()

    def _load_model(self) -> None:
        for buffer, initial in self._fixed:
            buffer.copy_(initial)
        unflatten(self._board.weights.array, self._parameters)
        unflatten(self._board.buffers.array, self._buffers)

    def _positions(self, number: int) -> list[int]:
        """Return the positions of the clients that this task trains."""
        start, stop = self._board.starts.array[number : number + 2]
        positions: list[int] = self._board.order.array[start:stop].tolist()
        return positions

    def _train(self, number: int, round_number: int) -> None:
        self._load_model()
        if self._options.engine == "stacked":
            self._train_together(self._positions(number), round_number)
        else:
            self._train_alone(self._positions(number)[0], round_number)

    def _train_together(self, positions: list[int], round_number: int) -> None:
        board, model = self._board, StackedModel(self._model.train())
        clients = [int(board.clients.array[position]) for position in positions]
        data = [
            self._data(client, poisoned=bool(board.poisoned.array[position]))
            for client, position in zip(clients, positions, strict=True)
        ]
        weights = model.zeros(len(clients) + 1)
        weights[:, : model.dimension] = torch.from_numpy(board.weights.array).to(model.device)
        optimizer = self._stacked_optimizer(model, clients)
        train_stack(
            model, data, self._options, weights, optimizer, seed=self._seed, round=round_number, clients=clients
        )
        rows = weights[:-1, : model.dimension].cpu().numpy()
        with np.errstate(invalid="ignore", over="ignore"):  # as in _train_alone
            board.updates.array[positions] = rows - board.weights.array
        board.new_buffers.array[positions] = board.buffers.array
        if self._options.optimizer_state == "kept":
            lasting = [place for place, position in enumerate(positions) if not board.transient.array[position]]
            self._store_stacked(optimizer, [clients[place] for place in lasting], lasting, model.dimension)

    def _stacked_optimizer(self, model: StackedModel, clients: list[int]) -> StackedOptimizer:
        """Return a new optimizer, or one with the clients' states of their last rounds."""
        moments = [model.zeros(len(clients) + 1) for _ in moment_names(self._options)]
        steps = np.zeros(len(clients), dtype=np.int64)
        if self._options.optimizer_state == "kept":
            steps[:] = self._board.steps.array[clients, 0]
            known = [place for place, count in enumerate(steps) if count]  # the others start from zero
            for number, moment in enumerate(moments):
                kept = self._board.moments.array[[clients[place] for place in known], number]
                moment[known, : model.dimension] = torch.from_numpy(kept).to(model.device)
        return StackedOptimizer(self._options, moments, steps)

    def _store_stacked(self, optimizer: StackedOptimizer, clients: list[int], rows: list[int], dimension: int) -> None:
        for number, moment in enumerate(optimizer.moments):
            self._board.moments.array[clients, number] = moment[rows, :dimension].cpu().numpy()
        self._board.steps.array[clients] = optimizer.steps[rows, None] if self._options.optimizer == "adam" else 1

    def _train_alone(self, position: int, round_number: int) -> None:
        board = self._board
        client = int(board.clients.array[position])
        data = self._data(client, poisoned=bool(board.poisoned.array[position]))
        self._load_optimizer(client)
        train_client(
            self._model,
            data.inputs,
            data.labels,
            self._options,
            seed=self._seed,
            round=round_number,
            client=client,
            examples=data.examples,
            optimizer=self._optimizer,
            channels_last=self._channels_last,
            constraint=data.constraint,
        )
        row = board.updates.array[position]
        flatten(self._parameters, out=row)
        # A client that diverged has infinities here; the server's intake judges that row.
        with np.errstate(invalid="ignore", over="ignore"):
            np.subtract(row, board.weights.array, out=row)
        flatten(self._buffers, out=board.new_buffers.array[position])
        if not board.transient.array[position]:
            self._store_optimizer(client)

    def _data(self, client: int, *, poisoned: bool) -> LocalData:
        """Return the data that a client trains on."""
        shard, board = self._shards[client], self._board
        if not poisoned:
            return LocalData(board.train_inputs.array, board.train_labels.array, shard.indices)
        inputs, labels = shard.poisoned_inputs, shard.poisoned_labels
        inputs = board.train_inputs.array[shard.indices] if inputs is None else inputs
        labels = board.train_labels.array[shard.indices] if labels is None else labels
        return LocalData(inputs, labels, np.arange(len(shard)), shard.constraint)

    def _states(self) -> list[dict[str, Tensor]]:
        assert self._optimizer is not None
        return [self._optimizer.state[parameter] for parameter in self._parameters]

    def _load_optimizer(self, client: int) -> None:
        """Reset the optimizer, or restore this client's state of its last round."""
        steps = self._board.steps.array
        if self._options.optimizer_state == "reset" or not steps[client].any():
            for state in self._states():
                for value in state.values():
                    if isinstance(value, Tensor):
                        value.zero_()
            return
        for number, name in enumerate(moment_names(self._options)):
            unflatten(self._board.moments.array[client, number], [state[name] for state in self._states()])
        for state, count in zip(self._states(), steps[client], strict=True):
            if "step" in state:
                state["step"].fill_(int(count))

    def _store_optimizer(self, client: int) -> None:
        if self._options.optimizer_state == "reset":
            return
        for number, name in enumerate(moment_names(self._options)):
            flatten([state[name] for state in self._states()], out=self._board.moments.array[client, number])
        counts = [int(state["step"]) if "step" in state else 1 for state in self._states()]
        self._board.steps.array[client] = counts

    def _evaluate(self, number: int) -> None:
        board = self._board
        inputs, targets, place = board.test_inputs.array, board.test_labels.array, number
        if number >= num_slices(targets):
            inputs, targets, place = board.goal_inputs.array, board.goal_labels.array, number - num_slices(targets)
        part = slice(place * EVALUATION_SLICE, (place + 1) * EVALUATION_SLICE)
        labels = targets[part]
        self._load_model()
        self._model.eval()
        # Seeded for models that draw random numbers in evaluation too.
        with torch.no_grad(), seeded(self._seed, "evaluate", number, device=self._device):
            batch = to_tensor(inputs[part].copy(), self._device, channels_last=self._channels_last)
            outputs = self._model(batch)
            target = torch.from_numpy(labels.copy()).to(self._device)
            board.losses.array[number] = F.cross_entropy(outputs, target, reduction="sum").item()
            predicted = outputs.argmax(1).cpu().numpy()
        num_classes = board.predicted.array.shape[1]
        known = predicted < num_classes  # a model may have more outputs
        pairs = labels[known] * num_classes + predicted[known]
        board.predicted.array[number] = np.bincount(pairs, minlength=num_classes**2).reshape(num_classes, num_classes)
