"""A sweep goes on from packed results: what is finished there is taken over, and nothing that was tampered with."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from killing import InterruptAfter
from mabrfl import runs
from mabrfl.config import load_config
from mabrfl.errors import OutputError, StateError
from mabrfl.reports.figures import draw
from mabrfl.reports.page import report
from mabrfl.reports.table_formats import markdown
from mabrfl.reports.tables import tabulate
from mabrfl.sweeps.adoption import adopt, adoptable
from mabrfl.sweeps.packing import pack
from mabrfl.sweeps.plan import folder_of, standing
from mabrfl.sweeps.results import load_results
from mabrfl.sweeps.scheduler import run_sweep
from mabrfl.sweeps.sweep_file import Sweep, parse_sweep

pytestmark = pytest.mark.usefixtures("ready_to_fork")

TEXT = """
name = "tiny"
[base]
dataset = "digits"
clients = 6
rounds = 2
training.epochs = 1
partition.sizes = [8, 16]
[axes]
defense = ["fedavg", "mab-rfl"]
seed = [0, 1]
"""


@pytest.fixture(scope="module")
def wanted() -> Sweep:
    return parse_sweep(TEXT.encode())


@pytest.fixture(scope="module")
def half(wanted: Sweep, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Packed results of which two cells of four are done."""
    place = tmp_path_factory.mktemp("half")
    run(wanted, place / "tiny", only=[wanted.cells[0], wanted.cells[2]])
    pack(place / "tiny", place / "tiny.json.gz")
    return place / "tiny.json.gz"


def run(sweep: Sweep, results: Path, **settings: Any) -> Any:
    return run_sweep(sweep, results, **{"start_method": "fork", "jobs": 2, "workers": 1, **settings})


def changed(packed: Path, change: Callable[[dict[str, Any]], object], place: Path) -> Path:
    document = json.loads(gzip.decompress(packed.read_bytes()))
    change(document["cells"][0])
    place.write_bytes(gzip.compress(json.dumps(document).encode()))
    return place


def test_adopted_cells_count_as_done_everywhere_and_pack_to_the_same_bytes(
    wanted: Sweep, half: Path, tmp_path: Path
) -> None:
    place = tmp_path / "tiny"
    progress = run(wanted, place, only=[wanted.cells[0]], adopt_from=[half])
    assert (progress.adopted, progress.count("done"), progress.left) == (2, 1, 0)
    assert [standing(place, cell).status for cell in wanted.cells] == ["done", "missing", "done", "missing"]
    assert standing(place, wanted.cells[0]).accuracy == load_results(half).cells[0].measured("final_accuracy")
    dumps = [[cell.model_dump() for cell in load_results(path).cells] for path in (place, half)]
    assert dumps[0] == dumps[1]  # all but the folders of the runs, which packed results do not have
    pack(place, tmp_path / "again.json.gz")
    assert (tmp_path / "again.json.gz").read_bytes() == half.read_bytes()
    cells = load_results(place).cells
    assert markdown(tabulate(cells)) == markdown(tabulate(load_results(half).cells))
    assert set(draw(cells)) == set(draw(load_results(half).cells)) != set()
    assert "2 of 4" in report([load_results(place)])


def test_a_sweep_runs_exactly_what_was_not_adopted(wanted: Sweep, half: Path, tmp_path: Path) -> None:
    progress = run(wanted, tmp_path / "tiny", adopt_from=[half])
    assert (progress.adopted, progress.count("done")) == (2, 4)
    ran = [(folder_of(tmp_path / "tiny", cell.key) / "rounds.jsonl").exists() for cell in wanted.cells]
    assert ran == [False, True, False, True]
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "tiny" / "cells").rglob("*")}
    assert run(wanted, tmp_path / "tiny", adopt_from=[half]).adopted == 0
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "tiny" / "cells").rglob("*")} == before
    folder = folder_of(tmp_path / "tiny", wanted.cells[0].key)
    assert sorted(os.listdir(folder)) == ["config.toml", "manifest.json", "series.json", "summary.json"]
    assert load_config(folder / "config.toml").seed == 0
    assert load_results(folder).cells[0].series == load_results(half).cells[0].series


def test_cells_are_adopted_from_the_folder_of_another_sweep_too(wanted: Sweep, half: Path, tmp_path: Path) -> None:
    assert run(wanted, tmp_path / "tiny", only=wanted.cells[:1], adopt_from=[half.with_name("tiny")]).adopted == 2
    pack(tmp_path / "tiny", tmp_path / "again.json.gz")
    assert (tmp_path / "again.json.gz").read_bytes() == half.read_bytes()


def test_a_cell_that_was_begun_here_goes_on_here(wanted: Sweep, half: Path, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, wanted.cells[0].key)
    with pytest.raises(KeyboardInterrupt):
        runs.run(wanted.cells[0].config, folder, observers=[InterruptAfter()])
    assert adopt(tmp_path, wanted.cells, adoptable([half], wanted.cells)) == 1
    assert standing(tmp_path, wanted.cells[0]).status == "running"


def test_an_adoption_that_was_killed_before_the_summary_is_no_finished_cell(
    wanted: Sweep, half: Path, tmp_path: Path
) -> None:
    found = adoptable([half], wanted.cells)
    assert adopt(tmp_path, wanted.cells, found) == 2
    folder = folder_of(tmp_path, wanted.cells[0].key)
    (folder / "summary.json").unlink()
    assert standing(tmp_path, wanted.cells[0]).status == "missing"
    assert load_results(folder).cells[0].series == {}
    runs.run(wanted.cells[0].config, folder)  # as the sweep does with a cell that is missing
    assert load_results(folder).cells[0].series["accuracy"] == found[wanted.cells[0].key].series["accuracy"]


def test_going_on_with_an_adopted_run_by_itself_says_what_is_missing(wanted: Sweep, half: Path, tmp_path: Path) -> None:
    adopt(tmp_path, wanted.cells, adoptable([half], wanted.cells))
    with pytest.raises(StateError, match=r"its rounds are not there: was it adopted\?"):
        runs.run(wanted.cells[0].config, folder_of(tmp_path, wanted.cells[0].key))


TAMPERINGS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "another setting": (lambda cell: cell["config"].update(rounds=3), "expected rounds = 2, got 3"),
    "another option": (lambda cell: cell["config"]["training"].update(epochs=9), "expected training.epochs = 1, got 9"),
    "an extra setting": (
        lambda cell: cell["config"].update(bribe=1),
        "unknown key 'bribe'",
    ),
    "the summary of another run": (lambda cell: cell["summary"].update(config_hash="f" * 64), "its summary is that of"),
    "an interrupted run": (lambda cell: cell["summary"].update(interrupted=True), "expected all of 2 rounds"),
    "fewer rounds": (lambda cell: cell["summary"].update(rounds=1), "expected all of 2 rounds, got 1"),
    "a better accuracy": (lambda cell: cell["summary"].update(final_accuracy=99.9), "differ in accuracy"),
    "no accuracy": (lambda cell: cell["summary"].pop("final_accuracy"), "differ in accuracy"),
    "a missing series": (lambda cell: cell.update(series={}), "expected a series of 2 rounds"),
    "rounds out of order": (lambda cell: cell["series"].update(round=[2, 1]), "expected a series of 2 rounds"),
}


@pytest.mark.parametrize("name", TAMPERINGS)
def test_a_tampered_cell_is_refused_and_nothing_is_touched(
    wanted: Sweep, half: Path, tmp_path: Path, name: str
) -> None:
    change, message = TAMPERINGS[name]
    packed = changed(half, change, tmp_path / "bad.json.gz")
    with pytest.raises(StateError, match=f"bad.json.gz' was changed: cell defense=fedavg, seed=0 .*{message}"):
        run(wanted, tmp_path / "tiny", adopt_from=[half, packed])
    assert not (tmp_path / "tiny").exists()


def test_results_of_another_sweep_are_told_so(half: Path, tmp_path: Path) -> None:
    other = parse_sweep(TEXT.replace("rounds = 2", "rounds = 5").encode())
    with pytest.raises(StateError, match=r"tiny.json.gz' has no cell of this sweep; is it the right file\?"):
        run(other, tmp_path / "tiny", adopt_from=[half])
    assert not (tmp_path / "tiny").exists()


def test_of_an_older_state_of_the_file_the_common_cells_are_adopted(half: Path, tmp_path: Path) -> None:
    grown = parse_sweep(TEXT.replace("seed = [0, 1]", "seed = [0, 7]").encode())
    assert run(grown, tmp_path / "tiny", only=grown.cells[:1], adopt_from=[half]).adopted == 2


def test_packing_does_not_lose_finished_runs_unasked(wanted: Sweep, half: Path, tmp_path: Path) -> None:
    (tmp_path / "tiny.json.gz").write_bytes(half.read_bytes())
    fresh = partial(run, wanted, tmp_path / "tiny", only=wanted.cells[:1])
    fresh()
    with pytest.raises(OutputError, match="has 1 finished runs that are not finished in the results to be packed"):
        pack(tmp_path / "tiny", tmp_path / "tiny.json.gz")
    assert (tmp_path / "tiny.json.gz").read_bytes() == half.read_bytes()
    fresh(adopt_from=[half])
    assert pack(tmp_path / "tiny", tmp_path / "tiny.json.gz").count("done") == 2
    assert pack(tmp_path / "tiny", tmp_path / "tiny.json.gz", force=True).count("done") == 2


def test_another_sweep_or_other_settings_are_not_packed_over_it_unasked(half: Path, tmp_path: Path) -> None:
    (tmp_path / "tiny.json.gz").write_bytes(half.read_bytes())
    other = parse_sweep(TEXT.replace("rounds = 2", "rounds = 1").encode())
    run(other, tmp_path / "tiny", only=other.cells[:1])
    with pytest.raises(OutputError, match=r"has 2 finished runs .*; 2 are not planned in them.*; --force drops all 2$"):
        pack(tmp_path / "tiny", tmp_path / "tiny.json.gz")
    assert (tmp_path / "tiny.json.gz").read_bytes() == half.read_bytes()
    grown = parse_sweep(TEXT.replace('"fedavg", "mab-rfl"', '"fedavg", "krum"').encode())
    run(grown, tmp_path / "grown", only=grown.cells[1:2])
    with pytest.raises(OutputError, match=r"; 1 could be taken over first .*, 1 are not planned .* drops all 2$"):
        pack(tmp_path / "grown", tmp_path / "tiny.json.gz")
    assert pack(tmp_path / "tiny", tmp_path / "tiny.json.gz", force=True).count("done") == 1
