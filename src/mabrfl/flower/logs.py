"""The log of a strategy."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from mabrfl.errors import ConfigError, OutputError

_FLOWERS_LINE = "[ROUND %s/%s]"


_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


class JsonFormatter(logging.Formatter):
    """One line of JSON per record: time, level, logger and message, and the traceback of an error."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage().strip(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=True)


def json_logs(level: str = "INFO", path: str | Path | None = None) -> logging.Handler:
    """Write the log of Flower and of the strategy as JSON, one object per line, in place of Flower's own format.

    Parameters
    ----------
    level
        The least level that is written: DEBUG, INFO, WARNING or ERROR.
    path
        A file to append to; standard error if left out.
    """
    if str(level).upper() not in _LEVELS:
        raise ConfigError(f"level must be one of {', '.join(_LEVELS)}; got {level!r:.40}")
    try:
        handler = logging.StreamHandler() if path is None else logging.FileHandler(path, encoding="utf-8")
    except OSError as error:
        raise OutputError(f"cannot write the log to {str(path)!r}: {error.strerror}") from error
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("flwr")
    logger.handlers[:] = [handler]
    logger.setLevel(str(level).upper())
    return handler


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
