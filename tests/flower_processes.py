"""Real Flower in real processes: SuperLink, SuperNodes, ``flwr run``; free ports, and nothing left behind."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).parent.parent
APP = ROOT / "examples" / "flower-app"
BIN = Path(sys.executable).parent
ONE_PORT = tuple(map(int, importlib.metadata.version("flwr").split(".")[:2])) >= (1, 40)
"""Whether nodes connect to the port of the SuperLink; before, the Fleet API has an address of its own."""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_for(what: str, ready: Callable[[], Any], seconds: float, every: float = 0.2) -> Any:
    """Wait until something is true, and return it."""
    deadline = time.monotonic() + seconds
    while not (found := ready()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds} s")
        time.sleep(every)
    return found


def listening(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Flower:
    """A folder, an environment, and the processes started in it; all of them end with the ``with`` block."""

    def __init__(self) -> None:
        # Not pytest's own folder: Ray's sockets need short paths.
        self.home = Path(tempfile.mkdtemp(prefix="mf"))
        self.port = free_port()
        self.fleet_port = self.port if ONE_PORT else free_port()
        self.processes: list[subprocess.Popen[bytes]] = []
        self.env = {
            **os.environ,
            "FLWR_HOME": str(self.home / "flwr"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "RAY_TMPDIR": str(self.home),
            "RAY_USAGE_STATS_ENABLED": "0",
            "OMP_NUM_THREADS": "1",
            "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}",
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")]),
        }
        self.env.pop("RAY_ADDRESS", None)
        (self.home / "flwr").mkdir()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            sys.stderr.write(self.logs())
        for process in reversed(self.processes):
            self.kill(process)
        # Whatever they started in sessions of their own has our folder in its environment.
        for pid in self.ours():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.home, ignore_errors=True)

    def ours(self) -> list[int]:
        """Every process that has this folder in its environment."""
        mark, found = f"FLWR_HOME={self.home}".encode(), []
        for place in Path("/proc").glob("[0-9]*/environ"):
            try:
                if mark in place.read_bytes():
                    found.append(int(place.parent.name))
            except OSError:
                continue
        return [pid for pid in found if pid != os.getpid()]

    def commands(self, word: str) -> list[int]:
        """Every process of ours with a word in its command."""
        found = []
        for pid in self.ours():
            with contextlib.suppress(OSError):
                if word.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
        return found

    def connect(self, address: str | None = None, certificate: Path | None = None) -> None:
        """Write the connection that ``flwr run`` uses."""
        trust = "insecure = true" if certificate is None else f'root-certificates = "{certificate}"'
        address = address or f"127.0.0.1:{self.port}"
        text = f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "{address}"\n{trust}\n'
        (self.home / "flwr" / "config.toml").write_text(text)

    def start(self, *command: str, **env: str) -> subprocess.Popen[bytes]:
        """Start a process of Flower's in a group of its own; what it prints goes to a file."""
        log = (self.home / f"{len(self.processes):02d}-{Path(command[0]).name}.log").open("wb")
        process = subprocess.Popen(
            [str(BIN / command[0]), *command[1:]],
            cwd=self.home,
            env={**self.env, **env},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        log.close()
        self.processes.append(process)
        return process

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """Kill a process with everything in its group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(600)

    def superlink(self, *options: str, port: int | None = None) -> subprocess.Popen[bytes]:
        process = self.start(
            "flower-superlink",
            *(options or ("--insecure",)),
            "--host",
            "127.0.0.1",
            "--port",
            str(port or self.port),
            *(() if ONE_PORT else ("--fleet-api-address", f"127.0.0.1:{self.fleet_port}")),
        )
        wait_for("SuperLink", lambda: listening(port or self.port), 600)
        return process

    def supernode(
        self, partition: int, of: int, *options: str, more: str = "", port: int | None = None
    ) -> subprocess.Popen[bytes]:
        return self.start(
            "flower-supernode",
            *(options or ("--insecure",)),
            "--superlink",
            f"127.0.0.1:{port or self.fleet_port}",
            "--host",
            "127.0.0.1",
            "--port",
            str(free_port()),
            "--node-config",
            f"partition-id={partition} num-partitions={of} {more}".strip(),
        )

    def flwr(self, *arguments: str, seconds: float = 600) -> str:
        """Run ``flwr ...`` to its end and return what it prints."""
        done = subprocess.run(
            [str(BIN / "flwr"), *arguments],
            cwd=self.home,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        return done.stdout + done.stderr

    def run(self, *, federation: str = "", seconds: float = 600, app: Path = APP, **config: Any) -> tuple[str, str]:
        """Run the app to its end; return what it printed and how the SuperLink says it ended.

        ``flwr run`` returns 0 also when a run failed, so the list of runs is asked.
        """
        number = self.submit(federation=federation, app=app, **config)
        return self.flwr("log", number, "here", "--stream", seconds=seconds), self.finished(number, seconds)

    def submit(self, *, federation: str = "", app: Path = APP, **config: Any) -> str:
        """Start a run and return its number."""
        settings = " ".join(f"{key.replace('_', '-')}={json.dumps(value)}" for key, value in config.items())
        extra = ["--federation-config", federation] if federation else []
        told = self.flwr("run", str(app), "here", "-c", settings, *extra)
        found = re.search(r"run (\d{6,})", told)
        assert found, told
        return found[1]

    def finished(self, number: str, seconds: float) -> str:
        return str(wait_for(f"run {number}", lambda: self.status(number), seconds, every=1.0))

    def status(self, number: str) -> str:
        """Return ``finished:...`` if a run is finished, else an empty string."""
        told = self.flwr("list", "here", "--format", "json")
        rows = json.loads(told[told.index("{") : told.rindex("}") + 1])
        text = next((row["status"] for row in rows["runs"] if str(row["run-id"]) == number), "")
        return text if text.startswith("finished") else ""

    def logs(self, lines: int = 40) -> str:
        """Return the end of everything that was printed."""
        parts: Sequence[str] = [
            f"--- {path.name}\n" + "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
            for path in sorted(self.home.glob("*.log"))
        ]
        return "\n".join(parts)
