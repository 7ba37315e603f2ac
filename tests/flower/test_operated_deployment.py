"""An operator's work on a deployment that runs: ban, forgive, a lost key, an upgrade, and the rows that they leave."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from flower_processes import wait_for
from flower_secure import Secure
from mabrfl.cli.main import main
from mabrfl.recording.audit import verify
from mabrfl.recording.status import strategy_is_running
from soak import APP, task

pytestmark = pytest.mark.slow

SECONDS = 900.0


class Operated(Secure):
    """A deployment, and what its operator does."""

    def begin(self, **config):
        """Start the app; it has more rounds than anybody waits for."""
        folder = self.home
        files = {"data": folder / "digits.npz", "state_dir": folder / "state", "alerts": folder / "alerts"}
        settings = {"rounds": 10_000, "nodes": 3, "head": str(folder / "head"), **config}
        return self.submit(app=APP, **{name: str(path) for name, path in files.items()}, **settings)

    def decide(self, action, k, *words):
        """Decide something, and wait until the running server has written its row."""
        before = len(self.rows("state", "decision"))
        target = self.identities[k]
        assert main(["federation", str(self.home / "state"), action, target, *words, "--by", "Ada"]) == 0
        wait_for(action, lambda: len(self.rows("state", "decision")) > before, SECONDS)
        return self.rows("state", "decision")[-1]

    def invited(self, k):
        """The rounds to which a node was invited."""
        return [row["round"] for row in self.rows("state") if row["client"] == self.identities[k]]

    def told(self):
        """The status that monitors read."""
        return json.loads((self.home / "state" / "status.json").read_bytes())

    def one_more_round(self):
        """Wait for a round that has not ended yet, and for its status, which is written last."""
        number = len(self.rows("state", "round")) + 1
        wait_for(f"round {number}", lambda: self.told()["round"] >= number, SECONDS)

    def stop(self, number):
        """Stop a run as an operator does, and wait until nothing uses its folder."""
        self.flwr("stop", number, "here")
        wait_for("the end of the server app", lambda: not strategy_is_running(self.home / "state"), SECONDS)

    def alerts(self):
        """What the alert command has got."""
        path = self.home / "alerts"
        return path.read_text() if path.exists() else ""

    def to_the_end(self, number):
        """Wait for a run; return what it printed, and how it ended."""
        return self.flwr("log", number, "here", "--stream", seconds=SECONDS), self.finished(number, SECONDS)

    def problem(self):
        """What is wrong with the audit, measured by the recorded hash."""
        return verify(self.home / "state" / "audit.jsonl", head=(self.home / "head").read_text().strip()).problem

    def reputations(self):
        return {client["id"]: (client["benign"], client["malicious"]) for client in self.told()["clients"]}


def test_ban_forgive_a_lost_key_and_an_upgrade_on_a_running_deployment(capsys):
    with Operated() as deployed:
        task.write_digits(deployed.home / "digits.npz")
        run = deployed.begin()
        deployed.after_round("state", 2, SECONDS)
        for k in range(4):  # so that only a ban keeps anyone out
            deployed.decide("pin", k, "--reason", "all take part")
        ban_and_forgive(deployed)
        lose_a_key(deployed)
        state, copy = deployed.home / "state", deployed.home / "copy"
        subprocess.run(["cp", "-r", str(state), str(copy)], check=True)  # while it runs
        deployed.one_more_round()
        deployed.stop(run)
        upgrade(deployed)
        assert deployed.problem() is None
        capsys.readouterr()
        main(["audit", "show", str(deployed.home / "state")])
        shown = capsys.readouterr().out
        assert "decided by Ada" in shown
        restore(deployed, copy)


def restore(deployed, copy):
    """Put an older copy back: it is refused as long as the hash of a later row is on record."""
    shutil.rmtree(deployed.home / "state")
    shutil.copytree(copy, deployed.home / "state")
    done = max(row["round"] for row in deployed.rows("state", "round"))
    told, status = deployed.to_the_end(deployed.begin(rounds=done + 1))
    assert status == "finished:failed"
    assert "no line has the hash" in told
    (deployed.home / "head").unlink()
    _, status = deployed.to_the_end(deployed.begin(rounds=done + 1))
    assert status == "finished:completed"
    assert max(row["round"] for row in deployed.rows("state", "round")) == done + 1
    assert deployed.problem() is None


def ban_and_forgive(deployed):
    ban = deployed.decide("ban", 1, "--reason", "sends garbage")
    deployed.one_more_round()
    deployed.one_more_round()
    assert max(deployed.invited(1)) < ban["round"] <= max(deployed.invited(0))
    pardon = deployed.decide("forgive", 1, "--reason", "its disk was replaced")
    assert ban["reputation_after"][0] > 1
    assert pardon["reputation_after"] == [0.5, 1.0]  # as a client that joins now
    deployed.decide("pin", 1, "--reason", "all take part")
    wait_for("an invitation after the pardon", lambda: max(deployed.invited(1)) >= pardon["round"], SECONDS)
    assert len(deployed.rows("state", "start")) == 1, "the server was started again"


def lose_a_key(deployed):
    lost = deployed.identities[3]
    deployed.kill(deployed.nodes[3])
    deployed.flwr("supernode", "unregister", deployed.node_ids[3], "here")
    new = deployed.register(3)
    deployed.nodes[3] = deployed.node(3)
    wait_for("the alert", lambda: "new-key" in deployed.alerts(), SECONDS)
    renamed = deployed.decide("rename", 3, new, "--reason", "its key was lost")
    assert renamed["reputation_after"] == renamed["reputation_before"]
    deployed.identities[3] = new
    deployed.one_more_round()
    assert new in deployed.reputations()
    assert lost not in deployed.reputations()


def upgrade(deployed):
    before, done = deployed.reputations(), len(deployed.rows("state", "round"))
    told, status = deployed.to_the_end(deployed.begin(forgive="0.5", rounds=done + 1))
    assert status == "finished:failed"
    assert "forgive (" in told
    assert len(deployed.rows("state", "round")) == done
    _, status = deployed.to_the_end(deployed.begin(forgive="0.5", rounds=done + 1, accept_changes=True))
    assert status == "finished:completed"
    changes = deployed.rows("state", "start")[-1]["accepted_changes"]
    assert changes
    assert all("forgive" in json.dumps(change) for change in changes)
    assert deployed.reputations().keys() == before.keys()
    assert deployed.invited(3)[-1] == done + 1
