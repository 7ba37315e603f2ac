"""Fair timing on a machine that is never quite idle: the candidates take turns, and the best time of each counts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits


def best_of(
    candidates: Mapping[str, Callable[[], object]], repeats: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Return the least seconds of each candidate over some rounds in which all take turns."""
    best = dict.fromkeys(candidates, float("inf"))
    for _ in range(repeats):
        for name, work in candidates.items():
            start = clock()
            work()
            best[name] = min(best[name], clock() - start)
    return best


@contextmanager
def on_one_core() -> Iterator[None]:
    """Hold this process to one core: where two of them share a unit, the CPU seconds of two threads count more.

    Products use one thread there, too, and so do slices. Not beside Linux.
    """
    with threadpool_limits(1):
        if not hasattr(os, "sched_setaffinity"):
            yield
            return
        cores = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(cores)})
        try:
            yield
        finally:
            os.sched_setaffinity(0, cores)


def cpu_of_all() -> float:
    """Return the CPU seconds so far of this process and of those that it has started; not beside Linux."""
    ticks, ours = 0, str(os.getpid())
    for process in Path("/proc").glob("[0-9]*"):
        try:
            fields = (process / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        if ours in (process.name, fields[1]):
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK") or time.process_time()


def report(title: str, seconds: Mapping[str, float], *, base: str, targets: Mapping[str, float]) -> bool:
    """Print each time and its ratio to the base; return whether all ratios with a target meet it."""
    table = Table("", "ms", f"ratio to {base}", "target", title=title, title_justify="left")
    for column in table.columns[1:]:
        column.justify = "right"
    passed = True
    for name, value in seconds.items():
        ratio = value / seconds[base]
        verdict = ""
        if name in targets:
            met = ratio <= targets[name]
            passed = passed and met
            verdict = f"<= {targets[name]:g} [{'green]met' if met else 'red]missed'}[/]"
        table.add_row(name, f"{1000 * value:,.1f}", f"{ratio:.2f}", verdict)
    Console().print(table)
    return passed
