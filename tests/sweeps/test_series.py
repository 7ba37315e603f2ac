"""What becomes of the series where attackers change their ids, and where an attack has a goal."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mabrfl.recording import RoundRecord
from mabrfl.sweeps.series import per_client, per_round
from mabrfl.updates import Verdict


def record(number: int, attacker: int, reputation: dict[int, tuple[float, float]]) -> RoundRecord:
    verdicts = {0: Verdict(True, "accepted"), attacker: Verdict(False, "sybil")}
    return RoundRecord(number, 50.0, 1.0, (0, attacker), verdicts, reputation, frozenset({attacker}))


RECORDS = [
    record(1, 1, {0: (2.0, 1.0), 1: (1.0, 2.0)}),
    record(2, 2, {0: (3.0, 1.0), 1: (1.0, 2.0), 2: (1.0, 3.0)}),
]


def test_an_id_that_an_attacker_gave_up_is_believed_neither_honest_nor_malicious() -> None:
    columns = per_round(RECORDS)
    assert columns["mean_belief_honest"] == [pytest.approx(2 / 3, abs=1e-4), 0.75]
    assert columns["mean_belief_malicious"] == [pytest.approx(1 / 3, abs=1e-4), 0.25]
    assert per_client(RECORDS)["attacker"] == [False, True, True]


def test_there_is_a_column_of_success_rates_only_where_the_attack_has_a_goal() -> None:
    assert "attack_success" not in per_round(RECORDS)
    successful = [replace(one, attack_success=10.0 * one.round) for one in RECORDS]
    assert per_round(successful)["attack_success"] == [10.0, 20.0]
