"""``mabrfl demo``: MAB-RFL beside plain averaging on the digits, while three in ten clients attack."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from mabrfl.cli import run as run_command
from mabrfl.cli.execution import execute
from mabrfl.cli.once import INTEGER
from mabrfl.cli.run_summary import comparison, show_interruption
from mabrfl.cli.stopping import Stopped
from mabrfl.config import load_config, resolve
from mabrfl.errors import require
from mabrfl.recording import RunFolder
from mabrfl.recording.evaluation import attacker_ids
from mabrfl.recording.ownership import PICTURES, holds_run, reserved
from mabrfl.runs import RunResult

DEFENSES = ("fedavg", "mab-rfl")

# Inner product manipulation reverses the plain mean at this share of attackers: the clearest contrast.
SCENE: dict[str, Any] = {"dataset": "digits", "attack": "ipm", "attackers": 0.3}


def demo(
    out: Annotated[Path | None, typer.Option(help="Folder for the results (default: a new one in runs/).")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the results in --out.")] = False,
    rounds: Annotated[int, typer.Option(**INTEGER, help="How many rounds.")] = 30,
    seed: Annotated[int, typer.Option(**INTEGER, help="Root of all randomness.")] = 0,
) -> None:
    """Show MAB-RFL against FedAvg: embedded data, no network, 30 % attackers, well under 90 seconds."""
    with nullcontext(out) if out is not None else reserved(Path("runs") / "demo") as folder:
        _demo(folder, force=force, rounds=rounds, seed=seed)


def _demo(folder: Path, *, force: bool, rounds: int, seed: int) -> None:
    for module in ("torch", "matplotlib"):
        require(module, "the demo")
    console = Console()
    # The pictures of both runs lie beside their folders.
    ours = any(holds_run(folder / defense) for defense in DEFENSES)
    RunFolder.check(folder, force=force, replaced=() if ours else PICTURES)
    results = [_run(defense, folder, console, force=force, rounds=rounds, seed=seed) for defense in DEFENSES]
    pictures = _draw(results, folder)
    console.print()
    console.print(comparison(results))
    console.print(Text("The same clients, data, attack and seed for both. Pictures and records:"), soft_wrap=True)
    for path in (*pictures, *(folder / defense for defense in DEFENSES)):
        console.print(Text(f"  {path}"), soft_wrap=True)
    environment = Path(sys.prefix)
    if sys.prefix not in (sys.base_prefix, os.environ.get("VIRTUAL_ENV")):
        place = environment.relative_to(Path.cwd()) if environment.is_relative_to(Path.cwd()) else environment
        console.print(Text(f"To have the command mabrfl in this shell: . {place}/bin/activate"), soft_wrap=True)


def _run(defense: str, folder: Path, console: Console, *, force: bool, rounds: int, seed: int) -> RunResult:
    config = resolve(load_config(None, {**SCENE, "defense": defense, "rounds": rounds, "seed": seed}))
    path = folder / defense
    console.print()
    try:
        return execute(config, path, build=run_command.build_simulation, console=console, force=force)
    except (KeyboardInterrupt, Stopped):
        show_interruption(path)
        raise


def _draw(results: list[RunResult], folder: Path) -> list[Path]:
    from mabrfl.reports import run_pictures as plotting  # Matplotlib takes a second to import

    config = results[-1].config
    scene = f"{config.dataset}, {config.attack} by {config.num_attackers} of {config.clients} clients"
    curves = plotting.accuracy_figure({result.config.defense: result.records for result in results}, title=scene)
    records = results[-1].records
    clients = plotting.clients_figure(
        records, attacker_ids(records), config.clients, title=f"{config.defense} on {scene}"
    )
    saved = [*plotting.save(curves, folder / "accuracy"), *plotting.save(clients, folder / "clients")]
    return [path for path in saved if path.suffix == ".png"]
