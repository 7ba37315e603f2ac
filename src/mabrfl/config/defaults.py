"""The settings that a run leaves open are filled in: by its data set, its preset and its defense."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pydantic import ValidationError

from mabrfl import catalog
from mabrfl.config.model import DEALT_OUT, ResolvedConfig, RunConfig, count_attackers
from mabrfl.config.toml import error_in_one_line
from mabrfl.errors import ConfigError
from mabrfl.mab.presets import options as preset_options

SGD_LEARNING_RATE = 0.1


def resolve(config: RunConfig) -> ResolvedConfig:
    """Return the run with every setting filled in; a run that is resolved already is returned as it is.

    Raises
    ------
    ConfigError
        If a name is unknown, an option does not exist, or settings contradict each other.
    """
    if isinstance(config, ResolvedConfig):
        return config
    filled = config.model_dump()
    defaults = catalog.entry("datasets", config.dataset).defaults
    filled["model"] = config.model or defaults.model
    filled["selector"] = config.selector or catalog.entry("defenses", config.defense).selector
    for kind in catalog.KINDS:
        key = kind.removesuffix("s")
        filled[key] = catalog.known_name(kind, filled[key])
    filled["before"] = "+".join(catalog.before_names(config.before))
    filled["clients"] = config.clients or defaults.clients
    filled["rounds"] = config.rounds or defaults.rounds
    filled["workers"] = config.workers or available_cores()
    _fill_conditions(filled, defaults)
    _fill_training(filled["training"], defaults)
    if filled["training"]["engine"] == "auto":
        stacked = catalog.entry("models", filled["model"]).stacked and filled["training"]["precision"] == "float32"
        filled["training"]["engine"] = "stacked" if stacked else "loop"
    _fill_attackers(filled)
    _fill_options(filled)
    try:
        return ResolvedConfig(**filled)
    except ValidationError as error:  # the user's settings are checked already: these are a plug-in's defaults
        raise ConfigError(error_in_one_line(error, {}, f"defaults of data set '{config.dataset}': ")) from None


def _fill_conditions(filled: dict[str, Any], defaults: catalog.DatasetDefaults) -> None:
    """Fill in the settings that the preset decides, and after it the data set."""
    conditions = catalog.entry("presets", filled["preset"]).conditions
    partition, training = filled["partition"], filled["training"]
    filled["attackers_chosen"] = filled["attackers_chosen"] or conditions.attackers_chosen
    training["optimizer_state"] = training["optimizer_state"] or conditions.optimizer_state
    if partition["kind"] in DEALT_OUT:
        partition["draw"] = "disjoint"
    else:
        partition["sizes"] = partition["sizes"] or defaults.sizes
        partition["draw"] = partition["draw"] or conditions.draw or defaults.draw
    if partition["skip_last"] is None:
        partition["skip_last"] = conditions.skip_last and partition["draw"] == "replacement"


def _fill_training(training: dict[str, Any], defaults: catalog.DatasetDefaults) -> None:
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
            "(allow_majority = true lifts this; on the command line: --set allow_majority=true)"
        )
    if filled["attack"] == "none":
        # Nobody attacks: no client is counted as a missed attacker, and no rule expects one.
        filled["attackers"] = filled["attackers_per_round"] = count = 0
    if filled["attackers_per_round"] > count:
        raise ConfigError(
            f"attackers_per_round must be at most {count}, the attackers; got {filled['attackers_per_round']}"
        )
    if filled["attackers_per_round"] and catalog.entry("selectors", filled["selector"]).learns:
        raise ConfigError(
            f"attackers_per_round is for a selector that does not learn, such as 'uniform'; '{filled['selector']}' "
            "chooses by reputation, and the schedule would overrule it"
        )
    if filled["assumed_malicious"] is None:
        filled["assumed_malicious"] = count
    elif filled["assumed_malicious"] > clients:
        raise ConfigError(
            f"assumed_malicious must be at most {clients}, the clients; got {filled['assumed_malicious']}"
        )


def _fill_options(filled: dict[str, Any]) -> None:
    """List every option of the defense, the selector and the attack, not only those that were set."""
    method = catalog.entry("defenses", filled["defense"])
    defense, selector = filled["defense_options"], filled["selector_options"]
    complete = catalog.complete_options("selectors", filled["selector"], selector)
    if catalog.entry("selectors", filled["selector"]).presets:
        of_preset = asdict(preset_options(filled["preset"], filled["dataset"]))
        complete = {name: of_preset.get(name, value) for name, value in complete.items()} | selector
    if method.presets:
        if filled["selector"] == method.selector:
            defense, complete = _merged(defense, selector), {}
        defense = asdict(preset_options(filled["preset"], filled["dataset"], **defense))
    else:
        defense = catalog.complete_options("defenses", filled["defense"], defense)
    filled["defense_options"], filled["selector_options"] = defense, complete
    before = catalog.before_names(filled["before"])
    catalog.check_before(filled["defense"], before, filled["before_options"])
    filled["before_options"] = catalog.complete_before(before, filled["before_options"])
    filled["attack_options"] = catalog.complete_options("attacks", filled["attack"], filled["attack_options"])


def _merged(defense: Mapping[str, Any], selector: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a defense and of its own selector: they may stand in either table, but not differ."""
    for name, value in selector.items():
        if defense.get(name, value) != value:
            raise ConfigError(f"defense_options.{name} is {defense[name]!r} but selector_options.{name} is {value!r}")
    return {**defense, **selector}


def available_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
