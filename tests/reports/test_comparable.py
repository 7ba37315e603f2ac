"""Which runs stand beside the paper's figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mabrfl.reports.comparison import agreements
from mabrfl.reports.figures import draw
from mabrfl.reports.paper_table import is_comparable
from mabrfl.reports.table_formats import markdown
from mabrfl.reports.tables import tabulate
from mabrfl.sweeps.results import Cell
from mabrfl.sweeps.sweep_file import load_sweep
from result_folders import LAPTOP, make_cell

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
PAPER: dict[str, Any] = {"model": "mnist-cnn", "clients": 50, "rounds": 100}
CIFAR: dict[str, Any] = {"dataset": "cifar10", "model": "vgg-tiny", "clients": 50, "rounds": 25}


def planned(name: str) -> list[Cell]:
    cells = load_sweep(EXPERIMENTS / f"{name}.toml").cells
    return [Cell(key=cell.key, config=cell.plain_config, axes=dict(cell.axes), status="missing") for cell in cells]


def compared(**settings: Any) -> bool:
    return is_comparable(make_cell(status="missing", **settings))


@pytest.mark.parametrize(
    "name", ["table1-mnist", "table1-mnist-laptop", "table1-cifar10", "table1-cifar10-laptop", "table1-cifar10-mid"]
)
def test_every_run_of_an_experiment_made_for_table_1_is_compared_but_for_hardened_and_one_control_each(
    name: str,
) -> None:
    cells = planned(name)
    others = [
        cell
        for cell in cells
        if (cell.config["defense"] != "mab-rfl" or cell.config["preset"] != "hardened")
        and cell.config["attack_options"].get("gamma_init", 3.0) == 3.0
        and cell.axes.get("defense") != "MAB-RFL, MNIST's thresholds"
    ]
    assert others
    assert len(others) < len(cells)
    assert [cell.key for cell in cells if is_comparable(cell)] == [cell.key for cell in others]


def test_of_mab_rfl_the_presets_of_the_paper_alone_are_compared_and_of_other_defenses_any() -> None:
    presets = ("paper", "reference", "hardened")
    assert [compared(defense="mab-rfl", preset=preset, **LAPTOP) for preset in presets] == [True, True, False]
    assert [compared(defense="krum", preset=preset, **LAPTOP) for preset in presets] == [True, True, True]


def test_hardened_has_neither_a_figure_of_the_paper_nor_a_difference_nor_a_curve() -> None:
    shares: list[dict[str, Any]] = [{}, {"attack": "lie", "attackers": 0.3}]
    cells = [
        make_cell(97.0, defense="mab-rfl", preset=preset, **share, **LAPTOP)
        for preset in ("paper", "hardened")
        for share in shares
    ]
    (table,) = tabulate(cells)
    papers = {column.preset: table.at(table.grid.rows[1], column).paper for column in table.grid.columns}
    assert papers == {"paper": 97.05, "hardened": None}
    assert [one.column.preset for one in agreements(table)] == ["paper"]
    (figure,) = draw(cells, "attackers", compare=True).values()
    curves = [np.asarray(line.get_xydata()).tolist() for line in figure.axes[0].lines]
    assert curves.count([[0.0, 97.82], [30.0, 97.05]]) == 1


def test_of_the_experiment_with_other_conditions_only_those_of_the_paper_are_compared() -> None:
    cells = planned("hardening")
    conditions = [cell for cell in cells if "conditions" in cell.axes]
    assert len(conditions) == 22
    assert [cell.axes for cell in conditions if is_comparable(cell)] == []
    compared_cells = [cell for cell in cells if is_comparable(cell)]
    assert compared_cells
    assert {cell.config["defense"] for cell in compared_cells} == {"fedavg"}


@pytest.mark.parametrize("scale", [PAPER, LAPTOP])
@pytest.mark.parametrize(
    "other",
    [
        {"partition": {"kind": "dirichlet"}},
        {"partition": {"kind": "iid"}},
        {"partition": {"q": 0.8}},
        {"partition": {"sizes": (255, 255)}},
        {"clients": 40},
        {"rounds": 30},
        {"model": "mlp"},
        {"training": {"optimizer": "sgd"}},
        {"training": {"init": "default"}},
        {"training": {"epochs": 1}},
        {"training": {"learning_rate": 0.01}},
        {"attack": "agr-krum", "attackers": 0.3, "attack_options": {"gamma_init": 0.75}},
        {"defense": "mab-rfl", "defense_options": {"alpha": -0.5}},
        {"selector": "uniform", "selector_options": {"num_selected": 25}},
        {"assumed_malicious": 4},
    ],
    ids=str,
)
def test_a_run_under_another_condition_is_not_compared(scale: dict[str, Any], other: dict[str, Any]) -> None:
    assert compared(defense="krum", **scale)
    assert not compared(**{"defense": "krum", **scale, **other})


def test_seed_and_what_has_no_effect_do_not_matter() -> None:
    assert compared(**LAPTOP, defense="krum", seed=7, workers=2, partition={"concentration": 0.1})


def test_a_laptops_cifar10_has_a_tenth_of_the_data_and_all_of_the_rounds() -> None:
    assert compared(**CIFAR, partition={"sizes": (120, 200)})
    assert not compared(**CIFAR)
    assert not compared(**{**CIFAR, "rounds": 8}, partition={"sizes": (120, 200)})
    assert not compared(**{**CIFAR, "model": "vgg-lite", "rounds": 100}, partition={"sizes": (120, 200)})


def test_a_run_older_than_a_setting_is_still_compared() -> None:
    cell = make_cell(status="missing", defense="krum", **LAPTOP)
    training = {name: value for name, value in cell.config["training"].items() if name != "init"}
    assert is_comparable(cell.model_copy(update={"config": {**cell.config, "training": training}}))


def test_names_in_a_file_of_results_are_not_imported() -> None:
    cell = make_cell(status="missing", defense="krum", **LAPTOP)
    for name in ("defense", "attack", "preset"):
        assert not is_comparable(cell.model_copy(update={"config": {**cell.config, name: "no_such_module:Name"}}))


def test_a_table_has_the_papers_figure_only_beside_what_was_made_as_in_the_paper() -> None:
    attacked = {"defense": "mab-rfl", "attack": "agr-krum", "attackers": 0.48, **LAPTOP}
    cells = [make_cell(90.0, **attacked), make_cell(80.0, **attacked, attack_options={"gamma_init": 0.75})]
    cells += [make_cell(70.0, **attacked, partition={"kind": "dirichlet"})]
    text = markdown(tabulate(cells))
    assert text.count("96.09") == 1
    assert "90.00<br>96.09" in text
