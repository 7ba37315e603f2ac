from __future__ import annotations

import gzip
import io
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

from mabrfl.catalog import entry
from mabrfl.cli.main import main
from mabrfl.errors import DatasetError
from mabrfl.simulation import data
from mabrfl.simulation.data import library

pytestmark = pytest.mark.usefixtures("isolated")


@dataclass(frozen=True)
class Result:
    exit_code: int
    stdout: str
    stderr: str


def run(*arguments: str, columns: int = 300) -> Result:
    stdout, stderr = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(stdout), redirect_stderr(stderr):
        patch.setenv("COLUMNS", str(columns))
        code = main(["data", *arguments])
    return Result(code, stdout.getvalue(), stderr.getvalue())


def put_small_cifar(folder: Path) -> None:
    folder.mkdir(parents=True)
    for file in library.COLLECTIONS["cifar10"].files:
        (folder / file.name).write_bytes(bytes(3073))


def test_list_shows_every_set_and_where_it_is(isolated: Path) -> None:
    put_small_cifar(isolated / "cifar10")
    result = run("list")
    assert result.exit_code == 0
    for name in data.DATASETS:
        assert name in result.stdout
        assert entry("datasets", name).line in result.stdout
    assert str(isolated / "cifar10") in result.stdout
    assert "not here; mabrfl data fetch mnist" in result.stdout


@pytest.mark.parametrize("columns", [1, 20])
def test_list_survives_a_narrow_terminal(columns: int) -> None:
    assert run("list", columns=columns).exit_code == 0


def test_check_of_everything_does_not_mind_what_is_missing() -> None:
    result = run("check")
    assert result.exit_code == 0
    assert result.stdout.count("missing") == len(library.COLLECTIONS) - (data.locate("fashion-mnist") is not None)
    assert "embedded" in result.stdout


def test_check_of_a_missing_set_by_name_fails() -> None:
    result = run("check", "digits", "mnist")
    assert result.exit_code == DatasetError.exit_code
    assert result.stderr == "error: not usable: mnist\n"


def test_check_says_when_content_differs_and_succeeds(isolated: Path) -> None:
    put_small_cifar(isolated / "cifar10")
    result = run("check", "cifar10")
    assert result.exit_code == 0
    assert "content differs from the official files in every file" in result.stdout


def test_check_fails_on_broken_files_even_unnamed(isolated: Path) -> None:
    put_small_cifar(isolated / "cifar10")
    (isolated / "cifar10" / "data_batch_3.bin").write_bytes(gzip.compress(b"x"))
    result = run("check")
    assert result.exit_code == DatasetError.exit_code
    assert "broken" in result.stdout
    assert result.stderr == "error: not usable: cifar10\n"


@pytest.mark.parametrize("command", ["fetch", "check"])
def test_unknown_set_is_one_line_with_the_nearest_name(command: str) -> None:
    result = run(command, "minst")
    assert result.exit_code == 3
    assert result.stderr == "error: unknown data set 'minst'; did you mean 'mnist'?\n"
    assert result.stdout == ""


def test_fetch_of_digits_has_nothing_to_do() -> None:
    result = run("fetch", "digits")
    assert (result.exit_code, result.stdout) == (0, "digits: embedded, nothing to fetch\n")


def test_fetch_passes_its_options_on_and_says_where_it_put_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def fetch(name: str, **options: object) -> Path:
        calls.append((name, options))
        return tmp_path / "chosen" / "mnist"

    monkeypatch.setattr(data, "fetch", fetch)
    result = run("fetch", "mnist", "--force", "--into", str(tmp_path / "chosen"))
    assert calls == [("mnist", {"force": True, "into": tmp_path / "chosen"})]
    assert result.stdout == f"mnist: {tmp_path / 'chosen' / 'mnist'}\n"
    assert result.stderr == f"note: set MABRFL_DATA to {tmp_path / 'chosen'} to use it\n"


def test_fetch_that_fails_is_one_line_even_with_markup_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(name: str, **_: object) -> Path:
        raise DatasetError(f"{name}: [/red] [Errno -2] {'long ' * 100}end")

    monkeypatch.setattr(data, "fetch", fetch)
    result = run("fetch", "mnist", columns=40)
    assert result.exit_code == 4
    assert result.stderr == f"error: mnist: [/red] [Errno -2] {'long ' * 100}end\n"
