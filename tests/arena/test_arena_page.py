"""The pages of the arena: what they show, and that nothing in them runs."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import unescape

from mabrfl.arena.arena_page import page
from mabrfl.arena.arena_records import Records
from mabrfl.arena.heatmap import heatmap, mean_losses
from mabrfl.arena.leaderboard import markdown
from mabrfl.arena.scenarios import Named
from mabrfl.arena.scoring import scores
from mabrfl.arena.task_board import task_section


def data_of(text: str, name: str = "data") -> dict:
    return json.loads(re.search(rf'<script type="application/json" id="{name}">(.*?)</script>', text, re.DOTALL)[1])


def test_each_run_of_the_page_has_the_words_of_its_command(records: Records) -> None:
    data = data_of(page(records, own=["median"]))
    assert [column["label"] for column in data["columns"]] == ["krum", "median", "fedavg"]
    assert [column["own"] for column in data["columns"]] == [False, True, False]
    place = data["scenarios"].index([2, 0, 0.3, 1])
    assert data["attacks"][1] == {"label": "backdoor", "own": False, "words": "--attack backdoor"}
    assert data["columns"][1]["runs"]["accuracy"][place] == 82.0
    assert data["columns"][0]["runs"]["key"][place] is None, "a missing run is shown as missing"
    assert data["columns"][1]["words"] == "--defense median"
    assert data["tasks"][0]["words"].startswith("--clients 10 --rounds 2 --set attackers_chosen=random ")
    assert data["clean"] == [90.0] * 10


def test_the_page_marks_places_and_says_first_where_our_entry_is_not_the_best(records: Records) -> None:
    ours = replace(records.columns[1], entrant=Named("mab-rfl hardened", {"defense": "mab-rfl"}))
    text = unescape(page(replace(records, columns=(records.columns[0], ours, records.columns[2]))))
    assert text.index("our own entry, has place 2 of 3.") < text.index('<table class="board">')
    assert "and one defense has less; the least has krum" in text
    assert re.search(r'<tr><th class="stay" scope="row" data-value="krum">krum</th>\s*<td data-value="1">1</td>', text)


def test_a_label_cannot_bring_a_script_onto_the_page(records: Records) -> None:
    evil = replace(records.columns[1], entrant=Named("</script><script>alert(1)</script>", {"defense": "a:<b>"}))
    text = page(records.with_columns([evil]), own=[evil.label])
    assert "<script>alert" not in text
    assert text.count("<script") == 2
    assert "default-src 'none'" in unescape(text)
    assert data_of(text)["columns"][1]["label"] == evil.label


def test_markdown_has_a_row_for_each_place_and_names_what_is_missing(records: Records) -> None:
    text = markdown(records)
    assert "| 2 | median | 5.0 ± 1.4 | 3.0 ± 1.4 | 7.0 ± 1.4 | 2.5 ± 0.7 |" in text
    assert "| median | ipm (digits) | backdoor (digits) |" in text
    cut = replace(records.columns[2], runs={})
    assert "No run is done yet of: krum." in markdown(records.with_columns([cut]))
    few = dict(list(records.columns[2].runs.items())[:3])
    begun = markdown(records.with_columns([replace(cut, runs=few)]))
    assert "Without a place, because not all of their runs are done: krum (3 of 10)." in begun


def test_a_larger_tier_stands_below_task_by_task_with_what_is_missing(records: Records, larger: Records) -> None:
    text = markdown(records, task_section(larger))
    above, section = text.split("\n## Tier laptop\n")
    assert above.replace("\nResults on larger data, as far as they are run: [tier `laptop`](#tier-laptop).\n", "") == (
        markdown(records)
    )
    assert "So far 15 runs of 2 defenses are done" in section
    assert "`mab-rfl hardened` has no place on digits yet: 5 of 10 runs are done." in section
    assert "| — | mab-rfl hardened | — | 3.0 | — (2/4) | — | 1.5 | — |" in section
    assert "No run is done yet of: mab-rfl paper, dnc," in section
    data = data_of(page(records, larger), "data-larger")
    assert (data["name"], data["partial"]) == ("laptop", True)
    assert {column["label"]: column["place"] for column in data["columns"]} == {
        "fedavg": ["1"],
        "mab-rfl hardened": ["—"],
    }
    shown = unescape(page(records, larger))
    assert "<td>— (2/4)</td>" in shown
    assert "10 of 10; seeds 1, 2" in shown


def test_a_larger_tier_without_records_is_a_sentence(records: Records, larger: Records) -> None:
    nothing = replace(larger, columns=())
    assert "So far no run is done" in task_section(nothing)[2]
    text = page(records, nothing)
    assert "So far no run is done" in text
    assert 'id="data-larger"' not in text
    assert "Tier laptop" not in page(records)


def test_the_picture_has_a_row_per_defense_with_the_mean_loss(records: Records) -> None:
    known = scores(records)
    losses = mean_losses(records, known)
    # Attacks stand in the tier's order: IPM, then the backdoor.
    assert losses[1].tolist() == [3.0, 2.0]
    assert losses[2].tolist() == [80.0, 0.0]
    left, right = heatmap(records, own=["median"]).axes
    assert [label.get_text().split()[0] for label in left.get_yticklabels()] == ["krum", "median", "fedavg"]
    assert [label.get_text() for label in right.get_xticklabels()] == ["10 %", "30 %"]
