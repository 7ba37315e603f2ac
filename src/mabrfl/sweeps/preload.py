"""Imports for the cells of a sweep, done once in the process that they are forked from."""

from __future__ import annotations

import importlib
import os
import threading

_HEAVY = (
    "mabrfl.simulation.simulator",
    "mabrfl.aggregation",
    "mabrfl.attacks",
    "mabrfl.simulation.data.digits",
    "mabrfl.defense",
    "torch.optim",
)
_WATCH_SECONDS = 0.2


def warm_up() -> None:
    """Import all modules, which takes seconds; end the process if the sweep ends before that."""
    done = threading.Event()
    watch = threading.Thread(target=_end_with_parent, args=(os.getppid(), done), daemon=True)
    watch.start()
    try:
        for name in _HEAVY:
            importlib.import_module(name)
    finally:
        # No thread may be left when cells are forked.
        done.set()
        watch.join()


def _end_with_parent(parent: int, done: threading.Event) -> None:
    while not done.wait(_WATCH_SECONDS):
        if os.getppid() != parent:
            os._exit(1)


warm_up()
