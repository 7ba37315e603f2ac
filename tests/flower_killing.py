"""A server app that is killed at a chosen write, over and over, each time in a process of its own.

Run as a script: ``flower_killing.py FOLDER STEP [POINT,POINT ...]``. Without points, it is killed once at every write
there is, or at every STEP-th. With them, each is one story: killed at the first point, started again, killed at the
second, and so on, and at last run to its end. Prints one line of JSON per story: its points, and what came out
(:func:`outcome`).
"""

from __future__ import annotations

import gc
import hashlib
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

from flwr.app import MetricRecord

from flower_grid import MemoryGrid, evaluating, model, pretend_a_task
from mabrfl.flower import MabRflStrategy, internals
from mabrfl.recording.audit import read_audit, valid_rows, verify
from mabrfl.recording.encoding import encode

KILLED = 9
CALLS = ("write", "fsync", "replace", "mkdir", "unlink")
"""How anything reaches the disk here; of a write, half arrives."""

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


def _in_a_process(folder: Path, point: int | None, result: Path) -> bool:
    """Run in a child, killed at a point; return whether it came to its end."""
    child = os.fork()
    if child == 0:
        try:
            if point is not None:
                _die_at(point)
            text = json.dumps(outcome(folder))
            if point is None:
                result.write_text(text)
        except BaseException as error:  # noqa: BLE001 (a child of a fork must not go on as its parent)
            sys.__stderr__.write(f"{error!r}\n")
            os._exit(1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code not in (0, KILLED):
        raise SystemExit(f"killed at {point}, it ended with {code}")
    return code == 0


def _die_at(point: int) -> None:
    left = point

    def counted(name: str) -> Any:
        call = getattr(os, name)

        def wrapper(*args: Any, **named: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                if name == "write":
                    call(args[0], args[1][: len(args[1]) // 2])
                os._exit(KILLED)
            return call(*args, **named)

        return wrapper

    for name in CALLS:
        setattr(os, name, counted(name))


def main(folder: Path, step: int, stories: list[list[int]]) -> None:
    """See the module."""
    # Once here, and not again in every child.
    internals.available()
    MabRflStrategy("paper")
    gc.freeze()
    os.fsync = lambda file: None  # what a process has written survives its end
    every = not stories
    point = 1 - step
    while every or stories:
        point += step
        points = [point] if every else stories.pop(0)
        place, result = folder / f"state-{point}", folder / f"result-{point}"
        survived = [_in_a_process(place, each, result) for each in points]
        if every and survived[0]:
            break
        _in_a_process(place, None, result)
        print(json.dumps({"points": points, **json.loads(result.read_text())}))  # noqa: T201 (it is a script)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), [[int(number) for number in story.split(",")] for story in sys.argv[3:]])
