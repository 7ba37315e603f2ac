"""Updates larger than memory: two rounds of `hardened` under a limit of 4 GB, with updates and momenta on disk.

The limit is Linux's RLIMIT_DATA: it counts all memory of the process itself, and an allocation above it fails. Pages of
files (the updates, the momenta) are not counted: the kernel takes them back when it needs to. RLIMIT_AS would count
the files as well, and a limit on resident pages would count the cache. The same rounds in memory must fail.

Not part of `make bench`: it needs 25 GB of disk and some minutes. ``python benchmarks/memory.py [FOLDER]``
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parent.parent))  # as a script, this file knows its own folder only

from mabrfl import MabRfl, Updates
from mabrfl.rng import generator

LIMIT = 4 * 2**30
SHAPES = ((1_000, 1_200_000), (100, 25_000_000))
ATTACKERS = 0.3


def replies(clients: int, width: int, number: int) -> Iterator[tuple[int, NDArray[np.float32], float]]:
    """Yield the clients' updates one by one: honest ones have something in common, the attackers' oppose it."""
    common = generator(0, "benchmark").random(width, dtype=np.float32) - 0.5
    for client in range(clients):
        noise = generator(number, "benchmark", client).random(width, dtype=np.float32) - 0.5
        sign = -1 if client >= (1 - ATTACKERS) * clients else 1
        yield client, noise + sign * common, 100.0


def private_megabytes() -> float:
    """Return how much memory of its own the process has now."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon"))


def rounds(clients: int, width: int, folder: str | None, answer: Any) -> None:
    """Judge two rounds under the limit, in memory or on disk; send what they took, or the error."""
    resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT))
    done, peak = threading.Event(), [0.0]

    def watch() -> None:
        while not done.wait(0.05):
            peak[0] = max(peak[0], private_megabytes())

    threading.Thread(target=watch, daemon=True).start()
    place: dict[str, Any] = {} if folder is None else {"momenta": "disk", "momenta_folder": folder}
    try:
        shield, seconds, rejected = MabRfl(**place), 0.0, 0
        for number in (1, 2):
            if folder is None:
                sent = Updates(range(clients), np.stack([row for _, row, _ in replies(clients, width, number)]))
            else:
                sent = Updates.on_disk(replies(clients, width, number), dimension=width, folder=folder)
            start = time.process_time()
            outcome = shield.aggregate(sent, round=number)
            seconds += time.process_time() - start
            rejected += sum(not verdict.accepted for verdict in outcome.verdicts.values())
            del sent
        done.set()
        answer.send(f"{seconds / 2:.1f} CPU s a round, at most {peak[0]:,.0f} MB of its own, {rejected} rejected")
    except MemoryError:
        answer.send("MemoryError")


def start(clients: int, width: int, folder: str | None) -> str:
    """Run two rounds in a process of their own."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=rounds, args=(clients, width, folder, theirs))
    process.start()
    theirs.close()
    try:
        answer = str(ours.recv())
    except EOFError:
        answer = "ended without an answer"
    process.join()
    return answer


def main(folder: str | None = None) -> bool:
    """Measure, print, and return whether both sizes fit, and would not in memory."""
    met = True
    for clients, width in SHAPES:
        with tempfile.TemporaryDirectory(dir=folder) as place:
            on_disk = start(clients, width, place)
        in_memory = start(clients, width, None)
        print(f"{clients:,} x {width:,}: on disk {on_disk}; in memory {in_memory}", flush=True)
        met &= "rejected" in on_disk and "rejected" not in in_memory
    return met


if __name__ == "__main__":
    sys.exit(not main(*sys.argv[1:2]))
