"""Stage 2 and 7 for many clients: train them on all cores, evaluate the model on all cores."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from mabrfl.errors import ConfigError, StateError
from mabrfl.simulation.training import engine_checks
from mabrfl.simulation.training.flat import Float32, flatten, float_buffers, layout_of, size, trainable, unflatten
from mabrfl.simulation.training.local import Shard, TrainingOptions, to_tensor
from mabrfl.simulation.training.shared_memory import Board, SharedArray, StartMethod, share
from mabrfl.simulation.training.stacked import width_of
from mabrfl.simulation.training.stacking import largest_stack, stacks_of
from mabrfl.simulation.training.trainer import EVALUATION_SLICE, Trainer, moment_names, num_slices
from mabrfl.simulation.training.workers import Executor, InProcess, Pool, default_start_method, one_thread
from mabrfl.vectors import Floats

if TYPE_CHECKING:
    from mabrfl.simulation.data.dataset import Dataset


@dataclass(frozen=True)
class Trained:
    """The results of the clients of a round, a row each in the order of the call.

    Attributes
    ----------
    updates
        ``(n, d)`` float32: local minus global weights. A row is not finite if that client diverged.
    buffers
        ``(n, b)`` float32: the clients' floating-point buffers; ``None`` if the model has none.

    Notes
    -----
    Both are views of the engine's memory, overwritten by its next ``train``.
    """

    updates: Floats
    buffers: Floats | None


@dataclass(frozen=True)
class Evaluation:
    """The quality of a model on the test set.

    Attributes
    ----------
    accuracy
        Percent of all test examples.
    loss
        Mean cross-entropy.
    per_class
        Accuracy in percent for each class; NaN for a class without test examples.
    attack_success
        Percent of the examples of the attack's goal that the model classifies as the attack wants; None without a goal.
    confusion
        A row per class: how many of its examples the model takes for each class; None with more than
        :data:`MOST_CLASSES` classes.
    """

    accuracy: float
    loss: float
    per_class: NDArray[np.float64]
    attack_success: float | None = None
    confusion: tuple[tuple[int, ...], ...] | None = None


MOST_CLASSES = 50
"""Above this, a confusion matrix would be most of a record."""


class Engine:
    """Local training and evaluation of a federation, on any number of processes with the same result.

    Use it as a context manager, or call :meth:`close`.

    Parameters
    ----------
    model
        Makes the ``nn.Module`` to train, with its initial weights. Called once, under a random state
        derived from ``seed``. If several workers are spawned rather than forked (not Linux, or a machine with
        CUDA), the module's class must be importable, and a script needs the usual
        ``if __name__ == "__main__":``.
    dataset
        Training and test examples.
    shards
        Each client's part of the training set; clients are numbered by it.
    options
        How a client trains.
    seed
        Root of the random streams of training.
    workers
        Processes of one thread each; 1 does everything in the calling process. The result has the same bits.
        Ignored on other devices than the CPU.
    device
        ``"cpu"``, or a PyTorch device such as ``"cuda"``, which trains one client at a time.
    goal
        Inputs that an adversary wants misclassified, and the labels it wants; evaluated with the test set.
    start_method
        ``"fork"`` or ``"spawn"`` for the workers; chosen by the machine by default.
    """

    def __init__(
        self,
        model: Callable[[], nn.Module],
        dataset: Dataset,
        shards: Sequence[Shard],
        options: TrainingOptions | None = None,
        *,
        seed: int = 0,
        workers: int = 1,
        device: str = "cpu",
        goal: tuple[NDArray[Any], NDArray[Any]] | None = None,
        start_method: StartMethod | None = None,
    ) -> None:
        self._options = options or TrainingOptions()
        self._shards = tuple(shards)
        self._labels = dataset.test_labels
        where = engine_checks.device(device)
        engine_checks.workers(workers)
        workers = engine_checks.useful_workers(workers, len(self._shards), len(self._labels))
        module = engine_checks.build(model, seed).to(where)
        channels_last = engine_checks.fit(module, dataset, where)
        engine_checks.shards(self._shards, dataset)
        goal = (dataset.test_inputs[:0], dataset.test_labels[:0]) if goal is None else goal
        engine_checks.goal(goal[0], goal[1], dataset)
        parameters, buffers = trainable(module), float_buffers(module)
        self.layout = layout_of(module)
        self._module = module
        self._measuring: nn.Module | None = None
        self.dimension, self.num_buffers = size(parameters), size(buffers)
        self.initial_weights, self.initial_buffers = _frozen(flatten(parameters)), _frozen(flatten(buffers))
        kept = len(moment_names(self._options)) if self._options.optimizer_state == "kept" else 0
        engine_checks.memory(len(self._shards), self.dimension, 1 + kept)
        self._workers, self._largest_stack = workers, 1
        if self._options.engine == "stacked":
            widths = {width_of(len(shard), self._options.batch_size) for shard in self._shards}
            example = to_tensor(dataset.train_inputs[:1].copy(), where)[0]
            with one_thread():
                self._largest_stack = largest_stack(module, example, dataset.num_classes, widths)
        parallel = workers > 1 and where.type == "cpu"
        method: StartMethod = (start_method or default_start_method()) if parallel else "fork"
        self._board = self._make_board(dataset, goal, len(parameters), method)
        trainer = Trainer(module, self._board, self._shards, self._options, seed=seed, channels_last=channels_last)
        self._executor: Executor = Pool(trainer, workers, method) if parallel else InProcess(trainer)

    def _make_board(
        self, dataset: Dataset, goal: tuple[NDArray[Any], NDArray[Any]], num_parameters: int, method: StartMethod
    ) -> Board:
        clients, width, num_buffers = len(self._shards), self.dimension, self.num_buffers
        kept = self._options.optimizer_state == "kept"
        num_moments = len(moment_names(self._options)) if kept else 0
        slices = num_slices(self._labels) + num_slices(goal[1])

        def zeros(*shape: int, dtype: str = "float32") -> SharedArray:
            return SharedArray(shape, dtype, method)

        return Board(
            train_inputs=share(dataset.train_inputs, method),
            train_labels=share(dataset.train_labels, method),
            test_inputs=share(dataset.test_inputs, method),
            test_labels=share(dataset.test_labels, method),
            goal_inputs=share(goal[0], method),
            goal_labels=share(goal[1].astype(np.int64), method),
            weights=zeros(width),
            buffers=zeros(num_buffers),
            clients=zeros(clients, dtype="int64"),
            poisoned=zeros(clients, dtype="bool"),
            transient=zeros(clients, dtype="bool"),
            order=zeros(clients, dtype="int64"),
            starts=zeros(clients + 1, dtype="int64"),
            updates=zeros(clients, width),
            new_buffers=zeros(clients, num_buffers),
            moments=zeros(clients, num_moments, width),
            steps=zeros(clients, num_parameters if kept else 0, dtype="int64"),
            predicted=zeros(slices, dataset.num_classes, dataset.num_classes, dtype="int64"),
            losses=zeros(slices, dtype="float64"),
        )

    def train(
        self,
        clients: Sequence[int],
        weights: Floats,
        buffers: Floats | None = None,
        *,
        round: int,
        poisoned: Collection[int] = (),
        transient: Collection[int] = (),
    ) -> Trained:
        """Train each client once, from these weights, on its own data.

        Parameters
        ----------
        clients
            The clients that train, each at most once.
        weights, buffers
            The global model; without buffers, the model's initial ones.
        round
            Names the random streams; a round can be repeated.
        poisoned
            Clients that train on their poisoned data.
        transient
            Clients whose optimizer state is never kept: they train only to be observed.
        """
        self._check_clients(clients, poisoned)
        self._load(weights, buffers)
        count, board = len(clients), self._board
        board.clients.array[:count] = clients
        board.poisoned.array[:count] = [client in poisoned for client in clients]
        board.transient.array[:count] = [client in transient for client in clients]
        tasks = self._tasks(clients)
        board.order.array[:count] = [position for task in tasks for position in task]
        board.starts.array[: len(tasks) + 1] = np.cumsum([0, *map(len, tasks)])
        self._executor.run("train", len(tasks), round)
        return Trained(board.updates.array[:count], board.new_buffers.array[:count] if self.num_buffers else None)

    def _tasks(self, clients: Sequence[int]) -> list[list[int]]:
        """Return which positions are trained together."""
        sizes = [len(self._shards[client]) for client in clients]
        # Longest first: the last tasks are short, so that no worker waits long for another.
        order = np.argsort([-size for size in sizes], kind="stable").tolist()
        if self._options.engine == "loop":
            return [[position] for position in order]
        return stacks_of(order, sizes, self._options.batch_size, most=self._largest_stack, workers=self._workers)

    def _check_clients(self, clients: Sequence[int], poisoned: Collection[int]) -> None:
        if len(set(clients)) != len(clients):
            raise ConfigError(f"a client trains at most once a round; got {list(clients)}")
        for client in clients:
            if not 0 <= client < len(self._shards):
                raise ConfigError(f"clients are numbered 0 to {len(self._shards) - 1}; got {client}")
            if client in poisoned and not self._shards[client].can_be_poisoned:
                raise ConfigError(f"client {client} cannot train on poisoned data: it has none")

    def _load(self, weights: Floats, buffers: Floats | None) -> None:
        buffers = self.initial_buffers if buffers is None else buffers
        for name, given, length in (("weights", weights, self.dimension), ("buffers", buffers, self.num_buffers)):
            if given.shape != (length,):
                raise ConfigError(f"the model has {length} {name}; got an array of shape {given.shape}")
        self._board.weights.array[:] = weights
        self._board.buffers.array[:] = buffers

    def evaluate(self, weights: Floats, buffers: Floats | None = None) -> Evaluation:
        """Return accuracy and loss on the whole test set, and the attack success rate."""
        self._load(weights, buffers)
        board, num_classes = self._board, self._board.predicted.array.shape[1]
        self._executor.run("evaluate", len(board.losses.array), 0)
        own = num_slices(self._labels)
        counts = board.predicted.array[:own].sum(axis=0)
        correct, reached = counts.diagonal(), int(np.trace(board.predicted.array[own:].sum(axis=0)))
        examples = np.bincount(self._labels, minlength=num_classes)
        with np.errstate(invalid="ignore"):
            per_class = 100.0 * correct / examples
        total, wanted = len(self._labels), len(board.goal_labels.array)
        return Evaluation(
            accuracy=100.0 * int(correct.sum()) / total,
            loss=sum(board.losses.array[:own].tolist()) / total,
            per_class=per_class,
            attack_success=100.0 * reached / wanted if wanted else None,
            confusion=tuple(map(tuple, counts.tolist())) if num_classes <= MOST_CLASSES else None,
        )

    def accuracy_on(self, examples: NDArray[np.int64], weights: Floats, buffers: Floats | None = None) -> float:
        """Return the share of these training examples that a model classifies correctly; in the calling process."""
        board, buffers = self._board, self.initial_buffers if buffers is None else buffers
        if self._measuring is None:
            self._measuring = copy.deepcopy(self._module).eval()
        unflatten(weights, trainable(self._measuring))
        unflatten(buffers, float_buffers(self._measuring))
        device = next(self._measuring.parameters()).device
        right = 0
        with torch.no_grad(), one_thread():
            for start in range(0, len(examples), EVALUATION_SLICE):
                part = examples[start : start + EVALUATION_SLICE]
                outputs = self._measuring(to_tensor(board.train_inputs.array[part], device))
                right += int((outputs.argmax(1).cpu().numpy() == board.train_labels.array[part]).sum())
        return right / len(examples)

    def module_state(self, weights: Floats, buffers: Floats) -> dict[str, NDArray[Any]]:
        """Return the ``state_dict`` of the model with these weights and buffers, as arrays."""
        module = copy.deepcopy(self._module).cpu()
        unflatten(weights, trainable(module))
        unflatten(buffers, float_buffers(module))
        return {name: tensor.detach().contiguous().numpy().copy() for name, tensor in module.state_dict().items()}

    def state_dict(self) -> dict[str, Any]:
        """Return the optimizer states of the clients that have one; empty unless they are kept."""
        if self._options.optimizer_state == "reset":
            return {}
        steps, moments = self._board.steps.array, self._board.moments.array
        clients = np.flatnonzero(steps.any(axis=1))
        return {"clients": clients, "steps": steps[clients], "moments": moments[clients]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Replace all optimizer states by those that :meth:`state_dict` returned."""
        expected = set(self.state_dict())
        if set(state) != expected:
            policy = self._options.optimizer_state
            raise StateError(
                f"with optimizer_state={policy!r} a saved state has the keys {sorted(expected)}; got {sorted(state)}"
            )
        if not state:
            return
        steps, moments = self._board.steps.array, self._board.moments.array
        clients = engine_checks.saved_array(state, "clients", (len(state["clients"]),), np.int64)
        if not np.array_equal(np.unique(clients), clients) or not np.all((clients >= 0) & (clients < len(steps))):
            raise StateError(f"saved clients must be distinct numbers from 0 to {len(steps) - 1}, in order")
        new_steps = engine_checks.saved_array(state, "steps", (len(clients), *steps.shape[1:]), np.int64)
        new_moments = engine_checks.saved_array(state, "moments", (len(clients), *moments.shape[1:]), np.float32)
        steps[:] = 0
        steps[clients], moments[clients] = new_steps, new_moments

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the workers; the engine cannot be used afterwards. May be called again."""
        self._executor.close()


def _frozen(vector: Float32) -> Float32:
    vector.flags.writeable = False
    return vector
