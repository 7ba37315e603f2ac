"""Results as rows: dictionaries, CSV, and data frames."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from mabrfl import load_results
from mabrfl.errors import StateError
from mabrfl.reports.detection import detection_table
from mabrfl.reports.detection_formats import detection_csv
from mabrfl.reports.table_formats import as_csv
from mabrfl.reports.tables import tabulate
from mabrfl.sweeps.packing import pack
from result_folders import run_config, write_run, write_sweep

ATTACK = {"attack": "lie", "attackers": 3}


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    return write_sweep(tmp_path / "s", [({"defense": "krum", **ATTACK}, 90.0), ({"defense": "median"}, None)])


def test_a_run_is_one_row_with_its_settings_and_its_numbers(sweep: Path) -> None:
    done, missing = load_results(sweep).runs()
    assert (done["defense"], done["attack"], done["attackers"], done["attackers_percent"]) == ("krum", "lie", 3, 30.0)
    assert (done["status"], done["final_accuracy"], done["training.epochs"]) == ("done", 90.0, 3)
    assert (missing["status"], "final_accuracy" in missing) == ("missing", False)
    assert not any(isinstance(value, list | dict) for row in (done, missing) for value in row.values())


def test_the_preset_is_empty_in_every_csv_where_it_means_nothing(tmp_path: Path) -> None:
    write_sweep(tmp_path / "s", [({"defense": "median", **ATTACK}, 80.0), ({"defense": "mab-rfl", **ATTACK}, 90.0)])
    results = load_results(tmp_path / "s")
    expected = {"median": "", "mab-rfl": "paper"}
    for text in (results.runs().csv(), as_csv(tabulate(results.cells)), detection_csv(detection_table(results.cells))):
        assert {row["defense"]: row["preset"] for row in csv.DictReader(io.StringIO(text))} == expected


def test_a_round_and_a_client_are_one_row_from_folder_and_packed_file_alike(sweep: Path, tmp_path: Path) -> None:
    pack(sweep, tmp_path / "p.json.gz")
    for results in (load_results(sweep), load_results(tmp_path / "p.json.gz")):
        rounds = results.rounds()
        assert [row["round"] for row in rounds] == [1, 2, 3, 4]
        assert [row["accuracy"] for row in rounds] == [60.0, 70.0, 80.0, 90.0]
        assert {row["defense"] for row in rounds} == {"krum"}
        last = results.clients()[-1]
        assert (last["client"], last["attacker"], last["selected"], last["last_accepted"]) == (9, True, 2, 1)
        assert last["clients"] == 10


def test_a_verdict_is_one_row_and_packed_results_have_none(sweep: Path, tmp_path: Path) -> None:
    rows = load_results(sweep).verdicts()
    assert len(rows) == 10 + 10 + 7 + 7
    caught = [row for row in rows if row["attacker"] and not row["accepted"]]
    assert {(row["round"], row["reason"], row["benign"], row["malicious"]) for row in caught} == {
        (2, "sybil", 1.0, 3.0)
    }
    pack(sweep, tmp_path / "p.json.gz")
    with pytest.raises(StateError, match="packed results have no verdicts"):
        load_results(tmp_path / "p.json.gz").verdicts()


def test_csv_has_one_header_and_every_column(sweep: Path) -> None:
    rows = load_results(sweep).runs()
    read = list(csv.DictReader(io.StringIO(rows.csv())))
    assert list(read[0]) == rows.columns
    assert [(row["defense"], row["final_accuracy"]) for row in read] == [("krum", "90.0"), ("median", "")]


def test_rows_become_a_data_frame(tmp_path: Path) -> None:
    pytest.importorskip("pandas", reason="pandas (extra 'frames') is not installed: data frames are NOT tested")
    write_run(tmp_path / "r", run_config(**ATTACK), 90.0)
    results = load_results(tmp_path / "r")
    frame = results.rounds().frame()
    assert frame["accuracy"].iloc[-1] == 90.0
    rejected = results.verdicts().frame().groupby("attacker")["accepted"].apply(lambda accepted: (~accepted).sum())
    assert rejected.to_dict() == {False: 1, True: 3}
