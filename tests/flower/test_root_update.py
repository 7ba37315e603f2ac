"""Defenses that need more than updates, in the strategy: the server's own update, the global model, the layers."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord

from flower_grid import MemoryGrid, honest, model
from mabrfl.catalog import BUILT_IN
from mabrfl.errors import ConfigError
from mabrfl.flower import RobustStrategy


def train_on_root(server_round: int, arrays: ArrayRecord) -> ArrayRecord:
    """As an honest node moves the model, without its own noise."""
    common, trained = np.random.default_rng([7, server_round]), {}
    for key, array in arrays.items():
        values = array.numpy()
        moved = values + 0.03 * common.normal(size=values.shape) if values.dtype.kind == "f" else values
        trained[key] = Array(np.asarray(moved, dtype=values.dtype))
    return ArrayRecord(trained)


def start(defense: str, **arguments: object) -> RobustStrategy:
    strategy = RobustStrategy(defense, fraction_evaluate=0.0, min_available_nodes=8, **arguments)  # type: ignore[arg-type]
    strategy.start(MemoryGrid({node: honest(node) for node in range(1, 9)}), model(), num_rounds=2, timeout=60)
    return strategy


def test_fltrust_moves_the_model_by_no_more_than_the_servers_own_update() -> None:
    strategy = start("fltrust", root_update=train_on_root)
    assert strategy.state.round == 2
    last = strategy.state.model.last_step
    assert last is not None
    assert 0 < np.linalg.norm(last) < 0.03 * np.sqrt(last.size) * 2
    assert "root_update" in strategy.config()
    assert "root_update" not in start("median").config()


def test_fltrust_without_root_data_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="defense 'fltrust' needs clean data at the server: root_update=train"):
        RobustStrategy("fltrust")
    with pytest.raises(ConfigError, match="root_update must be a function"):
        RobustStrategy("fltrust", root_update="train")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (lambda server_round, arrays: None, "root_update must return an ArrayRecord; got NoneType"),
        (lambda server_round, arrays: ArrayRecord({"other": Array(np.zeros(3))}), "returned another model in round 1"),
    ],
)
def test_a_root_update_of_another_model_is_refused(train: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        start("fltrust", root_update=train)


@pytest.mark.parametrize(
    "name", [name for name, own in BUILT_IN["defenses"].items() if {"layers", "model"} & set(own.needs)]
)
def test_rules_that_need_layers_or_the_model_get_them(name: str) -> None:
    assert start(name).state.round == 2
