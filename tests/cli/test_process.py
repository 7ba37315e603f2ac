"""What only a real process shows: signals, closed pipes, odd environments, and a user's own files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import mabrfl
from mabrfl.recording import read_rounds, read_summary
from waiting import HANGS, wait_until

# The interpreter may find the package by a relative path; these processes run elsewhere.
PATHS = [str(Path(__file__).parents[1]), str(Path(mabrfl.__file__).resolve().parents[1])]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(PATHS)}

SLOW_RUN = """
import os, sys, time
from mabrfl.cli import execution, run
from mabrfl.cli.main import main
from fake_simulation import FakeSimulation
if __name__ == "__main__":
    if "PICTURES" not in os.environ:
        execution.draw = lambda *run: None
    run.build_simulation = lambda config: FakeSimulation(config, lambda number: time.sleep(0.05))
    sys.exit(main())
"""


@contextmanager
def started(folder: Path, *arguments: str, env: dict[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    (folder / "slow_run.py").write_text(SLOW_RUN)
    process = subprocess.Popen(
        [sys.executable, "slow_run.py", *arguments],
        cwd=folder,
        env=ENVIRONMENT | (env or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="replace",
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def wait_for_rounds(folder: Path, number: int) -> None:
    path = folder / "rounds.jsonl"
    wait_until(lambda: path.exists() and path.read_text().count("\n") >= number, f"there are not {number} rounds")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_run_whose_records_stay_readable(tmp_path: Path, number: signal.Signals, code: int) -> None:
    pictures = {"PICTURES": "1"} if number == signal.SIGINT else {}
    with started(tmp_path, "run", "--rounds", "100000", "--out", "o", env=pictures) as process:
        wait_for_rounds(tmp_path / "o", 3)
        process.send_signal(number)
        _, err = process.communicate(timeout=HANGS)
    assert process.returncode == code
    assert err == "interrupted; the finished rounds are in o; go on with: mabrfl run --resume --out o\n"
    found = read_rounds(tmp_path / "o")
    summary = read_summary(tmp_path / "o")
    assert (summary["interrupted"], summary["rounds"], found.torn_line) == (True, len(found.records), None)
    assert (tmp_path / "o" / "accuracy.png").exists() is bool(pictures)


def test_a_killed_run_is_readable_too(tmp_path: Path) -> None:
    with started(tmp_path, "run", "--rounds", "100000", "--out", "o") as process:
        wait_for_rounds(tmp_path / "o", 3)
        process.kill()
        process.communicate(timeout=HANGS)
    assert len(read_rounds(tmp_path / "o").records) >= 3
    assert (tmp_path / "o" / "config.toml").exists()


@pytest.mark.parametrize("arguments", [["run", "--rounds", "100000", "--out", "o"], ["list"]])
def test_closed_standard_output_is_no_traceback(tmp_path: Path, arguments: list[str]) -> None:
    with started(tmp_path, *arguments) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        err = process.stderr.read()
        process.wait(timeout=HANGS)
    assert "Traceback" not in err
    assert "BrokenPipeError" not in err
    if "run" in arguments:
        assert process.returncode == 1
        assert read_summary(tmp_path / "o")["interrupted"] is True


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no device that is always full here")
@pytest.mark.parametrize("arguments", [["run", "--rounds", "9", "--out", "o"], ["list"]])
def test_a_full_disk_behind_standard_output_is_one_line(tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "slow_run.py").write_text(SLOW_RUN)
    with open("/dev/full", "w") as full:
        command = [sys.executable, "slow_run.py", *arguments]
        done = subprocess.run(
            command, cwd=tmp_path, env=ENVIRONMENT, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (1, "error: cannot write to standard output: No space left on device\n")
    if "run" in arguments:
        assert read_summary(tmp_path / "o")["interrupted"] is True


@pytest.mark.parametrize("arguments", ["run --rounds 2 --out o", "--help"])
def test_without_any_standard_output_a_command_does_its_work(tmp_path: Path, arguments: str) -> None:
    (tmp_path / "slow_run.py").write_text(SLOW_RUN)
    done = subprocess.run(
        ["sh", "-c", f"exec {sys.executable} slow_run.py {arguments} >&-"],
        cwd=tmp_path,
        env=ENVIRONMENT,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    if "run" in arguments:
        assert read_summary(tmp_path / "o")["interrupted"] is False


IMPATIENT = """
import pathlib, time
pathlib.Path("importing").touch()
try:
    while not pathlib.Path("signalled").exists():
        time.sleep(0.01)
except BaseException:
    pass  # as compiled modules do
raise RuntimeError("half imported")
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize(("module", "err"), [("torch", "interrupted\n"), ("typer", "")])
def test_a_signal_while_something_is_imported_ends_quietly(
    tmp_path: Path, number: signal.Signals, code: int, module: str, err: str
) -> None:
    (tmp_path / f"{module}.py").write_text(IMPATIENT)
    process = subprocess.Popen(
        [sys.executable, "-m", "mabrfl", "run", "--rounds", "1"],
        cwd=tmp_path,
        env=ENVIRONMENT | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *PATHS])},
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        wait_until((tmp_path / "importing").exists, "nothing is imported")
        process.send_signal(number)
        (tmp_path / "signalled").touch()
        _, said = process.communicate(timeout=HANGS)
    assert (process.returncode, said) == (code, err)
    assert not (tmp_path / "runs").exists()


def test_a_run_without_pictures_draws_none_and_imports_nothing_that_takes_long(tmp_path: Path) -> None:
    code = (
        "import sys; from mabrfl.cli.main import main; "
        "main(['run', '--rounds', '1', '--workers', '1', '--quiet', '--no-plots', '--out', 'r']); print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    slow = {"torch._dynamo", "torch._inductor", "sklearn", "matplotlib", "pandas", "jinja2", "flwr", "ray"}
    assert slow & set(done.stdout.split()) == set()
    assert [path for path in (tmp_path / "r").iterdir() if path.suffix in (".png", ".svg")] == []


@pytest.mark.parametrize(
    "env", [{"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "NO_COLOR": "1"}, {"TERM": "dumb", "COLUMNS": "1"}]
)
def test_plain_environments_will_do(tmp_path: Path, env: dict[str, str]) -> None:
    with started(tmp_path, "run", "--rounds", "2", "--out", "o", env=env) as process:
        out, err = process.communicate(timeout=HANGS)
    assert (process.returncode, err) == (0, "")
    assert "\x1b[" not in out


OWN = '''
"""A defense and an attack in one short file."""
import numpy as np

from mabrfl.updates import Decision


class MedianNorm:
    """Keep updates that are not much longer than the median one, and average them."""

    def __init__(self, *, factor: float = 2.0):
        self.factor = factor

    def __call__(self, cohort):
        keep = cohort.norms <= self.factor * np.median(cohort.norms)
        reasons = ["accepted" if kept else "outlier" for kept in keep]
        return Decision(weights=keep / keep.sum(), reasons=reasons)


def shout(view, scale: float = 10.0):
    """Each attacker sends its honest update backwards, and ten times as long."""
    return -scale * view.own_updates
'''


def test_a_users_own_defense_and_attack_run_from_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    assert len(OWN.splitlines()) <= 25
    command = ["run", "--defense", "own:MedianNorm", "--attack", "own:shout", "--attackers", "0.3"]
    command += ["--rounds", "2", "--workers", "1", "--set", "attack_options.scale=20.0", "--out", "o", "--quiet"]
    done = subprocess.run(
        [sys.executable, "-m", "mabrfl", *command],
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGS,
    )
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "o\n")
    records = read_rounds(tmp_path / "o").records
    assert [(record.caught, record.missed, record.honest_rejected) for record in records] == [(6, 0, 0), (6, 0, 0)]
