"""Verdicts in sentences, with numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from mabrfl import Decision, Defense, FedAvg, MabRfl, Updates, Verdict
from mabrfl.errors import ConfigError
from mabrfl.explaining import explain
from mabrfl.recording.audit_records import records_of_audit
from mabrfl.recording.record import RoundRecord
from mabrfl.recording.stories import RunStory

FOREIGN = {"separation": 1.57, "separation_needed": 0.7, "group_cosine": -1.0, "group_size": 6}


def test_an_outlier_of_a_foreign_group_is_told_its_separation_and_the_one_that_is_enough():
    text = explain("outlier", {"norm": 2.9, "trust": 0.67, **FOREIGN, "block": "last", "over": "rounds"})
    assert "it belongs to a group of 6 clients whose mean update points elsewhere" in text
    assert "in the last layer over the last rounds. The separation is 1.57 (0 is none), and the cosine" in text
    assert "In this round 0.70 is enough to reject this group" in text
    assert text.endswith("With less it would have been accepted.")


@pytest.mark.parametrize(
    ("block", "place"),
    [
        ("whole", "of the others in this round"),
        ("first", "of the others in the first layer in this round"),
        ("labels", "of the others in the part of the last layer that labels do not explain in this round"),
        ("fc2", "of the others in the block 'fc2' of the model in this round"),
    ],
)
def test_the_part_of_the_model_is_named_in_words(block, place):
    assert place in explain("outlier", {**FOREIGN, "block": block, "over": "this round"})


def test_facts_of_the_round_serve_where_the_evidence_has_no_separation():
    text = explain("outlier", {"norm": 2.9, "trust": 0.67}, FOREIGN)
    assert "separation of the group that differed most is 1.57" in text
    assert "separation" not in explain("outlier", {"cosine": -0.5, "cosine_needed": -0.3}, FOREIGN)


def test_a_client_that_opposes_all_others_is_told_its_cosine():
    text = explain("outlier", {"cosine": -0.5, "cosine_needed": -0.3, "block": "whole", "over": "this round"})
    assert "points against those of the others in this round: the cosine with their mean is -0.50, and -0.30" in text
    assert "Above -0.30 it would have been accepted." in text
    copied = explain("outlier", {"cosine": -0.5, "cosine_needed": -0.3, "copies": 6})
    assert "its update, which 6 clients sent and which counts once, points against" in copied


def test_a_copy_is_told_how_similar_it_is_and_what_the_limit_is_if_that_is_known():
    evidence = {"nearest": 0.99, "copies": 6}
    assert "cosine of 0.99; from 0.90 on they are copies. 6 clients" in explain(
        "sybil", evidence, options={"copy_similarity": 0.9}
    )
    assert "0.90" not in explain("sybil", evidence)
    assert "counts only 0.50 against" in explain("sybil", evidence, credit=0.5)


def test_the_papers_tests_are_told_with_their_thresholds():
    sybil = explain("sybil", {"max_cosine": 0.95, "component_size": 6}, {"similarity_threshold": 0.7})
    assert "cosine of 0.95, and clients from 0.70 on are linked in this round" in sybil
    assert "the largest group of linked clients, which has 6." in sybil
    facts = {"cluster_cosine": -0.42, "cluster_sizes": [14, 6]}
    outlier = explain("outlier", {"cluster": "smaller"}, facts, options={"alpha": -0.1})
    assert "two clusters of 14 and 6 clients with opposed means (cosine -0.42; alpha = -0.10 or less" in outlier


def test_an_accepted_client_is_told_its_share_and_the_nearest_misses():
    text = explain(
        "accepted",
        {"share": 0.052, "nearest": 0.5, "copies": 1},
        {"separation": 0.3, "separation_needed": 0.7},
        options={"copy_similarity": 0.9},
    )
    assert text == (
        "Accepted: it makes up 5.2 % of the step. Apart from what all updates share, its update and the most similar "
        "other one have a cosine of 0.50; copies have 0.90 or more. No group of clients differed enough to be "
        "rejected: the largest separation was 0.30, and 0.70 is needed."
    )
    assert explain("accepted", {"weight": 0.0}).startswith("Accepted: it is not used in the step, which is no blame.")
    assert "being copied counts 0.67 against its reputation" in explain("accepted", {"share": 0.1}, credit=-0.67)
    assert "does not change its reputation" in explain("accepted", {"share": 0.1}, credit=0.0)


def test_a_malformed_update_is_told_its_cause():
    assert explain("malformed", {"cause": "length 3, expected 4"}).startswith(
        "Rejected as malformed, before any comparison: length 3, expected 4."
    )
    assert "comparison: NaN or infinite number." in explain("malformed", {"cause": "NaN or infinite number"})


def test_an_accepted_client_is_told_the_numbers_of_other_rules_too():
    text = explain("accepted", {"ratio": 0.9, "times_kept": 2}, accepted=[{"ratio": 0.5}, {"ratio": 0.9}])
    assert text == (
        "Accepted: its ratio is 0.9; the 2 accepted clients have 0.5 to 0.9. Its number of samples that kept it is 2."
    )


def test_a_reason_of_ones_own_is_told_beside_the_accepted():
    text = explain("too-loud", {"loudness": 9.0}, accepted=[{"loudness": 1.0}, {"loudness": 2.5}, {}])
    assert text == (
        "Rejected as too-loud, a reason of the defense's own: its loudness is 9; the 2 accepted clients have 1 to 2.5. "
        "With 2.5 or less it would have been like them."
    )
    assert explain("too-loud", {}).endswith("a reason of the defense's own. The defense recorded no numbers for it.")


def test_every_verdict_of_the_whole_method_has_numbers_in_its_sentences():
    rng = np.random.default_rng(0)
    shield = MabRfl(seed=0)
    shield.select(range(9), round=1)
    descent = rng.normal(size=200)
    rows = [(-descent if client < 2 else descent) + rng.normal(size=200) for client in range(9)]
    outcome = shield.aggregate(Updates(range(9), np.array(rows)), round=1)
    for client, verdict in outcome.verdicts.items():
        text = outcome.explain(client)
        assert text.startswith("Accepted: " if verdict.accepted else "Rejected as an outlier: ")
        assert any(character.isdigit() for character in text)
        assert verdict.explain(outcome.facts)
    with pytest.raises(ValueError, match="there is no verdict on client 77"):
        outcome.explain(77)
    plain = Defense(FedAvg()).aggregate(Updates(range(9), np.array(rows)), round=1)
    assert plain.explain(0) == "Accepted: it is used with weight 0.111."


def story() -> RunStory:
    def verdict(accepted: bool) -> Verdict:
        return Verdict(accepted, "accepted" if accepted else "outlier", {"distance": 1.0 if accepted else 5.0})

    records = [
        RoundRecord(1, 50.0, 1.0, (0, 1), {0: verdict(True), 1: verdict(False)}, {0: (2.0, 1.0), 1: (1.0, 2.0)}),
        RoundRecord(2, 60.0, 1.0, (0, 1), {0: verdict(True), 1: verdict(False)}, {0: (3.0, 1.0), 1: (1.0, 3.0)}),
        RoundRecord(3, 70.0, 1.0, (0,), {0: verdict(True)}, {0: (4.0, 1.0), 1: (1.0, 3.0)}, frozenset({1})),
    ]
    return RunStory(records, "acs")


def test_the_story_of_a_client_has_its_totals_and_a_chapter_for_each_change():
    told = story()
    assert told.summary(1) == (
        "Client 1, in truth an attacker, was invited in 2 of 3 rounds, accepted in 0 and rejected in 2 (outlier 2). "
        "Its reputation at the end is 25 %."
    )
    assert told.chapters(1) == [
        (
            "rounds 1 to 2",
            "in round 2: Rejected as an outlier: its distance is 5; the accepted client has 1. "
            "With 1 or less it would have been like it. "
            "Its reputation went from 33 % to 25 % (B 1.00 for it, M 3.00 against it).",
        ),
        (
            "round 3",
            "Not invited: its reputation was 25 % (B 1.00 for it, M 3.00 against it). "
            "The selector acs invites it with this probability; this time it was not drawn.",
        ),
    ]
    assert [rounds for rounds, _ in told.chapters(0)] == ["rounds 1 to 3"]


def test_unknown_clients_and_rounds_are_named():
    with pytest.raises(ConfigError, match="unknown client '7'"):
        story().find("7")
    with pytest.raises(ConfigError, match="there is no round 9; the run has rounds 1 to 3"):
        story().record(9)


def test_the_rows_of_an_audit_become_records_without_those_that_were_undone():
    def reply(seq: int, number: int, client: str, **rest: object) -> dict[str, object]:
        return {"kind": "reply", "seq": seq, "round": number, "client": client, **rest}

    rows = [
        reply(1, 1, "key:ab", verdict="accepted", reason="accepted", evidence={"share": 0.5}, reputation_after=[2, 1]),
        reply(2, 1, "key:cd", verdict="quarantined", reason="shape", detail="(3,) for (4,)", blamed=True),
        {"kind": "round", "seq": 3, "round": 1, "facts": {"panel": 2}, "events": ["warm-up"]},
        reply(4, 2, "key:ab", verdict="rejected", reason="sybil", evidence={}),
        {"kind": "back", "seq": 5, "round": 1, "after": 3},
        reply(6, 2, "key:ab", verdict="accepted", reason="accepted", evidence={"share": 1.0}, reputation_after=[3, 1]),
        reply(7, 2, "key:cd", verdict="missing", reason="no-reply", detail="", blamed=False),
        {"kind": "round", "seq": 8, "round": 2, "facts": {}, "events": []},
    ]
    first, second = records_of_audit(rows)
    assert (first.selected, first.facts, first.events) == (("key:ab", "key:cd"), {"panel": 2}, ("warm-up",))
    assert first.verdicts["key:cd"].evidence == {"cause": "shape: (3,) for (4,)"}
    assert (list(second.verdicts), second.selected) == (["key:ab"], ("key:ab", "key:cd"))
    told = RunStory([first, second], truth=False)
    assert told.find("ab") == told.find("key:ab") == "key:ab"
    assert told.sentence("key:cd", 2) == (
        "Invited, but no update of it was judged: it sent none, or the whole round was not judged."
    )
    assert told.summary("key:ab").startswith("Client key:ab was invited in 2 of 2 rounds, accepted in 2")
    assert "shape: (3,) for (4,)" in told.sentence("key:cd", 1)


def test_a_rule_of_ones_own_is_explained_by_its_own_evidence():
    def loudest(cohort):
        out = cohort.norms == cohort.norms.max()
        return Decision(
            weights=~out / (~out).sum(),
            reasons=["too-loud" if each else "accepted" for each in out],
            evidence=[{"loudness": float(norm)} for norm in cohort.norms],
        )

    outcome = Defense(loudest).aggregate(Updates([1, 2, 3], np.diag([1.0, 2.0, 8.0])), round=1)
    assert outcome.explain(3).endswith(
        "its loudness is 8; the 2 accepted clients have 1 to 2. With 2 or less it would have been like them."
    )
