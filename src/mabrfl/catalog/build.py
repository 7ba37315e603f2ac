"""From names and options to objects. Components get plain arguments, never a configuration."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from mabrfl.aggregation.mixing import PreAggregated
from mabrfl.catalog.entries import BUILT_IN
from mabrfl.catalog.kinds import Kind
from mabrfl.catalog.names import entry, known_name, resolve_name
from mabrfl.catalog.options import before_names, make, share_options
from mabrfl.defense import Defense
from mabrfl.errors import ConfigError, DatasetError, MabRflError, extra_needed
from mabrfl.protocols import Stateful
from mabrfl.rng import ClientId
from mabrfl.updates import Outcome, Updates

if TYPE_CHECKING:
    from torch import nn

    from mabrfl.aggregation.mixing import PreAggregator
    from mabrfl.attacks import Attack
    from mabrfl.protocols import Rule, Selector
    from mabrfl.simulation.data.dataset import Dataset

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
    context = {"num_malicious": num_malicious, "num_clients": num_clients, "seed": seed}
    rule: Rule
    if entry("defenses", name).presets:
        rule = resolve_name("defenses", name)(**options).rule
    else:
        rule = _callable("defense", name, make("defenses", name, options, context))
    return rule


def build_before(
    names: Sequence[str],
    options: Mapping[str, Any] = _NONE,
    *,
    num_malicious: int = 0,
    num_clients: int = 0,
    seed: int = 0,
) -> list[PreAggregator]:
    """Return pre-aggregators; each option goes to every one of them that has it."""
    context = {"num_malicious": num_malicious, "num_clients": num_clients, "seed": seed}
    shared = share_options(names, options)
    return [_callable("pre-aggregator", name, make("preaggregators", name, own, context)) for name, own in shared]


def check_before(defense: str, names: Sequence[str], options: Mapping[str, Any] = _NONE) -> None:
    """Refuse pre-aggregators in front of a defense that judges each client by its own updates over the rounds."""
    if options and not names:
        raise ConfigError(f"before_options need a pre-aggregator; got {sorted(options)} and none")
    if names and entry("defenses", defense).presets:
        raise ConfigError(
            f"defense '{defense}' judges each client by its own updates and takes no pre-aggregator; "
            f"got before = '{'+'.join(names)}'"
        )


def build_selector(name: str, options: Mapping[str, Any] = _NONE, *, num_clients: int = 0, seed: int = 0) -> Selector:
    """Return a selector: a class is instantiated, a plain function ``candidates -> ids`` will do too."""
    context = {"num_clients": num_clients, "seed": seed}
    selector: Selector = _callable("selector", name, make("selectors", name, options, context))
    return selector


def build_attack(
    name: str, options: Mapping[str, Any] = _NONE, *, num_malicious: int = 0, num_clients: int = 0, seed: int = 0
) -> Attack | None:
    """Return an attack, or None for ``"none"``; a plain function ``view -> rows`` is wrapped."""
    if not entry("attacks", name).target:
        return None
    from mabrfl.attacks import as_attack  # noqa: PLC0415 (only what is asked for is imported)

    context = {"num_malicious": num_malicious, "num_clients": num_clients, "seed": seed}
    return as_attack(make("attacks", name, options, context))


def build_defense(
    defense: str,
    selector: str | Selector | None = None,
    *,
    before: str | Sequence[str] = "",
    before_options: Mapping[str, Any] = _NONE,
    defense_options: Mapping[str, Any] = _NONE,
    selector_options: Mapping[str, Any] = _NONE,
    preset: str | None = None,
    dataset: str | None = None,
    num_malicious: int = 0,
    num_clients: int = 0,
    seed: int = 0,
) -> Defense:
    """Return a defense, for a simulation and for a Flower server alike.

    Parameters
    ----------
    defense, defense_options
        See ``mabrfl list defenses``; options are checked against the constructor.
    selector, selector_options
        A name, or a selector that is made already; the defense's own by default.
    before, before_options
        Pre-aggregators in order, as a list or as text (``"bucketing+nnm"``), and their options. Only for a defense
        that is a rule.
    preset, dataset
        Of a defense that has presets; see :class:`mabrfl.MabRfl`.
    num_malicious, num_clients, seed
        Passed on if a constructor has an argument of that name.

    Raises
    ------
    ConfigError
        If a name is unknown, or if arguments do not fit the defense.
    """
    name = known_name("defenses", defense)
    if isinstance(selector, str):
        chosen: Selector | None = build_selector(selector, selector_options, num_clients=num_clients, seed=seed)
    elif selector_options:
        raise ConfigError("selector_options are for a selector that is a name of the catalogue")
    else:
        chosen = selector
    steps = before_names(before)
    check_before(name, steps, before_options)
    presets = {"preset": preset, "dataset": dataset}
    presets = {key: value for key, value in presets.items() if value is not None}
    if entry("defenses", name).presets:
        method: Defense = resolve_name("defenses", name)(**presets, seed=seed, selector=chosen, **defense_options)
        return method
    if presets:
        owners = " or ".join(f"'{other}'" for other, own in BUILT_IN["defenses"].items() if own.presets)
        raise ConfigError(f"preset and dataset belong to {owners}; defense '{name}' has none")
    context = {"num_malicious": num_malicious, "num_clients": num_clients, "seed": seed}
    made = make("defenses", name, defense_options, context)
    if callable(getattr(made, "select", None)) and callable(getattr(made, "aggregate", None)):
        if steps:
            raise ConfigError(f"defense '{name}' is no rule; it takes no pre-aggregator, but got '{'+'.join(steps)}'")
        if selector is not None:
            got = f", but got '{selector}'" if isinstance(selector, str) else ""
            raise ConfigError(f"defense '{name}' selects clients itself; it takes no selector{got}")
        return cast("Defense", made if callable(getattr(made, "combine", None)) else OneStepDefense(made, name))
    rule: Rule = _callable("defense", name, made)
    if steps:
        rule = PreAggregated(rule, build_before(steps, before_options, **context))
        name = "+".join((*steps, name))
    return Defense(rule, selector=chosen, seed=seed, name=name)


def refuse_truth(kind: Kind, name: str) -> None:
    """Refuse, for a server, what only a simulation has: the knowledge of who attacks."""
    if "truth" in entry(kind, name).needs:
        raise ConfigError(f"{kind.removesuffix('s')} '{name}' needs to know who attacks, and no server knows that")


class OneStepDefense:
    """A user's defense with ``select`` and ``aggregate`` alone, as the stages of a round call it."""

    def __init__(self, own: Any, name: str) -> None:
        self.own, self.name = own, name

    @property
    def reputation(self) -> Mapping[ClientId, tuple[float, float]]:
        """The reputation of the clients, if the user's defense has one."""
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
        """Return the state of the user's defense, if it has one."""
        return self.own.state_dict() if isinstance(self.own, Stateful) else {}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Hand a state back to the user's defense, if it has one."""
        if isinstance(self.own, Stateful):
            self.own.load_state_dict(state)


def build_model(name: str, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Return a network for this shape of input and number of classes, by name or ``module:Name``.

    ``module:Name`` may be a class or a function with parameters ``input_shape`` and ``num_classes`` (either, both, or
    none of them). Lazy layers get their sizes from a batch of zeros.
    """
    with extra_needed("the simulator"):
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
        raise ConfigError(f"model '{name}' cannot be built for inputs {input_shape}: {_message(error)}") from error
    if not isinstance(model, torch.nn.Module):
        raise ConfigError(f"model '{name}' must give a torch.nn.Module; got {type(model).__name__}")
    return model


def build_dataset(name: str) -> Dataset:
    """Return a data set, fetched if need be; ``module:Name`` is a ``Dataset`` or a function that returns one."""
    from mabrfl.simulation.data.dataset import Dataset  # noqa: PLC0415 (a server needs no data)

    target, fixed = resolve_name("datasets", name), entry("datasets", name).fixed
    if fixed:
        return cast("Dataset", target(**fixed))
    try:
        data = target() if callable(target) else target
    except MabRflError:
        raise
    except Exception as error:
        raise DatasetError(f"data set '{name}' cannot be loaded: {_message(error)}") from error
    if not isinstance(data, Dataset):
        raise DatasetError(f"data set '{name}' must be a mabrfl.simulation.data.Dataset; got {type(data).__name__}")
    return data


def _message(error: Exception) -> str:
    """Return the message of an error in a user's own code, with its type where the text alone says too little."""
    return str(error) if isinstance(error, TypeError | ValueError | OSError) else f"{type(error).__name__}: {error}"


def _callable(kind: str, name: str, made: Any) -> Any:
    if not callable(made):
        raise ConfigError(f"{kind} '{name}' must be callable; got {type(made).__name__}")
    return made
