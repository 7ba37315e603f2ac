"""The scenarios of the arena: who attacks how, on which task. They expand into the cells of ordinary sweeps.

A tier is a file in ``data``: tasks, attacks, shares of attackers and seeds, of which every combination is a scenario.
The runs of one defense, its column, are one sweep, and each run has the key that it would have anywhere else.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

import tomli_w

from mabrfl import catalog
from mabrfl.config.differences import flat
from mabrfl.errors import ConfigError, suggest
from mabrfl.sweeps.cells import PlannedCell, Settings
from mabrfl.sweeps.sweep_file import LABEL, parse_sweep

TIERS = ("quick", "laptop", "full")
NOBODY = "none"
"""The attack of a scenario in which nobody attacks."""
WHOLE = "quick"
"""The tier that is scored as a whole. Of the larger ones perhaps only a part is ever run, so that each task is scored
on its own."""
BASELINE = "fedavg"
"""The defense whose accuracy with nobody attacking is the measure of all others."""


@dataclass(frozen=True)
class Named:
    """A defense, attack or task of the arena: its label, and its settings by dotted key."""

    label: str
    settings: Mapping[str, Any]

    def table(self) -> dict[str, Any]:
        """Return it as a point on an axis of a sweep."""
        return {LABEL: self.label, **self.settings}


@dataclass(frozen=True)
class Scenario:
    """One situation that every defense meets: a seed, a task, a share of attackers, and their attack."""

    seed: int
    task: str
    share: float
    attack: str


@dataclass(frozen=True)
class Tier:
    """A set of scenarios: every combination of what it has, and each task and seed with nobody attacking."""

    name: str
    version: int
    settings: Mapping[str, Any]
    tasks: tuple[Named, ...]
    attacks: tuple[Named, ...]
    shares: tuple[float, ...]
    seeds: tuple[int, ...]
    drawn_from: int | None = None

    def scenarios(self) -> Iterator[Scenario]:
        """Yield the scenarios in their order: by seed, with nobody attacking first."""
        for seed in self.seeds:
            yield from (Scenario(seed, task.label, 0.0, NOBODY) for task in self.tasks)
            for task in self.tasks:
                for attack in self.attacks:
                    yield from (Scenario(seed, task.label, share, attack.label) for share in self.shares)

    def with_seeds(self, seeds: Sequence[int]) -> Tier:
        """Return the tier with these seeds alone."""
        for seed in seeds:
            if seed not in self.seeds:
                raise ConfigError(f"the tier '{self.name}' has the seeds {', '.join(map(str, self.seeds))}; got {seed}")
        return replace(self, seeds=tuple(seed for seed in self.seeds if seed in seeds))

    def with_tasks(self, labels: Sequence[str]) -> Tier:
        """Return the tier with these tasks alone."""
        known = [task.label for task in self.tasks]
        for label in labels:
            if label not in known:
                raise ConfigError(f"the tier '{self.name}' has the tasks {', '.join(known)}; got '{label}'")
        return replace(self, tasks=tuple(task for task in self.tasks if task.label in labels))

    @property
    def by_task(self) -> bool:
        """Whether each task is run and scored on its own."""
        return self.name != WHOLE

    def is_part_of(self, other: Tier) -> bool:
        """Whether this is another tier, perhaps with fewer seeds and tasks."""
        same = replace(other, seeds=self.seeds, tasks=self.tasks) == self
        return same and set(self.seeds) <= set(other.seeds) and all(task in other.tasks for task in self.tasks)

    def with_attacks(self, attacks: Sequence[Named]) -> Tier:
        """Return the tier with these attacks in place of its own."""
        return replace(self, attacks=tuple(attacks))

    def document(self) -> dict[str, Any]:
        """Return the tier as its file has it."""
        drawn = {} if self.drawn_from is None else {"drawn_from": self.drawn_from}
        return {
            "version": self.version,
            "tier": self.name,
            **drawn,
            "seeds": list(self.seeds),
            "shares": list(self.shares),
            "attacks": [attack.table() for attack in self.attacks],
            "settings": dict(self.settings),
            "tasks": {task.label: dict(task.settings) for task in self.tasks},
        }


def parse_tier(document: Mapping[str, Any]) -> Tier:
    """Return the tier of a file."""
    return Tier(
        name=document["tier"],
        version=document["version"],
        settings=flat(document["settings"]),
        tasks=tuple(Named(label, flat(settings)) for label, settings in document["tasks"].items()),
        attacks=tuple(named("attack", value) for value in document["attacks"]),
        shares=tuple(document["shares"]),
        seeds=tuple(document["seeds"]),
        drawn_from=document.get("drawn_from"),
    )


def load_tier(name: str) -> Tier:
    """Return a tier of the package.

    Raises
    ------
    ConfigError
        If there is none of this name.

    Examples
    --------
    >>> tier = load_tier("quick")
    >>> tier.version, [task.label for task in tier.tasks], tier.shares
    (1, ['digits', 'clusters'], (0.1, 0.3, 0.44))
    """
    if name not in TIERS:
        raise ConfigError(f"the arena has no tier '{name}'{suggest(name, TIERS)}")
    return parse_tier(tomllib.loads(data_file(f"{name}.toml").decode()))


def data_file(name: str) -> bytes:
    """Return the content of a file that comes with the arena."""
    return (resources.files("mabrfl.arena") / "data" / name).read_bytes()


def named(setting: str, value: str | Mapping[str, Any]) -> Named:
    """Return a defense or an attack by its name, or by a table with a label and settings.

    Examples
    --------
    >>> named("attack", {"label": "late", "attack": "sleeper", "attack_options": {"honest_rounds": 3}})
    Named(label='late', settings={'attack': 'sleeper', 'attack_options.honest_rounds': 3})
    """
    if isinstance(value, str):
        return Named(value, {setting: value})
    settings = flat(value)
    return Named(settings.pop(LABEL), settings)


def entrants(tier: str = WHOLE) -> tuple[Named, ...]:
    """Return the defenses of the arena in the order of a tier: its first ones, the list, the rest of the catalogue."""
    document = tomllib.loads(data_file("entrants.toml").decode())
    listed = [named("defense", value) for value in document["entrants"]]
    known = {str(entrant.settings["defense"]) for entrant in listed} | set(document["left_out"])
    rest = (named("defense", name) for name in catalog.BUILT_IN["defenses"] if name not in known)
    first = first_entrants(tier)
    order = {label: place for place, label in enumerate(first)}
    return tuple(sorted((*listed, *rest), key=lambda entrant: order.get(entrant.label, len(first))))


def first_entrants(tier: str) -> tuple[str, ...]:
    """Return the labels of the defenses that a tier runs before all others, in order; none if they are all alike."""
    return tuple(tomllib.loads(data_file("entrants.toml").decode())["first"].get(tier, ()))


def sweep_text(tier: Tier, columns: Sequence[Named], name: str, *, clean: bool = True) -> bytes:
    """Return the sweep of some columns as the text of a sweep file; ``clean``: also with nobody attacking."""
    axes = {
        "seed": list(tier.seeds),
        "entrant": [column.table() for column in columns],
        "task": [task.table() for task in tier.tasks],
    }
    attacked = {"attack": [attack.table() for attack in tier.attacks], "attackers": list(tier.shares)}
    grids = [{"axes": axes}] if clean else []
    grids += [{"axes": {**axes, **attacked}}] if tier.attacks else []
    return tomli_w.dumps({"name": name, "base": dict(tier.settings), "grid": grids}).encode()


def planned(tier: Tier, columns: Sequence[Named], *, clean: bool = True) -> dict[tuple[str, Scenario], PlannedCell]:
    """Return the run of each column and scenario."""
    cells = parse_sweep(sweep_text(tier, columns, "arena", clean=clean), "arena").cells
    return {place_of(cell.axes): cell for cell in cells}


def place_of(axes: Mapping[str, Any]) -> tuple[str, Scenario]:
    """Return the label of the column and the scenario of a cell, by its place on the axes of the sweep."""
    scenario = Scenario(axes["seed"], axes["task"], axes.get("attackers", 0.0), axes.get("attack", NOBODY))
    return axes["entrant"], scenario


def run_settings(tier: Tier, column: Named, scenario: Scenario) -> Settings:
    """Return the settings of one run, by dotted key: what ``mabrfl run`` needs to repeat it."""
    task = next(task for task in tier.tasks if task.label == scenario.task)
    settings = {**tier.settings, **task.settings, **column.settings, "seed": scenario.seed}
    if scenario.attack == NOBODY:
        return settings
    attack = next(attack for attack in tier.attacks if attack.label == scenario.attack)
    return {**settings, **attack.settings, "attackers": scenario.share}
