"""Processes that are started again when they end, as the units in examples/deployment say."""

from __future__ import annotations

import configparser
import contextlib
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from flower_processes import ROOT

DEPLOYMENT = ROOT / "examples" / "deployment"

Start = Callable[[], "subprocess.Popen[bytes]"]


def unit_file(name: str) -> configparser.ConfigParser:
    """Read a unit; lines that go on are joined, and names keep their capitals."""
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string((DEPLOYMENT / f"{name}.service").read_text("utf-8").replace("\\\n", ""))
    return parser


def unit_command(name: str) -> list[str]:
    """Return the words of the command of a unit."""
    return shlex.split(unit_file(name)["Service"]["ExecStart"])


@dataclass
class Unit:
    """A process under a supervisor.

    Attributes
    ----------
    name
        The unit's file, which says whether and after how many seconds it is started again.
    start
        Starts the process in a group of its own.
    starts
        When it was started, in seconds since 1970.
    """

    name: str
    start: Start
    starts: list[float] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None
    _due: float = 0.0

    def __post_init__(self) -> None:
        service = unit_file(self.name)["Service"]
        self.delay, self.always = float(service["RestartSec"]), service["Restart"] == "always"

    @property
    def running(self) -> bool:
        """Whether its process is there."""
        return self.process is not None and self.process.poll() is None

    @property
    def completed(self) -> bool:
        """Whether it has ended and is not to be started again."""
        return self.process is not None and self.process.poll() == 0 and not self.always

    def look(self) -> None:
        """Start what is to be started. What is left of the group of a process that has ended is ended first."""
        if self.running or self.completed:
            return
        if self.process is not None and not self._due:
            self._signal(signal.SIGTERM)
            self._due = time.monotonic() + self.delay
        if time.monotonic() >= self._due:
            self._signal(signal.SIGKILL)
            self.process, self._due = self.start(), 0.0
            self.starts.append(time.time())

    def kill(self) -> None:
        """End the main process as a crash does."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self.process is not None:
                os.killpg(self.process.pid, number)
