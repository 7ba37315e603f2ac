from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from mabrfl.config import RunConfig, config_hash
from mabrfl.recording import RoundRecord
from mabrfl.recording.evaluation import Detection, attacker_ids, detection, regret, selection_rates, summarize
from mabrfl.rng import ClientId
from mabrfl.updates import Verdict

ATTACKERS: frozenset[ClientId] = frozenset({8, 9})


def record(number: int, accepted: set[int], rejected: set[int], accuracy: float = 50.0) -> RoundRecord:
    verdicts: dict[ClientId, Verdict] = {client: Verdict(True, "accepted") for client in accepted}
    verdicts |= {client: Verdict(False, "sybil") for client in rejected}
    return RoundRecord(number, accuracy, 1.0, tuple(verdicts), verdicts, attackers=ATTACKERS)


def test_detection_counts_verdicts_over_all_rounds() -> None:
    found = detection([record(1, accepted={0, 1, 9}, rejected={2, 8}), record(2, accepted={0, 3}, rejected={8, 9})])
    assert found == Detection(caught=3, missed=1, honest_rejected=1, honest_accepted=4)
    assert found.precision == pytest.approx(3 / 4)
    assert found.recall == pytest.approx(3 / 4)
    assert found.honest_rejected_rate == pytest.approx(1 / 5)
    assert found.f1 == pytest.approx(6 / 8)


def test_precision_and_recall_are_told_apart() -> None:
    found = Detection(caught=1, missed=3, honest_rejected=1, honest_accepted=5)
    assert (found.precision, found.recall, found.f1) == (0.5, 0.25, 1 / 3)


def test_a_rate_of_nothing_is_none() -> None:
    empty = detection([])
    assert (empty.precision, empty.recall, empty.f1, empty.honest_rejected_rate) == (None, None, None, None)
    assert selection_rates([], ATTACKERS, 10).malicious is None
    assert selection_rates([record(1, {0}, set())], frozenset(), 10).malicious is None


def test_selection_rates_are_per_client_and_round() -> None:
    rates = selection_rates([record(1, {0, 1, 2, 3}, {8}), record(2, {0, 1}, {8, 9})], ATTACKERS, 10)
    assert (rates.honest, rates.malicious) == (6 / 16, 3 / 4)


def test_regret_adds_up_selections_of_malicious_clients_whether_caught_or_not() -> None:
    assert regret([record(1, {0, 9}, {8}), record(2, {0}, set()), record(3, {8}, {1})]) == [2, 2, 3]


def test_the_summary_has_the_last_the_mean_of_ten_and_the_best_accuracy() -> None:
    records = [record(number, {0}, {8}, accuracy=float(number)) for number in range(1, 13)]
    records.append(record(13, {0}, {8}, accuracy=5.0))
    config = RunConfig(attack="lie", attackers=2, rounds=20)
    summary = summarize(records, config, seconds=1.5, interrupted=True)
    assert summary["final_accuracy"] == 5.0
    assert summary["mean_last10"] == pytest.approx((sum(range(4, 13)) + 5) / 10)
    assert (summary["best_accuracy"], summary["rounds"], summary["rounds_planned"]) == (12.0, 13, 20)
    assert (summary["detection_precision"], summary["detection_recall"]) == (1.0, 1.0)
    assert (summary["attackers"], summary["interrupted"], summary["seconds"]) == ([8, 9], True, 1.5)
    assert summary["config_hash"] == config_hash(config)


def test_the_summary_of_no_round_and_of_a_diverged_run_has_no_nan() -> None:
    nothing = summarize([], RunConfig(), seconds=0.0, interrupted=True)
    assert (nothing["final_accuracy"], nothing["mean_last10"], nothing["best_accuracy"]) == (None, None, None)
    json.dumps(nothing, allow_nan=False)
    diverged = summarize([record(1, {0}, set(), math.nan)], RunConfig(), seconds=0.0)
    assert diverged["best_accuracy"] is None


def test_the_summary_has_the_attacks_success_at_the_end() -> None:
    records = [replace(record(number, {0}, {8}), attack_success=10.0 * number) for number in (1, 2)]
    config = RunConfig(dataset="digits")
    assert summarize(records, config, 1.0)["attack_success"] == 20.0
    assert summarize([record(1, {0}, {8})], config, 1.0)["attack_success"] is None
    assert RoundRecord.from_json(records[1].to_json()).attack_success == 20.0


def test_records_of_before_there_were_success_rates_can_be_read() -> None:
    line = json.loads(record(1, {0}, {8}).to_json())
    del line["attack_success"]
    assert RoundRecord.from_json(json.dumps(line)).attack_success is None


def test_selection_rates_count_attackers_once_however_many_ids_they_had() -> None:
    one = replace(record(1, {0, 1}, {8}), attackers=frozenset({8, 9}))
    two = replace(record(2, {0, 1}, {10}), attackers=frozenset({10, 9}))
    rates = selection_rates([one, two], attacker_ids([one, two]), 10)
    assert rates.malicious == 2 / 4
    assert rates.honest == 4 / 16
    assert attacker_ids([one, two]) == {8, 9, 10}
