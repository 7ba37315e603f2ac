from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from mabrfl.config import config_hash
from mabrfl.errors import OutputError, StateError
from mabrfl.recording import files
from mabrfl.runs.finished import finished_run
from mabrfl.sweeps.cells import PlannedCell
from mabrfl.sweeps.packing import pack
from mabrfl.sweeps.plan import standing
from mabrfl.sweeps.results import Cell, load_all, load_results
from result_folders import make_cell, run_config, small_sweep, write_run, write_sweep


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sweep(tmp_path_factory.mktemp("results") / "small", small_sweep())


@pytest.fixture
def packed(sweep: Path, tmp_path: Path) -> Path:
    pack(sweep, tmp_path / "small.json.gz")
    return tmp_path / "small.json.gz"


def test_a_sweeps_folder_gives_every_planned_cell_in_order_with_its_state(sweep: Path) -> None:
    results = load_results(sweep)
    assert results.name == "small"
    assert results.sweep == 'name = "small"\n'
    assert [cell.status for cell in results.cells] == [
        *("done", "done", "done", "done", "failed", "running", "missing", "done", "done")
    ]
    assert [cell.axes for cell in results.cells] == [settings for settings, _ in small_sweep()]
    failed, running = results.cells[4], results.cells[5]
    assert failed.error is not None
    assert failed.error["error"] == "the worker died"
    assert failed.summary is None
    assert running.series["round"] == [1, 2]
    assert (results.count("done"), results.count("missing")) == (6, 1)


def test_series_count_what_happened_in_each_round(sweep: Path) -> None:
    cell = load_results(sweep).cells[3]  # krum, 3 of 10 attack with lie
    assert cell.num_attackers == 3
    assert cell.percent == 30
    expected = {
        "round": [1, 2, 3, 4],
        "accuracy": [50.0, 60.0, 70.0, 80.0],
        "selected": [10, 10, 7, 7],
        "selected_malicious": [3, 3, 0, 0],
        "sybils": [1, 3, 0, 0],
        "outliers": [0, 0, 0, 0],
        "malformed": [0, 0, 0, 0],
        "caught": [0, 3, 0, 0],
        "missed": [3, 0, 0, 0],
        "honest_rejected": [1, 0, 0, 0],
        "mean_belief_honest": [0.75] * 4,
        "mean_belief_malicious": [0.25] * 4,
        "seconds": [0.75] * 4,
        "largest_cosine": [0.5, 0.25, 0.166667, 0.125],
    }
    assert {name: cell.series[name] for name in expected} == expected
    assert not {"note", "flag"} & set(cell.series)
    assert cell.events == {"warm-up": 1}


def test_clients_have_their_totals_and_the_last_round_they_mattered_in(sweep: Path) -> None:
    clients = load_results(sweep).cells[3].clients
    assert clients["id"] == list(range(10))
    assert clients["attacker"] == [False] * 7 + [True] * 3
    assert clients["selected"] == [4] * 7 + [2] * 3
    assert clients["rejected"] == [1] + [0] * 6 + [1] * 3
    assert clients["last_selected"] == [4] * 7 + [2] * 3
    assert clients["last_accepted"] == [4] * 7 + [1] * 3


def test_without_attackers_there_is_no_belief_in_them(sweep: Path) -> None:
    cell = load_results(sweep).cells[0]
    assert cell.series["mean_belief_malicious"] == [None] * 4
    assert cell.percent == 0


def test_rounds_may_be_left_unread(sweep: Path) -> None:
    quick = load_results(sweep, rounds=False)
    assert [cell.status for cell in quick.cells] == [cell.status for cell in load_results(sweep).cells]
    assert all(cell.series == {} for cell in quick.cells)


def test_a_packed_file_holds_the_same_as_the_folder_but_no_arguments(sweep: Path, packed: Path) -> None:
    assert load_results(packed).model_dump() == load_results(sweep).model_dump()
    assert {cell.folder for cell in load_results(packed).cells} == {None}
    assert "arguments" not in load_results(packed).cells[0].manifest
    assert load_results(packed).cells[0].manifest["cpu_count"] == 2


def test_packing_gives_the_same_bytes_wherever_and_whenever(sweep: Path, packed: Path, tmp_path: Path) -> None:
    pack(sweep, tmp_path / "elsewhere" / "other-name.json.gz")
    data = (tmp_path / "elsewhere" / "other-name.json.gz").read_bytes()
    assert data == packed.read_bytes()
    assert data[4:8] == b"\0\0\0\0", "the time of packing is in the file"
    pack(packed, tmp_path / "again.json.gz")
    assert (tmp_path / "again.json.gz").read_bytes() == data


def test_a_packed_file_is_strict_json_without_weights_and_small(packed: Path) -> None:
    text = gzip.decompress(packed.read_bytes()).decode("ascii")
    document = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert (document["format"], document["version"], len(document["cells"])) == ("mabrfl-results", 2, 9)
    assert "verdicts" not in text
    assert len(packed.read_bytes()) < 10_000


def test_packing_replaces_packed_results_and_nothing_else(sweep: Path, packed: Path, tmp_path: Path) -> None:
    pack(sweep, packed)
    (tmp_path / "letter.txt").write_text("mine")
    with pytest.raises(OutputError, match="exists and is not a packed results file"):
        pack(sweep, tmp_path / "letter.txt")
    assert (tmp_path / "letter.txt").read_text() == "mine"
    assert sorted(os.listdir(tmp_path)) == ["letter.txt", "small.json.gz"]


def test_packing_onto_a_damaged_packed_file_says_that_it_is_damaged(sweep: Path, packed: Path) -> None:
    whole = packed.read_bytes()
    for data in (whole[: len(whole) // 2], whole[:-4] + b"1234", whole[:40] + b"\xff" * 40 + whole[80:], whole[:5]):
        packed.write_bytes(data)
        with pytest.raises(OutputError, match=r"is a packed file, but damaged: .*; choose another name, or remove it"):
            pack(sweep, packed)
        assert packed.read_bytes() == data
    newer = json.loads(gzip.decompress(whole)) | {"version": 3}
    packed.write_bytes(gzip.compress(json.dumps(newer).encode()))
    with pytest.raises(OutputError, match=r"is in version 3 of its format.*; choose another name"):
        pack(sweep, packed)


def test_packing_into_a_place_that_cannot_be_is_one_error(sweep: Path, packed: Path) -> None:
    with pytest.raises(OutputError, match="cannot write"):
        pack(sweep, packed / "below.json.gz")


def damaged(packed: Path, change: Any) -> Path:
    document = json.loads(gzip.decompress(packed.read_bytes()))
    change(document)
    packed.write_bytes(gzip.compress(json.dumps(document).encode()))
    return packed


DAMAGES: dict[str, tuple[Any, str]] = {
    "another format": (lambda document: document.update(format="x"), "is not a packed results file"),
    "another version": (lambda document: document.update(version=3), "is in version 3 of its format"),
    "no cells": (lambda document: document.pop("cells"), "cells: Field required"),
    "an extra key": (lambda document: document.update(code="x"), "code: Extra inputs"),
    "a mistyped status": (lambda document: document["cells"][0].update(status="fine"), "cells.0.status"),
    "a done cell without summary": (lambda document: document["cells"][0].update(summary=None), "must have a summary"),
    "series without rounds": (lambda document: document["cells"][0]["series"].pop("round"), "must have 'round'"),
    "series of two lengths": (lambda document: document["cells"][0]["series"]["loss"].pop(), "lists of one length"),
    "words in a series": (
        lambda document: document["cells"][0]["series"].update(loss=["a", "b", "c", "d"]),
        "cells.0.series.loss.0",
    ),
    "words for counts": (
        lambda document: document["cells"][0]["clients"].update(last_selected=["x"] * 10),
        "clients.last_selected must hold whole numbers",
    ),
    "a config without data set": (lambda document: document["cells"][0]["config"].pop("dataset"), "cells.0.config"),
    "a config with words for clients": (
        lambda document: document["cells"][0]["config"].update(clients="many"),
        "cells.0.config",
    ),
}


@pytest.mark.parametrize(("change", "message"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_document_is_refused_with_its_place(packed: Path, change: Any, message: str) -> None:
    with pytest.raises(StateError, match=message) as caught:
        load_results(damaged(packed, change))
    assert "small.json.gz" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kept", [0, 5, 100, -1])
def test_a_truncated_file_is_refused(packed: Path, kept: int) -> None:
    packed.write_bytes(packed.read_bytes()[:kept])
    with pytest.raises(StateError, match=r"damaged|not valid JSON"):
        load_results(packed)


def test_a_flipped_bit_is_noticed(packed: Path) -> None:
    data = bytearray(packed.read_bytes())
    data[len(data) // 2] ^= 1
    packed.write_bytes(data)
    with pytest.raises(StateError):
        load_results(packed)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "1e999", "[" * 100_000, "{", "\xff"])
def test_what_is_no_strict_json_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json.gz"
    path.write_bytes(gzip.compress(text.encode("latin-1")))
    with pytest.raises(StateError, match="is not valid JSON"):
        load_results(path)


def test_a_file_that_unpacks_to_too_much_is_refused_without_unpacking_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_BYTES", 1000)
    (tmp_path / "bomb.json.gz").write_bytes(gzip.compress(b" " * 10_000_000))
    with pytest.raises(StateError, match="must hold at most 1,000 bytes"):
        load_results(tmp_path / "bomb.json.gz")


def test_a_place_without_results_is_named(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="there are no results at"):
        load_results(tmp_path / "nowhere")
    with pytest.raises(StateError, match="holds no results"):
        load_results(tmp_path)
    with pytest.raises(StateError, match="there are no results at"):
        load_results(tmp_path / ("x" * 5000))
    with pytest.raises(StateError, match="there are no results at"):
        load_results("nul\0byte")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_named_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StateError, match="neither a folder nor a regular file"):
        load_results(tmp_path / "pipe")


def test_a_plan_cannot_point_out_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / "cells.json").write_text(json.dumps([{"key": "../../../../../x", "config": {}, "axes": {}}]))
    with pytest.raises(StateError, match="key must be a hash"):
        load_results(tmp_path)
    (tmp_path / "cells.json").write_text("{}")
    with pytest.raises(StateError, match="is not the plan of a sweep"):
        load_results(tmp_path)


def test_a_run_cut_off_in_the_middle_of_a_line_is_running(tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path / "s", [({"defense": "krum"}, "running")])
    (rounds,) = sweep.glob("cells/*/rounds.jsonl")
    rounds.write_bytes(rounds.read_bytes()[:-20])
    (cell,) = load_results(sweep).cells
    assert (cell.status, cell.series["round"]) == ("running", [1])


def test_an_interrupted_summary_is_not_done(tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path / "s", [({"defense": "krum"}, 90.0)])
    (summary,) = sweep.glob("cells/*/summary.json")
    summary.write_text(json.dumps({**json.loads(summary.read_text()), "interrupted": True}))
    assert load_results(sweep).cells[0].status == "running"


def changed(summary: dict[str, Any], **values: Any) -> str:
    return json.dumps({name: value for name, value in {**summary, **values}.items() if value is not None})


UNFINISHED = {
    "interrupted": lambda summary: changed(summary, interrupted=True),
    "does not say whether it was interrupted": lambda summary: changed(summary, interrupted=None),
    "of another configuration": lambda summary: changed(summary, config_hash="0" * 64),
    "without a configuration": lambda summary: changed(summary, config_hash=None),
    "truncated": lambda summary: json.dumps(summary)[:50],
    "no object": lambda _: "[]",
    "empty": lambda _: "",
}


@pytest.mark.parametrize("change", UNFINISHED.values(), ids=UNFINISHED)
def test_a_cell_is_done_for_tables_plans_and_resumption_alike(tmp_path: Path, change: Any) -> None:
    config = run_config(defense="krum")
    folder = write_sweep(tmp_path / "s", [({"defense": "krum"}, 90.0), ({"defense": "median"}, 80.0)])
    planned = PlannedCell(config_hash(config), config, {})
    run = folder / "cells" / planned.key[:16]

    def told() -> tuple[str, str, bool, str]:
        alone = load_results(run).cells[0].status
        return (
            load_results(folder).cells[0].status,
            standing(folder, planned).status,
            bool(finished_run(run, config)),
            alone,
        )

    assert told() == ("done", "done", True, "done")
    summary = json.loads((run / "summary.json").read_text())
    (run / "summary.json").write_text(change(summary))
    assert told() == ("running", "running", False, "running")
    assert load_results(folder).cells[1].status == "done"


def test_damaged_files_of_unfinished_cells_do_not_keep_the_others_from_being_read(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path / "s", [({"defense": "krum"}, "failed"), ({"defense": "median"}, 80.0)])
    (failed,) = [path.parent for path in folder.glob("cells/*/failed.json")]
    for name in ("failed.json", "manifest.json", "rounds.jsonl"):
        (failed / name).write_text("{\n{\n")
    assert [(cell.status, cell.error) for cell in load_results(folder).cells] == [
        ("failed", {"error": "unknown"}),
        ("done", None),
    ]


def _without_last_line(folder: Path) -> None:
    lines = (folder / "rounds.jsonl").read_text().splitlines(keepends=True)
    (folder / "rounds.jsonl").write_text("".join(lines[:-1]))


def _other_accuracy(folder: Path) -> None:
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps({**summary, "final_accuracy": 99.99}))


def _broken_line(folder: Path) -> None:
    lines = (folder / "rounds.jsonl").read_text().splitlines(keepends=True)
    (folder / "rounds.jsonl").write_text("".join(["{}\n", *lines[1:]]))


DAMAGE = {
    "manifest": (lambda folder: (folder / "manifest.json").write_text("{"), "manifest.json' is not valid JSON"),
    "a round less": (_without_last_line, "summary.json has 4 rounds, but rounds.jsonl has 3"),
    "cut off": (lambda folder: os.truncate(folder / "rounds.jsonl", 500), "rounds.jsonl is cut off"),
    "no rounds": (lambda folder: (folder / "rounds.jsonl").unlink(), "cannot read rounds.jsonl"),
    "another accuracy": (_other_accuracy, "has an accuracy of 99.99, but the last round in rounds.jsonl has 90.0"),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGE.values(), ids=DAMAGE)
def test_a_finished_cell_whose_files_contradict_each_other_counts_as_failed_for_tables_and_plans(
    tmp_path: Path, damage: Any, message: str
) -> None:
    folder = write_sweep(tmp_path / "s", [({"defense": "krum"}, 90.0), ({"defense": "median"}, 80.0)])
    config = run_config(defense="krum")
    planned = PlannedCell(config_hash(config), config, {})
    run = folder / "cells" / planned.key[:16]
    damage(run)
    damaged, other = load_results(folder).cells
    assert (damaged.status, damaged.summary, other.status) == ("failed", None, "done")
    assert damaged.error is not None
    assert damaged.error["error"].startswith(f"the run in {str(run)!r} is damaged: ")
    assert message in damaged.error["error"]
    known = standing(folder, planned)
    assert (known.status, known.damaged) == ("failed", True)
    assert message in known.error


def test_a_line_in_the_middle_that_is_no_round_is_damage_where_the_rounds_are_read(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path / "s", [({"defense": "krum"}, 90.0)])
    _broken_line(next(folder.glob("cells/*")))
    (cell,) = load_results(folder).cells
    assert (cell.status, cell.summary) == ("failed", None)
    assert "line 1 is not a round record" in str(cell.error)


def test_a_folder_of_sweeps_runs_and_packed_files_is_all_of_them(tmp_path: Path) -> None:
    folder = tmp_path / "all"
    write_sweep(folder / "sweep", [({"defense": "krum"}, 90.0), ({"defense": "median"}, None)])
    write_run(folder / "run", run_config(defense="faba"), 80.0)
    pack(write_sweep(tmp_path / "other", [({"defense": "dnc"}, 70.0)]), folder / "other.json.gz")
    (folder / "pictures").mkdir()
    (folder / "notes.txt").write_text("mine")
    results = load_results(folder)
    assert [(cell.config["defense"], cell.status) for cell in results.cells] == [
        *(("dnc", "done"), ("faba", "done"), ("krum", "done"), ("median", "missing"))
    ]
    assert (results.name, results.sweep) == ("all", 'name = "small"\n\nname = "small"\n')
    (folder / "other.json.gz").write_bytes(b"x")
    with pytest.raises(StateError, match=r"other\.json\.gz"):
        load_results(folder)


def test_the_same_run_twice_in_one_folder_is_one_run(tmp_path: Path) -> None:
    config = run_config(defense="krum")
    for name, rounds in (("a", 2), ("b", None), ("c", None)):
        write_run(tmp_path / "runs" / name, config, 90.0, rounds=rounds)
    write_run(tmp_path / "runs" / "d", run_config(defense="krum", seed=1), 92.0)
    cells = load_results(tmp_path / "runs").cells
    assert [(cell.config["seed"], cell.status) for cell in cells] == [(0, "done"), (1, "done")]
    (results,) = load_all([tmp_path / "runs"])
    assert [len(results.cells), len(cells)] == [2, 2]


def test_a_packed_file_that_has_a_run_twice_gives_it_once(packed: Path) -> None:
    damaged(packed, lambda document: document["cells"].append(document["cells"][0]))
    assert len(load_results(packed).cells) == len(small_sweep())


def test_the_folder_of_a_run_and_a_folder_of_runs_are_results_too(tmp_path: Path) -> None:
    config = run_config(defense="krum")
    write_run(tmp_path / "runs" / "b", config, 90.0)
    write_run(tmp_path / "runs" / "a", run_config(defense="median"), 80.0)
    (cell,) = load_results(tmp_path / "runs" / "b").cells
    assert (cell.key, cell.status, cell.measured("final_accuracy")) == (config_hash(config), "done", 90.0)
    assert [cell.config["defense"] for cell in load_results(tmp_path / "runs").cells] == ["median", "krum"]


def test_a_run_in_several_results_is_taken_once_where_it_got_furthest(tmp_path: Path) -> None:
    first = write_sweep(tmp_path / "a", [({"defense": "krum"}, "running"), ({"defense": "median"}, 90.0)])
    second = write_sweep(tmp_path / "b", [({"defense": "krum"}, 80.0), ({"defense": "median"}, 90.0)])
    one, two = load_all([first, second])
    assert [cell.config["defense"] for cell in one.cells] == ["median"]
    assert [(cell.config["defense"], cell.status) for cell in two.cells] == [("krum", "done")]


def test_a_number_that_is_none_is_no_measurement() -> None:
    cell = make_cell(90.0)
    assert cell.measured("final_accuracy") == 90.0
    assert cell.measured("mean_last10") == 75.0
    assert cell.measured("interrupted") is None
    assert cell.measured("no such number") is None
    assert make_cell(status="failed").measured("final_accuracy") is None
    assert isinstance(cell, Cell)
