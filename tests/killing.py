"""Processes that are killed, and what is left of their runs; shared by the tests of resuming and of sweeps."""

from __future__ import annotations

import contextlib
import ctypes
import json
import mmap
import os
import random
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np

from mabrfl.config import ResolvedConfig
from mabrfl.recording import RoundRecord, RunFolder
from mabrfl.rng import generator
from mabrfl.updates import Verdict

TINY: dict[str, Any] = {
    "dataset": "digits",
    "clients": 6,
    "workers": 1,
    "training": {"epochs": 1},
    "partition": {"sizes": (8, 16)},
}
"""A run of hundredths of a second a round."""


class StubSimulation:
    """Looks like a simulation and takes no time: the weights are a chain of numbers that depend on all before."""

    def __init__(self, config: ResolvedConfig) -> None:
        self.config, self.round = config, 0
        self.dataset = SimpleNamespace(fingerprint=lambda: "f" * 64)
        self.model = SimpleNamespace(weights=np.zeros(5, np.float32), buffers=np.zeros(0, np.float32))

    def __enter__(self) -> StubSimulation:
        return self

    def __exit__(self, *details: object) -> None: ...

    def run(self) -> Iterator[RoundRecord]:
        while self.round < self.config.rounds:
            number = self.round + 1
            noise = generator(self.config.seed, "stub", number).normal(size=5).astype(np.float32)
            self.model.weights = self.model.weights * np.float32(0.9) + noise
            self.round = number
            score = float(self.model.weights.sum())
            yield RoundRecord(number, score, 1.0, (0,), {0: Verdict(True, "accepted")}, {0: (1.0 + number, 1.0)})

    def state_dict(self) -> dict[str, Any]:
        return {"round": self.round, "weights": self.model.weights.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.round, self.model.weights = state["round"], np.array(state["weights"])


class InterruptAfter:
    """An observer that ends a run as Ctrl-C does, after a round."""

    def __init__(self, round: int = 1) -> None:
        self.round = round

    def round_done(self, record: RoundRecord) -> None:
        if record.round == self.round:
            raise KeyboardInterrupt


def forked(work: Callable[[], Any]) -> int:
    """Start a copy of this process that does some work and exits; return its id."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 on threads, which the copy does not use
        child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    except BaseException:  # noqa: BLE001 (a copy must not go on as the test)
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)


def ended(child: int) -> int:
    """Wait for a process and return its exit code."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def recorded(path: Path) -> int:
    """Return how many rounds of a run are recorded."""
    rounds = path / "rounds.jsonl"
    return rounds.read_bytes().count(b"\n") if rounds.exists() else 0


def outcome(path: Path) -> dict[str, Any]:
    """Everything a finished run has written that must not depend on how often it was interrupted."""
    summary = json.loads((path / "summary.json").read_text())
    del summary["seconds"]
    records = [json.loads(line) for line in (path / "rounds.jsonl").read_text().splitlines()]
    for record in records:
        del record["seconds"]
    files = sorted(file.name for file in path.iterdir())
    config = [line for line in (path / "config.toml").read_text().splitlines() if not line.startswith("workers")]
    return {"summary": summary, "records": records, "config": config, "files": files}


SYSTEM_CALLS = ("open", "write", "fsync", "replace", "unlink", "rmdir", "mkdir", "ftruncate")
"""How anything reaches the disk here."""

SEED = os.environ.get("MABRFL_KILL_SEED", "0")
"""Of the moments at which processes are killed; another one gives others."""

MANY_KILLS, SWEEP_KILLS, STRATEGY_KILLS = 55, 200, 600
"""In ``make test-slow``: of each of four runs, of sweeps, and of a Flower strategy."""

Kind = Literal["changes", "calls", "seconds"]
Whom = Literal["itself", "first", "all"]


@dataclass(frozen=True)
class Kill:
    """A kill -9 to come.

    Attributes
    ----------
    kind
        What is counted until then: system calls that change files, Python calls of processes that have claimed the
        folder of a run, or seconds. Only the last one depends on the machine.
    after
        How many.
    whom
        The process that has come to this moment, the first one that was started, or all at once, as in a power cut.
    share
        How much of a write arrives, if it comes in the middle of one.
    """

    kind: Kind
    after: float
    whom: Whom = "itself"
    share: float = 0.0


@dataclass(frozen=True)
class Sitting:
    """How some work ended.

    Attributes
    ----------
    kill
        The one that was to come.
    killed
        Whether it came and ended a process while something was left to do.
    complete
        Whether the work was done in spite of that.
    rounds
        How many were recorded when it came.
    lengths
        How long it took.
    """

    kill: Kill | None
    killed: bool
    complete: bool
    rounds: int
    lengths: dict[Kind, float]


class Trial:
    """Work that is killed and gone on with."""

    whom: Sequence[Whom] = ("itself", "all")

    def work(self, path: Path, journal: Path) -> None:
        """Do what is left to do in a folder; the journal is for :meth:`check`."""
        raise NotImplementedError

    def rounds(self, path: Path) -> tuple[int, bool]:
        """Return how many rounds are recorded, and whether anything is left to do."""
        raise NotImplementedError

    def check(self, path: Path, journal: Path, sitting: Sitting) -> None:
        """Check what must be true after each sitting."""

    def compare(self, path: Path) -> None:
        """Compare what has come out with what comes out if nobody interrupts it."""
        raise NotImplementedError


class _Counts(ctypes.Structure):
    """In memory that a process shares with all that it forks."""

    _fields_ = tuple((name, ctypes.c_uint64) for name in ("calls", "changes", "kills", "left", "rounds", "done"))


def sit(trial: Trial, path: Path, journal: Path, kill: Kill | None) -> Sitting:
    """Have a process of its own work until it is done or killed."""
    counts = _Counts.from_buffer(mmap.mmap(-1, ctypes.sizeof(_Counts)))

    def work() -> None:
        os.setpgid(0, 0)
        _count(counts, kill, lambda: trial.rounds(path))
        trial.work(path, journal)
        sys.setprofile(None)
        counts.done = 1

    begin = time.monotonic()
    child = forked(work)
    seconds = kill.after if kill is not None and kill.kind == "seconds" else None
    try:
        code = _wait(child, seconds)
        if code is None:
            if kill is not None and kill.whom == "all":
                with contextlib.suppress(ProcessLookupError):  # it may have no group yet
                    os.killpg(child, signal.SIGKILL)
            os.kill(child, signal.SIGKILL)
            code = ended(child)
            counts.kills = code != 0 and not counts.done
            counts.rounds, counts.left = trial.rounds(path)
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        raise
    complete = code == 0 or bool(counts.done)
    assert complete or code == -signal.SIGKILL, f"it was not killed, it failed: exit code {code}"
    assert complete or counts.kills, "somebody else has killed it"
    lengths: dict[Kind, float] = {"changes": counts.changes, "calls": counts.calls, "seconds": time.monotonic() - begin}
    return Sitting(kill, bool(counts.kills and counts.left), complete, counts.rounds, lengths)


def _wait(child: int, seconds: float | None) -> int | None:
    """Wait for a process and return its exit code; None if it is still there after some time."""
    deadline = None if seconds is None else time.monotonic() + seconds
    while deadline is None or time.monotonic() < deadline:
        found, status = os.waitpid(child, 0 if deadline is None else os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    return None


def _count(counts: _Counts, kill: Kill | None, rounds: Callable[[], tuple[int, bool]]) -> None:
    """Count what this process and all that it forks do, and kill when the time has come."""
    first, claim = os.getpid(), RunFolder.__init__
    permit, giving = os.pipe()
    os.set_blocking(permit, False)
    os.write(giving, b"1")
    calls = kill.after if kill is not None and kill.kind == "calls" else 0
    changes = kill.after if kill is not None and kill.kind == "changes" else 0

    def strike() -> None:
        assert kill is not None
        try:
            os.read(permit, 1)
        except BlockingIOError:  # another process has seen the same number
            return
        counts.rounds, counts.left = rounds()
        counts.kills += 1
        if kill.whom == "all":
            os.killpg(first, signal.SIGKILL)
        os.kill(first if kill.whom == "first" else os.getpid(), signal.SIGKILL)

    def called(frame: Any, event: str, argument: Any) -> None:
        if event in ("call", "c_call"):
            # Some of several processes' calls may be lost, but no number is passed without being seen.
            counts.calls = now = counts.calls + 1
            if now == calls:
                strike()

    def claimed(self: RunFolder, *arguments: Any) -> None:
        claim(self, *arguments)
        if calls or kill is None:
            sys.setprofile(called)

    def changing(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def change(*arguments: Any, **options: Any) -> Any:
            if arguments[0] == os.devnull:  # opened by a worker that starts; it changes no file
                return real(*arguments, **options)
            counts.changes = now = counts.changes + 1
            if now != changes:
                return real(*arguments, **options)
            if name != "write":
                strike()
                return real(*arguments, **options)
            assert kill is not None
            handle, data = arguments
            written = real(handle, data[: int(kill.share * len(data))])
            strike()
            return written

        return change

    RunFolder.__init__ = claimed  # type: ignore[method-assign, assignment]
    for name in SYSTEM_CALLS:
        setattr(os, name, changing(name))


def kill_at_random(trial: Trial, place: Path, kills: int, seed: str) -> list[Sitting]:
    """Kill some work at random moments and start it again each time; when it is done, begin anew, until it is enough.

    All that was begun goes on until it is done, and is compared then with what nobody interrupted. A kill counts if it
    ended a process while something was left to do. Returns the sittings that it ended, or that went on without the
    process.
    """
    draw = random.Random(f"{SEED} {seed}")
    place.mkdir()
    longest = sit(trial, place / "whole", place / "whole.journal", None).lengths
    trial.compare(place / "whole")
    killed: list[Sitting] = []
    starts = 0
    while len(killed) < kills:
        path, chain, kill = place / f"killed-{starts}", list[Sitting](), None
        try:
            while not chain or not chain[-1].complete:
                starts += 1
                assert starts < 100 + 10 * kills, "hardly any kill comes before the end"
                kill = _drawn(draw, len(killed), longest, trial.whom) if len(killed) < kills else None
                chain.append(sit(trial, path, place / f"{starts}.journal", kill))
                trial.check(path, place / f"{starts}.journal", chain[-1])
                killed += [chain[-1]] * chain[-1].killed
            trial.compare(path)
        except BaseException as error:
            story = "".join(f"\n  {sitting}" for sitting in chain)
            error.add_note(f"MABRFL_KILL_SEED={SEED}, {path}, lengths {longest}:{story}\n  the last one drawn: {kill}")
            raise
        if len(chain) == 1:
            # Faster than the one that was measured, maybe because nothing else keeps the machine busy any more.
            longest["seconds"] = min(longest["seconds"], chain[0].lengths["seconds"])
    return killed


def _drawn(draw: random.Random, number: int, longest: dict[Kind, float], whom: Sequence[Whom]) -> Kill:
    """Draw a moment; the kinds take turns."""
    kind, part = list(longest)[number % len(longest)], draw.random()
    # What is gone on with is shorter than all of it, but for the seconds it takes to begin.
    after = longest[kind] * (part if kind == "seconds" else part**2)
    return Kill(kind, after if kind == "seconds" else int(after) + 1, draw.choice(list(whom)), draw.random())
