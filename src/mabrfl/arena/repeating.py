"""The command that repeats a run of the arena."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

import tomli_w

from mabrfl.arena.scenarios import Named, Scenario, Tier, run_settings

_OPTIONS = frozenset(
    {"dataset", "model", "defense", "preset", "selector", "attack", "attackers", "clients", "rounds", "seed"}
)
"""Settings with an option of their own on the command line; all others are given by ``--set``."""


def words(settings: Mapping[str, Any]) -> str:
    """Return settings as words of ``mabrfl run``, for a shell.

    Examples
    --------
    >>> words({"dataset": "digits", "partition.sizes": [20, 40]})
    "--dataset digits --set 'partition.sizes=[20, 40]'"
    """
    parts: list[str] = []
    for key, value in settings.items():
        if key in _OPTIONS:
            parts += [f"--{key}", str(value)]
        else:
            text = value if isinstance(value, str) and value else tomli_w.dumps({"v": value}).partition("=")[2]
            parts += ["--set", f"{key}={' '.join(text.split())}"]
    return shlex.join(parts).replace("[ ", "[").replace(", ]", "]")


def run_command(tier: Tier, column: Named, scenario: Scenario) -> str:
    """Return the command that repeats a run.

    Examples
    --------
    >>> from mabrfl.arena.scenarios import load_tier, named
    >>> command = run_command(load_tier("quick"), named("defense", "krum"), Scenario(1, "digits", 0.3, "lie"))
    >>> command[:40], command[-52:]
    ('mabrfl run --clients 30 --rounds 20 --se', '--defense krum --seed 1 --attack lie --attackers 0.3')
    """
    return f"mabrfl run {words(run_settings(tier, column, scenario))}"
