"""The settings of a run: frozen, validated, unknown keys refused."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, model_validator

from mabrfl.mab.presets import DEFAULT_PRESET

MAX_CLIENTS = 100_000
MAX_ROUNDS = 1_000_000

PlainValue = bool | int | float | str | list[Any]


def _name(value: str) -> str:
    if not value or not value.isprintable() or value != value.strip():
        raise ValueError("must be a name")
    return value


def _attackers(value: Any) -> int | float:
    """Tell a share (a float) from a count (an integer); 0 is both."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("must be a share such as 0.3 or a count such as 15")
    if isinstance(value, float) and not 0 <= value < 1:
        raise ValueError("must be a share from 0 to below 1, or a whole number of clients")
    if value < 0:
        raise ValueError("must not be negative")
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("must hold finite numbers only")
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if not isinstance(value, bool | int | float | str):
        raise ValueError("must hold numbers, strings, booleans and lists of them only")
    return value


def _options(value: Any) -> dict[str, PlainValue]:
    if not isinstance(value, dict):
        raise ValueError("must be a table of options")
    return {str(key): _plain(entry) for key, entry in value.items() if entry is not None}


def _pair(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _before(value: Any) -> Any:
    return "+".join(value) if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value) else value


def _names(value: str) -> str:
    return "+".join(_name(one) for one in value.split("+")) if value else value


Name = Annotated[str, AfterValidator(_name)]
Names = Annotated[str, AfterValidator(_names), BeforeValidator(_before)]
Attackers = Annotated[int | float, PlainValidator(_attackers)]
Options = Annotated[dict[str, PlainValue], PlainValidator(_options)]
Positive = Annotated[float, Field(gt=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Size = Annotated[int, Field(ge=1, le=10_000_000)]
PartitionKind = Literal["dominant-label", "iid", "dirichlet", "shards", "quantity-skew", "gamma-similarity"]

PARTITION_SETTINGS: Mapping[PartitionKind, frozenset[str]] = {
    "dominant-label": frozenset({"q"}),
    "iid": frozenset(),
    "dirichlet": frozenset({"concentration"}),
    "shards": frozenset({"shards"}),
    "quantity-skew": frozenset({"concentration"}),
    "gamma-similarity": frozenset({"gamma"}),
}
"""The settings of each kind of partition that other kinds do not use."""
DEALT_OUT: frozenset[PartitionKind] = frozenset({"shards", "quantity-skew", "gamma-similarity"})
"""Kinds that deal out all training data, each example once."""


@dataclass(frozen=True)
class Neutral:
    """The neutral value of a setting, where it is not the default: a run with this value has no trace of it in its key.

    It belongs beside settings that :func:`~mabrfl.config.resolve` fills in, and beside those whose default has changed.
    """

    value: Any


class Section(BaseModel):
    """What all sections share: no unknown keys, no silent conversions, no change afterwards."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, validate_default=True)


class TrainingConfig(Section):
    """``[training]``: how one client trains.

    Attributes
    ----------
    epochs
        Passes over the client's data per round.
    batch_size
        Examples per step; by default 64, for digits 16.
    optimizer
        Of local training.
    learning_rate
        By default 0.001, for digits 0.01, and for ``sgd`` 0.1.
    momentum
        Of ``sgd`` alone.
    weight_decay
        Of either optimiser.
    optimizer_state
        Point 25 of docs/method.md: whether the local optimiser starts afresh every round (``reset``) or goes on where
        it was (``kept``). By default as the preset has it: paper reset, reference kept.
    init
        He-normal weights and zero biases, or PyTorch's ``default``.
    engine
        ``loop`` trains one client after the other, ``stacked`` many at once, which is faster for small models. They
        agree up to rounding. ``auto`` is the faster one for the model, as measured: ``stacked`` for ``mlp``, else
        ``loop``.
    precision
        Of the arithmetic in local training: ``float32``, or ``bf16``, which is faster for large convolutions on
        processors that have it. Weights, updates and the evaluation are float32 in both. ``bf16`` is for ``loop``.
    """

    epochs: Annotated[int, Field(ge=1, le=1000)] = 3
    batch_size: Size | None = None
    optimizer: Literal["adam", "sgd"] = "adam"
    learning_rate: Positive | None = None
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    optimizer_state: Literal["reset", "kept"] | None = None
    init: Literal["he-normal", "default"] = "he-normal"
    engine: Literal["auto", "loop", "stacked"] = "auto"
    precision: Literal["float32", "bf16"] = "float32"

    @model_validator(mode="after")
    def _check(self) -> TrainingConfig:
        if self.precision == "bf16" and self.engine == "stacked":
            raise ValueError("precision 'bf16' is for engine 'loop'; got engine 'stacked'")
        if self.momentum and self.optimizer != "sgd":
            raise ValueError(f"momentum is for optimizer 'sgd'; got momentum={self.momentum} with '{self.optimizer}'")
        return self


class PartitionConfig(Section):
    """``[partition]``: which data which client has.

    Attributes
    ----------
    kind
        The paper's ``dominant-label`` rule, ``iid`` or ``dirichlet``; or, with all training data dealt out,
        ``shards``, ``quantity-skew`` or ``gamma-similarity``.
    q
        Share of a client's examples that have its dominant label.
    concentration
        Of the Dirichlet distribution (``dirichlet``, ``quantity-skew``); small is more uneven.
    shards
        Shards per client, of data sorted by label.
    gamma
        Of ``gamma-similarity``: the share of a client's examples that is IID.
    sizes
        Smallest and largest number of examples per client, both included. By data set if left out; where all data is
        dealt out, a client has no such limit then.
    draw
        Point 29 of docs/method.md: ``disjoint`` clients, ``unique`` examples within a client, or
        ``replacement``. By data set and preset if left out; where all data is dealt out, always ``disjoint``.
    skip_last
        Point 29 of docs/method.md: never draw the last image of a class, as the released code does.
    dominant
        Point 30 of docs/method.md: dominant labels drawn ``uniform`` or dealt out ``balanced``.
    feature_shift
        Every client sees its inputs in another ``rotation`` (pictures) or ``brightness``.
    shift_strength
        Angles are up to so many times 180 degrees either way, factors up to so much from 1.
    label_noise
        The share of wrong labels at honest clients.
    noisy_clients
        The share of the honest clients that have wrong labels.
    """

    kind: PartitionKind = "dominant-label"
    q: Fraction = 0.5
    concentration: Positive = 0.5
    shards: Annotated[int, Field(ge=1, le=10_000)] = 2
    gamma: Fraction = 0.5
    sizes: Annotated[tuple[Size, Size], BeforeValidator(_pair)] | None = None
    draw: Literal["disjoint", "unique", "replacement"] | None = None
    skip_last: bool | None = None
    dominant: Literal["uniform", "balanced"] = "uniform"
    feature_shift: Literal["none", "rotation", "brightness"] = "none"
    shift_strength: Fraction = 0.25
    label_noise: Fraction = 0.0
    noisy_clients: Fraction = 1.0

    @model_validator(mode="after")
    def _check(self) -> PartitionConfig:
        if self.sizes and self.sizes[0] > self.sizes[1]:
            raise ValueError(f"sizes must be [smallest, largest]; got {list(self.sizes)}")
        if self.kind in DEALT_OUT and self.draw not in (None, "disjoint"):
            raise ValueError(f"draw must be 'disjoint' for kind '{self.kind}'; got '{self.draw}'")
        return self


class RunConfig(Section):
    """One run, completely; what is None is filled in by :func:`~mabrfl.config.resolve`.

    Attributes
    ----------
    dataset, defense, attack
        A name of the catalogue (``mabrfl list``), or ``module:Name`` for your own.
    model
        The same; by default that of the data set.
    selector
        The same; by default the defense's own: ``acs`` for ``mab-rfl``, else ``all``.
    before
        Pre-aggregators in front of the defense's rule, in order: a list, or text such as ``"bucketing+nnm"``. None by
        default.
    preset
        ``hardened``, ``paper`` or ``reference``: MAB-RFL's options, and the conditions of the run that the released
        code has otherwise (optimiser state, data draw, who attacks).
    attackers
        How many clients attack: a float is a share of the clients (rounded down), an integer a count.
    attackers_per_round
        So many of the attackers are among the clients of every round, for a selector that does not learn; 0 leaves it
        to the selector.
    allow_majority
        Permit half or more of the clients to attack, which no defense here claims to withstand.
    attackers_chosen
        Point 38 of docs/method.md: ``random`` ids (paper) or the ``last`` ones (reference).
    clients, rounds
        The paper's K and T; by default those of the data set.
    seed
        The root of all randomness.
    assumed_malicious
        Point 40 of docs/method.md: the number of attackers that rules which need it are told; the true one by default.
    workers
        Worker processes, by default one per core. Their number does not change the result, and is not in the key.
    device
        Where they train: ``cpu``, ``cuda``, ``cuda:1`` or ``mps``. It is not in the key of the run.
    training, partition
        Sections of their own.
    before_options, defense_options, selector_options, attack_options
        The options of these names, checked against their signatures.
    """

    dataset: Name = "digits"
    model: Name | None = None
    defense: Name = "mab-rfl"
    before: Names = ""
    preset: Name = DEFAULT_PRESET
    selector: Name | None = None
    attack: Name = "none"
    attackers: Attackers = 0
    allow_majority: bool = False
    attackers_chosen: Literal["random", "last"] | None = None
    attackers_per_round: Annotated[int, Field(ge=0, le=MAX_CLIENTS)] = 0
    clients: Annotated[int, Field(ge=1, le=MAX_CLIENTS)] | None = None
    rounds: Annotated[int, Field(ge=1, le=MAX_ROUNDS)] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    assumed_malicious: Annotated[int, Field(ge=0)] | None = None
    workers: Annotated[int, Field(ge=1, le=4096)] | None = None
    device: Annotated[str, Field(pattern=r"^(cpu|mps|cuda(:\d{1,3})?)$")] = "cpu"
    training: TrainingConfig = TrainingConfig()
    partition: PartitionConfig = PartitionConfig()
    before_options: Options = {}
    defense_options: Options = {}
    selector_options: Options = {}
    attack_options: Options = {}


class ResolvedTraining(TrainingConfig):
    """``[training]`` with nothing left open."""

    batch_size: Size
    learning_rate: Positive
    optimizer_state: Annotated[Literal["reset", "kept"], Neutral("reset")]
    engine: Annotated[Literal["loop", "stacked"], Neutral("loop")]


class ResolvedPartition(PartitionConfig):
    """``[partition]`` with nothing left open."""

    sizes: Annotated[tuple[Size, Size], BeforeValidator(_pair)] | None
    draw: Literal["disjoint", "unique", "replacement"]
    skip_last: Annotated[bool, Neutral(False)]


class ResolvedConfig(RunConfig):
    """A run with every setting filled in, as :func:`~mabrfl.config.resolve` returns it."""

    model: Name
    selector: Name
    attackers_chosen: Annotated[Literal["random", "last"], Neutral("random")]
    clients: Annotated[int, Field(ge=1, le=MAX_CLIENTS)]
    rounds: Annotated[int, Field(ge=1, le=MAX_ROUNDS)]
    assumed_malicious: Annotated[int, Field(ge=0)]
    workers: Annotated[int, Field(ge=1, le=4096)]
    training: ResolvedTraining
    partition: ResolvedPartition

    @property
    def num_attackers(self) -> int:
        """How many clients attack."""
        return count_attackers(self.attackers, self.clients)


def count_attackers(attackers: int | float, clients: int) -> int:
    """Return the number of attackers: an integer as it is, a float as a share of the clients, rounded down.

    Examples
    --------
    >>> count_attackers(0.3, 50), count_attackers(0.49, 20), count_attackers(7, 20)
    (15, 9, 7)
    """
    # A hair is added so that 0.29 of 100 is 29, although 0.29 * 100 is 28.999999999999996.
    return attackers if isinstance(attackers, int) else math.floor(attackers * clients + 1e-9)
