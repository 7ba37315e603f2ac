"""Records of the arena: written, read, and void when what they measured has changed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mabrfl.arena.arena_page import page
from mabrfl.arena.arena_records import Records, Run, committed, current, read_records, write_records
from mabrfl.arena.contest import write_pages
from mabrfl.arena.leaderboard import markdown
from mabrfl.arena.scenarios import NOBODY, Scenario, Tier, entrants, load_tier, planned, run_settings
from mabrfl.arena.task_board import task_section
from mabrfl.catalog import BUILT_IN
from mabrfl.config import config_hash, load_config
from mabrfl.errors import StateError
from mabrfl.sweeps.packing import write_packed

ROOT = Path(__file__).parents[2]


def true_keys(records: Records) -> Records:
    """The records with the keys that their runs would have."""
    columns = []
    for column in records.columns:
        cells = planned(records.tier, [column.entrant])
        runs = {one: replace(run, key=cells[column.label, one].key[:16]) for one, run in column.runs.items()}
        columns.append(replace(column, runs=runs))
    return replace(records, columns=tuple(columns))


def test_records_are_read_as_they_were_written_with_the_same_bytes(records: Records, tmp_path: Path) -> None:
    place = Scenario(2, "digits", 0.1, "backdoor")
    column = records.columns[0]
    failed = replace(column, runs={**column.runs, place: Run("0" * 16, error="no luck")})
    records = records.with_columns([failed])
    write_records(records, tmp_path / "a.json.gz")
    write_records(read_records(tmp_path / "a.json.gz"), tmp_path / "b.json.gz")
    assert read_records(tmp_path / "a.json.gz") == records
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()


def test_a_raised_revision_voids_the_runs_that_use_it_and_no_others(
    records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = true_keys(records)
    assert current(records) == records
    monkeypatch.setitem(BUILT_IN["defenses"], "median", replace(BUILT_IN["defenses"]["median"], revision=7))
    assert [len(column.runs) for column in current(records).columns] == [10, 0, 6]
    monkeypatch.setitem(BUILT_IN["attacks"], "ipm", replace(BUILT_IN["attacks"]["ipm"], revision=7))
    left = current(records).columns[0].runs
    assert {one.attack for one in left} == {NOBODY, "backdoor"}
    alone = replace(records, columns=(replace(column := records.columns[0], runs=dict(list(column.runs.items())[:1])),))
    assert current(alone) == alone, "with nobody attacking alone there is no share"
    monkeypatch.delitem(BUILT_IN["defenses"], "krum")
    assert current(records).columns[2].runs == {}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "has no records of the arena"),
        ({"format": "mabrfl-results"}, "has no records of the arena"),
        ({"format": "mabrfl-arena", "version": 9}, "is in version 9 of its format; this program reads 1"),
        ({"format": "mabrfl-arena", "version": 1, "tier": {}}, "is damaged: KeyError"),
    ],
)
def test_a_file_that_has_no_records_is_refused(tmp_path: Path, document, message: str) -> None:
    write_packed(document, tmp_path / "r.json.gz")
    with pytest.raises(StateError, match=message):
        read_records(tmp_path / "r.json.gz")


@pytest.fixture(scope="module")
def published() -> Records:
    return committed(load_tier("quick"))


@pytest.fixture(scope="module")
def published_laptop() -> Records:
    return committed(load_tier("laptop"))


def test_committed_records_have_the_keys_of_the_runs_that_their_settings_name(
    published: Records, published_laptop: Records
) -> None:
    for records, step in ((published, 97), (published_laptop, 3)):
        assert {column.label for column in records.columns} <= {entrant.label for entrant in entrants()}
        sample = [(column, one) for column in records.columns for one in list(column.runs)[::step]]
        assert len(sample) >= 4
        for column, one in sample:
            key = config_hash(load_config(None, run_settings(records.tier, column.entrant, one)))
            assert key.startswith(column.runs[one].key), (column.label, one)


def test_committed_records_of_one_seed_are_those_of_that_seed(published: Records) -> None:
    tier: Tier = load_tier("quick").with_seeds([1])
    alone = committed(tier)
    assert alone.tier == tier
    assert alone.seeds() == (1,)
    assert alone.columns[0].runs == {one: run for one, run in published.columns[0].runs.items() if one.seed == 1}


def test_the_leaderboard_in_the_documentation_is_that_of_the_committed_records(
    published: Records, published_laptop: Records
) -> None:
    """`mabrfl arena --render docs` writes it."""
    text = markdown(published, task_section(published_laptop))
    assert (ROOT / "docs" / "leaderboard.md").read_text(encoding="utf-8") == text
    shown = (ROOT / "docs" / "leaderboard-runs.html").read_text(encoding="utf-8")
    assert shown == page(published, published_laptop)


def test_pages_of_the_same_records_have_the_same_bytes(
    published: Records, published_laptop: Records, tmp_path: Path
) -> None:
    first, again = (
        write_pages(published, tmp_path / name, larger=published_laptop, pictures="images") for name in ("a", "b")
    )
    assert [path.name for path in first] == ["leaderboard.md", "leaderboard-runs.html", "leaderboard.svg"]
    for one, other in zip(first, again, strict=True):
        assert one.read_bytes() == other.read_bytes()
