"""Every malformed reply, against our strategy and against FedAvg, in one run of Flower's simulation engine."""

import json
import shutil
from pathlib import Path

import numpy as np
from flwr.app import ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from flower_grid import model
from flower_replies import LATE, MALFORMED
from mabrfl.flower import RobustStrategy
from mabrfl.flower.reply_grid import OneByOneGrid
from mabrfl.recording.audit import read_audit

app = ServerApp()


class Tampered(OneByOneGrid):
    """The real grid, in which the replies of one node are exchanged on their way."""

    def __init__(self, inner: Grid, bad) -> None:
        super().__init__(inner)
        self.pull_interval = getattr(inner, "pull_interval", 0.1)
        self.bad, self.victim, self.sent = bad, None, {}

    def push_messages(self, messages):
        messages = list(messages)
        ids = list(self.inner.push_messages(messages))
        self.sent |= {message.metadata.message_id: message for message in messages}
        self.victim = self.victim or min(message.metadata.dst_node_id for message in messages)
        return ids

    def pull_messages(self, message_ids):
        found = []
        for reply in self.inner.pull_messages(message_ids):
            sent = self.sent[reply.metadata.reply_to_message_id]
            changed = self.bad(sent, reply) if sent.metadata.dst_node_id == self.victim else reply
            found += changed if isinstance(changed, list) else [changed]
        return found

    def send_and_receive(self, messages, *, timeout=None):
        """As Flower's own: all together."""
        import time

        waiting, replies = set(self.push_messages(messages)), []
        while waiting:
            for mid in sorted(waiting):
                found = self.pull_messages([mid])
                replies += found
                waiting -= {mid} if found else set()
            time.sleep(self.pull_interval)
        return replies


def outcome(strategy, grid: Grid, name: str, rounds: int) -> dict:
    """Run a strategy and say how it ended."""
    start = model()
    try:
        result = strategy.start(
            grid, start, num_rounds=rounds, timeout=600, train_config=ConfigRecord({"malformed": name})
        )
    except Exception as error:  # noqa: BLE001 (that is what is measured)
        return {"ended": f"{type(error).__name__}: {error}"[:200]}
    values = (
        np.concatenate([array.numpy().ravel() for array in result.arrays.values()]) if result.arrays else np.zeros(0)
    )
    largest = float(np.abs(values).max(initial=0)) if np.all(np.isfinite(values)) else None
    return {"ended": "completed", "finite": largest is not None, "largest": largest}


@app.main()
def main(grid: Grid, context: Context) -> None:
    told = {}
    path = Path(str(context.run_config["results"]))
    nodes, rounds = int(str(context.run_config["nodes"])), int(str(context.run_config["rounds"]))
    for name in str(context.run_config["case"]).split(";") if context.run_config["case"] else [*MALFORMED, *LATE]:
        used = Tampered(grid, LATE[name][0]()) if name in LATE else grid
        folder = path.parent / "state"
        shutil.rmtree(folder, ignore_errors=True)
        ours = RobustStrategy("fedavg", fraction_evaluate=0.0, min_available_nodes=nodes, state_dir=folder)
        row = {"ours": outcome(ours, used, name, rounds)}
        replies = [
            row for row in read_audit(folder / "audit.jsonl") if row["kind"] == "reply" and row["round"] == rounds
        ]
        row["reputation"] = list(ours.defense.reputation.values())
        row["accepted"] = sum(reply["verdict"] == "accepted" for reply in replies)
        row["quarantined"] = [
            [reply["reason"], reply["blamed"]] for reply in replies if reply["verdict"] == "quarantined"
        ]
        if context.run_config["beside-fedavg"]:
            used = Tampered(grid, LATE[name][0]()) if name in LATE else grid
            row["fedavg"] = outcome(FedAvg(min_available_nodes=10, fraction_evaluate=0.0), used, name, rounds)
        told[name] = row
    path.write_text(json.dumps(told, indent=1))
