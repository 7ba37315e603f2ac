"""Damaged files: every kind of file that is read, mutated at random. A reader may refuse it, with an error of ours.

Run as a script: ``fuzzing.py [KIND ...] [--count 2000] [--seed N] [--only NUMBER]``; ``make fuzz`` does so. A mutation
is of bytes, or of a value inside the document with all checksums and hashes made right again.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import gzip
import hashlib
import json
import logging
import os
import random
import secrets
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flower_grid import MemoryGrid, evaluating, model, pretend_a_task
from mabrfl.cli import audit as audit_command
from mabrfl.config import RunConfig, config_hash, dump_toml, load_config, resolve
from mabrfl.errors import MabRflError
from mabrfl.flower import MabRflStrategy
from mabrfl.live.federation_view import FederationView
from mabrfl.live.routes import encoded
from mabrfl.live.run_view import RunView
from mabrfl.live.sweep_view import SweepView
from mabrfl.recording import RoundRecord, RunFolder, read_rounds, read_summary, summarize
from mabrfl.recording.audit import AUDIT, START, _line
from mabrfl.recording.audit_records import records_of_audit
from mabrfl.recording.checkpoint import _checksum
from mabrfl.recording.encoding import canonical_json
from mabrfl.recording.ownership import holds_run
from mabrfl.recording.requests import OperatorRequest, read_requests, write_request
from mabrfl.recording.status import read_status
from mabrfl.runs.finished import finished_summary
from mabrfl.sweeps.packing import pack
from mabrfl.sweeps.results import load_results
from mabrfl.sweeps.sweep_file import load_sweep
from mabrfl.updates import Verdict
from result_folders import write_sweep

LONGEST = 20.0
"""Seconds after which a reader counts as hanging."""

ODD = (
    None,
    True,
    -1,
    0,
    1,
    1.5,
    2**63,
    10**400,
    1e308,
    -0.0,
    "",
    "x",
    "1",
    "\x00\u202e",
    "y" * 5000,
    [],
    [[]],
    {},
    {"$array": []},
)
ODD_BYTES = (
    b"",
    b"\x00",
    b"\xff\xfe",
    b"{",
    b"]",
    b'"',
    b"\n",
    b"1e999",
    b"NaN",
    b"-1",
    b"null",
    b"[" * 3000,
    b"9" * 5000,
)
SWEEP_FILE = (
    'name = "small"\n[base]\ndataset = "digits"\nrounds = 2\n[axes]\ndefense = ["krum", "median"]\nseed = [1, 2]\n'
)


@dataclass(frozen=True)
class Kind:
    """A kind of file: the files themselves, how to read them, and how to write a mutated document."""

    files: tuple[str, ...]
    read: Callable[[Path], object]
    lines: bool = False
    seal: Callable[[Path, str, Any, random.Random], None] | None = None


class Hang(BaseException):
    """A reader did not come back."""


def strategy(folder: Path) -> MabRflStrategy:
    return MabRflStrategy("hardened", seed=4, min_available_nodes=4, state_dir=folder)


def prepare(folder: Path) -> None:
    """Write one of everything."""
    pretend_a_task()
    grid = MemoryGrid({k: evaluating(k) for k in range(1, 5)})
    strategy(folder).start(grid, model(), num_rounds=2, timeout=600)
    (folder / "lock").unlink()
    write_run(folder / "run")
    pack(folder / "run", folder / "packed.json.gz")
    write_sweep(folder / "sweep", [({"defense": "krum"}, "running"), ({"defense": "median"}, 90.0)])
    (folder / "sweep.toml").write_text(SWEEP_FILE)
    file = write_request(folder, OperatorRequest("rename", "key:a", "a new key", "Ada", "key:b"))
    file.rename(folder / "requests" / "1.json")


def write_run(folder: Path) -> None:
    """Write the folder of a finished run, without training anything."""
    config = resolve(RunConfig(dataset="digits", rounds=2, clients=4, workers=1, attack="sign-flip", attackers=0.25))
    verdicts = {0: Verdict(False, "sybil", {"norm": 2.0}), 1: Verdict(True, "accepted", {"norm": 1.0}, 0.5)}
    reputation = {0: (1.0, 2.0), 1: (2.0, 1.0)}
    records = [
        RoundRecord(k, 90.0, 0.3, (0, 1), verdicts, reputation, frozenset({0}), ("x",), {"a": 1}, {"train": 0.1})
        for k in (1, 2)
    ]
    with RunFolder.create(folder) as made:
        made.start(config=dump_toml(config), manifest={"config_hash": config_hash(config), "seed": 0})
        for record in records:
            made.append(record)
        made.finish(summarize(records, config, 1.0))


def open_state(folder: Path) -> None:
    made = strategy(folder)
    made.state.prepare(model())
    try:
        made.state.open(folder, made.config())
        made.state.take_requests()
        made.state.last_status()
        made.state.history.result(made.state.record())
        _ = made.defense.reputation
    finally:
        made.state.close()


def watch(view: RunView | SweepView | FederationView) -> None:
    """Read for the live page, which never refuses: what it cannot read, it leaves out."""
    try:
        document = json.loads(encoded(view.document()))
        if isinstance(view, SweepView):
            for cell in document["cells"]:
                watch(view.run(cell["key"]))
            return
        for client in document["clients"]:
            encoded(view.story(client["handle"], str(document["rounds"][-1])))
    except MabRflError as error:
        raise AssertionError(f"the live page refused: {error}") from error


def read_config(folder: Path) -> None:
    watch(RunView(folder / "run"))
    load_config(folder / "run" / "config.toml")


def read_plan(folder: Path) -> None:
    watch(SweepView(folder / "sweep"))
    load_results(folder / "sweep")


def read_operation(folder: Path) -> None:
    watch(FederationView(folder))
    read_status(folder)
    requests, notes = read_requests(folder)
    assert len(requests) + len(notes) == 1
    open_state(folder)


def read_audit_file(folder: Path) -> None:
    watch(FederationView(folder))
    rows, facts, problem = audit_command._read(folder / AUDIT)
    audit_command._of_client(rows, "1")
    audit_command._table(rows, facts)
    records_of_audit(rows)
    with contextlib.redirect_stdout(None):
        audit_command.verify(folder)
    if problem is not None:
        raise problem
    open_state(folder)


def read_run(folder: Path) -> None:
    watch(RunView(folder / "run"))
    holds_run(folder / "run")
    key = json.loads((folder / "run" / "manifest.json").read_text())["config_hash"]
    finished_summary(folder / "run", key)
    read_summary(folder / "run")
    summarize(read_rounds(folder / "run").records, RunConfig(dataset="digits"), 1.0)
    load_results(folder / "run")


def seal_checkpoint(path: Path, name: str, document: Any, rng: random.Random) -> None:
    if isinstance(document, dict):
        document["checksum"] = _checksum(document)
    (path / name).write_bytes(canonical_json(document))


def seal_canonically(path: Path, name: str, document: Any, rng: random.Random) -> None:
    (path / name).write_bytes(canonical_json(document))


def seal_evaluation(path: Path, name: str, document: Any, rng: random.Random) -> None:
    if isinstance(document, dict):
        content = {key: value for key, value in document.items() if key != "checksum"}
        document["checksum"] = hashlib.sha256(canonical_json(content)).hexdigest()
    (path / name).write_bytes(canonical_json(document))


def seal_audit(path: Path, name: str, document: Any, rng: random.Random) -> None:
    lines, last = [], START
    for number, row in enumerate(document, start=1):
        changed = row
        if isinstance(row, dict):
            content = {key: value for key, value in row.items() if key != "sha256"}
            if rng.random() < 0.9:
                content |= {"previous": last, "seq": number}
            line, last = _line(content)
            lines.append(line)
        else:
            lines.append(canonical_json(changed))
    (path / name).write_bytes(b"".join(lines))
    state = max((path / "checkpoint").glob("*.json"))
    saved = json.loads(state.read_bytes())
    saved["state"]["audit"] |= {"rows": len(lines), "sha256": last}
    seal_checkpoint(path, f"checkpoint/{state.name}", saved, rng)


def seal_packed(path: Path, name: str, document: Any, rng: random.Random) -> None:
    (path / name).write_bytes(gzip.compress(json.dumps(document).encode(), 1))


STATES = ("checkpoint/round-0000002.json", "checkpoint/round-0000002.safetensors", "checkpoint/round-0000001.json")
KINDS = {
    "run-config": Kind(("run/config.toml",), read_config),
    "plan": Kind(("sweep/cells.json",), read_plan),
    "sweep-file": Kind(("sweep.toml",), lambda folder: load_sweep(folder / "sweep.toml")),
    "rounds": Kind(("run/rounds.jsonl",), read_run, lines=True),
    "summary": Kind(("run/summary.json",), read_run),
    "packed-results": Kind(
        ("packed.json.gz",), lambda folder: load_results(folder / "packed.json.gz"), seal=seal_packed
    ),
    "checkpoint": Kind(STATES, open_state, seal=seal_checkpoint),
    "audit": Kind((AUDIT,), read_audit_file, lines=True, seal=seal_audit),
    "state-config": Kind(("config.json",), open_state),
    "request": Kind(("requests/1.json",), read_operation, seal=seal_canonically),
    "status": Kind(("status.json",), read_operation, seal=seal_canonically),
    "evaluation": Kind(("evaluation.json",), open_state, seal=seal_evaluation),
}


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every container in a document with every key or index of it."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in entries:
        yield value, key
        yield from places(entry)


def change_values(document: Any, rng: random.Random) -> Any:
    document = copy.deepcopy(document)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        found = list(places(document))
        if not found:
            return copy.deepcopy(rng.choice(ODD))
        parent, key = rng.choice(found)
        how = rng.random()
        if how < 0.15:
            del parent[key]
        elif how < 0.25:
            other, place = rng.choice(found)
            parent[key] = (
                copy.deepcopy(other[place])
                if place in (other if isinstance(other, dict) else range(len(other)))
                else None
            )
        elif how < 0.3 and isinstance(parent, dict):
            parent[rng.choice(("x", "$array", "$tuple", "$float"))] = parent.pop(key)
        else:
            parent[key] = copy.deepcopy(rng.choice(ODD))  # a mutation must not change the next one
    return document


def change_bytes(data: bytes, rng: random.Random) -> bytes:
    for _ in range(rng.choice((1, 1, 2, 4))):
        start = rng.randrange(len(data) + 1)
        end = min(len(data), start + rng.choice((0, 1, 1, 4, 50)))
        middle = rng.choice((*ODD_BYTES, rng.randbytes(3), data[start:end] * 2))
        data = rng.choice((data[:start] + middle + data[end:], data[:start] + middle + data[end:], data[:start]))
    return data


def mutate(folder: Path, kind: Kind, rng: random.Random) -> None:
    name = rng.choice(kind.files)
    data = (folder / name).read_bytes()
    inside = name.endswith((".json", ".jsonl", ".gz")) and rng.random() < 0.7
    if not inside:
        (folder / name).write_bytes(change_bytes(data, rng))
        if name.endswith(".safetensors"):
            document = json.loads((folder / name).with_suffix(".json").read_bytes())
            damaged = (folder / name).read_bytes()
            document["data"] |= {"bytes": len(damaged), "sha256": hashlib.sha256(damaged).hexdigest()}
            seal_checkpoint(folder, name.replace("safetensors", "json"), document, rng)
        return
    text = gzip.decompress(data) if name.endswith(".gz") else data
    document = [json.loads(line) for line in text.splitlines()] if kind.lines else json.loads(text)
    changed = change_values(document, rng)
    if kind.seal is not None and (not kind.lines or isinstance(changed, list)):
        kind.seal(folder, name, changed, rng)
    elif kind.lines:
        (folder / name).write_text(
            "".join(json.dumps(row) + "\n" for row in changed) if isinstance(changed, list) else ""
        )
    else:
        (folder / name).write_text(json.dumps(changed))


def restore(folder: Path, contents: dict[str, bytes]) -> None:
    """Put every file back as it was, and remove what a reader wrote."""
    for path in [
        path for path in folder.rglob("*") if path.is_file() and str(path.relative_to(folder)) not in contents
    ]:
        path.unlink()
    for name, data in contents.items():
        path = folder / name
        if not path.is_file() or path.read_bytes() != data:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def fuzz(folder: Path, name: str, numbers: range, seed: int) -> tuple[int, list[str]]:
    """Read mutated files; return how many were refused, and one text for each reader that failed in another way."""
    contents = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    refused, failures = 0, []
    for number in numbers:
        rng = random.Random(f"{seed}/{name}/{number}")
        mutate(folder, KINDS[name], rng)
        try:
            with limited(LONGEST):
                KINDS[name].read(folder)
        except MabRflError:
            refused += 1
        except Hang:
            failures.append(f"{name} {number} (--seed {seed}): hangs")
        except Exception:  # noqa: BLE001 (anything else than an error of ours is what is looked for)
            failures.append(f"{name} {number} (--seed {seed}):\n{traceback.format_exc()}")
        restore(folder, contents)
    return refused, failures


@contextlib.contextmanager
def prepared() -> Iterator[Path]:
    """A folder with one of everything; nothing in it needs to survive a power failure."""
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    fsync, os.fsync = os.fsync, lambda handle: None
    folder = Path(tempfile.mkdtemp())
    try:
        prepare(folder)
        yield folder
    finally:
        os.fsync = fsync
        logging.getLogger("flwr").setLevel(logging.INFO)
        shutil.rmtree(folder)


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description="Read mutated files; print every reader that fails or hangs.")
    parser.add_argument("kinds", nargs="*", choices=[*KINDS, []], help="all by default")
    parser.add_argument("--count", type=int, default=2000, help="mutations of each kind")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**9))
    parser.add_argument("--only", type=int, help="only this mutation")
    chosen = parser.parse_args()
    numbers = range(chosen.count) if chosen.only is None else range(chosen.only, chosen.only + 1)
    print(f"seed {chosen.seed}", flush=True)  # noqa: T201 (it is a script)
    total = 0
    with prepared() as folder:
        for name in chosen.kinds or KINDS:
            started = time.monotonic()
            refused, failures = fuzz(folder, name, numbers, chosen.seed)
            total += len(failures)
            print(*failures[:10], sep="\n", end="")  # noqa: T201
            seconds = time.monotonic() - started
            summary = f"{len(numbers)} read, {refused} refused, {len(failures)} failed"
            print(f"{name}: {summary}, {seconds:.0f} s", flush=True)  # noqa: T201
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
