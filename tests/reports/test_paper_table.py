from __future__ import annotations

from collections import Counter

import pytest

from mabrfl.catalog import BUILT_IN
from mabrfl.mab.presets import options
from mabrfl.reports import paper_table as paper
from mabrfl.reports.paper_table import PaperTable


def table(dataset: str) -> PaperTable:
    found = paper.paper_table(dataset)
    assert found is not None
    return found


@pytest.mark.parametrize("dataset", ["mnist", "cifar10"])
def test_there_are_19_rows_of_7_columns_with_fedavg_only_where_nobody_attacks(dataset: str) -> None:
    accuracies = table(dataset).accuracies
    rows = list(dict.fromkeys((percent, attack) for percent, attack, _ in accuracies))
    assert len(rows) == 19
    assert rows[0] == (0, "none")
    assert [percent for percent, _ in rows[1:]] == [share for share in (10, 20, 30, 40, 44, 48) for _ in range(3)]
    assert [attack for _, attack in rows[1:]] == ["agr-krum", "lie", "label-flip"] * 6
    assert len(paper.defense_names()) == 7
    assert len(accuracies) == 19 * 6 + 1
    assert [percent for percent, _, defense in accuracies if defense == "fedavg"] == [0]


@pytest.mark.parametrize(
    ("dataset", "percent", "attack", "defense", "printed"),
    [
        ("mnist", 0, "none", "fedavg", 98.01),
        ("mnist", 0, "none", "mab-rfl", 97.82),
        ("mnist", 10, "agr-krum", "median", 97.89),
        ("mnist", 10, "label-flip", "faba", 95.61),
        ("mnist", 30, "agr-krum", "centered-clip", 9.74),
        ("mnist", 44, "lie", "krum", 50.49),
        ("mnist", 48, "label-flip", "krum", 3.68),
        ("mnist", 48, "label-flip", "mab-rfl", 95.26),
        ("cifar10", 0, "none", "centered-clip", 76.57),
        ("cifar10", 20, "lie", "dnc", 72.17),
        ("cifar10", 40, "label-flip", "faba", 56.0),
        ("cifar10", 48, "lie", "dnc", 40.59),
        ("cifar10", 48, "label-flip", "mab-rfl", 73.78),
    ],
)
def test_figures_are_as_printed(dataset: str, percent: int, attack: str, defense: str, printed: float) -> None:
    assert table(dataset).accuracy(percent, attack, defense) == printed


@pytest.mark.parametrize(
    ("dataset", "bold"),
    [("mnist", {"mab-rfl": 14, "dnc": 4, "median": 1}), ("cifar10", {"mab-rfl": 17, "centered-clip": 2})],
)
def test_the_best_defense_of_each_row_is_the_one_printed_in_bold(dataset: str, bold: dict[str, int]) -> None:
    rows: dict[tuple[int, str], dict[str, float]] = {}
    for (percent, attack, defense), accuracy in table(dataset).accuracies.items():
        if defense != "fedavg":
            rows.setdefault((percent, attack), {})[defense] = accuracy
    assert Counter(max(row, key=lambda name: row[name]) for row in rows.values()) == bold


def test_the_typo_is_read_once_and_said() -> None:
    (reading,) = paper.readings()
    assert reading["printed"] == "95..61"
    place = reading["attackers"], reading["attack"], reading["defense"]
    assert table(reading["dataset"]).accuracy(*place) == reading["read_as"]


def test_shares_are_matched_as_percentages_and_not_by_chance() -> None:
    assert table("mnist").accuracy(100 * 0.3, "lie", "dnc") == 97.23
    assert table("mnist").accuracy(29.0, "lie", "dnc") is None
    assert table("mnist").accuracy(30, "lie", "fedavg") is None
    assert table("mnist").accuracy(30, "min-max", "dnc") is None
    assert paper.paper_table("digits") is None


def test_names_are_those_of_the_catalogue() -> None:
    assert set(paper.defense_names()) <= set(BUILT_IN["defenses"])
    assert set(paper.attack_names()) <= set(BUILT_IN["attacks"])


@pytest.mark.parametrize("dataset", ["mnist", "cifar10"])
def test_the_preset_paper_has_the_papers_settings(dataset: str) -> None:
    told, ours = paper.settings(dataset), options("paper", dataset)
    assert (told["c_max"], told["c_min"], told["alpha"]) == (ours.c_max, ours.c_min, ours.alpha)
    assert told["history"] == ours.history
    assert (told["clients"], told["rounds"], told["epochs"], told["q"]) == (50, 100, 3, 0.5)


def test_general_settings_hold_none_of_a_data_set() -> None:
    assert "c_max" not in paper.settings()
    assert paper.settings("digits") == paper.settings()
    assert paper.source()["doi"] == "10.24963/ijcai.2022/106"
