"""Fair timing on a machine that is never quite idle: take turns, and keep each one's best."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from rich.console import Console
from rich.table import Table


def best_of(candidates: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Return the least seconds of each candidate over some rounds in which all take turns."""
    best = dict.fromkeys(candidates, float("inf"))
    for _ in range(repeats):
        for name, work in candidates.items():
            start = time.perf_counter()
            work()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def report(title: str, seconds: Mapping[str, float], *, base: str, target: float, judged: Sequence[str]) -> bool:
    """Print each time and its ratio to the base; return whether all that are judged meet the target."""
    table = Table("what", "ms", f"ratio to {base}", "target", title=title, title_justify="left")
    for column in table.columns[1:]:
        column.justify = "right"
    passed = True
    for name, value in seconds.items():
        ratio = value / seconds[base]
        verdict = ""
        if name in judged:
            passed = passed and ratio <= target
            verdict = f"<= {target:g} [{'green]met' if ratio <= target else 'red]missed'}[/]"
        table.add_row(name, f"{1000 * value:,.1f}", f"{ratio:.2f}", verdict)
    Console().print(table)
    return passed
