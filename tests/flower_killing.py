"""A server app that is killed with SIGKILL at a chosen moment, over and over, each time in a process of its own.

Run as a script. ``flower_killing.py FOLDER --step N`` kills it once at every N-th write; with ``--full``, the disk
is full from that write on, and it ends with an error of ours. With
``--kills N --seed S`` it tells stories until N kills have ended a process before its end: killed at a moment, started
again, killed at another, and so on, and at last run to its end; a moment is a write or a call of a Python function.
Prints one line of JSON per story, the first one without a kill: its moments, how many of them killed, and what came out
(:func:`outcome`).
"""

from __future__ import annotations

import argparse
import errno
import gc
import hashlib
import json
import logging
import os
import random
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from flwr.app import MetricRecord

from flower_grid import MemoryGrid, evaluating, model, pretend_a_task
from mabrfl.errors import DiskError
from mabrfl.flower import MabRflStrategy, internals
from mabrfl.recording.audit import read_audit, valid_rows, verify
from mabrfl.recording.encoding import encode

WRITES = ("write", "fsync", "replace", "mkdir", "unlink")
"""How anything reaches the disk here; of a write, half arrives."""

LEAST = 50
"""Writes of a run, at the least: fewer, and the count of them has broken."""

ROUNDS = 2
NODES = range(1, 4)


def outcome(folder: Path) -> dict[str, Any]:
    """Run to the end, or go on to it, and return all that must not depend on interruptions."""

    def evaluate(number: int, arrays: Any) -> MetricRecord:
        return MetricRecord({"round": number, "sum": float(arrays["a.weight"].numpy().sum())})

    pretend_a_task()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    strategy = MabRflStrategy("paper", seed=4, min_available_nodes=len(NODES), state_dir=folder)
    grid = MemoryGrid({k: evaluating(k) for k in NODES})
    result = strategy.start(grid, model(), num_rounds=ROUNDS, timeout=600, evaluate_fn=evaluate)
    plain, arrays = encode(strategy.defense.state_dict())
    told = ("round", "client", "verdict", "reason", "evidence", "reputation_before", "reputation_after", "figures")
    rows = [row for row in valid_rows(read_audit(folder / "audit.jsonl")) if row["kind"] in ("reply", "round")]
    histories = (result.train_metrics_clientapp, result.evaluate_metrics_clientapp, result.evaluate_metrics_serverapp)
    return {
        "model": {key: _digest(array.numpy()) for key, array in result.arrays.items()},
        "defense": [plain, {name: _digest(array) for name, array in arrays.items()}],
        "histories": [{str(number): dict(record) for number, record in history.items()} for history in histories],
        "decisions": [{key: row.get(key) for key in told} for row in rows],
        "problem": verify(folder / "audit.jsonl").problem,
        "leftovers": sorted(path.name for path in folder.rglob(".*")),
    }


def _digest(array: Any) -> str:
    return hashlib.sha256(array.tobytes()).hexdigest()


Moment = tuple[str, int]
"""What is counted until the end, ``writes``, ``calls``, or the writes until the disk is ``full``, and how many."""

FULL = 28
"""The exit code of a process that says that the disk is full."""


def _in_a_process(folder: Path, moment: Moment | None, result: Path) -> bool:
    """Run in a child, ended at a moment; return whether it was."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if moment is not None:
                {"writes": _die_at_write, "calls": _die_at_call, "full": _fill_at_write}[moment[0]](moment[1])
            text = json.dumps(outcome(folder))
            sys.setprofile(None)
            if moment is None:
                result.write_text(text)
            code = 0
        except DiskError:
            code = FULL
        except BaseException as error:  # noqa: BLE001 (a child of a fork must not go on as its parent)
            os.write(2, f"{error!r}\n".encode())
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    end = FULL if moment is not None and moment[0] == "full" else -signal.SIGKILL
    if code not in (0, end):
        raise SystemExit(f"at {moment} it ended with {code}")
    return code != 0


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _die_at_call(number: int) -> None:
    left = number

    def called(frame: Any, event: str, argument: Any) -> None:
        nonlocal left
        left -= event == "call"
        if left == 0:
            _die()

    sys.setprofile(called)


def _die_at_write(number: int) -> None:
    def die(name: str, call: Any, args: Any, left: int) -> None:
        if left == 0:
            if name == "write":
                call(args[0], args[1][: len(args[1]) // 2])
            _die()

    _before_writes(number, die)


def _fill_at_write(number: int) -> None:
    def fail(name: str, call: Any, args: Any, left: int) -> None:
        if left <= 0 and name in ("write", "mkdir"):
            if name == "write":
                call(args[0], args[1][: len(args[1]) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    _before_writes(number, fail)


def _before_writes(number: int, act: Callable[[str, Any, Any, int], None]) -> None:
    """Do something before every write; it is told how many are left until the one that counts."""
    left = number

    def counted(name: str) -> Any:
        call = getattr(os, name)

        def wrapper(*args: Any, **named: Any) -> Any:
            nonlocal left
            left -= 1
            act(name, call, args, left)
            return call(*args, **named)

        return wrapper

    for name in WRITES:
        setattr(os, name, counted(name))


def _calls(folder: Path) -> int:
    """Return how many calls a run takes that nothing stops."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        calls = 0

        def called(frame: Any, event: str, argument: Any) -> None:
            nonlocal calls
            calls += event == "call"

        sys.setprofile(called)
        outcome(folder / "state-calls")
        sys.setprofile(None)
        os.write(writing, str(calls).encode())
        os._exit(0)
    os.wait()
    return int(os.read(reading, 100))


def _told(folder: Path, number: int, moments: list[Moment]) -> dict[str, Any]:
    """Tell one story."""
    place, result = folder / f"state-{number}", folder / f"result-{number}"
    kills = sum(_in_a_process(place, moment, result) for moment in moments)
    _in_a_process(place, None, result)
    return {"moments": moments, "kills": kills, **json.loads(result.read_text())}


def _at_every_write(folder: Path, step: int, kind: str) -> Iterator[dict[str, Any]]:
    point = 1
    while (told := _told(folder, point, [(kind, point)]))["kills"]:
        yield told
        point += step


def _at_random(folder: Path, kills: int, seed: str) -> Iterator[dict[str, Any]]:
    draw, calls, number, left = random.Random(seed), _calls(folder), 0, kills
    while left > 0:
        number += 1
        kinds = [draw.choice(["writes", "calls"]) for _ in range(draw.randrange(2, 5))]
        # What is gone on with is shorter than all of it.
        moments = [(kind, 1 + int(draw.random() ** 2 * (calls if kind == "calls" else LEAST))) for kind in kinds]
        told = _told(folder, number, moments)
        left -= told["kills"]
        yield told


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--step", type=int)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--seed", default="0")
    chosen = parser.parse_args()
    # Once here, and not again in every child.
    internals.available()
    MabRflStrategy("paper")
    gc.freeze()
    os.fsync = lambda file: None  # what a process has written survives its end
    if chosen.step:
        stories = _at_every_write(chosen.folder, chosen.step, "full" if chosen.full else "writes")
    else:
        stories = _at_random(chosen.folder, chosen.kills, chosen.seed)
    for told in [_told(chosen.folder, 0, []), *stories]:
        print(json.dumps(told))  # noqa: T201 (it is a script)


if __name__ == "__main__":
    main()
