from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from result_folders import run_config, write_run


def test_watch_prints_an_address_with_a_token_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    write_run(tmp_path / "run", run_config(), 90.0, rounds=2)
    before = {file: file.read_bytes() for file in (tmp_path / "run").iterdir()}
    command = [sys.executable, "-m", "mabrfl", "watch", str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:")
        page, _, token = address.partition("?token=")
        assert len(token) >= 32
        with urllib.request.urlopen(f"{page}live?token={token}", timeout=30) as answer:
            assert json.load(answer)["done"] == 2
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    assert {file: file.read_bytes() for file in (tmp_path / "run").iterdir()} == before, "nothing was written"


def test_what_cannot_be_watched_or_listened_on_is_one_line(mabrfl: Callable[..., Any], tmp_path: Path) -> None:
    write_run(tmp_path / "run", run_config(), 90.0, rounds=1)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for arguments, message in {
            ("nowhere",): "there is no folder 'nowhere'",
            (".",): "'.' is not the folder of a run, of a sweep or of a Flower strategy; there are 'run'",
            ("run/config.toml",): "'run/config.toml' is a file",
            ("run", "--port", port): f"cannot listen on 127.0.0.1, port {port}: Address already in use",
            ("run", "--port", "70000"): "Invalid value for '--port'",
        }.items():
            done = mabrfl("watch", *arguments)
            assert done.code in (2, 5, 6)
            assert message in done.err
            assert (done.err.count("\n"), done.out) == (1, "")
