"""Stage 2 for one client: the local training loop."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (the name the whole field uses)
from numpy.typing import NDArray
from torch import Tensor, nn

from mabrfl.errors import ConfigError, suggest
from mabrfl.rng import generator
from mabrfl.simulation.training.flat import trainable
from mabrfl.simulation.training.seeding import seeded

OptimizerName = Literal["adam", "sgd"]
StatePolicy = Literal["reset", "kept"]
EngineName = Literal["loop", "stacked"]
Precision = Literal["float32", "bf16"]
Array = NDArray[Any]
_Kind = TypeVar("_Kind", bound=torch.optim.Optimizer)


@dataclass(frozen=True)
class Shard:
    """One client's local data.

    Attributes
    ----------
    indices
        Its examples, as positions in the training set.
    poisoned_inputs
        Inputs for training on poisoned data, a row per index; ``None`` for the same inputs.
    poisoned_labels
        Labels for training on poisoned data; ``None`` for the same labels.
    constraint
        Weight of the distance to the global model in the loss on poisoned data.
    """

    indices: NDArray[np.int64]
    poisoned_inputs: Array | None = None
    poisoned_labels: NDArray[np.int64] | None = None
    constraint: float = 0.0

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def can_be_poisoned(self) -> bool:
        """Whether there is poisoned data."""
        return self.poisoned_inputs is not None or self.poisoned_labels is not None


@dataclass(frozen=True)
class TrainingOptions:
    """How a client trains.

    Parameters
    ----------
    epochs
        Passes over the client's data in a round (the paper: 3).
    batch_size
        Examples per step; the last batch of an epoch may be smaller.
    optimizer
        ``"adam"`` or ``"sgd"``.
    learning_rate
        Its step size.
    momentum
        SGD's; must be 0 for Adam.
    weight_decay
        L2 penalty added to the gradient.
    optimizer_state
        ``"reset"``: a new optimizer every round. ``"kept"``: each client continues with the moments and step count
        of its last round, as the released code does.
    engine
        ``"loop"``: one client after the other. ``"stacked"``: many clients at once, which is faster for small models
        and agrees with the loop up to rounding; a model that cannot be stacked is refused.
    precision
        Of the arithmetic in the network: ``"float32"``, or ``"bf16"`` (PyTorch's autocast to bfloat16), which is faster
        for large convolutions on processors that have it. Weights, gradients of weights, the optimizer and the loss
        are float32 in both. Only for ``engine="loop"``.
    """

    epochs: int = 3
    batch_size: int = 64
    optimizer: OptimizerName = "adam"
    learning_rate: float = 1e-3
    momentum: float = 0.0
    weight_decay: float = 0.0
    optimizer_state: StatePolicy = "reset"
    engine: EngineName = "loop"
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ConfigError(f"{name} must be an integer of at least 1; got {value!r}")
        choices = {
            "optimizer": OptimizerName,
            "optimizer_state": StatePolicy,
            "engine": EngineName,
            "precision": Precision,
        }
        for name, allowed in ((name, get_args(choice)) for name, choice in choices.items()):
            if (value := getattr(self, name)) not in allowed:
                raise ConfigError(f"unknown {name} {value!r}{suggest(str(value), allowed)}")
        if not (_is_number(self.learning_rate) and self.learning_rate > 0):
            raise ConfigError(f"learning_rate must be a finite number above 0; got {self.learning_rate!r}")
        if not (_is_number(self.momentum) and 0 <= self.momentum < 1):
            raise ConfigError(f"momentum must be a number in [0, 1); got {self.momentum!r}")
        if self.momentum and self.optimizer == "adam":
            raise ConfigError(f"momentum belongs to optimizer 'sgd'; got momentum={self.momentum!r} with 'adam'")
        if not (_is_number(self.weight_decay) and self.weight_decay >= 0):
            raise ConfigError(f"weight_decay must be a finite number of at least 0; got {self.weight_decay!r}")
        if self.precision == "bf16" and self.engine == "stacked":
            raise ConfigError("precision 'bf16' is for engine 'loop'; got engine 'stacked'")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def make_optimizer(model: nn.Module, options: TrainingOptions) -> torch.optim.Optimizer:
    """Return the optimizer for a model; the fused one, if PyTorch has it for the model's device."""
    parameters = trainable(model)
    settings: dict[str, Any] = {"lr": options.learning_rate, "weight_decay": options.weight_decay}
    if all(parameter.device.type in ("cpu", "cuda") for parameter in parameters):
        settings["fused"] = True
    if options.optimizer == "adam":
        return _Adam(parameters, **settings)
    return _SGD(parameters, momentum=options.momentum, **settings)


def _without_compiler(kind: type[_Kind]) -> type[_Kind]:
    """Return an optimizer with the same arithmetic whose methods do not import PyTorch's compiler.

    The wrappers around these methods import 800 modules, which takes longer than a short run.
    """
    own: dict[str, Any] = {name: inspect.unwrap(getattr(kind, name)) for name in ("add_param_group", "zero_grad")}
    # One of the wrappers turns gradients off.
    own["step"] = torch.no_grad()(inspect.unwrap(kind.step))
    return type(kind.__name__, (kind,), own)


_Adam, _SGD = _without_compiler(torch.optim.Adam), _without_compiler(torch.optim.SGD)


def batches(
    num_examples: int, options: TrainingOptions, rng: np.random.Generator, *, join_single: bool = False
) -> Iterator[NDArray[np.int64]]:
    """Yield the positions of each batch: every epoch all examples once, in a new order.

    With ``join_single`` a last batch of one example is joined to the batch before it.
    """
    for _ in range(options.epochs):
        order = rng.permutation(num_examples)
        starts = list(range(0, num_examples, options.batch_size))
        if join_single and len(starts) > 1 and num_examples - starts[-1] == 1:
            starts.pop()
        yield from np.split(order, starts[1:])


def to_tensor(rows: Array, device: torch.device | str = "cpu", *, channels_last: bool = False) -> Tensor:
    """Return a batch of inputs as float32: bytes scaled by 1/255, other numbers as they are.

    Always a copy in PyTorch's own memory, which is aligned: the last bits of a matrix product may depend on
    alignment.
    """
    tensor = torch.from_numpy(rows).to(device).to(torch.float32, copy=True)
    if rows.dtype == np.uint8:
        tensor.div_(255)
    return tensor.contiguous(memory_format=torch.channels_last) if channels_last else tensor


def train_client(
    model: nn.Module,
    inputs: Array,
    labels: Array,
    options: TrainingOptions,
    *,
    seed: int,
    round: int,
    client: int,
    examples: NDArray[np.int64] | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    channels_last: bool = False,
    constraint: float = 0.0,
) -> None:
    """Train a model, in place, on one client's data with cross-entropy.

    The order of the examples comes from the stream ``(seed, "train", round, client)``, dropout from
    ``(seed, "dropout", round, client)``; the caller's global random state stays as it was.

    Parameters
    ----------
    model
        Starts from its present weights.
    inputs, labels
        The data; :func:`to_tensor` says how inputs are scaled.
    options
        Epochs, batch size, optimizer.
    examples
        Positions of this client's examples in ``inputs`` and ``labels``; all of them if left out.
    optimizer
        The optimizer to use, from :func:`make_optimizer`; a new one if left out.
    channels_last
        Store images channels last, which makes convolutions on CPUs much faster; the caller does the same for
        the model.
    constraint
        c: the loss is (1 - c) times the cross-entropy plus c times the distance to the first weights.

    Notes
    -----
    If the model has batch normalisation, which cannot normalise a batch of one example, a last
    batch of one is joined to the batch before it.
    """
    examples = np.arange(len(labels)) if examples is None else examples
    optimizer = make_optimizer(model, options) if optimizer is None else optimizer
    device = next(model.parameters()).device
    rng = generator(seed, "train", round, client)
    start = [parameter.detach().clone() for parameter in trainable(model)] if constraint else []
    with seeded(seed, "dropout", round, client, device=device):
        model.train()
        for positions in batches(len(examples), options, rng, join_single=_has_batch_norm(model)):
            chosen = examples[positions]
            batch = to_tensor(inputs.take(chosen, axis=0), device, channels_last=channels_last)
            target = torch.from_numpy(labels.take(chosen)).to(device)
            optimizer.zero_grad()
            loss = F.cross_entropy(_scores(model, batch, options.precision), target)
            if constraint:
                loss = (1 - constraint) * loss + constraint * _distance(trainable(model), start)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()


def _scores(model: nn.Module, batch: Tensor, precision: Precision) -> Tensor:
    """Return the outputs of the model, computed with this precision; with bf16 they are float32 again."""
    outputs: Tensor
    if precision == "float32":
        outputs = model(batch)
        return outputs
    with torch.autocast(batch.device.type, torch.bfloat16):
        outputs = model(batch)
    return outputs.float()


def _distance(parameters: list[Tensor], start: list[Tensor]) -> Tensor:
    """Return the Euclidean distance of the parameters from these values; its gradient is 0 where it is 0."""
    apart = [(parameter - first).flatten() for parameter, first in zip(parameters, start, strict=True)]
    distance: Tensor = torch.linalg.vector_norm(torch.cat(apart))
    return distance


def _has_batch_norm(model: nn.Module) -> bool:
    kinds = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
    return any(isinstance(module, kinds) for module in model.modules())
