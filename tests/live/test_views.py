"""What the live page shows of a run, a sweep and a federation, also while they are being written."""

from __future__ import annotations

import json
import os
import re
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from mabrfl.errors import ConfigError, StateError
from mabrfl.live import sweep_view
from mabrfl.live.federation_view import FederationView
from mabrfl.live.routes import encoded, page, routes_of, view_of
from mabrfl.live.run_view import RunView
from mabrfl.live.sweep_view import SweepView
from mabrfl.live.tails import Tail
from mabrfl.recording import RoundRecord
from mabrfl.recording.audit import AuditLog
from mabrfl.recording.client_states import STATES
from mabrfl.recording.status import ClientStatus, FederationStatus, write_status
from mabrfl.sweeps.packing import pack
from mabrfl.updates import Verdict
from result_folders import records_of, run_config, small_sweep, write_run, write_sweep

HOSTILE = "<script>alert('x')</script>"


def live(view: Any) -> dict[str, Any]:
    return json.loads(routes_of(view)["/live"]({}).content)


@pytest.fixture
def running(tmp_path: Path) -> Path:
    """A run with two of its four rounds: 10 clients, 3 of them attack."""
    write_run(tmp_path / "run", run_config(defense="krum", attack="lie", attackers=0.3), 90.0, rounds=2)
    return tmp_path / "run"


def test_the_lines_of_a_growing_file_are_read_once_and_never_half(tmp_path: Path) -> None:
    file, more = tmp_path / "a", tmp_path / "b"
    tail = Tail(lambda: [file, more])
    assert tail.read() == (False, [])
    file.write_bytes(b"1\n2\nhal")
    assert tail.read() == (False, [b"1\n", b"2\n"])
    assert tail.read() == (False, [])
    file.write_bytes(b"1\n2\nhalf\n")
    more.write_bytes(b"4\n")
    assert tail.read() == (False, [b"half\n", b"4\n"])
    more.write_bytes(b"4\n5")
    assert tail.read() == (False, [])
    file.write_bytes(b"1\n")
    more.unlink()
    assert tail.read() == (True, [b"1\n"]), "the file was cut"
    file.write_bytes(b"7\n8\n9\n")
    assert tail.read() == (True, [b"7\n", b"8\n", b"9\n"]), "another file, and longer"
    os.mkfifo(more)
    with pytest.raises(StateError, match="pipe or device"):
        tail.read()


def test_a_run_shows_its_progress_its_curves_and_its_clients(running: Path) -> None:
    shown = live(view_of(running))
    assert (shown["kind"], shown["title"], shown["state"]) == ("run", "run", "going")
    assert (shown["done"], shown["planned"], shown["pace"], shown["eta"]) == (2, 4, 0.75, 1.5)
    assert ["attack", "lie"] in shown["settings"]
    assert [curve["name"] for curve in shown["curves"]] == ["Accuracy", "Loss"]
    assert shown["curves"][0]["values"] == [60.0, 70.0]
    assert shown["figures"] == [
        ["accuracy", "70.00 %"],
        ["loss", "0.500"],
        ["selected in the last round", "10"],
        ["attackers' updates rejected", "3 of 6"],
        ["honest updates rejected", "1 of 14"],
    ]
    assert shown["rounds"] == [1, 2]
    # Client 0 is rejected in round 1 and the attackers, who come last, in round 2; 2 is accepted, 3 a sybil.
    assert [state for state, _ in shown["states"]] == list(STATES)
    assert shown["columns"] == ["3222222222", "2222222333"]
    last = shown["clients"][-1]
    assert last == {
        "handle": "9",
        "name": "9",
        "invited": 2,
        "accepted": 1,
        "rejected": 1,
        "trust": 25,
        "attacker": True,
    }
    assert shown["trusts"]["9"] == [25, 25]


def test_a_run_grows_finishes_and_is_begun_again(running: Path) -> None:
    view = RunView(running)
    config = run_config(defense="krum", attack="lie", attackers=0.3)
    lines = [record.to_json() + "\n" for record in records_of(config, 90.0)]
    assert live(view)["done"] == 2
    with (running / "rounds.jsonl").open("a") as file:
        file.write(lines[2][:100])
        file.flush()
        assert live(view)["done"] == 2
        file.write(lines[2][100:])
        file.flush()
        assert live(view)["columns"][-1] == "2222222000"
    # A run that is resumed from an older checkpoint cuts its last rounds off.
    (running / "rounds.jsonl").write_text(lines[0])
    assert live(view)["rounds"] == [1]
    (running / "rounds.jsonl").write_text("".join(lines))
    (running / "summary.json").write_text(json.dumps({"interrupted": False}))
    assert (live(view)["state"], live(view)["eta"]) == ("finished", 0.0)
    (running / "summary.json").write_text(json.dumps({"interrupted": True}))
    assert live(view)["state"] == "interrupted"
    (running / "failed.json").write_text(json.dumps({"error": HOSTILE}))
    assert (live(view)["state"], live(view)["error"]) == ("failed", HOSTILE)


def test_half_written_and_damaged_files_never_break_the_page(running: Path) -> None:
    files = {name: (running / name).read_bytes() for name in ("rounds.jsonl", "config.toml")}
    for name, data in files.items():
        for end in range(0, len(data), max(1, len(data) // 40)):
            (running / name).write_bytes(data[:end])
            shown = live(RunView(running))
            assert shown["done"] == ((data[:end] if name == "rounds.jsonl" else files["rounds.jsonl"]).count(b"\n"))
        (running / name).write_bytes(data)
    lines = files["rounds.jsonl"].splitlines(keepends=True)
    (running / "rounds.jsonl").write_bytes(lines[0] + b'{"round": []}\n' + lines[1])
    shown = live(RunView(running))
    assert (shown["rounds"], shown["notes"]) == ([1, 2], ["1 lines of rounds.jsonl are damaged and left out."])
    for name in ("summary.json", "failed.json", "config.toml"):
        (running / name).write_bytes(b"\x00{")
    assert live(RunView(running))["state"] == "going"
    (running / "config.toml").unlink()
    assert live(RunView(running))["planned"] is None
    (running / "rounds.jsonl").unlink()
    assert live(RunView(running))["clients"] == []


def test_a_story_has_the_sentences_of_explain(running: Path) -> None:
    story = RunView(running).story("9", "2")
    assert story["moment"][0] == "round 2"
    assert story["moment"][1].startswith("Rejected as a sybil")
    assert story["summary"].startswith("Client 9, in truth an attacker, was invited in 2 of 2 rounds, accepted in 1")
    assert [rounds for rounds, _ in story["chapters"]] == ["round 1", "round 2"]
    assert RunView(running).story("9", "")["moment"] == []
    for handle, number in (('"9"', ""), ("", ""), ("9", "x"), ("9", "-1"), ("9", "٣"), ("9", "1" * 5000)):
        with pytest.raises(ConfigError):
            RunView(running).story(handle, number)


def test_numbers_and_names_are_different_clients_and_own_reasons_are_named(tmp_path: Path) -> None:
    verdicts = {1: Verdict(True, "accepted"), "1": Verdict(False, HOSTILE), HOSTILE: Verdict(False, "too late")}
    record = RoundRecord(1, 50.0, float("nan"), (*verdicts, "silent"), verdicts, {1: (0.0, 0.0)}, attack_success=7.0)
    (tmp_path / "rounds.jsonl").write_text(record.to_json() + "\n")
    view = view_of(tmp_path)
    shown = live(view)
    assert [client["handle"] for client in shown["clients"]] == ["1", '"1"', json.dumps(HOSTILE), '"silent"']
    labels = [shown["states"][int(state, 36)] for state in shown["columns"][0]]
    assert labels == [
        ["accepted", "accepted"],
        ["otherwise", f"rejected: {HOSTILE}"],
        ["otherwise", "rejected: too late"],
        ["silent", "selected, sent nothing"],
    ]
    assert shown["clients"][0]["trust"] is None
    assert [curve["name"] for curve in shown["curves"]] == ["Accuracy", "Attack success"]
    assert ["attack success", "7.00 %"] in shown["figures"]
    assert isinstance(view, RunView)
    assert view.story('"1"', "1")["summary"].startswith("Client 1, in truth honest, was invited in 1 of 1")


def test_a_sweep_shows_its_cells_and_the_time_left(tmp_path: Path) -> None:
    view = view_of(write_sweep(tmp_path / "s", small_sweep()))
    assert isinstance(view, SweepView)
    shown = live(view)
    assert shown["counts"] == {"running": 1, "failed": 1, "begun": 0, "done": 6, "missing": 1}
    assert (shown["done"], shown["planned"]) == (6 * 4 + 2 + 1, 9 * 4)
    # One cell runs: two rounds of 0.75 s. The missing one has four, at the median of all cells, 15 s (60 s for four).
    assert shown["eta"] == pytest.approx(2 * 0.75 + 4 * 15.0)
    first, second = shown["cells"][:2]
    assert (first["status"], first["label"]) == ("running", "defense=median, attack=lie, attackers=0.3")
    assert (first["done"], first["accuracy"], first["pace"]) == (2, 70.0, 0.75)
    assert (second["status"], second["error"]) == ("failed", "the worker died")
    assert live(view.run(first["key"]))["title"] == first["label"]
    assert len({row["label"] for row in shown["cells"]}) == 9


def test_a_cell_without_news_is_not_called_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_view, "QUIET_SECONDS", -1.0)
    folder = write_sweep(tmp_path / "s", [({"defense": "krum"}, "running")])
    for file in folder.rglob("rounds.jsonl"):
        os.utime(file, (1.0, 1.0))
    shown = live(SweepView(folder))
    assert (shown["counts"]["begun"], shown["counts"]["running"], shown["eta"]) == (1, 0, None)


def test_cells_at_one_place_on_the_axes_are_told_apart(tmp_path: Path) -> None:
    folder = write_sweep(
        tmp_path / "s", [({"seed": 1, "defense": "krum"}, None), ({"seed": 1, "defense": "faba"}, None)]
    )
    plan = json.loads((folder / "cells.json").read_text())
    (folder / "cells.json").write_text(json.dumps([{**entry, "axes": {"seed": 1}} for entry in plan]))
    assert [row["label"] for row in live(SweepView(folder))["cells"]] == [
        "seed=1, defense=krum",
        "seed=1, defense=faba",
    ]


def test_a_sweep_follows_its_cells_and_its_plan(tmp_path: Path) -> None:
    runs = [({"defense": "krum"}, "running"), ({"defense": "median"}, None)]
    view = SweepView(write_sweep(tmp_path / "s", runs))
    assert live(view)["counts"]["missing"] == 1
    config = run_config(defense="median")
    key = next(row["key"] for row in live(view)["cells"] if row["status"] == "missing")
    write_run(tmp_path / "s" / "cells" / key[:16], config, 88.0)
    done = next(row for row in live(view)["cells"] if row["key"] == key)
    assert (done["status"], done["accuracy"], done["done"]) == ("done", 88.0, 4)
    plan = (tmp_path / "s" / "cells.json").read_bytes()
    (tmp_path / "s" / "cells.json").write_bytes(plan[:50])
    assert live(view)["notes"] == ["cells.json has no cells, or is damaged."]
    (tmp_path / "s" / "cells.json").write_bytes(plan)
    assert len(live(view)["cells"]) == 2


def test_an_adopted_cell_has_curves_and_says_why_it_has_no_map(tmp_path: Path) -> None:
    write_run(tmp_path / "run", run_config(), 90.0)
    packed = pack(tmp_path / "run", tmp_path / "p.json.gz").cells[0]
    (tmp_path / "run" / "rounds.jsonl").unlink()
    (tmp_path / "run" / "series.json").write_text(json.dumps({"series": packed.series}))
    shown = live(view_of(tmp_path / "run"))
    assert shown["curves"][0]["values"] == [60.0, 70.0, 80.0, 90.0]
    assert "taken over from packed results" in shown["notes"][0]


def reply(client: str, verdict: str, number: int, after: float) -> dict[str, Any]:
    common = {"kind": "reply", "round": number, "client": client, "blamed": False, "reputation_after": [after, 1.0]}
    return {**common, "verdict": verdict, "reason": "accepted" if verdict == "accepted" else "sybil", "evidence": {}}


@pytest.fixture
def federation(tmp_path: Path) -> Path:
    audit = AuditLog.open(tmp_path / "audit.jsonl")
    for number in (1, 2):
        audit.append(reply("key:aa", "accepted", number, 3.0))
        audit.append(reply("key:bb", "rejected", number, 1.0))
        audit.append({"kind": "round", "round": number, "facts": {}, "events": []})
        audit.rotate(10)
    audit.append({"kind": "decision", "round": 2, "action": "ban", "client": "key:bb", "by": "Ada", "reason": HOSTILE})
    audit.close()
    clients = [ClientStatus(id="key:bb", name=HOSTILE, banned=True)]
    write_status(tmp_path, FederationStatus(round=2, time=5.0, figures={"nodes-selected": 2.0}, clients=clients))
    return tmp_path


def test_a_federation_shows_nodes_reputations_verdicts_and_the_audit(federation: Path) -> None:
    assert len(list(federation.glob("audit*.jsonl"))) == 3, "the audit has several files"
    view = view_of(federation)
    shown = live(view)
    assert (shown["kind"], shown["state"], shown["done"]) == ("federation", "stopped", 2)
    assert shown["figures"] == [["nodes invited", "2"]]
    assert shown["columns"] == ["23", "23"]
    assert shown["trusts"] == {'"key:aa"': [75, 75], '"key:bb"': [50, 50]}
    assert "attacker" not in shown["clients"][0], "nobody knows the truth"
    assert (shown["clients"][1]["node"], shown["clients"][1]["banned"]) == (HOSTILE, True)
    assert (shown["audit"]["lines"], shown["audit"]["problem"]) == (7, "")
    assert shown["audit"]["decisions"][0]["reason"] == HOSTILE
    assert isinstance(view, FederationView)
    assert view.story('"key:bb"', "2")["moment"][1].startswith("Rejected as a sybil")


@pytest.mark.parametrize("rounds", [-1, True, 10**400])
def test_a_plan_with_a_number_of_rounds_that_no_run_has_is_shown_without_it(tmp_path: Path, rounds: int) -> None:
    folder = write_sweep(tmp_path / "s", [({"defense": "krum"}, "running"), ({"defense": "median"}, "running")])
    first, second = json.loads((folder / "cells.json").read_text())
    first["config"]["rounds"] = rounds
    (folder / "cells.json").write_text(json.dumps([first, second]))
    shown = live(SweepView(folder))
    assert [row["planned"] for row in shown["cells"]] == [None, second["config"]["rounds"]]


@pytest.mark.parametrize("number", [-1, 0, True, 2**63])
def test_rows_with_a_number_that_no_round_has_are_left_out(running: Path, federation: Path, number: int) -> None:
    lines = (running / "rounds.jsonl").read_text().splitlines(keepends=True)
    changed = json.dumps({**json.loads(lines[1]), "round": number}) + "\n"
    (running / "rounds.jsonl").write_text(lines[0] + changed)
    audit = AuditLog.open(federation / "audit.jsonl")
    audit.append(reply("key:cc", "accepted", number, 3.0))
    audit.close()
    views: list[tuple[RunView | FederationView, list[int]]] = [
        (RunView(running), [1]),
        (FederationView(federation), [1, 2]),
    ]
    for view, rounds in views:
        shown = live(view)
        assert shown["rounds"] == rounds
        assert view.story(shown["clients"][0]["handle"], str(shown["rounds"][-1]))["moment"]


def test_a_federation_grows_and_a_changed_audit_is_named_until_it_is_mended(federation: Path) -> None:
    view, file = FederationView(federation), federation / "audit.jsonl"
    assert live(view)["rounds"] == [1, 2]
    good = file.read_bytes()
    audit = AuditLog.open(file)
    audit.append(reply("key:cc", "accepted", 3, 3.0))
    audit.close()
    assert live(view)["rounds"] == [1, 2, 3]
    with file.open("ab") as torn:
        torn.write(b'{"half')
    assert (live(view)["audit"]["lines"], live(view)["audit"]["problem"]) == (8, "")
    file.write_bytes(good.replace(b"Ada", b"Eve"))
    assert live(view)["audit"] | {"head": "", "decisions": []} == {
        "lines": 6,
        "head": "",
        "problem": "line 7: changed since it was written",
        "decisions": [],
    }
    assert live(view)["rounds"] == [1, 2]
    file.write_bytes(good)
    assert live(view)["audit"]["problem"] == ""
    (federation / "status.json").write_text("{")
    assert "status.json" in live(view)["notes"][0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda place: place / "no", "there is no folder"),
        (lambda place: place, "is not the folder of a run, of a sweep or of a Flower strategy"),
        (lambda place: place / "\x00", "there is no folder"),
    ],
)
def test_what_cannot_be_watched_is_named(tmp_path: Path, make: Any, message: str) -> None:
    with pytest.raises(StateError, match=message):
        view_of(make(tmp_path))
    (tmp_path / "file").write_text("x")
    with pytest.raises(StateError, match="is a file"):
        view_of(tmp_path / "file")


def test_runs_below_a_folder_are_suggested(tmp_path: Path) -> None:
    for name in "abcdefg":
        write_run(tmp_path / name, run_config(), 90.0, rounds=1)
    with pytest.raises(StateError, match=r"there are '.*/a', .*'.*/e', and 2 more"):
        view_of(tmp_path)


def test_a_document_is_strict_json_and_is_made_again_only_if_a_file_has_changed(
    running: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert encoded({"a": float("nan"), "b": {1: float("inf")}, "c": "ä"}) == b'{"a":null,"b":{"1":null},"c":"\\u00e4"}'
    made = []
    genuine = RunView.document
    monkeypatch.setattr(RunView, "document", lambda self: made.append(1) or genuine(self))
    routes = routes_of(RunView(running))
    assert routes["/live"]({}).content == routes["/live"]({}).content
    assert len(made) == 1


def test_fifty_clients_and_a_hundred_rounds_are_a_small_document(tmp_path: Path) -> None:
    config = run_config(clients=50, rounds=100, attack="lie", attackers=0.3)
    write_run(tmp_path / "run", config, 90.0)
    assert len(encoded(RunView(tmp_path / "run").document())) < 60_000
    folder = write_sweep(tmp_path / "s", [({"seed": 1, "defense": "krum"}, None)])
    (entry,) = json.loads((folder / "cells.json").read_text())
    plan = [{**entry, "key": f"{number:064x}", "axes": {"seed": number, "defense": "krum"}} for number in range(500)]
    (folder / "cells.json").write_text(json.dumps(plan))
    assert len(encoded(SweepView(folder).document())) < 150_000


def test_the_page_has_one_style_and_one_script_and_its_policy_allows_nothing_else() -> None:
    answer, text = page(), resources.files("mabrfl.live").joinpath("data/live.html").read_text("utf-8")
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert "http" not in policy
    assert re.findall(r"https?://[^\"'\s]+", text) == ["http://www.w3.org/2000/svg"]
    parsing = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|Function\("
    assert re.findall(parsing + r"|\son\w+=|<script\s|src=|@import|url\(", text) == []
    assert len(re.findall(r"<script>|<style>", text)) == 2
    assert "style=" not in text


def test_the_colours_of_the_map_are_those_of_the_picture() -> None:
    text = resources.files("mabrfl.live").joinpath("data/live.html").read_text("utf-8")
    light = text.partition("@media (prefers-color-scheme: dark)")[0]
    assert {state: re.findall(rf"--{state}: (#\w+)", light)[0] for state in STATES} == {
        state: colour for state, (_, colour) in STATES.items()
    }
