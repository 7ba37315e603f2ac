"""Settings of all tests."""

import signal
import threading

LONGEST = ("test_simulation.py", "test_results.py", "test_readme.py")
"""Files of few tests that take a minute and more: they begin, so that none of them is waited for in the end."""


def pytest_sessionstart():
    """Let Ctrl-C reach the processes that tests start, also if the suite runs in the background and ignores it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items):
    """Put the longest files first, and leave all others as they are."""
    items.sort(key=lambda item: item.path.name not in LONGEST)


def pytest_make_parametrize_id(config, val, argname):
    """Name bytes by their length: gzip writes the time into its header, and xdist needs the same names twice."""
    return f"{argname}-{len(val)}-bytes" if isinstance(val, bytes) else None
