"""How the server's work grows: the screen with the number of clients, the step with the number of parameters.

Fixed: 30 % attackers who push elsewhere, so that groups are found, taken away and searched again. The screen is that of
the 2,410 parameters of the digits' network with its layers, all clients in one round; the step is that of 50 clients.
CPU seconds, best of several.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent.parent))  # as a script, this file knows its own folder only

from benchmarks.timing import best_of

from mabrfl import Layout, MabRfl, Updates
from mabrfl.rng import generator

CLIENTS = (500, 1000, 2000, 5000)
CLIENTS_OF_PAPER = (500, 1000, 2000)
DIMENSIONS = (75_000, 300_000, 1_200_000)
COHORT, REPEATS = 50, 3
LAYOUT = Layout({"first.weight": (32, 64), "first.bias": (32,), "last.weight": (10, 32), "last.bias": (10,)})
SCREEN, STEP, MOST_SECONDS = 2.3, 1.1, 5.0
"""Targets: the exponents of the screen in n and of the step in d, and the seconds of a screen of 5,000 clients."""


def updates(clients: int, layout: Layout) -> Updates:
    """Return updates with something in common, and 30 % that have something else in common."""
    rng = generator(0, "benchmark", clients)
    matrix = rng.standard_normal((clients, layout.size), dtype=np.float32)
    common, other = rng.standard_normal((2, layout.size), dtype=np.float32)
    bad = int(0.3 * clients)
    matrix[:-bad] += common
    matrix[-bad:] += 0.5 * other - 0.5 * common
    return Updates(range(clients), matrix, layout=layout)


def seconds(preset: str, sent: Updates) -> float:
    """Return the CPU seconds of one round, the best of several by a server that knows nobody yet."""
    name = f"{preset}, {len(sent.ids)} clients"
    return best_of({name: lambda: MabRfl(preset).aggregate(sent, round=1)}, REPEATS, clock=time.process_time)[name]


def exponent(sizes: tuple[int, ...], times: list[float]) -> float:
    """Return the slope of the line through the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def measure(title: str, preset: str, sizes: tuple[int, ...], sent: list[Updates], target: float | None) -> list[float]:
    """Measure each size, and print the times and how they grow."""
    times = [seconds(preset, each) for each in sent]
    table = Table(title, *(f"{size:,}" for size in sizes), "exponent", "target", title_justify="left")
    grows = exponent(sizes, times)
    verdict = "" if target is None else f"<= {target:g} [{'green]met' if grows <= target else 'red]missed'}[/]"
    table.add_row("CPU s", *(f"{value:.3f}" for value in times), f"{grows:.2f}", verdict)
    Console().print(table)
    return times


def main() -> bool:
    """Measure, print, and return whether all targets are met."""
    screens = [updates(clients, LAYOUT) for clients in CLIENTS]
    times = measure("screen, hardened, by clients", "hardened", CLIENTS, screens, SCREEN)
    measure("screen, paper, by clients", "paper", CLIENTS_OF_PAPER, screens[: len(CLIENTS_OF_PAPER)], None)
    del screens
    by_width = []
    for width in DIMENSIONS:
        layout = Layout({"first.weight": (width - 2570,), "last.weight": (10, 256), "last.bias": (10,)})
        by_width.append(updates(COHORT, layout))
    steps = measure(f"step of {COHORT} clients, hardened, by parameters", "hardened", DIMENSIONS, by_width, STEP)
    print(f"5,000 clients: {times[-1]:.1f} CPU s, at most {MOST_SECONDS:g} wanted")
    met = (exponent(CLIENTS, times) <= SCREEN, exponent(DIMENSIONS, steps) <= STEP, times[-1] <= MOST_SECONDS)
    return all(met)


if __name__ == "__main__":
    sys.exit(not main())
