"""A deployment on loopback, for real: SuperLink and SuperNodes as processes, messages over HTTP."""

from __future__ import annotations

import json

from flwr.app import Message

from flower_processes import ROOT, Flower
from mabrfl.recording.audit import verify


def test_a_deployment_finishes_though_one_node_sends_nan_and_another_what_flower_cannot_unpack():
    with Flower() as flower:
        flower.connect()
        flower.superlink()
        for partition in range(4):
            flower.supernode(partition, 4)
        results = flower.home / "results.json"
        _, status = flower.run(
            app=ROOT / "tests" / "flower_apps" / "malformed",
            results=str(results),
            case="12 NaN;26 cannot be unpacked",
            nodes=4,
            rounds=1,
            beside_fedavg=False,
        )
        assert status == "finished:completed", flower.logs()
        told = json.loads(results.read_text())
        assert told["12 NaN"]["quarantined"] == [["not-finite", True]]
        assert told["26 cannot be unpacked"]["quarantined"] == [["undecodable", True]]
        for row in told.values():
            assert row["ours"] == {"ended": "completed", "finite": True, "largest": row["ours"]["largest"]}
            assert row["accepted"] == 3
            assert sorted(row["reputation"]) == [[1, 2], [2, 1], [2, 1], [2, 1]]
        assert verify(flower.home / "state" / "audit.jsonl").problem is None


def test_a_messages_token_is_part_of_what_its_id_is_made_of():
    from flwr.app import RecordDict

    from flower_grid import model

    content = RecordDict({"arrays": model()})
    ids = {Message(content, 1, "train", ttl=9, group_id=token).object_id for token in ("a", "b")}
    assert len(ids) == 2
