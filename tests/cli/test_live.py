"""The live table on the terminal most people have."""

import io

from rich.console import Console

from mabrfl.cli.live import LiveTable, PlainLines, display_for
from mabrfl.cli.run_summary import rejected_warning
from mabrfl.config import RunConfig, resolve
from mabrfl.recording import RoundRecord
from mabrfl.rng import ClientId
from mabrfl.runs import RunResult, RunStart
from mabrfl.updates import Reason, Verdict

CONFIG = resolve(RunConfig(dataset="digits", attack="lie", attackers=0.3, rounds=20))


def terminal(width, height=24):
    return Console(file=io.StringIO(), force_terminal=True, width=width, height=height, color_system=None)


def test_at_80_by_24_the_newest_round_and_the_remaining_time_are_seen_whole():
    table, page = LiveTable(CONFIG, terminal(80)), terminal(80)
    table.started(RunStart(CONFIG))
    for number in range(1, 20):
        verdicts = {k: Verdict(k > 1, "accepted" if k > 1 else "sybil") for k in range(12)}
        table.round_done(RoundRecord(number, 93.33, 0.2, tuple(range(12)), verdicts, attackers=frozenset({0, 1})))
    table.finished(RunResult(CONFIG))
    page.print(table._render())
    lines = [line for line in page.file.getvalue().splitlines() if line.strip()]
    assert len(lines) <= 24
    assert any(line.split()[:3] == ["19", "93.33", "%"] for line in lines)
    assert "round 19 of 20 ETA" in lines[-1]
    assert not any("…" in line for line in lines)


def test_where_the_table_does_not_fit_plain_lines_are_shown():
    assert isinstance(display_for(CONFIG, terminal(80)), LiveTable)
    assert isinstance(display_for(CONFIG, terminal(70)), PlainLines)


def judged(number: int, *reasons: Reason) -> RoundRecord:
    verdicts: dict[ClientId, Verdict] = {
        client: Verdict(reason == "accepted", reason) for client, reason in enumerate(reasons)
    }
    return RoundRecord(number, 50.0, 1.0, tuple(verdicts), verdicts)


def test_a_run_that_rejects_everybody_round_after_round_is_told_so() -> None:
    accepted, alike = judged(1, "accepted", "sybil"), [judged(number, "sybil", "sybil") for number in range(2, 5)]
    assert rejected_warning([accepted, *alike]) == (
        "in 3 of 4 rounds every update was rejected, most often as sybil; "
        "honest updates that are very similar (few examples, few steps) are taken for sybils"
    )
    assert rejected_warning([accepted, *alike[:2], accepted]) == ""
    assert rejected_warning([judged(1, "outlier", "outlier")]) == (
        "in 1 of 1 rounds every update was rejected, most often as outlier"
    )
    assert rejected_warning([judged(1), judged(2), judged(3)]) == "", "nobody was judged"
    assert rejected_warning([]) == ""
