"""From names and options to objects. Components get plain arguments, never a configuration."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from mabrfl.catalog.names import BUILT_IN, known_name, resolve_name
from mabrfl.catalog.options import make
from mabrfl.errors import ConfigError, DatasetError, MabRflError
from mabrfl.mab.presets import options as preset_options
from mabrfl.protocols import Stateful
from mabrfl.rng import ClientId
from mabrfl.simulation.data.dataset import Dataset
from mabrfl.updates import Outcome, Updates

if TYPE_CHECKING:
    from torch import nn

    from mabrfl.attacks import Attack
    from mabrfl.config import ResolvedConfig, RunConfig
    from mabrfl.defense import Defense
    from mabrfl.protocols import Rule, Selector

_NONE: Mapping[str, Any] = {}


def build_rule(
    name: str, options: Mapping[str, Any] = _NONE, *, num_malicious: int = 0, num_clients: int = 0, seed: int = 0
) -> Rule:
    """Return an aggregation rule: a class is instantiated, a plain function ``cohort -> Decision`` will do too.

    Parameters
    ----------
    name, options
        See ``mabrfl list defenses``; options are checked against the constructor.
    num_malicious, num_clients, seed
        Passed on if the constructor has an argument of that name.
    """
    if known_name("defenses", name) == "mab-rfl":
        from mabrfl.mab.method import rule_of  # noqa: PLC0415 (only what is asked for is imported)

        return rule_of(preset_options(**options))
    context = {"num_malicious": num_malicious, "num_clients": num_clients, "seed": seed}
    rule: Rule = _callable("defense", name, make("defenses", name, options, context))
    return rule


def build_selector(name: str, options: Mapping[str, Any] = _NONE, *, num_clients: int = 0, seed: int = 0) -> Selector:
    """Return a selector: a class is instantiated, a plain function ``candidates -> ids`` will do too."""
    context = {"num_clients": num_clients, "seed": seed}
    selector: Selector = _callable("selector", name, make("selectors", name, options, context))
    return selector


def build_attack(
    name: str, options: Mapping[str, Any] = _NONE, *, num_malicious: int = 0, num_clients: int = 0, seed: int = 0
) -> Attack | None:
    """Return an attack, or None for ``"none"``; a plain function ``view -> rows`` is wrapped."""
    if known_name("attacks", name) == "none":
        return None
    from mabrfl.attacks import as_attack  # noqa: PLC0415 (only what is asked for is imported)

    context = {"num_malicious": num_malicious, "num_clients": num_clients, "seed": seed}
    return as_attack(make("attacks", name, options, context))


def build_defense(config: RunConfig, num_malicious: int | None = None) -> Defense:
    """Return the defense of a run: MAB-RFL, or its rule with its selector, or the user's own.

    Parameters
    ----------
    config
        Resolved or not.
    num_malicious
        What rules that need the number of attackers are told; ``assumed_malicious`` by default.
    """
    from mabrfl.config import resolve  # noqa: PLC0415 (configs are checked against this catalogue: a circle)
    from mabrfl.defense import Defense  # noqa: PLC0415 (only what is asked for is imported)
    from mabrfl.mab.method import MabRfl  # noqa: PLC0415 (only what is asked for is imported)

    run = resolve(config)
    name, seed = run.defense, run.seed
    told = run.assumed_malicious if num_malicious is None else num_malicious
    if name == "mab-rfl":
        selector = None if run.selector == "acs" else _selector_of(run)
        options: dict[str, Any] = dict(run.defense_options)
        return MabRfl(run.preset, seed=seed, selector=selector, **options)
    context = {"num_malicious": told, "num_clients": run.clients, "seed": seed}
    made = make("defenses", name, run.defense_options, context)
    if callable(getattr(made, "select", None)) and callable(getattr(made, "aggregate", None)):
        if run.selector != "all":
            raise ConfigError(
                f"defense '{name}' selects clients itself; it takes no selector, but got '{run.selector}'"
            )
        own: Any = made if callable(getattr(made, "combine", None)) else OneStepDefense(made, name)
        return cast("Defense", own)
    return Defense(_callable("defense", name, made), selector=_selector_of(run), seed=seed, name=name)


class OneStepDefense:
    """A user's defense with ``select`` and ``aggregate`` alone, as the stages of a round call it."""

    def __init__(self, own: Any, name: str) -> None:
        self.own, self.name = own, name

    @property
    def reputation(self) -> Mapping[ClientId, tuple[float, float]]:
        """What the user's defense believes of its clients, if it says so."""
        return getattr(self.own, "reputation", {})

    def select(self, client_ids: Sequence[ClientId], *, round: int) -> list[ClientId]:
        """Stage 1."""
        return list(self.own.select(client_ids, round=round))

    def screen(self, updates: Updates, *, round: int) -> Outcome:
        """Stages 4 to 6 in one."""
        return self.aggregate(updates, round=round)

    def reward(self, outcome: Outcome) -> None:
        """Stage 5: done already."""

    def combine(self, outcome: Outcome) -> Outcome:
        """Stage 6: done already."""
        return outcome

    def aggregate(self, updates: Updates, *, round: int) -> Outcome:
        """Stages 4 to 6."""
        outcome = self.own.aggregate(updates, round=round)
        if not isinstance(outcome, Outcome):
            raise ConfigError(f"defense '{self.name}': aggregate must return an Outcome; got {type(outcome).__name__}")
        return outcome

    def state_dict(self) -> dict[str, Any]:
        """Return what the user's defense remembers, if it does."""
        return self.own.state_dict() if isinstance(self.own, Stateful) else {}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Hand a state back to the user's defense, if it has one."""
        if isinstance(self.own, Stateful):
            self.own.load_state_dict(state)


def build_model(name: str, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Return a network for this shape of input and number of classes, by name or ``module:Name``.

    What ``module:Name`` stands for may be a class or a function with parameters ``input_shape`` and
    ``num_classes`` (either, both, or none of them). Lazy layers are shown a batch of zeros, and have their sizes then.
    """
    import torch  # noqa: PLC0415 (a second of import time that listing names does not need)

    factory = resolve_name("models", name)
    given = {"input_shape": input_shape, "num_classes": num_classes}
    parameters = inspect.signature(factory).parameters if callable(factory) else {}
    arguments = {key: value for key, value in given.items() if key in parameters}
    try:
        model = factory(**arguments)
        if isinstance(model, torch.nn.Module) and any(map(torch.nn.parameter.is_lazy, model.parameters())):
            with torch.no_grad():
                model.eval()(torch.zeros(2, *input_shape))
    except MabRflError:
        raise
    except Exception as error:
        raise ConfigError(f"model '{name}' cannot be built for inputs {input_shape}: {_said(error)}") from error
    if not isinstance(model, torch.nn.Module):
        raise ConfigError(f"model '{name}' must give a torch.nn.Module; got {type(model).__name__}")
    return model


def build_dataset(name: str) -> Dataset:
    """Return a data set, fetched if need be; ``module:Name`` is a :class:`~mabrfl.simulation.data.Dataset` or makes one."""
    target = resolve_name("datasets", name)
    if known_name("datasets", name) in BUILT_IN["datasets"]:
        loaded: Dataset = target(known_name("datasets", name))
        return loaded
    try:
        found = target() if callable(target) and not isinstance(target, Dataset) else target
    except MabRflError:
        raise
    except Exception as error:
        raise DatasetError(f"data set '{name}' cannot be loaded: {_said(error)}") from error
    if not isinstance(found, Dataset):
        raise DatasetError(f"data set '{name}' must be a mabrfl.simulation.data.Dataset; got {type(found).__name__}")
    return found


def _selector_of(run: ResolvedConfig) -> Selector:
    return build_selector(run.selector, run.selector_options, num_clients=run.clients, seed=run.seed)


def _said(error: Exception) -> str:
    """Return what an error of a user's own code says; by itself, a KeyError's "'x'" says nothing."""
    return str(error) if isinstance(error, TypeError | ValueError | OSError) else f"{type(error).__name__}: {error}"


def _callable(kind: str, name: str, made: Any) -> Any:
    if not callable(made):
        raise ConfigError(f"{kind} '{name}' must be callable; got {type(made).__name__}")
    return made
