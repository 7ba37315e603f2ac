"""What depends on something else: every setting left open, filled in; and the name of the result."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from mabrfl import catalog
from mabrfl.config.model import ResolvedConfig, RunConfig, count_attackers
from mabrfl.errors import ConfigError, suggest
from mabrfl.mab.presets import PRESETS
from mabrfl.mab.presets import options as preset_options
from mabrfl.simulation.data.partition import DEFAULT_DRAWS, PAPER_SIZES

MAB_RFL, ACS = "mab-rfl", "acs"


@dataclass(frozen=True)
class DatasetDefaults:
    """What a data set suggests where the user says nothing; its sizes and draw are in the data package."""

    model: str = "mlp"
    clients: int = 20
    rounds: int = 30
    batch_size: int = 64
    learning_rate: float = 1e-3


DATASET_DEFAULTS: Mapping[str, DatasetDefaults] = {
    # Clients this small make a handful of steps a round: with the paper's batches and learning rate they hardly
    # leave the starting point, and honest updates are so alike that they pass for sybils.
    "digits": DatasetDefaults(batch_size=16, learning_rate=1e-2),
    "mnist": DatasetDefaults("mnist-cnn", clients=50, rounds=100),
    "fashion-mnist": DatasetDefaults("mnist-cnn", clients=50, rounds=100),
    "cifar10": DatasetDefaults("vgg-lite", clients=50, rounds=100),
}
"""By name [audit 26-28]; the others are the user's own."""

SGD_LEARNING_RATE = 0.1


@dataclass(frozen=True)
class Conditions:
    """What a preset says about the run around the defense; [audit 25, 29, 38]."""

    optimizer_state: Literal["reset", "kept"] = "reset"
    attackers_chosen: Literal["random", "last"] = "random"
    draw: Literal["replacement"] | None = None
    skip_last: bool = False


CONDITIONS: Mapping[str, Conditions] = {
    "reference": Conditions(optimizer_state="kept", attackers_chosen="last", draw="replacement", skip_last=True)
}


def resolve(config: RunConfig) -> ResolvedConfig:
    """Return the run with every setting filled in; what is filled in already stays as it is.

    Raises
    ------
    ConfigError
        If a name is unknown, an option does not exist, or settings contradict each other.
    """
    if config.preset not in PRESETS:
        raise ConfigError(f"unknown preset '{config.preset}'{suggest(config.preset, PRESETS)}")
    defaults = DATASET_DEFAULTS.get(config.dataset, DatasetDefaults())
    filled = config.model_dump()
    filled["model"] = config.model or defaults.model
    filled["selector"] = config.selector or (ACS if config.defense == MAB_RFL else "all")
    for kind in catalog.KINDS:
        key = kind.removesuffix("s")
        filled[key] = catalog.known_name(kind, filled[key])
    filled["clients"] = config.clients or defaults.clients
    filled["rounds"] = config.rounds or defaults.rounds
    filled["workers"] = config.workers or available_cores()
    _fill_conditions(filled, config)
    _fill_training(filled["training"], defaults)
    _fill_attackers(filled)
    _fill_options(filled)
    return ResolvedConfig(**filled)


def _fill_conditions(filled: dict[str, Any], config: RunConfig) -> None:
    conditions = CONDITIONS.get(config.preset, Conditions())
    partition, training = filled["partition"], filled["training"]
    filled["attackers_chosen"] = config.attackers_chosen or conditions.attackers_chosen
    training["optimizer_state"] = config.training.optimizer_state or conditions.optimizer_state
    partition["sizes"] = config.partition.sizes or PAPER_SIZES.get(config.dataset, PAPER_SIZES["digits"])
    partition["draw"] = config.partition.draw or conditions.draw or DEFAULT_DRAWS.get(config.dataset, "unique")
    if config.partition.skip_last is None:
        partition["skip_last"] = conditions.skip_last and partition["draw"] == "replacement"


def _fill_training(training: dict[str, Any], defaults: DatasetDefaults) -> None:
    training["batch_size"] = training["batch_size"] or defaults.batch_size
    suggested = SGD_LEARNING_RATE if training["optimizer"] == "sgd" else defaults.learning_rate
    training["learning_rate"] = training["learning_rate"] or suggested


def _fill_attackers(filled: dict[str, Any]) -> None:
    attackers, clients = filled["attackers"], filled["clients"]
    count = count_attackers(attackers, clients)
    if attackers and not count:
        raise ConfigError(f"attackers: {attackers} of {clients} clients is less than one client")
    if count >= clients:
        raise ConfigError(f"attackers must be fewer than the clients; got {count} of {clients}")
    if 2 * count >= clients and not filled["allow_majority"]:
        raise ConfigError(
            f"attackers must be fewer than half of the clients; got {count} of {clients} "
            "(allow_majority = true lifts this)"
        )
    if filled["attack"] == "none":
        # Nobody attacks: no client is to be counted as a missed attacker, and no rule told of any.
        filled["attackers"] = count = 0
    if filled["assumed_malicious"] is None:
        filled["assumed_malicious"] = count
    elif filled["assumed_malicious"] > clients:
        raise ConfigError(
            f"assumed_malicious must be at most {clients}, the clients; got {filled['assumed_malicious']}"
        )


def _fill_options(filled: dict[str, Any]) -> None:
    """List every option of the defense, the selector and the attack, not only those that were set."""
    defense, selector = filled["defense_options"], filled["selector_options"]
    of_preset = asdict(preset_options(filled["preset"], filled["dataset"]))
    if filled["selector"] == ACS:
        own = catalog.complete_options("selectors", ACS, {})
        catalog.complete_options("selectors", ACS, selector)
        selector = {name: of_preset.get(name, value) for name, value in own.items()} | selector
    else:
        selector = catalog.complete_options("selectors", filled["selector"], selector)
    if filled["defense"] == MAB_RFL:
        if filled["selector"] == ACS:
            defense, selector = _merged(defense, filled["selector_options"]), {}
        defense = asdict(preset_options(filled["preset"], filled["dataset"], **defense))
    else:
        defense = catalog.complete_options("defenses", filled["defense"], defense)
    filled["defense_options"], filled["selector_options"] = defense, selector
    filled["attack_options"] = catalog.complete_options("attacks", filled["attack"], filled["attack_options"])


def _merged(defense: Mapping[str, Any], selector: Mapping[str, Any]) -> dict[str, Any]:
    """ACS is part of MAB-RFL, so its options may stand in either table, but not differ."""
    for name, value in selector.items():
        if defense.get(name, value) != value:
            raise ConfigError(f"defense_options.{name} is {defense[name]!r} but selector_options.{name} is {value!r}")
    return {**defense, **selector}


def available_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
