"""Grids with faults, and short runs on them."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import httpx
import numpy as np
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

from flower_grid import MemoryGrid, honest, model
from flower_wire import Packed
from mabrfl.flower import RobustStrategy, fetching, reply_grid
from mabrfl.recording.audit import read_audit


def run(grid, folder=None, *, rounds=1, timeout=600.0, initial=None, **options):
    strategy = RobustStrategy("fedavg", fraction_evaluate=0.0, state_dir=folder, min_available_nodes=2, **options)
    return strategy, strategy.start(grid, initial or model(), num_rounds=rounds, timeout=timeout)


def skip_waiting(monkeypatch, *, blocked=0):
    """Let the timeout pass as soon as a look at all messages has brought nothing new.

    ``blocked`` is the number of fetches that never end. The clock is real until then, so that a slow machine only
    takes longer.
    """
    clock = SimpleNamespace(skipped=0.0)
    look_once = reply_grid._Collection._look_once

    def look(collection):
        before = len(collection.waiting)
        look_once(collection)
        if len(collection.waiting) == before and len(collection.pool.busy) == blocked:
            clock.skipped += 1e6

    fake = SimpleNamespace(monotonic=lambda: time.monotonic() + clock.skipped)
    monkeypatch.setattr(reply_grid._Collection, "_look_once", look)
    monkeypatch.setattr(reply_grid, "PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr(reply_grid, "time", fake)
    monkeypatch.setattr(fetching, "time", fake)


def flat(arrays):
    return np.concatenate([array.numpy().ravel() for array in arrays.values()])


def set_aside(folder):
    rows = [row for row in read_audit(folder / "audit.jsonl") if row.get("verdict") in ("quarantined", "missing")]
    return [(row["client"], row["reason"], row["blamed"]) for row in rows]


def with_bad(bad, nodes=range(1, 6)):
    return {node: bad if node == 1 else honest(node) for node in nodes}


class Unpacking(MemoryGrid):
    """A grid that unpacks by itself what it is given in pieces."""

    def pull_messages(self, message_ids):
        found = [reply for mid in list(message_ids) for reply in self.outbox.pop(mid, [])]
        pieces = [reply for reply in found if isinstance(reply, Packed)]
        whole = [inflate_object_from_contents(reply.proto.metadata.message_id, reply.contents) for reply in pieces]
        return whole + [reply for reply in found if not isinstance(reply, Packed)]

    def push_messages(self, messages):
        ids = super().push_messages([])
        for message in messages:
            message.metadata.__dict__["_message_id"] = message.object_id
            ids.append(message.metadata.message_id)
            self.outbox[ids[-1]] = [self.nodes[message.metadata.dst_node_id](message)]
        return ids


class Stalling(MemoryGrid):
    """A grid that waits for some nodes' replies, as Flower's own does for one that is announced and not uploaded."""

    def __init__(self, nodes, stalling):
        super().__init__(nodes)
        self.stalling, self.released, self.asked = stalling, threading.Event(), []

    def pull_messages(self, message_ids):
        (mid,) = message_ids
        node = next(message.metadata.dst_node_id for message in self.sent if message.metadata.message_id == mid)
        self.asked.append(node)
        if node in self.stalling:
            self.released.wait(3600)
            return []
        return super().pull_messages([mid])


def refused(number):
    request = httpx.Request("POST", "http://link")
    return httpx.HTTPStatusError("no", request=request, response=httpx.Response(number, request=request))


class Failing(MemoryGrid):
    """A grid whose looks for one node's reply fail, so many times."""

    def __init__(self, nodes, error, times=10**6, of=1):
        super().__init__(nodes)
        self.error, self.times, self.of = error, times, of

    def pull_messages(self, message_ids):
        (mid,) = message_ids
        node = next(message.metadata.dst_node_id for message in self.sent if message.metadata.message_id == mid)
        if self.of in (node, None) and self.times:
            self.times -= 1
            raise self.error
        return super().pull_messages([mid])
