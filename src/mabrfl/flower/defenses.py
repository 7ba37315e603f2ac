"""From a catalogue name, or an object, to the defense that a strategy asks; and its description for the hash."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any, cast

from mabrfl import catalog
from mabrfl.catalog.build import OneStepDefense
from mabrfl.catalog.options import make
from mabrfl.defense import Defense
from mabrfl.errors import ConfigError
from mabrfl.protocols import Selector
from mabrfl.shield import MabRfl

MAB_RFL = "mab-rfl"


def build_defense(
    defense: str | Defense,
    selector: str | Selector | None,
    *,
    defense_options: Mapping[str, Any],
    selector_options: Mapping[str, Any],
    preset: str | None,
    dataset: str | None,
    num_malicious: int,
    num_clients: int,
    seed: int,
) -> Defense:
    """Return the defense that a strategy's arguments stand for; see :class:`~mabrfl.flower.RobustStrategy`."""
    if not isinstance(defense, str):
        if selector is not None or defense_options or selector_options or preset is not None:
            raise ConfigError("a defense that is an object has its own selector, options and preset; give the object")
        return defense
    choose = selector
    if isinstance(choose, str):
        choose = catalog.build_selector(choose, selector_options, num_clients=num_clients, seed=seed)
    elif selector_options:
        raise ConfigError("selector_options are for a selector that is a name of the catalogue")
    name = catalog.known_name("defenses", defense)
    if name == MAB_RFL:
        chosen: dict[str, Any] = {} if preset is None else {"preset": preset}
        return MabRfl(**chosen, seed=seed, selector=choose, dataset=dataset, **defense_options)
    if preset is not None or dataset is not None:
        raise ConfigError(f"preset and dataset belong to '{MAB_RFL}'; defense '{name}' has none")
    context = {"num_malicious": num_malicious, "num_clients": num_clients, "seed": seed}
    made = make("defenses", name, defense_options, context)
    if callable(getattr(made, "select", None)) and callable(getattr(made, "aggregate", None)):
        if choose is not None:
            raise ConfigError(f"defense '{name}' selects clients itself; it takes no selector")
        return cast("Defense", made if callable(getattr(made, "combine", None)) else OneStepDefense(made, name))
    return Defense(made, selector=choose, seed=seed, name=name)


def describe(defense: Defense) -> dict[str, Any]:
    """Return what a defense is made of, as plain values, before its first round."""
    parts = {"rule": getattr(defense, "rule", None), "selector": getattr(defense, "selector", None)}
    own = {
        "name": defense.name,
        "class": _kind(defense),
        "seed": getattr(defense, "seed", None),
        "preset": getattr(defense, "preset", None),
    }
    return own | {name: {"class": _kind(part), **_settings(part)} for name, part in parts.items()}


def _kind(value: Any) -> str:
    kind = value if callable(value) and hasattr(value, "__qualname__") else type(value)
    return f"{kind.__module__}:{kind.__qualname__}"


def _settings(value: Any) -> dict[str, Any]:
    """Return the plain values among an object's attributes."""
    attributes = asdict(value) if is_dataclass(value) else getattr(value, "__dict__", {})  # type: ignore[arg-type]
    return {name: entry for name, entry in _plain(attributes).items() if entry is not None}


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return value if isinstance(value, bool | int | float | str) else None
