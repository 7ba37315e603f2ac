"""From a catalogue name, or an object, to the defense that a strategy asks; and its description for the hash."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from mabrfl import catalog
from mabrfl.catalog.build import OneStepDefense
from mabrfl.catalog.options import make
from mabrfl.defense import Defense
from mabrfl.errors import ConfigError
from mabrfl.flower.describing import described, undescribed
from mabrfl.mab.method import MabRfl
from mabrfl.protocols import Selector

MAB_RFL = "mab-rfl"

FRACTION_TRAIN = (
    "fraction_train is not taken: the selector decides who trains. Leave it out, or say how many nodes a round has: "
    "selector=mabrfl.selection.Uniform(num_selected=10)"
)


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
    seed: int | None,
) -> Defense:
    """Return the defense that a strategy's arguments stand for; see :class:`~mabrfl.flower.RobustStrategy`."""
    if not isinstance(defense, str):
        given = {
            "selector": selector,
            "defense_options": defense_options,
            "selector_options": selector_options,
            "preset": preset,
            "dataset": dataset,
            "num_malicious_nodes": num_malicious,
        }
        return _as_it_is(defense, [name for name, value in given.items() if value] + ["seed"] * (seed is not None))
    choose, seed = selector, seed or 0
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


def _as_it_is(defense: Defense, given: Sequence[str]) -> Defense:
    if not callable(getattr(defense, "select", None)):
        raise ConfigError(f"defense must be a name or a Defense; got {defense!r:.80}")
    if given:
        raise ConfigError(f"a defense that is an object has its own {', '.join(given)}; give them to the object")
    return defense


def describe(defense: Defense) -> dict[str, Any]:
    """Return what a defense is made of, as plain values, before its first round.

    What it believes and remembers by then is a part of it: a defense that has run rounds is another one.
    """
    told = described(defense)
    parts = told if isinstance(told, dict) else {}
    own = {"name": defense.name, "seed": getattr(defense, "seed", None), "preset": getattr(defense, "preset", None)}
    return {"selector": None, **own, **parts}


def refuse_undescribed(told: Mapping[str, Any]) -> None:
    """Refuse settings of which nobody could say after a restart whether they are the same.

    Raises
    ------
    ConfigError
        Naming the first of them.
    """
    for place, kind in undescribed(told):
        raise ConfigError(
            f"with state_dir, a restart must be able to tell whether {place} is still the same, and of {kind} it "
            "cannot: give a function of a module (functools.partial adds arguments), an object with its settings as "
            "attributes, or one with a method describe() that returns them as plain values"
        )
