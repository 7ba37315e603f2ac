"""Results made by hand, for the tests of tables, figures and reports: cells, and folders as a sweep leaves them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from mabrfl.config import ResolvedConfig, RunConfig, config_hash, dump_toml, resolve
from mabrfl.recording import RoundRecord, RunFolder, summarize
from mabrfl.sweeps.results import Cell
from mabrfl.sweeps.series import per_client, per_round
from mabrfl.updates import Verdict

MANIFEST = {
    "versions": {"mabrfl": "0.1.0", "python": "3.11.7", "torch": "2.4.0"},
    "machine": "x86_64",
    "cpu_count": 2,
    "source": {"commit": "0123456789abcdef" * 2, "dirty": False},
    "started": "2026-01-02T03:04:05+00:00",
    "ended": "2026-01-02T03:05:05+00:00",
    "arguments": ["sweep", "x.toml"],
}


LAPTOP: dict[str, Any] = {"clients": 50, "rounds": 40}
"""On top of the others: the scale at which runs are compared with the paper's figures."""


def run_config(**settings: Any) -> ResolvedConfig:
    """Return a run on MNIST at a small scale, with these settings on top."""
    small: dict[str, Any] = {"dataset": "mnist", "model": "mnist-cnn-small", "clients": 10, "rounds": 4, "workers": 1}
    return resolve(RunConfig(**{**small, "preset": "paper", **settings}))


def records_of(config: ResolvedConfig, final: float) -> list[RoundRecord]:
    """Return rounds that end at this accuracy: attackers are selected until round 2 and caught in round 2.

    Client 0 is honest, and rejected in round 1. In the last two rounds nobody but the honest is selected.
    """
    attackers = frozenset(range(config.clients - config.num_attackers, config.clients))
    honest = [client for client in range(config.clients) if client not in attackers]
    records = []
    for number in range(1, config.rounds + 1):
        selected = tuple(range(config.clients)) if number <= 2 else tuple(honest)
        rejected = {1: {0}, 2: attackers}.get(number, set())
        verdicts = {
            client: Verdict(client not in rejected, "sybil" if client in rejected else "accepted")
            for client in selected
        }
        records.append(
            RoundRecord(
                number,
                final - 10.0 * (config.rounds - number),
                1.0 / number,
                selected,
                verdicts,
                reputation={
                    client: (1.0, 3.0) if client in attackers else (3.0, 1.0) for client in range(config.clients)
                },
                attackers=attackers,
                events=("warm-up: 1 of 2",) if number == 1 else (),
                facts={"largest_cosine": 0.5 / number, "largest_distance": 2.0 / number, "note": "words", "flag": True},
                seconds={"train": 0.5, "evaluate": 0.25},
                per_class=(100.0, 75.0),
                confusion=((5, 0), (1, 3)),
            )
        )
    return records


def make_cell(
    final: float | None = 90.0, status: str = "done", axes: dict[str, Any] | None = None, **settings: Any
) -> Cell:
    """Return a cell without a folder."""
    config = run_config(**settings)
    records = records_of(config, final) if status == "done" and final is not None else []
    summary = summarize(records_of(config, final or 0.0), config, 60.0) if status == "done" else None
    if summary is not None and final is None:
        summary["final_accuracy"] = None
    return Cell(
        key=config_hash(config),
        config=config.model_dump(mode="json"),
        axes=axes or {},
        status=status,  # type: ignore[arg-type]
        summary=json.loads(json.dumps(summary)),
        error={"error": "the worker died", "kind": "WorkerError", "at": "2026-01-02T03:04:05+00:00"}
        if status == "failed"
        else None,
        manifest={name: value for name, value in MANIFEST.items() if name != "arguments"},
        series=per_round(records),
        clients=per_client(records),
    )


def write_run(folder: Path, config: ResolvedConfig, final: float, *, rounds: int | None = None) -> None:
    """Write the folder of a run; with fewer rounds than planned it is not finished."""
    records = records_of(config, final)[:rounds]
    with RunFolder.create(folder) as run:
        run.start(config=dump_toml(config), manifest={**MANIFEST, "config_hash": config_hash(config)})
        for record in records:
            run.append(record)
        if len(records) == config.rounds:
            run.finish(summarize(records, config, 60.0))


def write_sweep(path: Path, runs: Iterable[tuple[dict[str, Any], float | str | None]]) -> Path:
    """Write a sweep's folder: settings and final accuracy of each run, or 'failed', 'running', or None: missing."""
    plan = []
    for settings, outcome in runs:
        config = run_config(**settings)
        key = config_hash(config)
        plan.append({"key": key, "config": config.model_dump(mode="json"), "axes": settings})
        folder = path / "cells" / key[:16]
        if isinstance(outcome, float):
            write_run(folder, config, outcome)
        elif outcome == "running":
            write_run(folder, config, 90.0, rounds=2)
        elif outcome == "failed":
            write_run(folder, config, 90.0, rounds=1)
            error = {"error": "the worker died", "kind": "WorkerError", "at": "2026-01-02T03:04:05+00:00"}
            (folder / "failed.json").write_text(json.dumps(error))
    path.mkdir(parents=True, exist_ok=True)
    (path / "cells.json").write_text(json.dumps(plan))
    (path / "sweep.toml").write_text('name = "small"\n')
    return path


def small_sweep(**settings: Any) -> Sequence[tuple[dict[str, Any], float | str | None]]:
    """Return a table with two shares of attackers, three defenses and two seeds, and something of every state."""
    lie = {"attack": "lie", "attackers": 0.3}
    runs: list[tuple[dict[str, Any], float | str | None]] = [
        ({"defense": "krum"}, 91.0),
        ({"defense": "mab-rfl"}, 97.0),
        ({"defense": "fedavg"}, 98.0),
        ({"defense": "krum", **lie}, 80.0),
        ({"defense": "krum", **lie, "seed": 1}, "failed"),
        ({"defense": "median", **lie}, "running"),
        ({"defense": "faba", **lie}, None),
        ({"defense": "mab-rfl", **lie}, 96.0),
        ({"defense": "mab-rfl", **lie, "seed": 1}, 97.0),
    ]
    return [({**own, **settings}, outcome) for own, outcome in runs]
