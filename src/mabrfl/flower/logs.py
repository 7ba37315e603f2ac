"""The log of a strategy."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

_FLOWERS_LINE = "[ROUND %s/%s]"


@contextmanager
def numbered_rounds(offset: int, total: int) -> Iterator[None]:
    """Let Flower's line at the start of a round have the number over all runs, not only since the last start."""

    def renumbered(record: logging.LogRecord) -> bool:
        if record.msg == _FLOWERS_LINE and isinstance(record.args, tuple) and type(record.args[0]) is int:
            record.args = (offset + record.args[0], total)
        return True

    logger = logging.getLogger("flwr")
    logger.addFilter(renumbered)
    try:
        yield
    finally:
        logger.removeFilter(renumbered)
