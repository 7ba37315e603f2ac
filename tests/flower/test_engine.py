"""Flower's simulation engine with nodes that need no torch: what every tested release of Flower runs."""

from __future__ import annotations

import json

import pytest

from flower_processes import ROOT, Flower
from mabrfl.recording.audit import verify


@pytest.mark.slow
def test_bad_replies_cost_only_their_sender_in_the_simulation_engine():
    with Flower() as flower:
        flower.connect()
        flower.superlink("--insecure", "--simulation")
        results = flower.home / "results.json"
        _, status = flower.run(
            app=ROOT / "tests" / "flower_apps" / "malformed",
            federation="num-supernodes=4 client-resources-num-cpus=1",
            results=str(results),
            case="12 NaN;07 wrong shape",
            nodes=4,
            rounds=2,
            beside_fedavg=False,
            seconds=600,
        )
        assert status == "finished:completed", flower.logs()
        rows = json.loads(results.read_text())
        assert rows["12 NaN"]["quarantined"] == [["not-finite", True]]
        assert rows["07 wrong shape"]["quarantined"] == [["shape", True]]
        assert [row["accepted"] for row in rows.values()] == [3, 3]
        assert verify(flower.home / "state" / "audit.jsonl").problem is None
