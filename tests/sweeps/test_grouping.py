"""Which runs belong together, and what tells the others apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from mabrfl.reports.arrangement import arrange, conditions
from mabrfl.sweeps.grouping import distinguishing_keys, groups_of, identity_of, named_groups
from mabrfl.sweeps.results import load_results
from result_folders import make_cell

PACKED = sorted((Path(__file__).parents[2] / "results").glob("*.json.gz"))


def test_runs_that_differ_by_their_seed_or_by_nothing_that_counts_are_one_group() -> None:
    cells = [make_cell(90.0, seed=seed, attack="lie", attackers=0.3) for seed in (1, 0)]
    cells.append(make_cell(90.0, seed=2, attack="lie", attackers=3, workers=2, allow_majority=True))
    other = make_cell(90.0, attack="lie", attackers=0.3, training={"epochs": 1})
    groups = groups_of([*cells[:2], other, cells[2]])
    assert [[cell.config["seed"] for cell in group] for group in groups] == [[0, 1, 2], [0]]


def test_a_bound_on_the_attackers_counts_if_it_is_another_number() -> None:
    told, exact, wrong = (make_cell(90.0, attack="lie", attackers=3, **bound) for bound in BOUNDS)
    assert identity_of(told) == identity_of(exact) != identity_of(wrong)


BOUNDS: list[dict[str, int]] = [{}, {"assumed_malicious": 3}, {"assumed_malicious": 4}]


def test_groups_are_named_by_the_first_settings_that_tell_them_apart() -> None:
    cells = [make_cell(90.0, rounds=rounds, partition={"q": q}) for rounds, q in ((4, 0.5), (4, 0.8), (5, 0.5))]
    assert [name for name, _ in named_groups(cells)] == ["rounds=4, q=0.5", "rounds=4, q=0.8", "rounds=5, q=0.5"]
    assert [name for name, _ in named_groups(cells[:1])] == [""]
    assert distinguishing_keys([{"a": 1}, {"a": 1, "b": 2}, {"a": 3}]) == ["a", "b"]


@pytest.mark.parametrize("packed", PACKED, ids=lambda path: path.name)
def test_places_of_tables_and_conditions_of_lists_are_the_same_groups(packed: Path) -> None:
    cells = load_results(packed).cells
    groups = {frozenset(cell.key for cell in group) for group in groups_of(cells)}
    places = [frozenset(cell.key for cell in place) for grid in arrange(cells) for place in grid.places.values()]
    listed = [frozenset(cell.key for cell in condition.cells) for condition in conditions(cells)]
    assert len(places) == len(listed) == len(groups)
    assert set(places) == set(listed) == groups
