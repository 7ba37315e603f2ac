"""Which runs may stand beside the paper's figures: those made as the paper's were, at its scale or at a laptop's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from mabrfl.catalog import display_entry
from mabrfl.config import RunConfig, resolve
from mabrfl.config.differences import flat
from mabrfl.config.identity import WITHOUT_EFFECT
from mabrfl.config.model import PartitionConfig, TrainingConfig
from mabrfl.errors import MabRflError
from mabrfl.reports import paper_table as paper
from mabrfl.sweeps.results import Cell

LAPTOP: Mapping[str, Mapping[str, Any]] = {
    "mnist": {"model": "mnist-cnn-small", "rounds": 40},
    "cifar10": {"model": "vgg-tiny", "rounds": 25, "partition.sizes": [120, 200]},
}
"""The settings that are smaller in ``experiments/table1-*-laptop.toml`` than in the paper. Their tables are compared
with the paper's and say what is smaller; no other run with another model, fewer rounds or less data is compared."""

_FREE = frozenset({"seed", "attackers", "allow_majority", *WITHOUT_EFFECT})
"""Settings that a figure of the paper is not bound to; the share of attackers is looked up by its number."""


def is_comparable(cell: Cell) -> bool:
    """Whether a run has the paper's conditions for its data set, defense, preset and attack.

    The paper has no figures of the preset ``hardened`` of MAB-RFL. For other defenses a preset is no more than the
    conditions of the run.

    Settings that the paper leaves open (optimiser, initialisation, the options of attacks and defenses) must have
    their defaults. A setting that a run does not have, because it is older than the setting, is no difference.
    """
    method, preset = cell.config["defense"], cell.config["preset"]
    if display_entry("defenses", method).presets and not display_entry("presets", preset).in_paper:
        return False
    named = (cell.config[name] for name in ("dataset", "defense", "preset", "attack"))
    papers = _papers(*named, cell.num_attackers)
    if papers is None:
        return False
    ours = flat(cell.config)
    scales = (papers, papers | dict(LAPTOP.get(cell.config["dataset"], {})))
    return any(all(_same(ours.get(key, value), value) for key, value in scale.items()) for scale in scales)


@cache
def _papers(dataset: str, defense: str, preset: str, attack: str, attackers: int) -> dict[str, Any] | None:
    """Return the settings of the paper's run by dotted key; None if there is no such run."""
    # Names from a file are looked up only if the paper has them: "module:Name" would import whatever it says.
    if defense not in paper.defense_names() or attack not in ("none", *paper.attack_names()):
        return None
    if paper.paper_table(dataset) is None:
        return None
    setup = paper.settings(dataset)
    try:
        config = resolve(
            RunConfig(
                dataset=dataset,
                defense=defense,
                preset=preset,
                attack=attack,
                attackers=attackers,
                clients=setup["clients"],
                rounds=setup["rounds"],
                allow_majority=True,
                training=TrainingConfig(epochs=setup["epochs"]),
                partition=PartitionConfig(q=setup["q"], sizes=tuple(setup["sizes"])),
            )
        )
    except (MabRflError, ValueError):
        return None
    # The concentration is of a kind of partition that the paper does not have.
    unused = {*_FREE, "partition.concentration"}
    return {key: value for key, value in flat(config.model_dump(mode="json")).items() if key not in unused}


def _same(ours: Any, papers: Any) -> bool:
    return json.dumps(ours) == json.dumps(papers) or (_is_number(ours) and _is_number(papers) and ours == papers)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
