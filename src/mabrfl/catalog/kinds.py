"""The kinds of names, and everything that an entry of the catalogue says about one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

Kind = Literal["defenses", "selectors", "attacks", "models", "datasets", "presets", "preaggregators", "observers"]
KINDS: tuple[Kind, ...] = get_args(Kind)[:-2]
"""The kinds of which a run names one each. Pre-aggregators may be several or none; observers are no setting."""
SINGULAR: Mapping[Kind, str] = {
    "defenses": "defense",
    "selectors": "selector",
    "attacks": "attack",
    "models": "model",
    "datasets": "data set",
    "presets": "preset",
    "preaggregators": "pre-aggregator",
    "observers": "observer",
}
NEEDS: Mapping[str, str] = {
    "attackers": "the number of attackers",
    "truth": "to know who attacks",
    "root-data": "clean data at the server",
    "layers": "the layout of the model",
    "model": "the global model",
}
"""Every value that :attr:`Entry.needs` may have, in words."""


@dataclass(frozen=True, kw_only=True)
class DatasetDefaults:
    """Settings of a run that its data set decides where the user does not [audit 26-29].

    ``sizes`` are the smallest and the largest number of examples per client; ``draw`` is how they are drawn, see
    :mod:`mabrfl.simulation.data.partition`.
    """

    model: str = "mlp"
    clients: int = 20
    rounds: int = 30
    batch_size: int = 64
    learning_rate: float = 1e-3
    sizes: tuple[int, int] = (20, 120)
    draw: Literal["disjoint", "unique", "replacement"] = "unique"


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """Settings of the run around the defense that a preset decides where the user does not [audit 25, 29, 38]."""

    optimizer_state: Literal["reset", "kept"] = "reset"
    attackers_chosen: Literal["random", "last"] = "random"
    draw: Literal["replacement"] | None = None
    skip_last: bool = False


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One name of the catalogue.

    A plug-in sets ``label``, ``colour``, ``learns``, ``needs``, ``revision``, for a model ``stacked`` and for a data
    set ``defaults`` (a mapping) as attributes of its class or function.

    Attributes
    ----------
    target
        ``module:Name``; for the members of a table ``module:TABLE[key]``. Empty for the attack ``none``.
    line
        One line for ``mabrfl list``; the first line of the target's docstring if left out.
    fixed
        Arguments that the name stands for.
    label
        The name in tables and figures: the paper's, if it has one. By default the name itself.
    colour
        In figures, as ``#rrggbb``; one that no other defense has if left out.
    dashes, marker
        The line style and the marker in figures.
    shade
        Of a selector: the share of white (below 0: of black) in the colour of a defense that it does not belong to.
    learns
        Whether it selects clients by their reputation. If so, there is a figure of the reputation.
    needs
        Keys of :data:`NEEDS`.
    revision
        The number of its behaviour. It is raised when results change, and is part of the key of every run that uses
        the name.
    selector
        Of a defense: its own selector.
    presets
        Whether a preset sets its options.
    baseline
        Of a defense: whether it is an average without any defense, which tables do not rank.
    in_paper
        Of a preset: whether its results may be compared with the paper's.
    stacked
        Of a model: whether many clients are trained at once if the run leaves it open, because it was measured to be
        faster.
    defaults
        Of a data set.
    conditions
        Of a preset.
    """

    target: str
    line: str = ""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""
    colour: str = ""
    dashes: str = ""
    marker: str = ""
    shade: float = 0.0
    learns: bool = False
    needs: tuple[str, ...] = ()
    revision: int = 1
    selector: str = "all"
    presets: bool = False
    baseline: bool = False
    in_paper: bool = False
    stacked: bool = False
    defaults: DatasetDefaults = DatasetDefaults()
    conditions: Conditions = Conditions()
