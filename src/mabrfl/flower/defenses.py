"""The defense of a strategy, from a name of the catalogue or an object; and its description for the hash."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mabrfl import catalog
from mabrfl.defense import Defense
from mabrfl.errors import ConfigError
from mabrfl.flower.describing import described, undescribed
from mabrfl.protocols import Selector

FRACTION_TRAIN = (
    "fraction_train is not taken: the selector decides who trains. Leave it out, or say how many nodes a round has: "
    "selector=mabrfl.selection.Uniform(num_selected=10)"
)


def strategy_defense(
    defense: str | Defense,
    selector: str | Selector | None,
    *,
    before: str | Sequence[str],
    before_options: Mapping[str, Any],
    defense_options: Mapping[str, Any],
    selector_options: Mapping[str, Any],
    preset: str | None,
    dataset: str | None,
    num_malicious: int,
    num_clients: int,
    seed: int | None,
) -> Defense:
    """Return the defense that a strategy's arguments stand for; see :class:`~mabrfl.flower.RobustStrategy`."""
    settings: dict[str, Any] = {
        "before": before,
        "before_options": before_options,
        "defense_options": defense_options,
        "selector_options": selector_options,
        "preset": preset,
        "dataset": dataset,
    }
    if not isinstance(defense, str):
        arguments = {"selector": selector, **settings, "num_malicious_nodes": num_malicious}
        given = [name for name, value in arguments.items() if value]
        return _as_it_is(defense, given + ["seed"] * (seed is not None))
    catalog.refuse_truth("defenses", defense)
    if isinstance(selector, str):
        catalog.refuse_truth("selectors", selector)
    return catalog.build_defense(
        defense, selector, **settings, num_malicious=num_malicious, num_clients=num_clients, seed=seed or 0
    )


def check_root(defense: str | Defense, root_update: Any) -> None:
    """Refuse a defense that needs root data without a function that trains on it, and the other way round."""
    if root_update is not None and not callable(root_update):
        raise ConfigError(f"root_update must be a function of the round and the arrays; got {root_update!r:.80}")
    if not isinstance(defense, str):
        return
    if "root-data" in catalog.entry("defenses", defense).needs and root_update is None:
        raise ConfigError(
            f"defense '{defense}' needs clean data at the server: root_update=train, where train(server_round, arrays) "
            "returns the arrays of the model trained on it"
        )


def _as_it_is(defense: Defense, given: Sequence[str]) -> Defense:
    if not callable(getattr(defense, "select", None)):
        raise ConfigError(f"defense must be a name or a Defense; got {defense!r:.80}")
    if given:
        raise ConfigError(f"a defense that is an object has its own {', '.join(given)}; give them to the object")
    return defense


def describe(defense: Defense) -> dict[str, Any]:
    """Return the settings and parts of a defense as plain values, before its first round.

    Its reputations and memory are included: a defense that has run rounds is a different one.
    """
    description = described(defense)
    parts = description if isinstance(description, dict) else {}
    own = {"name": defense.name, "seed": getattr(defense, "seed", None), "preset": getattr(defense, "preset", None)}
    return {"selector": None, **own, **parts}


def refuse_undescribed(description: Mapping[str, Any]) -> None:
    """Refuse settings that cannot be compared after a restart.

    Raises
    ------
    ConfigError
        It names the first of them.
    """
    for place, kind in undescribed(description):
        raise ConfigError(
            f"with state_dir, {place} must be comparable after a restart, and {kind} is not: "
            "give a function of a module (functools.partial adds arguments), an object with its settings as "
            "attributes, or one with a method describe() that returns them as plain values"
        )
