"""`mabrfl arena` with a tier of few short runs."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from mabrfl.arena.arena_records import Records, Run, read_records, write_records
from mabrfl.arena.scenarios import Tier, named
from mabrfl.cli.main import main
from mabrfl.sweeps.packing import pack

pytestmark = pytest.mark.usefixtures("ready_to_fork")

OWN = """
import numpy as np
from mabrfl import Decision


def mean(cohort):
    return Decision(weights=np.full(len(cohort), 1 / len(cohort)))


def broken(cohort):
    raise RuntimeError("no luck")
"""


@pytest.fixture(autouse=True)
def _small(tier: Tier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = (named("defense", "fedavg"), named("defense", "median"))
    monkeypatch.setattr("mabrfl.cli.arena.load_tier", lambda name: tier)
    monkeypatch.setattr("mabrfl.cli.arena.entrants", lambda tier="quick": few)
    monkeypatch.setattr("mabrfl.arena.contest.entrants", lambda tier="quick": few)
    monkeypatch.setattr("mabrfl.sweeps.scheduler.default_start_method", lambda devices: "fork")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "arena_own.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "arena_own", raising=False)


def arena(*arguments: str) -> int:
    return main(["arena", "--jobs", "2", *arguments])


def test_everything_is_run_once_and_the_same_command_gives_the_same_pages(capsys, tmp_path: Path) -> None:
    assert arena("--seed", "1", "--out", "r") == 0
    said = capsys.readouterr().out
    assert "ipm, backdoor, seed 1: 10 of 10 runs done" in said or "backdoor, ipm, seed 1: 10 of 10 runs done" in said
    assert "10 of 10 runs are done" in said
    pages = {path.name: path.read_bytes() for path in (tmp_path / "r").iterdir() if path.is_file()}
    images = {"leaderboard.svg", "leaderboard.png"}
    assert set(pages) == {"leaderboard.md", "leaderboard-runs.html", "records.json.gz", *images}
    assert arena("--seed", "1", "--out", "r") == 0
    assert pages == {path.name: path.read_bytes() for path in (tmp_path / "r").iterdir() if path.is_file()}
    found = read_records(tmp_path / "r" / "records.json.gz")
    assert [len(column.runs) for column in found.columns] == [5, 5]
    assert arena("--seed", "1", "--plan", "--out", "r") == 0
    assert "2 defenses: 10 runs, 10 of them done, in r" in capsys.readouterr().out


def test_finished_runs_of_other_sweeps_are_taken_over_and_merged_into_records(capsys, tmp_path: Path) -> None:
    assert arena("--seed", "1", "--defense", "median", "--out", "first") == 0
    pack(tmp_path / "first" / "median", tmp_path / "median.json.gz")
    pack(tmp_path / "first" / "baseline" / "fedavg", tmp_path / "clean.json.gz")
    packed = ["--from", "median.json.gz", "--from", "clean.json.gz"]
    capsys.readouterr()
    assert arena("--seed", "1", "--plan", "--out", "second", *packed) == 0
    assert "2 defenses: 10 runs, 0 of them done and 6 to be taken over, in second" in capsys.readouterr().out
    assert arena("--seed", "1", "--out", "second", *packed) == 0
    assert "seed 1: 10 of 10 runs done, 6 taken over;" in capsys.readouterr().out
    adopted = read_records(tmp_path / "second" / "records.json.gz").columns[1]
    assert {run.milliseconds for run in adopted.runs.values()} == {None}, "packed results do not have it"

    assert arena("--merge", "records.json.gz", "--out", "nowhere", *packed) == 0
    assert (
        "records.json.gz: 6 finished runs, 6 of them new; 0 that were void or failed are dropped"
        in capsys.readouterr().out
    )
    found = read_records(tmp_path / "records.json.gz")
    assert [column.label for column in found.columns] == ["fedavg", "median"]
    assert found.columns[1].runs == adopted.runs
    before = (tmp_path / "records.json.gz").read_bytes()
    assert arena("--merge", "records.json.gz", "--out", "nowhere") == 0
    assert (tmp_path / "records.json.gz").read_bytes() == before, "what is there stays"
    assert arena("--merge", "records.json.gz", "--out", "first") == 0
    assert "6 finished runs, 0 of them new;" in capsys.readouterr().out.splitlines()[-1]
    assert arena("--merge", "own.json.gz", "--out", "second") == 0
    assert "10 finished runs, 10 of them new;" in capsys.readouterr().out.splitlines()[-1]

    own = read_records(tmp_path / "own.json.gz")
    column = own.columns[1]
    (void, kept), (failed, broken), *_ = column.runs.items()
    spoilt = {void: replace(kept, key="0" * len(kept.key)), failed: Run(broken.key, error="no luck")}
    columns = (own.columns[0], replace(column, runs={**column.runs, **spoilt}))
    write_records(replace(own, columns=columns), tmp_path / "spoilt.json.gz")
    assert arena("--merge", "spoilt.json.gz", "--out", "nowhere") == 0
    assert "8 finished runs, 0 of them new; 2 that were void or failed are dropped" in capsys.readouterr().out


def test_a_rule_of_ones_own_gets_its_place_among_the_committed_columns(
    capsys, records: Records, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_records(records, tmp_path / "quick.json.gz")
    monkeypatch.setattr("mabrfl.arena.contest.committed", lambda tier: records)
    assert arena("--defense", "arena_own:mean", "--out", "r") == 0
    said = capsys.readouterr().out
    assert "arena_own:mean has place " in said
    assert "median" in said
    found = read_records(tmp_path / "r" / "place-of-arena-own-mean" / "records.json.gz")
    assert [column.label for column in found.columns] == ["fedavg", "median", "krum", "arena_own:mean"]
    assert not (tmp_path / "r" / "baseline").exists(), "FedAvg is among the committed ones"


def test_runs_of_ones_own_rule_that_fail_are_an_error_with_its_words(capsys) -> None:
    assert arena("--defense", "arena_own:broken", "--seed", "1", "--out", "r") == 9
    both = capsys.readouterr()
    assert "arena_own:broken has no place: 0 of 5 runs are done" in both.out
    assert "5 runs failed, the first of arena_own:broken: " in both.err
    assert "no luck" in both.err


def test_an_attack_is_run_against_all_defenses_and_says_which_fall(capsys, tmp_path: Path) -> None:
    assert arena("--attack", "sign-flip", "--set", "attack_options.scale=50.0", "--seed", "1", "--out", "r") == 0
    said = capsys.readouterr().out
    assert "of 2 defenses fall to sign-flip (scale=50.0) (lose more than 10 points)" in said
    found = read_records(next((tmp_path / "r").glob("place-of-sign-flip*")) / "records.json.gz")
    assert [attack.label for attack in found.tier.attacks][-1] == "sign-flip (scale=50.0)"


def test_fresh_scenarios_name_the_seed_that_repeats_them(capsys) -> None:
    assert arena("--fresh", "--plan") == 0
    said = capsys.readouterr().out
    seed = said.split("--draw ")[1].split()[0]
    assert arena("--draw", seed, "--plan") == 0
    assert f"scenarios drawn from the seed {seed}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--defense", "krumm"], "did you mean 'krum'"),
        (["--attack", "lye"], "did you mean 'lie'"),
        (["--seed", "9"], "has the seeds 1, 2; got 9"),
        (["--task", "mnist"], "has the tasks digits; got 'mnist'"),
        (["--merge", "r.json.gz", "--seed", "1"], "it takes --tier, --out and --from only"),
        (["--merge", "r.json.gz", "--plan"], "it takes --tier, --out and --from only"),
        (["--merge", "r.json.gz", "--set", "selector=all"], "it takes --tier, --out and --from only"),
        (["--from", "nowhere.json.gz"], "there are no results at 'nowhere.json.gz'"),
        (["--defense", "krum", "--set", "rounds=3"], "--set takes an option of the defense or the attack"),
        (["--draw", "-1"], "--draw takes a seed from 0 on; got -1"),
    ],
)
def test_a_wrong_wish_is_one_line(capsys, arguments: list[str], message: str) -> None:
    assert arena(*arguments) != 0
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert message in lines[0]
