"""Settings of all tests."""

import gc
import importlib
import os
import signal
import threading
from functools import cache
from pathlib import Path

import pytest

LONGEST = ("test_simulation.py", "test_deployment.py", "test_readme.py", "test_killed.py", "test_results.py")
"""Files of few long tests, some of which mostly wait: they begin, so that none of them is waited for in the end."""

# More threads only compete for the cores, and a process forked from one that has used several can hang.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"


def pytest_sessionstart():
    """Let Ctrl-C reach the processes that tests start, also if the suite runs in the background and ignores it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.disable()  # importing the tests makes no garbage, and the search for it takes a third of the time


def pytest_collection_finish():
    """Search for garbage from here on, but not among what the imports have made."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True, scope="session")
def _quick():
    """Do not wait for the disk, as what a process has written survives its end; ask git for the commit once."""
    manifest = importlib.import_module("mabrfl.recording.manifest")
    ask_once = cache(manifest.source_commit)
    ask_once(Path(manifest.__file__).resolve().parents[1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)  # which also fails if there is no such file
        patch.setattr(manifest, "source_commit", ask_once)
        yield


@pytest.fixture(scope="session")
def ready_to_fork():
    """Import and use all that a run needs, so that processes forked from this one need not."""
    importlib.import_module("mabrfl.sweeps.preload")
    killing = importlib.import_module("killing")
    mabrfl = importlib.import_module("mabrfl")
    mabrfl.simulate(mabrfl.RunConfig(**killing.TINY, rounds=1))


def pytest_collection_modifyitems(items):
    """Put the longest files first, and leave all others as they are."""
    items.sort(key=lambda item: item.path.name not in LONGEST)


def pytest_make_parametrize_id(config, val, argname):
    """Name bytes by their length: gzip writes the time into its header, and xdist needs the same names twice."""
    return f"{argname}-{len(val)}-bytes" if isinstance(val, bytes) else None
